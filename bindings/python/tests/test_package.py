"""What the package says of itself, and its benchmark, which must not rot."""

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import linkspan
import pytest
from linkspan._errors import _CLASSES

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


STUB = ast.parse((Path(linkspan.__file__).parent / "_linkspan.pyi").read_text())
CLASSES = [one for one in STUB.body if isinstance(one, ast.ClassDef) and one.name in linkspan.__all__]


def stub_methods() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for one in CLASSES:
        found += [(one.name, part) for part in one.body if isinstance(part, ast.FunctionDef) and part.name[0] != "_"]
    return found


def names_in(doc: str, part: str) -> list[str]:
    """What stands before the colons of a part of a text: arguments, or errors."""
    parts = dict(re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n?)+)", doc, re.MULTILINE))
    return [one for names in re.findall(r"^    (\w[\w, ]*): ", parts.get(part, ""), re.MULTILINE) for one in names.split(", ")]


def tells(doc: str | None, arguments: list[str], raises: bool = True) -> None:
    """Whether a text has these arguments, and errors that there are."""
    assert doc and names_in(doc, "Args") == arguments
    errors = names_in(doc, "Raises")
    assert bool(errors) == raises, "nothing is said of errors" if raises else "an error of what cannot fail"
    for one in errors:
        assert issubclass(getattr(linkspan, one, None) or getattr(builtins, one), BaseException)


def arguments_of(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in function.args.args + function.args.kwonlyargs if one.arg not in ("self", "cls")]


@pytest.mark.parametrize(("name", "method"), stub_methods(), ids=lambda part: getattr(part, "name", part))
def test_every_method_tells_its_arguments_what_it_returns_and_what_it_raises(name: str, method: ast.FunctionDef) -> None:
    doc = ast.get_docstring(method)
    member = getattr(getattr(linkspan, name), method.name)
    assert doc and doc == inspect.getdoc(member), "what editors show is what help() shows"
    if inspect.isdatadescriptor(member):
        # What can be closed, and belongs to one process.
        return tells(doc, [], raises=hasattr(getattr(linkspan, name), "close"))
    returns = ast.unparse(method.returns) if method.returns else "None"
    if twin := re.match(r"As `(\w+)`, with its arguments and errors", doc):
        # The twin that blocks has the same arguments, and tells of them.
        blocking = next(one for owner, one in stub_methods() if (owner, one.name) == (name, twin[1]))
        assert arguments_of(method) == arguments_of(blocking)
    else:
        tells(doc, arguments_of(method), raises=method.name != "to_bytes")
    assert (returns == "None") != ("Returns:\n" in doc)


FUNCTIONS = [(linkspan, one) for one in STUB.body if isinstance(one, ast.FunctionDef) and one.name in linkspan.__all__]
METHODS = [(getattr(linkspan, name), one) for name, one in stub_methods() if not one.decorator_list]


@pytest.mark.parametrize(("owner", "function"), METHODS + FUNCTIONS, ids=lambda part: getattr(part, "name", getattr(part, "__name__", "")))
def test_help_shows_the_defaults_that_the_stub_has(owner: object, function: ast.FunctionDef) -> None:
    shown = inspect.signature(getattr(owner, function.name)).parameters.values()
    arguments = function.args
    defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    said = zip(arguments.args + arguments.kwonlyargs, defaults + arguments.defaults + arguments.kw_defaults, strict=True)
    meant = {one.arg: inspect.Parameter.empty if value is None else ast.literal_eval(value) for one, value in said}
    assert {one.name: one.default for one in shown} == meant


def test_what_a_timeout_leaves_behind_is_told_by_both_of_its_errors() -> None:
    timed_out, unrevoked = linkspan.TimedOut.__doc__ or "", linkspan.TimedOutUnrevoked.__doc__ or ""
    assert issubclass(linkspan.TimedOutUnrevoked, linkspan.TimedOut)
    assert "TimedOutUnrevoked" in timed_out and "``TimedOut``" in unrevoked
    assert "LINKSPAN_REVOKE_MS" in timed_out and "LINKSPAN_REVOKE_MS" in unrevoked
    table = (REPOSITORY / "docs" / "PARAMETERS.md").read_text()
    assert re.search(r"`LINKSPAN_REVOKE_MS` \|[^|]*\| `1000` ", table), "the texts say 1 second"


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.name)
def test_every_class_that_programs_make_tells_its_arguments_and_what_it_raises(one: ast.ClassDef) -> None:
    made = next((part for part in one.body if isinstance(part, ast.FunctionDef) and part.name == "__new__"), None)
    doc = ast.get_docstring(one)
    assert doc == inspect.getdoc(getattr(linkspan, one.name))
    tells(doc, arguments_of(made) if made else [], raises=made is not None)


@pytest.mark.parametrize("function", [linkspan.find_host, linkspan.find_host_async, linkspan.log_to_logging])
def test_every_function_tells_its_arguments_what_it_returns_and_what_it_raises(function: Callable[..., object]) -> None:
    stub = next((one for one in STUB.body if isinstance(one, ast.FunctionDef) and one.name == function.__name__), None)
    doc = inspect.getdoc(function)
    assert stub is None or ast.get_docstring(stub) == doc
    tells(doc, list(inspect.signature(function).parameters))
    assert ("Returns:\n" in (doc or "")) == function.__name__.startswith("find_host")


REPOSITORY = Path(__file__).parents[3]

SOURCES = [
    "bindings/python/src",
    "crates/linkspan/src",
    "crates/fabric/src/error.rs",
    "crates/fabric/src/keys.rs",
    "crates/fabric/src/params.rs",
    "crates/proto/src/conn/ops.rs",
    "crates/proto/src/handle.rs",
    "crates/proto/src/login/error.rs",
    "crates/service/src/rendezvous.rs",
    "crates/stream/src/error.rs",
    "crates/topology/src/filter.rs",
    "crates/transport/src/gpu/error.rs",
]
"""Where the errors are defined that come out of calls."""

NONE_OF_PYTHON = {
    # Grouped receives, tickets, and connections without one-sided operations.
    *("LS0011", "LS0012", "LS0015"),
    # What `lspan key` does.
    *("LS0527", "LS0528", "LS0529", "LS0530", "LS0531"),
    # The simulated GPU.
    "LS1308",
}


def test_every_code_has_a_class() -> None:
    codes: set[str] = set()
    for source in SOURCES:
        place = REPOSITORY / source
        files = place.rglob("*.rs") if place.is_dir() else [place]
        for file in files:
            if "tests" not in str(file.relative_to(REPOSITORY)):
                codes |= set(re.findall(r"\"(LS\d{4}) ", file.read_text()))
    assert len(codes) > 150 and {"LS0501", "LS1101", "LS1120", "LS1180", "LS1304"} < codes
    assert codes - set(_CLASSES) == NONE_OF_PYTHON
    classes = {one for name in linkspan.__all__ if inspect.isclass(one := getattr(linkspan, name)) and issubclass(one, Exception)}
    assert set(_CLASSES.values()) == classes - {linkspan.Error}


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
