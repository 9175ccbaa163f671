"""docs/start/tensors.md, as its readers run it."""

import re
import subprocess
import sys
from pathlib import Path

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
