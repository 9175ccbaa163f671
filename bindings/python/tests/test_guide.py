"""docs/start/tensors.md and the README, as their readers run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PAGE = Path(__file__).parents[3] / "docs" / "start" / "tensors.md"


def test_the_programs_of_the_page_meet() -> None:
    programs = dict(re.findall(r"<!-- python (\w+) -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    command = [sys.executable, "-c", programs["receiver"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            words = receiver.stdout.readline().split()
            sender = subprocess.run(
                [sys.executable, "-c", programs["sender"], *words], capture_output=True, text=True, timeout=120
            )
            assert sender.returncode == 0 and sender.stdout.startswith("written, over "), sender.stdout + sender.stderr
            said, complaints = receiver.communicate(timeout=60)
            assert receiver.returncode == 0, complaints
            assert "version 42 is here" in said and "[0. 1. 2.]" in said, said
        finally:
            # Leaving the block waits for the receiver, for ever if the sender never came.
            receiver.kill()


PROGRAMS = re.findall(r"<!-- runs -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["asyncio", "many peers", "page lists"])
def test_the_programs_of_the_readme_run(program: str) -> None:
    if "numpy" in program:
        pytest.importorskip("numpy")
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout, run.stdout + run.stderr


def test_the_two_programs_of_the_first_five_minutes_meet() -> None:
    pytest.importorskip("numpy")
    target, source = re.findall(r"```python\n(import linkspan, numpy.*?)```", README.read_text(), re.DOTALL)[:2]
    with subprocess.Popen([sys.executable, "-c", target], stdout=subprocess.PIPE, text=True, bufsize=1, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as waiting:
        try:
            assert waiting.stdout is not None
            words = waiting.stdout.readline().split()
            wrote = subprocess.run([sys.executable, "-c", source, *words], capture_output=True, text=True, timeout=120)
            assert wrote.returncode == 0 and wrote.stdout.startswith("done, over "), wrote.stdout + wrote.stderr
            said, _ = waiting.communicate(timeout=60)
            assert "notified with 7 [0. 1. 2. 3.]" in said, said
        finally:
            waiting.kill()
