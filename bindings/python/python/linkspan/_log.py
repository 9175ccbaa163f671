"""Lines of linkspan's log, for Python's ``logging``."""

import atexit
import logging
import os
import threading
import traceback

from ._linkspan import log_lines, log_open

_lock = threading.Lock()
_logger: logging.Logger | None = None
_thread: threading.Thread | None = None


def _run() -> None:
    while lines := log_lines():
        for level, line in lines:
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
    until the interpreter ends.

    Args:
        logger: A logger or its name; None sends lines to standard error again.

    Raises:
        RuntimeError: The system gives no thread.
    """
    global _logger, _thread
    with _lock:
        if logger is not None:
            _logger = logging.getLogger(logger) if isinstance(logger, str) else logger
            if _thread is None:
                thread = threading.Thread(target=_run, name="linkspan-logging", daemon=True)
                log_open(True)
                try:
                    thread.start()
                except BaseException:
                    log_open(False)
                    raise
                _thread = thread
            return
        ended, _thread = _thread, None
    if ended is not None:
        log_open(False)
        # What was said before is logged.
        ended.join()


def _end() -> None:
    """The thread must be gone before the interpreter is taken down. In a child of fork it never was there."""
    if os.getpid() == _process:
        log_to_logging(None)


_process = os.getpid()
atexit.register(_end)
