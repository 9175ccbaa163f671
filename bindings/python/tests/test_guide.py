"""docs/start/tensors.md and the README, as their readers run them: the programs are taken from the text."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import linkspan
import pytest

from conftest import LONG, make_pair

README = Path(__file__).parents[1] / "README.md"
PAGE = Path(__file__).parents[3] / "docs" / "start" / "tensors.md"


def programs(page: Path) -> dict[str, str]:
    """By the names that stand before them."""
    return dict(re.findall(r"<!-- python (\w+) -->\n```python\n(.*?)```", page.read_text(), re.DOTALL))


OF_README = programs(README)


def started(program: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", "-c", program, *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def meet(first: str, second: str, *words: str) -> tuple[str, str]:
    """Runs the second program with the words that the first one says at once. What both have said after that."""
    with started(first, *words) as waiting:
        try:
            assert waiting.stdout is not None
            with started(second, *waiting.stdout.readline().split()) as other:
                try:
                    said, complaints = other.communicate(timeout=120)
                    assert other.returncode == 0, said + complaints
                finally:
                    other.kill()
            heard, complaints = waiting.communicate(timeout=60)
            assert waiting.returncode == 0, heard + complaints
            return heard, said
        finally:
            # Leaving the block waits for the first one, for ever if the second never came.
            waiting.kill()


def test_the_programs_of_the_page_meet() -> None:
    of_page = programs(PAGE)
    heard, said = meet(of_page["receiver"], of_page["sender"])
    assert said.startswith("written, over ")
    assert "version 42 is here" in heard and "[0. 1. 2.]" in heard, heard


def test_the_two_programs_of_the_help_of_the_package_meet() -> None:
    text = linkspan.__doc__ or ""
    target, source = (textwrap.dedent(part) for part in re.findall(r"::\n\n((?:    .*\n|\n)+)", text))
    heard, _ = meet(target, source)
    assert heard == "bytearray(b'hello')\n"


def test_no_other_help_has_a_program() -> None:
    texts = [linkspan.__doc__, *(getattr(linkspan, name).__doc__ for name in linkspan.__all__)]
    assert "".join(text or "" for text in texts).count("::\n") == 2


def test_every_program_of_the_readme_is_run_by_a_test() -> None:
    assert README.read_text().count("```python\n") == len(OF_README)
    # "serves" and "finds" are run by test_paired.py. "gpu" wants a GPU, and is run by nothing.
    assert set(OF_README) == {"target", "source", "asyncio", "peers", "store", "serves", "finds", "pages", "gpu", "errors"}


@pytest.mark.parametrize("name", ["asyncio", "peers", "pages"])
def test_the_programs_of_the_readme_run(name: str) -> None:
    if "numpy" in OF_README[name]:
        pytest.importorskip("numpy")
    run = subprocess.run([sys.executable, "-W", "error", "-c", OF_README[name]], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout, run.stdout + run.stderr


def test_the_two_programs_of_the_first_five_minutes_meet() -> None:
    pytest.importorskip("numpy")
    heard, said = meet(OF_README["target"], OF_README["source"])
    assert said.startswith("done, over ")
    assert "notified with 7 [0. 1. 2. 3.]" in heard, heard


def test_peers_find_each_other_in_a_store_of_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    given = "import sys\nrank, host, port = int(sys.argv[1]), '127.0.0.1', int(sys.argv[2])\n"
    first = given + OF_README["store"] + "print(1, store.port)\nprint(own.next_event(60).peer)\nown.next_event(60)\n"
    second = given + OF_README["store"] + "print(peer.connected)\n"
    heard, said = meet(first, second, "0", "0")
    assert heard == "rank1\n" and said == "True\n"


def test_the_errors_of_the_readme_are_what_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = make_pair()
    weights = bytearray(32 << 20)
    remote = b.expose(bytearray(len(weights))).remote
    names = {"linkspan": linkspan, "t": a, "weights": weights, "remote": remote}
    program = OF_README["errors"]
    exec(program, names)
    assert capsys.readouterr().out == "" and b.wait_for_write(LONG) == 0
    assert "timeout=5.0" in program
    exec(program.replace("timeout=5.0", "timeout=0.0"), names)
    assert capsys.readouterr().out == "LS1101\n"
    b.close()
    # Until it is known that the peer has gone.
    with pytest.raises(linkspan.Broken):
        a.wait_for_write(LONG)
    exec(program, names)
    assert capsys.readouterr().out == ""
    a.close()
