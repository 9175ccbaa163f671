"""What the package says of itself, and its benchmark, which must not rot."""

import ast
import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path

import linkspan
import pytest

BENCH = Path(__file__).parent.parent / "bench" / "blocking.py"

RUST = Path(__file__).parents[3] / "target" / "debug" / "examples" / "blocking_bench"
"""Built by `cargo test -p linkspan`."""


@pytest.mark.parametrize("name", [name for name in linkspan.__all__ if name != "__version__"])
def test_everything_public_has_a_docstring(name: str) -> None:
    thing = getattr(linkspan, name)
    assert inspect.getdoc(thing)
    if inspect.isroutine(thing):
        return
    assert inspect.isclass(thing)
    for member, value in vars(thing).items():
        if not member.startswith("_") and (callable(value) or inspect.isdatadescriptor(value)):
            assert inspect.getdoc(value), f"{name}.{member}"


def stub_methods() -> list[tuple[str, ast.FunctionDef]]:
    tree = ast.parse((Path(linkspan.__file__).parent / "_linkspan.pyi").read_text())
    found = []
    for one in tree.body:
        if isinstance(one, ast.ClassDef) and one.name in linkspan.__all__:
            found += [(one.name, part) for part in one.body if isinstance(part, ast.FunctionDef) and part.name[0] != "_"]
    return found


@pytest.mark.parametrize(("name", "method"), stub_methods(), ids=lambda part: getattr(part, "name", part))
def test_every_method_tells_its_arguments_what_it_returns_and_what_it_raises(name: str, method: ast.FunctionDef) -> None:
    doc = ast.get_docstring(method)
    member = getattr(getattr(linkspan, name), method.name)
    assert doc and doc == inspect.getdoc(member), "what editors show is what help() shows"
    if inspect.isdatadescriptor(member):
        return
    parts = dict(re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n?)+)", doc, re.MULTILINE))
    arguments = [one.arg for one in method.args.args + method.args.kwonlyargs if one.arg != "self"]
    returns = ast.unparse(method.returns) if method.returns else "None"
    if twin := re.match(r"As `(\w+)`, with its arguments and errors", doc):
        # The twin that blocks has the same arguments, and tells of them.
        blocking = next(one for owner, one in stub_methods() if (owner, one.name) == (name, twin[1]))
        assert arguments == [one.arg for one in blocking.args.args + blocking.args.kwonlyargs if one.arg != "self"]
    else:
        assert arguments == re.findall(r"^    (\w+): ", parts.get("Args", ""), re.MULTILINE)
        raised = [one for names in re.findall(r"^    ([\w, ]+): ", parts.get("Raises", ""), re.MULTILINE) for one in names.split(", ")]
        assert raised or method.name == "to_bytes", "nothing is said of errors"
        for one in raised:
            assert issubclass(getattr(linkspan, one, None) or getattr(builtins, one), BaseException)
    assert (returns == "None") != ("Returns" in parts)


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert linkspan.__version__ == version("linkspan")


def test_the_benchmark_runs() -> None:
    command = [sys.executable, str(BENCH), "--rounds", "2", "--count", "20"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    for path in ("tcp", "shm"):
        assert f"python {path}: median " in output


def test_the_benchmark_runs_beside_rust() -> None:
    if not RUST.exists():
        pytest.skip("the Rust example is not built")
    command = [sys.executable, str(BENCH), "--rounds", "1", "--count", "20", "--rust", str(RUST)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    for path in ("tcp", "shm"):
        assert f"rust {path}: median " in output and f"python over rust, {path}: median " in output
