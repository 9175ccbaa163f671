"""Many peers by their names: they come, go, are killed, and are found by a store."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import linkspan
import pytest

from conftest import LONG, until_done


@pytest.fixture
def hub() -> Iterator[linkspan.Endpoint]:
    with linkspan.Endpoint("hub") as hub:
        yield hub


def kinds(endpoint: linkspan.Endpoint, count: int) -> list[tuple[str, str, int | None]]:
    """Events in the order of peers, those of one peer as they came."""
    events = [endpoint.next_event(LONG) for _ in range(count)]
    return [(one.peer, one.kind, one.value) for one in sorted(events, key=lambda one: one.peer)]


def test_one_remote_buffer_and_one_queue_for_all_peers(hub: linkspan.Endpoint) -> None:
    inbox = bytearray(8 * 4)
    remote = hub.expose(inbox, "write").remote
    workers = [linkspan.Endpoint(f"w{n}") for n in range(4)]
    for n, worker in enumerate(workers):
        peer = worker.connect("hub", hub.url if n % 2 else str(hub.url), timeout=LONG)
        peer.write(bytes([n + 1] * 8), remote[n * 8 : n * 8 + 8], notify=n, timeout=LONG)
    assert kinds(hub, 8) == [(f"w{n}", *rest) for n in range(4) for rest in [("connected", None), ("notified", n)]]
    assert inbox == bytes(n + 1 for n in range(4) for _ in range(8))
    assert hub.peers() == ["w0", "w1", "w2", "w3"] and workers[0].peers() == ["hub"]
    with pytest.raises(linkspan.TimedOut):
        hub.next_event(0)
    assert repr(hub) == "<linkspan.Endpoint 'hub' with 4 peers>".replace("'", '"')
    # Back, each by its name, and one peer's own wait takes before events do.
    back = workers[2].expose(bytearray(4)).remote
    hub.peer("w2").write(b"back", back, notify=9, timeout=LONG)
    assert workers[2].peer("hub").wait_for_write(LONG) == 9
    assert repr(workers[2].next_event(LONG)) == '<linkspan.Event connected peer="hub">'
    region = hub.expose(inbox)
    hub.unexpose(region)
    with pytest.raises(linkspan.NotExposed):
        hub.unexpose(region)
    for worker in workers:
        worker.close()
    assert [(name, kind) for name, kind, _ in kinds(hub, 4)] == [(f"w{n}", "lost") for n in range(4)]
    assert hub.peers() == []


def test_names_that_are_unknown_twice_or_wrong_say_so(hub: linkspan.Endpoint) -> None:
    with pytest.raises(linkspan.UnknownPeer, match='LS1133 endpoint "hub" has no peer "w"'):
        hub.peer("w")
    with pytest.raises(linkspan.BadValue, match="LS1134"):
        linkspan.Endpoint("two words")
    with linkspan.Endpoint("w") as worker, linkspan.Endpoint("hub") as other, linkspan.Endpoint("w") as twin:
        peer = worker.connect("hub", hub.url, timeout=LONG)
        with pytest.raises(linkspan.BadValue, match="LS1135"):
            worker.connect("hub", other.url)
        with pytest.raises(linkspan.ConnectFailed, match='is called "hub"'):
            worker.connect("hob", other.url, timeout=LONG)
        for timeout in (0.2, 2.0, LONG):
            with pytest.raises(linkspan.ConnectFailed) as refused:
                twin.connect("hub", hub.url, timeout=timeout)
            # A machine that is busy may take longer to ask.
            if "another process of this one's name" in str(refused.value):
                break
        else:
            raise AssertionError(refused.value)
        # Closing its transport removes the peer, and it may come again.
        peer.close()
        with pytest.raises(linkspan.UnknownPeer, match="it has none"):
            worker.peer("hub")
        assert worker.connect("hub", hub.url, timeout=LONG).connected
    with pytest.raises(linkspan.Closed):
        worker.peers()
    with pytest.raises(linkspan.Closed):
        worker.connect("hub", hub.url)


def test_a_store_is_asked_until_it_has_the_url(hub: linkspan.Endpoint) -> None:
    store: dict[str, str] = {}
    asked = threading.Event()

    def find(name: str) -> str | None:
        asked.set()
        return store.get(name)

    def tell() -> None:
        assert asked.wait(LONG)
        store["hub"] = str(hub.url)

    thread = threading.Thread(target=tell)
    thread.start()
    with linkspan.Endpoint("w") as worker:
        assert worker.connect("hub", find, timeout=LONG).connected
        thread.join()
        with pytest.raises(linkspan.ConnectFailed, match='nobody had the URL of peer "other" in time'):
            worker.connect("other", find, timeout=0.05)
        # What the function raises comes out.
        with pytest.raises(ZeroDivisionError):
            worker.connect("other", lambda name: str(1 // 0), timeout=LONG)
        with pytest.raises(linkspan.UrlError):
            worker.connect("other", lambda name: "nonsense", timeout=LONG)


def test_a_store_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True)

    def find(name: str) -> str | None:
        return store.get(f"linkspan/{name}").decode() if store.check([f"linkspan/{name}"]) else None

    with linkspan.Endpoint("hub") as hub, linkspan.Endpoint("w") as worker:
        store.set(f"linkspan/{hub.name}", str(hub.url))
        assert worker.connect("hub", find, timeout=LONG).connected


def test_events_are_awaited(hub: linkspan.Endpoint) -> None:
    remote = hub.expose(bytearray(8)).remote

    async def worker(name: str) -> None:
        async with linkspan.Endpoint(name) as own:
            peer = await own.connect_async("hub", hub.url, timeout=LONG)
            for value in range(3):
                await peer.write_async(b"x", remote, notify=value, timeout=LONG)
            await peer.recv_async(1, bytearray(1), timeout=LONG)

    async def main() -> None:
        got: dict[str, list[int | None]] = {}
        lost = 0
        async with asyncio.TaskGroup() as group:
            for n in range(5):
                group.create_task(worker(f"w{n}"))
            async for event in hub.events():
                got.setdefault(event.peer, []).append(event.value)
                if event.value == 2:
                    group.create_task(hub.peer(event.peer).send_async(1, b"!", timeout=LONG))
                lost += event.kind == "lost"
                if lost == 5:
                    break
        assert got == {f"w{n}": [None, 0, 1, 2, None] for n in range(5)}
        # One whose wait runs out, and the end of all.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await hub.next_event_async()
        waits = asyncio.create_task(hub.next_event_async())
        await asyncio.sleep(0)
        await asyncio.to_thread(hub.close)
        with pytest.raises(linkspan.Closed):
            await waits

    asyncio.run(asyncio.wait_for(main(), LONG))


def test_an_event_that_nobody_has_read_is_not_lost_with_the_operation(hub: linkspan.Endpoint) -> None:
    remote = hub.expose(bytearray(8)).remote

    async def cancelled() -> None:
        op = hub.next_event_async()
        task = asyncio.create_task(op)
        await asyncio.sleep(0)
        peer.write(b"x", remote, notify=2, timeout=LONG)
        # It has the event, and its task has not run since.
        until_done(op)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with linkspan.Endpoint("w") as worker:
        peer = worker.connect("hub", hub.url, timeout=LONG)
        op = hub.next_event_async()
        until_done(op)
        assert op.cancel() is False
        with pytest.raises(linkspan.Aborted):
            op.wait()
        again = hub.next_event_async()
        until_done(again)
        del again
        assert hub.next_event(LONG).kind == "connected"
        asyncio.run(cancelled())
        read = hub.next_event_async()
        assert read.wait().value == 2 and read.wait().value == 2
        assert read.cancel() is False and read.wait().value == 2
        with pytest.raises(linkspan.TimedOut):
            hub.next_event(0)


def test_the_iterator_over_events_ends_with_the_endpoint(hub: linkspan.Endpoint) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.01, hub.close)
        async for event in hub.events():
            raise AssertionError(event)

    asyncio.run(asyncio.wait_for(main(), LONG))


WORKER = """
import linkspan, sys, time
with linkspan.Endpoint(sys.argv[1]) as own:
    inbox = bytearray(1 << 20)
    remote = own.expose(inbox).remote
    own.connect("hub", sys.argv[2], timeout=30)
    print(remote.to_bytes().hex(), flush=True)
    sys.stdin.read()
"""


def start(name: str, hub: linkspan.Endpoint) -> tuple[subprocess.Popen[str], linkspan.RemoteBuffer]:
    command = [sys.executable, "-c", WORKER, name, str(hub.url)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, linkspan.RemoteBuffer.from_bytes(bytes.fromhex(process.stdout.readline()))


@pytest.mark.parametrize("call", ["write_batch", "read_batch", "write_pages", "read_pages"])
def test_a_peer_killed_in_a_batch_is_named_and_another_takes_its_name(hub: linkspan.Endpoint, call: str) -> None:
    guard, size = b"guard" * 1000, 1 << 20
    local = bytearray(guard + bytes(size) + guard)
    view = linkspan.Memory(local)[len(guard) : len(guard) + size]

    def move(peer: linkspan.Transport, remote: linkspan.RemoteBuffer) -> None:
        if call.endswith("batch"):
            getattr(peer, call)([(view[at : at + (1 << 16)], remote[at : at + (1 << 16)]) for at in range(0, size, 1 << 16)] * 4, timeout=LONG)
        elif call == "write_pages":
            peer.write_pages(view.pages(4096), None, remote.pages(4096), None, timeout=LONG)
        else:
            peer.read_pages(view.pages(4096), None, remote.pages(4096), None, timeout=LONG)

    for _ in range(2):
        process, remote = start("victim", hub)
        with process:
            try:
                assert hub.next_event(LONG).kind == "connected"
                peer = hub.peer("victim")
                move(peer, remote)
                threading.Timer(0.02, process.kill).start()
                with pytest.raises(linkspan.Broken, match='peer "victim"'):
                    while True:
                        move(peer, remote)
            finally:
                process.kill()
        lost = hub.next_event(LONG)
        assert lost.kind == "lost" and lost.why is not None and 'peer "victim"' in lost.why
        with pytest.raises(linkspan.UnknownPeer):
            hub.peer("victim")
        # What the victim's memory had, and nothing outside of where it belongs.
        assert local == guard + bytes(size) + guard


def test_closing_ends_what_other_threads_wait_for(hub: linkspan.Endpoint) -> None:
    with linkspan.Endpoint("w") as worker:
        peer = worker.connect("hub", hub.url, timeout=LONG)
        assert worker.next_event(LONG).kind == "connected"
        raised: list[BaseException] = []

        def record(call: object) -> None:
            assert callable(call)
            try:
                call()
            except linkspan.Error as error:
                raised.append(error)

        threads = [threading.Thread(target=record, args=(call,)) for call in (worker.next_event, peer.wait_for_write)]
        for thread in threads:
            thread.start()
        while peer.stats()["pending"] < 1:
            time.sleep(0.001)
        worker.close()
        for thread in threads:
            thread.join(LONG)
        assert sorted(type(error).__name__ for error in raised) in (["Aborted", "Closed"], ["Broken", "Closed"])
        with pytest.raises(linkspan.Broken, match='endpoint "w" was closed'):
            peer.wait_for_write(0)


def test_ctrl_c_interrupts_a_wait_for_events() -> None:
    # Whoever runs the tests in the background may have signals ignored.
    program = "import linkspan, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "e = linkspan.Endpoint('x'); print('ready', flush=True); e.next_event()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGINT)
            _, complaints = child.communicate(timeout=LONG)
            assert "KeyboardInterrupt" in complaints
        finally:
            child.kill()


def test_an_endpoint_that_is_dropped_is_closed(hub: linkspan.Endpoint) -> None:
    worker = linkspan.Endpoint("w")
    peer = worker.connect("hub", hub.url, timeout=LONG)
    del worker
    gc.collect()
    with pytest.raises(linkspan.Broken):
        peer.write(b"x", hub.expose(bytearray(8)).remote, timeout=LONG)
    assert [kind for _, kind, _ in kinds(hub, 2)] == ["connected", "lost"]
