"""How an asyncio loop is told of operations: one descriptor for each loop, no thread and no timer for an operation."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ._errors import Aborted, Broken, Closed, ConnectFailed, InUse
from ._linkspan import Endpoint, Event, Listener, Notifier, Op, Transport, Url, find_host


class _Port:
    """What one loop awaits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._notifier = Notifier()
        # By the id of the operation. A future for each that awaits it: asyncio cancels that of a task that is cancelled.
        self._waiting: dict[int, tuple[Op[Any], list[asyncio.Future[None]]]] = {}
        loop.add_reader(self._notifier.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for token in self._notifier.drain():
            found = self._waiting.get(token)
            # It is asked again: a waker may ring for nothing, and the next look leaves a new one.
            if found is not None and found[0]._watch(self._notifier, token):
                del self._waiting[token]
                for future in found[1]:
                    if not future.done():
                        future.set_result(None)

    def until_done(self, op: Op[Any], loop: asyncio.AbstractEventLoop) -> Generator[Any, Any, None]:
        token = id(op)
        if op._watch(self._notifier, token):
            return
        future: asyncio.Future[None] = loop.create_future()
        _, futures = self._waiting.setdefault(token, (op, []))
        futures.append(future)
        try:
            yield from future.__await__()
        except asyncio.CancelledError:
            # One that a thread waits for goes on for that thread.
            with suppress(InUse):
                op.cancel()
            raise
        finally:
            futures.remove(future)
            if not futures:
                self._waiting.pop(token, None)


_ports: WeakKeyDictionary[asyncio.AbstractEventLoop, _Port] = WeakKeyDictionary()


def awaiting(op: Op[Any]) -> Generator[Any, Any, Any]:
    """What ``await op`` runs."""
    loop = asyncio.get_running_loop()
    port = _ports.get(loop)
    if port is None:
        port = _ports[loop] = _Port(loop)
    yield from port.until_done(op, loop)
    return op.wait()


_Opened = TypeVar("_Opened", Transport, Listener, Endpoint)


async def entered(opened: _Opened) -> _Opened:
    """What ``async with`` begins with."""
    return opened


async def closed(opened: Transport | Listener | Endpoint) -> None:
    """What ``async with`` ends with: closing may wait for locks that other threads have, and the loop goes on meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, opened.close)


# Seconds of one question to a host, which a thread asks: about so long it goes on after its task was cancelled.
_ASK = 1.0


async def find_host_async(host: str, timeout: float | None = 10.0) -> Url:
    """``find_host`` for an asyncio loop, which goes on meanwhile.

    Args:
        host: As for ``find_host``.
        timeout: Seconds from 0; None waits until the task is cancelled.

    Returns:
        The URL.

    Raises:
        NotPaired: This user has no key.
        ConnectFailed: No peer and no host has this name; nobody served there in time.
        BadValue: Text that names no host; a timeout below 0 or no number.
        SystemFailed, BadSetting, Forked: As for ``Transport``.
    """
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    left = timeout
    while True:
        try:
            return await loop.run_in_executor(None, find_host, host, _ASK if left is None else min(left, _ASK))
        except ConnectFailed as error:
            if until is not None:
                left = max(0.0, until - loop.time())
            # Only a host that serves nothing yet is asked again.
            if error.code != "LS0732" or left == 0:
                raise


async def notifications(transport: Transport) -> AsyncGenerator[int, None]:
    """See ``Transport.notifications``."""
    aborted = False
    while True:
        try:
            op = transport.wait_for_write_async()
            # `abort` leaves it usable. One that its endpoint has let go of is broken at once.
            aborted = aborted and op.done()
            value = await op
        except Closed:
            return
        except Aborted:
            aborted = True
            continue
        except Broken as error:
            if aborted or error.peer_closed:
                return
            raise
        aborted = False
        yield value


async def events(endpoint: Endpoint) -> AsyncGenerator[Event, None]:
    """See ``Endpoint.events``."""
    while True:
        try:
            event = await endpoint.next_event_async()
        except Closed:
            return
        yield event
