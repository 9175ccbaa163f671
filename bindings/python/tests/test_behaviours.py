"""What users of one-sided transports rely on, each behaviour under the name it is known by."""

import gc
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import linkspan
import pytest
from linkspan._linkspan import Notifier

from conftest import LONG, Pair, make_pair, until_done

Pattern = Callable[[int, int], bytes]


def test_query_support() -> None:
    support = linkspan.Transport.supported()
    assert {"tcp", "shm", "cma", "verbs", "thunderbolt", "devmem"} <= {s.path for s in support}
    assert all(s.why for s in support) and support[0].usable


def test_construct_transport_with_device() -> None:
    assert not linkspan.Transport().connected
    assert linkspan.Transport("cpu").path is None
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Transport("tpu:0")
    assert caught.value.code == "LS1185" and "tpu:0" in str(caught.value)


def test_bind_and_connect(pair: Pair) -> None:
    a, b = pair
    assert a.connected and b.connected and a.epoch == 1
    assert a.path is not None and b.bind() == b.bind()
    a.connect(str(b.bind()))  # Once more to the same peer is no error.
    with pytest.raises(linkspan.HasPeer) as caught:
        a.connect(linkspan.Transport().bind())
    assert caught.value.code == "LS1107"


def test_connect_says_why_not() -> None:
    a = linkspan.Transport()
    gone = linkspan.Transport().bind()
    with pytest.raises(linkspan.ConnectFailed) as caught:
        a.connect(gone, timeout=2.0)
    assert caught.value.code == "LS1108" and isinstance(caught.value, ConnectionError)
    with pytest.raises(linkspan.ConnectFailed):
        linkspan.Transport().wait_connected(timeout=0.02)
    remote = a.expose(bytearray(8)).remote
    with pytest.raises(linkspan.NotConnected):
        a.write(b"12345678", remote)


def test_server_client_data_transfer_write(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    inbox, data = bytearray(8192), pattern(8192, 3)
    assert a.write(data, b.expose(inbox).remote, notify=True, timeout=LONG) == 8192
    assert b.wait_for_write(timeout=LONG) == 0
    assert inbox == data


@pytest.mark.parametrize("size", [0, 64, 512, 1024, 4096, 4097, 4098, 8192, 65536, 1 << 20])
def test_write_with_various_buffer_sizes(pair: Pair, pattern: Pattern, size: int) -> None:
    a, b = pair
    inbox, data = bytearray(size), pattern(size, size)
    assert a.write(data, b.expose(inbox).remote, notify=size + 1, timeout=LONG) == size
    assert b.wait_for_write(timeout=LONG) == size + 1
    assert inbox == data


@pytest.mark.parametrize("size", [0, 1, 64, 8193, 300_000])
def test_server_client_data_transfer_read(pair: Pair, pattern: Pattern, size: int) -> None:
    a, b = pair
    theirs, into = pattern(size, 8), bytearray(size)
    assert a.read(into, b.expose(theirs, "read").remote, timeout=LONG) == size
    assert into == theirs


def test_partial_view_write_and_read(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    inbox, data = bytearray(1000), pattern(1000, 1)
    part = b.expose(inbox).remote[300:500]
    a.write(linkspan.Memory(data)[50:250], part, timeout=LONG)
    assert inbox == bytes(300) + data[50:250] + bytes(500)
    back = bytearray(1000)
    a.read(linkspan.Memory(back)[10:110], part.view(100, 100), timeout=LONG)
    assert back == bytes(10) + data[150:250] + bytes(890)


def test_to_view_offset_length() -> None:
    memory = linkspan.Memory(bytearray(range(100)))
    assert len(memory) == memory.nbytes == 100
    assert memory.view(10, 5).tobytes() == bytes(range(10, 15)) == memory[10:15].tobytes()
    assert memory[20:][5:].tobytes() == bytes(range(25, 100)) and memory[-10:].nbytes == 10
    assert memory[0:0].nbytes == memory[100:].nbytes == memory.view(100).nbytes == 0
    wrong: list[tuple[int, int]] = [(0, 101), (101, 101), (101, 50), (-101, 5), (0, -101)]
    for start, stop in wrong:
        with pytest.raises(linkspan.OutOfBounds) as caught:
            memory[start:stop]
        assert caught.value.code == "LS1109" and isinstance(caught.value, IndexError)
    with pytest.raises(linkspan.OutOfBounds, match="LS1198 the slice ends at byte 40, before byte 50"):
        memory[50:-60]
    with pytest.raises(linkspan.OutOfBounds):
        memory.view(99, 2)
    with pytest.raises(linkspan.Error) as slip:
        memory[::2]  # type: ignore[index]  # pyright: ignore
    assert slip.value.code == "LS1187"
    with pytest.raises(ValueError):
        memory[5]  # type: ignore[index]  # pyright: ignore


@pytest.mark.parametrize("protocol", [0, 1, pickle.HIGHEST_PROTOCOL])
def test_pickle(pair: Pair, protocol: int) -> None:
    a, b = pair
    inbox = bytearray(16)
    remote = b.expose(inbox, "write").remote
    travelled: linkspan.RemoteBuffer = pickle.loads(pickle.dumps(remote, protocol))
    assert travelled == remote and hash(travelled) == hash(remote) and travelled.access == "write"
    a.write(b"sixteen bytes!!!", travelled, timeout=LONG)
    assert inbox == b"sixteen bytes!!!"
    url: linkspan.Url = pickle.loads(pickle.dumps(b.bind(), protocol))
    assert url == b.bind()
    with pytest.raises(TypeError):
        pickle.dumps(linkspan.Memory(inbox), protocol)


def test_remote_buffers_travel_as_bytes(pair: Pair) -> None:
    remote = pair[1].expose(bytearray(100), "read").remote[10:60]
    data = remote.to_bytes()
    assert len(data) == 40 and linkspan.RemoteBuffer.from_bytes(data) == remote and len(remote) == 50
    for damaged in (data[:39], b"", bytes(40), data[:20] + bytes([data[20] ^ 1]) + data[21:]):
        with pytest.raises(linkspan.BadRemoteBuffer) as caught:
            linkspan.RemoteBuffer.from_bytes(damaged)
        assert caught.value.code == "LS1116"


def test_urls_redact_their_secret() -> None:
    transport = linkspan.Transport()
    url = transport.bind()
    body = str(url).rsplit("/", 1)[1]
    assert str(url).startswith("linkspan://1/") and linkspan.Url(str(url)) == url
    for shown in (repr(url), repr([url]), f"{url!r}", repr(transport), repr(linkspan.Listener())):
        assert not any(body[i : i + 8] in shown for i in range(len(body) - 8))
    assert "<secret>" in repr(url)
    with pytest.raises(linkspan.UrlError) as caught:
        transport.connect("http" + "://example.com/")
    assert caught.value.code == "LS1120"
    with pytest.raises(linkspan.UrlError):
        linkspan.Url(str(url)[:-1] + ("A" if str(url)[-1] != "A" else "B"))


def test_reports_registration_reuse(pair: Pair) -> None:
    memory = linkspan.Memory(bytearray(64))
    first, again = pair[0].expose(memory), pair[0].expose(memory)
    assert not first.reused_registration and again.reused_registration
    assert first.remote == again.remote
    assert not pair[0].expose(memory, "read").reused_registration


def test_cache_miss_dynamic_registrations_are_not_reused(pair: Pair) -> None:
    memory = linkspan.Memory(bytearray(64))
    whole, look, part = pair[0].expose(memory), pair[0].expose(memory, "read"), pair[0].expose(memory[:8])
    assert not any(region.reused_registration for region in (whole, look, part))
    assert len({region.remote.key for region in (whole, look, part)}) == 3
    pair[0].unexpose(whole)
    fresh = pair[0].expose(memory)
    assert not fresh.reused_registration and fresh.remote != whole.remote
    assert fresh.remote.generation == 2


def test_a_fenced_notification_covers_all_earlier_writes(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    size = 4 << 20
    inbox = bytearray(size)
    remote = b.expose(inbox).remote
    for round in range(4):
        data = pattern(size // 64, round) * 64
        plain = a.write_async(data, remote, timeout=LONG)
        fence = a.write_async(b"", remote, notify=round, timeout=LONG, fence=True)
        assert b.wait_for_write(timeout=LONG) == round
        assert inbox == data
        assert (plain.wait(), fence.wait()) == (size, 0)


def test_rights_are_checked(pair: Pair) -> None:
    a, b = pair
    memory = bytearray(8)
    with pytest.raises(linkspan.NoRight) as caught:
        a.write(bytes(8), b.expose(memory, "read").remote)
    assert caught.value.code == "LS1111"
    with pytest.raises(linkspan.NoRight):
        a.read(bytearray(8), b.expose(memory, "write").remote)
    with pytest.raises(linkspan.ReadOnly) as only:
        b.expose(bytes(8), "write")
    assert only.value.code == "LS1113"
    with pytest.raises(linkspan.ReadOnly):
        a.read(bytes(8), b.expose(memory, "read").remote)
    with pytest.raises(linkspan.OutOfBounds):
        a.write(bytes(9), b.expose(memory).remote)
    with pytest.raises(linkspan.WrongPeer):
        a.write(bytes(8), a.expose(memory).remote)
    with pytest.raises(linkspan.Error) as name:
        b.expose(memory, "all")  # type: ignore[arg-type]  # pyright: ignore
    assert name.value.code == "LS1189"


def test_a_key_that_was_taken_back_is_refused(pair: Pair) -> None:
    a, b = pair
    inbox = bytearray(8)
    region = b.expose(inbox)
    b.unexpose(region)
    with pytest.raises(linkspan.Refused) as caught:
        a.write(b"too late", region.remote, timeout=LONG)
    assert caught.value.code == "LS0013" and inbox == bytes(8)
    with pytest.raises(linkspan.NotExposed):
        b.unexpose(region)


def test_timeout_immediately(pair: Pair) -> None:
    with pytest.raises(linkspan.TimedOut) as caught:
        pair[1].wait_for_write(timeout=0)
    assert caught.value.code == "LS1101" and isinstance(caught.value, TimeoutError)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="LS1188"):
            pair[1].wait_for_write(timeout=wrong)


def test_timeout_with_duration(pair: Pair) -> None:
    begun = time.monotonic()
    with pytest.raises(linkspan.TimedOut):
        pair[1].wait_for_write(timeout=0.1)
    assert time.monotonic() - begun >= 0.1


def test_write_zero_timeout_late_completion_safe(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    inbox = bytearray(4 << 20)
    remote = b.expose(inbox).remote
    ends: set[str] = set()
    for _ in range(16):
        try:
            a.write(bytes(4 << 20), remote, timeout=0)
            ends.add("done")
        except linkspan.TimedOut as error:
            ends.add(error.code)
    assert ends <= {"done", "LS1101"}, ends
    data = pattern(4096, 5)
    a.write(data, remote, notify=7, timeout=LONG)
    assert b.wait_for_write(timeout=LONG) == 7
    assert inbox[:4096] == data


def test_destructor_cancels_pending_works() -> None:
    a, b = make_pair()
    ops = [b.wait_for_write_async() for _ in range(3)]
    assert not any(op.done() for op in ops)
    del b
    gc.collect()
    for op in ops:
        with pytest.raises(linkspan.Aborted) as caught:
            op.wait()
        assert caught.value.code == "LS1103"
    a.close()


def test_broken_transport_fails_fast() -> None:
    a, b = make_pair()
    remote = b.expose(bytearray(8)).remote
    b.close()
    with pytest.raises(linkspan.Broken):
        a.wait_for_write(timeout=LONG)
    calls: list[Callable[[], object]] = [
        lambda: a.write(bytes(8), remote),
        lambda: a.read(bytearray(8), remote),
        lambda: a.wait_for_write(),
    ]
    for call in calls:
        begun = time.monotonic()
        with pytest.raises(linkspan.Broken) as caught:
            call()
        assert caught.value.code == "LS1104" and time.monotonic() - begun < 1
    with pytest.raises(linkspan.Closed) as closed:
        b.bind()
    assert closed.value.code == "LS1183"


STOPPED = """
import linkspan, sys, time
t = linkspan.Transport()
memory = bytearray(32 << 20)
print(str(t.bind()), t.expose(memory).remote.to_bytes().hex(), flush=True)
t.wait_connected(30)
print("up", flush=True)
time.sleep(60)
"""


def test_write_timeout_production_disconnected_peer() -> None:
    child = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        url, remote = child.stdout.readline().split()
        a = linkspan.Transport()
        a.connect(url, timeout=LONG)
        assert child.stdout.readline() == "up\n"
        child.send_signal(19)  # SIGSTOP: alive, but it does nothing any more.
        with pytest.raises(linkspan.TimedOut):
            for _ in range(100):
                a.write(bytes(32 << 20), linkspan.RemoteBuffer.from_bytes(bytes.fromhex(remote)), timeout=0.1)
    finally:
        child.kill()
        child.wait()
    with pytest.raises(linkspan.Broken):
        a.wait_for_write(timeout=LONG)


def test_notifications_count_and_come_in_order(pair: Pair) -> None:
    a, b = pair
    remote = b.expose(bytearray(8)).remote
    values: list[int] = [1, 5, 2**64 - 1, 0]
    for value in values:
        a.write(bytes(8), remote, notify=value, timeout=LONG)
    a.write(bytes(8), remote, notify=False, timeout=LONG)
    a.write(bytes(8), remote, notify=True, timeout=LONG, fence=True)
    assert [b.wait_for_write(timeout=LONG) for _ in range(5)] == [*values, 0]
    with pytest.raises(linkspan.TimedOut):
        b.wait_for_write(timeout=0.05)
    wrong: list[Any] = [-1, 2**64, 1.0, "1"]
    for value in wrong:
        with pytest.raises(linkspan.BadValue, match="LS1190"):
            a.write(bytes(8), remote, notify=value)

    class Number:
        def __index__(self) -> int:
            return 9

    # As numpy's numbers are.
    number: Any = Number()
    a.write(bytes(8), remote, notify=number, timeout=LONG)
    assert b.wait_for_write(timeout=LONG) == 9


def test_batches_scatter_and_gather_in_one_call(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    inbox, data = bytearray(64 << 10), pattern(64 << 10, 9)
    remote, source = b.expose(inbox).remote, linkspan.Memory(data)
    pages = [(i, 63 - i) for i in range(64)]
    parts = [(source[i << 10 : (i + 1) << 10], remote[k << 10 : (k + 1) << 10]) for i, k in pages]
    assert a.write_batch(parts, notify=64, timeout=LONG) == 64 << 10
    assert b.wait_for_write(timeout=LONG) == 64
    assert all(inbox[k << 10 : (k + 1) << 10] == data[i << 10 : (i + 1) << 10] for i, k in pages)
    back = bytearray(64 << 10)
    target = linkspan.Memory(back)
    reads = [(target[i << 10 : (i + 1) << 10], remote[k << 10 : (k + 1) << 10]) for i, k in pages]
    assert a.read_batch(reads, timeout=LONG) == 64 << 10 and back == data


def test_tagged_messages_meet_their_receives(pair: Pair) -> None:
    a, b = pair
    into = bytearray(16)
    receive = b.recv_async(7, into, timeout=LONG)
    assert a.send(7, b"hello", timeout=LONG) == 5
    assert receive.wait() == 5 and into[:5] == b"hello"


def test_a_listener_serves_many_peers() -> None:
    with linkspan.Listener() as listener:
        peers = [linkspan.Transport() for _ in range(4)]
        for n, peer in enumerate(peers):
            peer.connect(listener.url, timeout=LONG)
            peer.send(1, bytes([n]), timeout=LONG)
        seen: set[int] = set()
        accepted = [listener.accept(timeout=LONG) for _ in peers]
        for transport in accepted:
            into = bytearray(1)
            transport.recv(1, into, timeout=LONG)
            seen.add(into[0])
        assert seen == {0, 1, 2, 3}
        with pytest.raises(linkspan.TimedOut):
            listener.accept(timeout=0.15)


def test_closing_a_listener_ends_its_accepts_and_turns_peers_away() -> None:
    listener, ends = linkspan.Listener(), queue.SimpleQueue[BaseException]()
    url, peer = listener.url, linkspan.Transport()
    op = listener.accept_async()
    assert not op.done()

    def accept() -> None:
        try:
            listener.accept()
        except linkspan.Error as error:
            ends.put(error)

    threading.Thread(target=accept, daemon=True).start()
    listener.close()
    # The thread may have come too late.
    assert isinstance(ends.get(timeout=LONG), linkspan.Aborted | linkspan.Closed)
    assert op.done()
    with pytest.raises(linkspan.Aborted):
        op.wait()
    with pytest.raises(linkspan.ConnectFailed):
        peer.connect(url, timeout=0.3)


def test_abort_ends_what_several_threads_wait_for(pair: Pair) -> None:
    a, b = pair
    ends: list[str] = []

    def wait() -> None:
        try:
            b.wait_for_write()
        except linkspan.Aborted as error:
            ends.append(error.code)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    b.abort()
    for thread in threads:
        thread.join(LONG)
    assert ends == ["LS1103"] * 3
    a.write(b"", b.expose(bytearray(0)).remote, notify=3, timeout=LONG)
    assert b.wait_for_write(timeout=LONG) == 3


def test_close_ends_what_another_thread_waits_for() -> None:
    a, b = make_pair()
    ends: list[str] = []

    def wait() -> None:
        try:
            b.wait_for_write()
        except linkspan.Error as error:
            ends.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    b.close()
    thread.join(LONG)
    assert ends == ["LS1103"]
    a.close()


def test_the_lock_of_python_is_released(pair: Pair) -> None:
    a, b = pair
    remote, ran = b.expose(bytearray(8)).remote, threading.Event()

    def answer() -> None:
        ran.set()
        a.write(bytes(8), remote, notify=1, timeout=LONG)

    thread = threading.Thread(target=answer)
    timer = threading.Timer(0.1, thread.start)
    timer.start()
    # Would wait forever if the other thread could not run meanwhile.
    assert b.wait_for_write(timeout=LONG) == 1 and ran.is_set()
    timer.join()
    thread.join()


INTERRUPTED = """
import linkspan, os, signal, threading
a, b = linkspan.Transport(), linkspan.Transport()
a.connect(b.bind(), timeout=30)
# A background job of a shell is started with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    b.wait_for_write()
except KeyboardInterrupt:
    print("interrupted")
a.write(b"", b.expose(bytearray(0)).remote, notify=4, timeout=30)
print(b.wait_for_write(timeout=30))
"""


def test_ctrl_c_interrupts_a_wait_without_a_deadline() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=LONG)
    assert run.stdout == "interrupted\n4\n", run.stderr


CLOSED_BY_A_SIGNAL = """
import linkspan, os, signal, threading, time
a, b = linkspan.Transport(), linkspan.Transport()
a.connect(b.bind(), timeout=30)
signal.signal(signal.SIGUSR1, lambda *_: b.close())
def signals():
    while b.stats()["pending"] < 1:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=signals).start()
try:
    b.recv(1, bytearray(8))
except linkspan.Aborted:
    print("aborted")
try:
    a.wait_for_write()
except linkspan.Broken:
    print("closed")
"""


def test_a_signal_handler_closes_the_transport_that_its_thread_waits_for() -> None:
    run = subprocess.run([sys.executable, "-c", CLOSED_BY_A_SIGNAL], capture_output=True, text=True, timeout=LONG)
    assert run.stdout == "aborted\nclosed\n", run.stderr


Call = Callable[[linkspan.Transport, linkspan.Memory, linkspan.RemoteBuffer], object]

REFUSED: list[tuple[Call, type[linkspan.Error], type[Exception], str]] = [
    (lambda a, *_: a.connect(5), linkspan.BadType, TypeError, "LS1194 .* this is a int"),  # pyright: ignore
    (lambda a, *_: a.connect_async(None), linkspan.BadType, TypeError, "LS1194"),  # pyright: ignore
    (lambda a, memory, _: pickle.dumps(memory), linkspan.BadType, TypeError, "LS1195"),
    (lambda a, memory, _: memory.view(-1), linkspan.BadNumber, OverflowError, "LS1196 .*; this is -1"),
    (lambda a, memory, _: memory.view(0, -5), linkspan.BadNumber, OverflowError, "LS1196"),
    (lambda a, memory, _: memory.pages(1 << 64), linkspan.BadNumber, OverflowError, "LS1196 .* below 2\\*\\*64; this is 18446744073709551616"),
    (lambda a, memory, _: memory.pages(8, stride=-8), linkspan.BadNumber, OverflowError, "LS1196"),
    (lambda a, _, remote: remote.view(-1), linkspan.BadNumber, OverflowError, "LS1196"),
    (lambda a, _, remote: remote.pages(8, pieces=-1), linkspan.BadNumber, OverflowError, "LS1196"),
    (lambda a, *_: a.send(-1, b""), linkspan.BadNumber, ValueError, "LS1196 .* below 2\\*\\*32; this is -1"),
    (lambda a, *_: a.recv_async(1 << 32, bytearray(1)), linkspan.BadNumber, ValueError, "LS1196"),
    (lambda *_: linkspan.Listener().serve_at(70_000), linkspan.BadNumber, ValueError, "LS1196 .* below 2\\*\\*16; this is 70000"),
    (lambda *_: linkspan.Endpoint("e").serve_at(-1), linkspan.BadNumber, ValueError, "LS1196"),
    (lambda a, _, remote: a.write_batch([(b"", remote), b"x"]), linkspan.BadType, TypeError, "LS1197 part 1"),  # type: ignore[list-item]  # pyright: ignore
    (lambda a, *_: a.read_batch([(bytearray(1), 5)]), linkspan.BadType, TypeError, "LS1197 part 0"),  # pyright: ignore
]


@pytest.mark.parametrize(("call", "kind", "builtin", "said"), REFUSED)
def test_arguments_that_cannot_be_have_a_code_and_are_what_python_has_for_them(
    pair: Pair, call: Call, kind: type[linkspan.Error], builtin: type[Exception], said: str
) -> None:
    a, b = pair
    inbox = bytearray(64)
    with pytest.raises(kind, match=f"^{said}") as caught:
        call(a, linkspan.Memory(inbox), b.expose(inbox).remote)
    assert isinstance(caught.value, builtin) and caught.value.code == said[:6]


def test_what_is_no_remote_buffer_is_named_with_its_argument(pair: Pair) -> None:
    a, b = pair
    inbox = bytearray(8)
    region: Any = b.expose(inbox)
    swapped: Any = region.remote
    memory: Any = inbox
    for call, argument, kind, way in (
        (lambda: a.write(swapped, memory), "to", "bytearray", "memory of this process comes first"),
        (lambda: a.write_async(swapped, memory), "to", "bytearray", "memory of this process comes first"),
        (lambda: a.read(swapped, memory), "source", "bytearray", "memory of this process comes first"),
        (lambda: a.write(inbox, region), "to", "linkspan.Exposed", r"pass its remote \(region.remote\)"),
        (lambda: a.read_async(inbox, region), "source", "linkspan.Exposed", "pass its remote"),
    ):
        with pytest.raises(TypeError, match=f"^a linkspan.RemoteBuffer .* this is a {kind}: {way}") as caught:
            call()
        assert caught.value.__notes__ == [f"while processing '{argument}'"]
    with pytest.raises(linkspan.BadType, match="^LS1197 part 0 .*pass its remote"):
        a.write_batch([(inbox, region)])


def test_the_representation_of_a_transport_says_what_it_is(pair: Pair) -> None:
    a, b = pair
    assert repr(linkspan.Transport("cpu")) == "<linkspan.Transport not connected>"
    assert repr(a) == f"<linkspan.Transport {a.path}>"
    a.close()
    assert repr(a) == "<linkspan.Transport closed>"
    with pytest.raises(linkspan.Broken) as caught:
        b.wait_for_write(LONG)
    stats = b.stats()
    why = str(caught.value).removeprefix("LS1104 the transport is permanently broken: ").removesuffix("; make a new one")
    assert "the peer closed its transport" in why and repr(b) == f"<linkspan.Transport broken: {why}>"
    assert b.stats() == stats, "to show it is no operation"


def test_the_second_thread_that_waits_for_an_operation_is_told(pair: Pair) -> None:
    a, b = pair
    op, told = b.wait_for_write_async(), queue.SimpleQueue[linkspan.InUse]()

    def wait() -> None:
        try:
            op.wait()
        except linkspan.InUse as error:
            told.put(error)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    error = told.get(timeout=LONG)
    assert error.code == "LS1186" and isinstance(error, RuntimeError)
    a.write(b"", b.expose(bytearray(0)).remote, notify=True, timeout=LONG)
    for thread in threads:
        thread.join(LONG)
    assert told.empty()


@pytest.mark.parametrize("raises", [False, True])
def test_a_signal_handler_that_runs_as_an_error_is_made_does_not_change_the_report(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    op, made, seen = pair[0].wait_for_write_async(timeout=0), linkspan.Error.__init__, list[bool]()

    def handler(*_: object) -> None:
        if raises:
            raise InterruptedError
        seen.append(op.done())

    def init(error: linkspan.Error, message: str) -> None:
        signal.raise_signal(signal.SIGUSR1)
        made(error, message)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(linkspan.Error, "__init__", init)
        until_done(op)
        with pytest.raises(InterruptedError if raises else linkspan.TimedOut):
            op.wait()
        assert seen == [True] * (not raises), "it had reported by then"
        monkeypatch.undo()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(linkspan.TimedOut):
        op.wait()


def test_a_signal_handler_raises_from_a_wait_and_is_not_its_report(pair: Pair) -> None:
    def handler(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with linkspan.Listener() as listener, linkspan.Endpoint("waits") as endpoint:
            ops = [pair[0].wait_for_write_async(), listener.accept_async(), endpoint.next_event_async()]
            for wait in (listener.accept, endpoint.next_event, *(op.wait for op in ops)):
                with pytest.raises(InterruptedError):
                    signal.setitimer(signal.ITIMER_REAL, 0.01)
                    wait()
            for op in ops:
                # On a slow machine the signal may have come before the wait.
                op.cancel()
                with pytest.raises(linkspan.Aborted):
                    op.wait()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_finalizer_may_ask_the_operation_that_lets_go_of_its_object(pair: Pair) -> None:
    a, b = pair
    asked = list[bool]()

    class Source(bytearray):
        def __del__(self) -> None:
            asked.append(op.done())

    op = a.write_async(Source(8), b.expose(bytearray(8)).remote, timeout=LONG)
    until_done(op)
    assert op.wait() == 8 and len(asked) == 1


BAD_SETTING = """
import linkspan
try:
    linkspan.Transport()
except linkspan.BadSetting as error:
    print(error.code, isinstance(error, ValueError), "LINKSPAN_STRICT" in str(error))
"""


def test_a_setting_that_cannot_be_is_named() -> None:
    environment = os.environ | {"LINKSPAN_STRICT": "many"}
    run = subprocess.run([sys.executable, "-c", BAD_SETTING], capture_output=True, text=True, timeout=LONG, env=environment)
    assert run.stdout == "LS0501 True True\n", run.stderr


def test_a_process_without_descriptors_says_so() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.dup(0)
    os.close(taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        with pytest.raises(linkspan.SystemFailed, match="^LS1117 eventfd failed: Too many open files") as caught:
            Notifier()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(caught.value, OSError)


FORKED = """
import linkspan, os
a, b = linkspan.Transport(), linkspan.Transport()
a.connect(b.bind(), timeout=30)
inbox = bytearray(4)
remote = b.expose(inbox).remote
op = b.wait_for_write_async()
hub, worker = linkspan.Endpoint("hub"), linkspan.Endpoint("worker")
peer, shared = worker.connect("hub", hub.url, timeout=30), hub.expose(inbox).remote
event = hub.next_event_async()
child = os.fork()
if child == 0:
    codes = []
    for call in (
        lambda: a.write(b"fork", remote), linkspan.Transport, linkspan.Listener, op.done, b.close,
        lambda: linkspan.Endpoint("w"), hub.peers, lambda: hub.peer("worker"), lambda: hub.connect("w", worker.url), hub.poll,
        lambda: hub.expose(inbox), lambda: hub.next_event(0), lambda: hub.remove("worker"), event.done, event.cancel, hub.close,
        lambda: peer.write(b"fork", shared), peer.close, lambda: hub.name,
    ):
        try:
            call()
        except linkspan.Forked as error:
            codes.append(error.code)
    assert repr(hub) == "<linkspan.Endpoint of the parent process>"
    del a, b, op, hub, worker, peer, event
    os._exit(0 if codes == ["LS1184"] * 19 else 1)
assert os.waitpid(child, 0)[1] == 0
a.write(b"rent", remote, notify=9, timeout=30)
assert op.wait() == 9 and inbox == b"rent"
assert event.wait().kind == "connected" and hub.peers() == ["worker"]
peer.write(b"hubs", shared, notify=5, timeout=30)
assert hub.next_event(30).value == 5 and inbox == b"hubs"
print("whole")
"""


def test_a_forked_child_is_refused_and_does_the_parent_no_harm() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=LONG)
    assert run.stdout == "whole\n", run.stderr
