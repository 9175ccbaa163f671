"""Lines of linkspan's log, for Python's ``logging``."""

import atexit
import logging
import os
import threading
import traceback

from ._linkspan import LogLines, forked

_lock = threading.RLock()
_logger: logging.Logger | None = None
_running: tuple[LogLines, threading.Thread] | None = None


def _run(lines: LogLines) -> None:
    while found := lines.wait():
        for level, line in found:
            if (logger := _logger) is not None:
                try:
                    logger.log(level, "%s", line)
                except Exception:
                    # As handlers of logging do: what is wrong with one line must not cost the next ones.
                    if logging.raiseExceptions:
                        traceback.print_exc()


def log_to_logging(logger: logging.Logger | str | None = "linkspan") -> None:
    """Sends the lines of linkspan's log to Python's ``logging`` in place of standard error: what was chosen and why (``INFO``), and
    what is worse than it should be (``WARNING``). Filters and levels are the logger's; ``LINKSPAN_LOG`` has no part in it.

    The threads that move data only put a line into a queue, at most 1,024 of them, without Python's lock; a thread of its own logs them,
    until the interpreter ends. A child of fork has a thread of its own for the same logger, unless its parent had used linkspan.

    Args:
        logger: A logger or its name; None sends lines to standard error again.

    Raises:
        RuntimeError: The system gives no thread.
    """
    global _logger, _running
    with _lock:
        if logger is not None:
            _logger = logging.getLogger(logger) if isinstance(logger, str) else logger
            if _running is None:
                lines = LogLines()
                thread = threading.Thread(target=_run, args=(lines,), name="linkspan-logging", daemon=True)
                try:
                    thread.start()
                except BaseException:
                    lines.close()
                    raise
                _running = lines, thread
            return
        ended, _running = _running, None
        if ended is not None:
            ended[0].close()
    if ended is not None:
        # What was said before is logged.
        ended[1].join()


def _after_fork() -> None:
    """In the child. Threads are left behind, and so is the one that logs."""
    global _running
    had, _running = _running, None
    _lock.release()
    if not forked() and had is not None:
        log_to_logging(_logger)


# Nobody else changes it during a fork.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)

# The thread must be gone before the interpreter is taken down.
atexit.register(log_to_logging, None)
