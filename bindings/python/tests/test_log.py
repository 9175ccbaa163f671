"""The library's lines in Python's logging."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import linkspan
import pytest

from conftest import LONG, make_pair


@pytest.fixture
def logged() -> Iterator[None]:
    linkspan.log_to_logging()
    yield
    linkspan.log_to_logging(None)


def revoke() -> None:
    """A receive whose time is up takes its path with it, and that is told."""
    a, b = make_pair()
    with a, b, pytest.raises(linkspan.TimedOut):
        a.recv(1, bytearray(8), timeout=0.01)


def wait_for(text: str, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    end = time.monotonic() + LONG
    while not (found := [one for one in caplog.records if text in one.getMessage()]):
        assert time.monotonic() < end, caplog.text
        time.sleep(0.001)
    return found[0]


def test_lines_reach_the_logger_and_its_level_counts(logged: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "linkspan")
    revoke()
    record = wait_for("path revoked: an operation timed out", caplog)
    assert (record.name, record.levelname) == ("linkspan", "INFO") and record.threadName == "linkspan-logging"
    linkspan.log_to_logging(logging.getLogger("other"))
    caplog.clear()
    caplog.set_level(logging.INFO, "other")
    revoke()
    assert wait_for("path revoked", caplog).name == "other"


def test_a_filter_that_raises_costs_its_line_and_no_other(
    logged: None, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "linkspan")
    raised = threading.Event()

    def once(record: logging.LogRecord) -> bool:
        if not raised.is_set():
            raised.set()
            raise ValueError("no line for me")
        return True

    logger = logging.getLogger("linkspan")
    logger.addFilter(once)
    try:
        revoke()
        assert raised.wait(LONG)
        revoke()
        wait_for("path revoked", caplog)
    finally:
        logger.removeFilter(once)
    assert "no line for me" in capsys.readouterr().err


def test_a_thread_that_cannot_be_had_leaves_the_log_as_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "linkspan")

    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(threading.Thread, "start", none)
        linkspan.log_to_logging()
    linkspan.log_to_logging(None)
    linkspan.log_to_logging()
    revoke()
    linkspan.log_to_logging(None)
    assert "path revoked" in caplog.text


def test_it_ends_when_it_is_told_and_leaves_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "linkspan")
    linkspan.log_to_logging()
    linkspan.log_to_logging()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("linkspan-logging") == 1
    revoke()
    # All that was said before is there when it returns.
    linkspan.log_to_logging(None)
    assert "path revoked" in caplog.text
    assert "linkspan-logging" not in [thread.name for thread in threading.enumerate()]
    caplog.clear()
    revoke()
    assert caplog.records == []


def test_nobody_waits_for_a_slow_handler_and_lines_that_find_no_place_are_counted(
    logged: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "linkspan")
    logs, goes_on = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logs.set()
            assert goes_on.wait(LONG)

    slow = Slow()
    logging.getLogger("linkspan").addHandler(slow)
    try:
        revoke()
        assert logs.wait(LONG)
        a, b = make_pair()
        with a, b:
            # Two lines on either side for each path, which is more than the 1,024 that wait.
            while a.epoch < 300:
                with pytest.raises(linkspan.TimedOut):
                    a.recv(1, bytearray(8), timeout=0)
        goes_on.set()
        record = wait_for("more lines were lost: 1024 waited to be logged", caplog)
        assert record.levelname == "WARNING" and len(caplog.records) <= 1024 + 100
    finally:
        goes_on.set()
        logging.getLogger("linkspan").removeHandler(slow)


def test_the_end_of_the_interpreter_is_clean() -> None:
    program = """
import linkspan, logging
logging.basicConfig(level=logging.INFO)
linkspan.log_to_logging()
a, b = linkspan.Transport("cpu"), linkspan.Transport("cpu")
a.connect(b.bind())
try:
    a.recv(1, bytearray(8), timeout=0.01)
except linkspan.TimedOut:
    pass
"""
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0 and "INFO:linkspan:path revoked" in run.stderr, run.stderr
        assert all(line.startswith("INFO:linkspan:") for line in run.stderr.splitlines()), run.stderr


FORKS = """
import linkspan, logging, os, sys
logging.basicConfig(level=logging.INFO)
linkspan.log_to_logging()
if sys.argv[1] == "used":
    linkspan.Listener()
if os.fork() == 0:
    if sys.argv[1] == "used":
        linkspan.log_to_logging("other")
    try:
        a, b = linkspan.Transport("cpu"), linkspan.Transport("cpu")
        a.connect(b.bind())
        a.recv(1, bytearray(8), timeout=0.01)
    except (linkspan.Forked, linkspan.TimedOut) as error:
        print(type(error).__name__)
    sys.exit()
print(os.wait()[1])
"""


@pytest.mark.parametrize("parent", ["used", "unused"])
def test_a_child_of_fork_logs_in_a_thread_of_its_own(parent: str) -> None:
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", FORKS, parent], capture_output=True, text=True, timeout=60)
        assert run.stdout == ("TimedOut" if parent == "unused" else "Forked") + "\n0\n", run.stderr
        assert ("INFO:linkspan:path revoked" in run.stderr) == (parent == "unused"), run.stderr
