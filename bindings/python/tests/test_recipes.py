"""The recipes, each as its users run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "recipes"


def recipe(name: str) -> str:
    pytest.importorskip("numpy", reason="numpy is not installed")
    run = subprocess.run([sys.executable, RECIPES / name], capture_output=True, text=True, timeout=150)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def moved(output: str) -> int:
    """The bytes of its one line with a figure."""
    found = re.findall(r"^\w+: (\d+) bytes in \d+\.\d{4} s, \d+\.\d\d GB/s", output, re.MULTILINE)
    assert len(found) == 1, output
    return int(found[0])


def test_weights_from_a_trainer_to_several_workers() -> None:
    output = recipe("weights.py")
    assert "5 steps from 2 shards of rows to 4 of columns, all as they should be" in output
    assert moved(output) == 5 * 2048 * 2048 * 4


def test_kv_pages_between_two_processes() -> None:
    output = recipe("kv_pages.py")
    pages = re.search(r"(\d+) pages of 8192 bytes in 12 requests, all as they should be, over ", output)
    assert pages is not None and moved(output) == int(pages[1]) * 8192, output


def test_workers_that_come_go_and_are_killed() -> None:
    output = recipe("elastic.py")
    assert "elastic: 6 steps, one worker killed, one left, all shards as they should be" in output
    assert "step 2: not to w1" in output and "to each of w0, w1, w3, w9" in output, output
    assert moved(output) == (6 * 4 - 1) * 1024 * 256 * 4
