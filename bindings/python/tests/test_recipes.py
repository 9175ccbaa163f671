"""The recipes, each as its users run it."""

import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "recipes"


def recipe(name: str, needs: str = "torch") -> str:
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    run = subprocess.run([sys.executable, RECIPES / name], capture_output=True, text=True, timeout=150)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_weights_from_a_trainer_to_several_workers() -> None:
    output = recipe("weights.py")
    assert output.count("bytes to 3 workers") == 3 and "every worker had every step" in output


def test_kv_pages_between_two_processes() -> None:
    assert "in 12 requests, all as they should be, over " in recipe("kv_pages.py")


def test_workers_that_come_go_and_are_killed() -> None:
    output = recipe("elastic.py", "numpy")
    assert "elastic: 6 steps, one worker killed, one left, all shards as they should be" in output
    assert "step 2: not to w1" in output and "to each of w0, w1, w3, w9" in output, output
