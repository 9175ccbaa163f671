"""The recipes, each as its users run it."""

import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parent.parent / "recipes"


def recipe(name: str) -> str:
    pytest.importorskip("torch", reason="torch is not installed")
    run = subprocess.run([sys.executable, RECIPES / name], capture_output=True, text=True, timeout=150)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_weights_from_a_trainer_to_several_workers() -> None:
    output = recipe("weights.py")
    assert output.count("bytes to 3 workers") == 3 and "every worker had every step" in output


def test_kv_pages_between_two_processes() -> None:
    assert "in 12 requests, all as they should be, over " in recipe("kv_pages.py")
