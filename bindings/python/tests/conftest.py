"""Two transports in one process, on loopback; and who has Python's lock in a system call."""

import ctypes
import fcntl
import mmap
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("LINKSPAN_IFNAME", "=lo")
os.environ.setdefault("LINKSPAN_STATS_DIR", "off")

import linkspan

LONG = 30.0

Pair = tuple[linkspan.Transport, linkspan.Transport]


def make_pair() -> Pair:
    a, b = linkspan.Transport("cpu"), linkspan.Transport("cpu")
    a.connect(b.bind(), timeout=LONG)
    b.wait_connected(timeout=LONG)
    return a, b


def until_done(op: linkspan.Op[Any]) -> None:
    """Asks an operation until it has reported."""
    end = time.monotonic() + LONG
    while not op.done():
        assert time.monotonic() < end


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = make_pair()
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def pattern() -> Callable[[int, int], bytes]:
    def made(length: int, seed: int) -> bytes:
        return bytes((seed * 131 + i * 7 + (i >> 8)) & 0xFF for i in range(length))

    return made


WATCHED = """
import ctypes, mmap, struct, sys, threading, time
import linkspan

cells = memoryview(mmap.mmap(int(sys.argv[1]), 4096)).cast("Q")
TICKS, THREAD, CALL, LISTENER = range(4)


def ticks():
    while True:
        cells[TICKS] += 1


def filtered():
    # seccomp(2): whoever has the descriptor is told of each system call of this thread, and of those that it starts, and says when it
    # goes on. Not of those that the lock itself, memory and the beginning and end of threads need (x86-64's numbers).
    free = [9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 39, 56, 60, 131, 186, 202, 228, 231, 273, 309, 318, 324, 334, 435]
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for n, number in enumerate(free):
        code += struct.pack("HBBI", 0x15, len(free) - n, 0, number)
    code += struct.pack("HBBI", 0x06, 0, 0, 0x7FC00000) + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    listener = libc.syscall(317, 1, 8, program)
    cells[LISTENER] = listener if listener > 0 else 1 << 32 | ctypes.get_errno()


calls = []


def watched(name, call):
    calls.append(name)
    cells[CALL], cells[THREAD] = len(calls), threading.get_native_id()
    try:
        return call()
    except linkspan.Error:
        pass
    finally:
        cells[THREAD] = 0


def main(run):
    # Python's lock changes hands at once where it may.
    sys.setswitchinterval(1e-5)
    threading.Thread(target=ticks, daemon=True).start()
    filtered()
    run()
    print(",".join(calls), flush=True)


"""


def calls_with_the_lock_held(program: str) -> tuple[list[str], set[str]]:
    """Stops each system call of `watched(name, call)` in a process with this program, which ends with `main(run)`, for as long as another
    thread needs to run some Python.

    Returns:
        The names of all calls, and those of which a system call had Python's lock, with its number.
    """
    if os.uname().machine != "x86_64":
        pytest.skip("system calls have other numbers here")
    shared = os.memfd_create("cells")
    os.truncate(shared, 4096)
    cells = memoryview(mmap.mmap(shared, 4096)).cast("Q")
    libc = ctypes.CDLL(None, use_errno=True)
    held: set[tuple[int, int]] = set()
    command = [sys.executable, "-c", WATCHED + program, str(shared)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[shared]) as child:
        try:
            end = time.monotonic() + 3 * LONG
            while cells[3] == 0 and child.poll() is None and time.monotonic() < end:
                time.sleep(0.001)
            assert cells[3] != 0, child.communicate(timeout=LONG)
            if cells[3] >> 32:
                pytest.skip(f"the kernel tells nobody of system calls here: {os.strerror(cells[3] & 0xFFFF)}")
            process = os.pidfd_open(child.pid)
            listener = libc.syscall(438, process, ctypes.c_int(cells[3]), 0)
            if listener < 0:
                pytest.skip(f"the descriptors of another process cannot be had: {os.strerror(ctypes.get_errno())}")
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            poll.register(process, select.POLLIN)
            while not any(fd == process for fd, _ in poll.poll(1000)):
                assert time.monotonic() < end, "the program hangs"
                notice = bytearray(80)
                try:
                    fcntl.ioctl(listener, 0xC0502100, notice)
                except OSError:
                    continue
                number, thread, _, call = struct.unpack_from("QIII", notice)
                was, until = cells[0], time.monotonic() + 5
                while cells[1] == thread and cells[0] == was:
                    if time.monotonic() > until:
                        held.add((cells[2], call))
                        break
                # SECCOMP_USER_NOTIF_FLAG_CONTINUE
                try:
                    fcntl.ioctl(listener, 0xC0182101, struct.pack("QqiI", number, 0, 0, 1))
                except OSError:
                    continue
            os.close(listener)
            os.close(process)
            out, errors = child.communicate(timeout=LONG)
        finally:
            child.kill()
            os.close(shared)
    assert child.returncode == 0, errors
    names = out.strip().split(",")
    return names, {f"{names[at - 1]}: {call}" for at, call in held}
