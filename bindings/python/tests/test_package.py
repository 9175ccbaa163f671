"""What the package says of itself, and its benchmark, which must not rot."""

import inspect
import subprocess
import sys
from pathlib import Path

import linkspan
import pytest

BENCH = Path(__file__).parent.parent / "bench" / "blocking.py"


@pytest.mark.parametrize("name", [name for name in linkspan.__all__ if name != "__version__"])
def test_everything_public_has_a_docstring(name: str) -> None:
    thing = getattr(linkspan, name)
    assert inspect.isclass(thing) and inspect.getdoc(thing)
    for member, value in vars(thing).items():
        if not member.startswith("_") and (callable(value) or inspect.isdatadescriptor(value)):
            assert inspect.getdoc(value), f"{name}.{member}"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert linkspan.__version__ == version("linkspan")


def test_the_benchmark_runs() -> None:
    command = [sys.executable, str(BENCH), "--rounds", "2", "--count", "20"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    for path in ("tcp", "shm"):
        assert f"python {path}: median " in output
