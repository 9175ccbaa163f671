"""Memory of GPUs: device_cases.py in a process that finds stand-ins for the drivers before any real ones."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
SYS = HERE.parents[2] / "sys"

STAND_INS = [
    (SYS / "cuda/tests/fake.c", "libcuda.so.1", "-DDEVICES=1"),
    (SYS / "hip/tests/fake.c", "libamdhip64.so.7", "-DVERSION=70051831"),
]


# A call of a real driver makes system calls; those of the stand-ins take their lock.
CALLS = """
#include <pthread.h>
#include <unistd.h>
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	getppid();
	return __real_pthread_mutex_lock(m);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler for the stand-ins (Debian: gcc libc6-dev)")
def test_on_stand_ins(tmp_path: pathlib.Path) -> None:
    calls = tmp_path / "calls.c"
    calls.write_text(CALLS)
    for source, library, define in STAND_INS:
        flags = ["-std=c11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread", "-Wl,--wrap=pthread_mutex_lock", define]
        subprocess.run(["cc", *flags, str(source), str(calls), "-o", str(tmp_path / library)], check=True)
    found = os.environ.get("LD_LIBRARY_PATH")
    environment = os.environ | {"LD_LIBRARY_PATH": f"{tmp_path}:{found}" if found else str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "device_cases.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=HERE.parent)
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout[-4000:] + ran.stderr[-4000:]
