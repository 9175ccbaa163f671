"""Page lists: what lies where, indices of every kind, and what is refused."""

import array
import mmap
import time
from collections.abc import Callable
from typing import Any

import linkspan
import pytest

from conftest import LONG, Pair

Pattern = Callable[[int, int], bytes]


class OnlyDLPack:
    """An array whose memory shows by DLPack alone, as torch's tensors do."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **words: Any) -> Any:
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnGPU(OnlyDLPack):
    """One that says that it lies on a GPU."""

    def __dlpack_device__(self) -> Any:
        return (2, 0)


def index_arrays() -> list[Any]:
    """The same indices as the kinds of arrays that there are here."""
    found: list[Any] = [[3, 0, 2], (3, 0, 2), array.array("q", [3, 0, 2]), array.array("H", [3, 0, 2])]
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        found += [np.array([3, 0, 2], kind) for kind in ("i8", "i4", "u8", "u4", "i2", "u2")]
        strided = np.array([3, 9, 0, 9, 2, 9])[::2]
        found += [strided, OnlyDLPack(strided), OnlyDLPack(np.array([2, 0, 3])[::-1])]
        found += [OnlyDLPack(np.array([3, 0, 2], kind)) for kind in ("i8", "i4", "u8", "u4", "i2", "u2")]
    return found


@pytest.mark.parametrize("ours", index_arrays(), ids=lambda one: f"{type(one).__name__}-{getattr(one, 'dtype', '')}")
def test_pages_move_by_their_numbers(pair: Pair, pattern: Pattern, ours: Any) -> None:
    a, b = pair
    source, inbox = pattern(5 * 64, 1), bytearray(4 * 100)
    pages = linkspan.Memory(source).pages(64)
    there = b.expose(inbox, "write").remote.pages(64, stride=100)
    assert (len(pages), pages.nbytes, len(there), there.nbytes) == (5, 64, 4, 64)
    assert a.write_pages(pages, ours, there, [1, 3, 0], notify=9, timeout=LONG) == 3 * 64
    assert b.wait_for_write(LONG) == 9
    for here, to in ((3, 1), (0, 3), (2, 0)):
        assert inbox[to * 100 : to * 100 + 64] == source[here * 64 : here * 64 + 64]
        assert inbox[to * 100 + 64 : to * 100 + 100] == bytes(36)
    assert inbox[200:300] == bytes(100), "page 2 was not named"


def test_a_page_of_every_layer(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    # [3 layers, 4 blocks, 16 bytes] here, [3 layers, 6 blocks, 16 bytes] there.
    cache, theirs = bytearray(3 * 4 * 16), pattern(3 * 6 * 16, 2)
    pages = linkspan.Memory(cache).pages(16, pieces=3)
    there = b.expose(theirs, "read").remote.pages(16, pieces=3)
    assert (pages.count, pages.nbytes, there.count) == (4, 48, 6)
    assert a.read_pages(pages, [3, 1], there, [5, 0], timeout=LONG) == 96
    for layer in range(3):
        for here, to in ((3, 5), (1, 0)):
            mine, other = (layer * 4 + here) * 16, (layer * 6 + to) * 16
            assert cache[mine : mine + 16] == theirs[other : other + 16]
        assert cache[layer * 64 : layer * 64 + 16] == bytes(16)


def test_no_indices_are_all_pages(pair: Pair, pattern: Pattern) -> None:
    a, b = pair
    source, inbox = pattern(640, 3), bytearray(640)
    op = a.write_pages_async(
        linkspan.Memory(source).pages(64), None, b.expose(inbox).remote.pages(64), None, notify=True, timeout=LONG
    )
    assert op.wait() == 640 and b.wait_for_write(LONG) == 0 and inbox == source


def test_wrong_lists_are_refused_before_anything_moves(pair: Pair) -> None:
    a, b = pair
    inbox = bytearray(64)
    pages, there = linkspan.Memory(b"x" * 64).pages(16), b.expose(inbox).remote.pages(16)
    many: Any
    for ours, theirs, kind, said in (
        ([0, 4], [0, 1], linkspan.OutOfBounds, "LS1129 index 4, at position 1 of the list, is outside of 4 pages here"),
        ([0], [2**40], linkspan.OutOfBounds, "LS1129 index 1099511627776, at position 0"),
        ([1, -1], [0, 1], linkspan.OutOfBounds, "LS1193 index -1, at position 1 of the list"),
        (array.array("i", [-7]), [0], linkspan.OutOfBounds, "LS1193 index -7, at position 0"),
        ([0, 1], [0], linkspan.BadValue, "LS1132 2 pages here and 1 at the peer"),
        (array.array("f", [0.0]), [0], linkspan.UnsupportedMemory, "LS1192 array.array is no list of pages: its items have"),
        ([0.5], [0], linkspan.UnsupportedMemory, "LS1192 list is no list of pages: its item 0 is a float"),
        (b"\x00", [0], linkspan.UnsupportedMemory, "LS1192 bytes is no list of pages"),
        (7, [0], linkspan.UnsupportedMemory, "LS1192 int is no list of pages"),
        (memoryview(bytes(32)).cast("q", (2, 2)), [0], linkspan.UnsupportedMemory, "it has 2 dimensions"),
    ):
        many = ours
        with pytest.raises(kind, match=f"^{said}" if said.startswith("LS") else said) as caught:
            a.write_pages(pages, many, there, theirs, notify=True, timeout=LONG)
        assert isinstance(caught.value, linkspan.Error) and caught.value.code.startswith("LS11")
    assert inbox == bytes(64)
    with pytest.raises(linkspan.TimedOut):
        b.wait_for_write(0)


def test_pages_at_the_peer_are_not_listed_where_as_many_are_not_here(pair: Pair) -> None:
    """A list of all that a peer says it has would take all memory."""
    a, b = pair
    # MAP_NORESERVE: address space alone.
    huge = mmap.mmap(-1, 1 << 45, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    pages, there = linkspan.Memory(bytearray(8)).pages(1), b.expose(huge).remote.pages(1)
    calls: list[Callable[[], object]] = [
        lambda: a.read_pages(pages, None, there, None),
        lambda: a.read_pages_async(pages, range(8), there, None),
        lambda: a.write_pages(pages, range(8), there, None),
        lambda: a.write_pages_async(pages, None, there, None),
    ]
    for call in calls:
        with pytest.raises(linkspan.BadValue, match="^LS1132 8 pages here and 35184372088832 at the peer"):
            call()
    with pytest.raises(linkspan.BadValue, match="^LS1131 a page has 1 pieces of 1 bytes here and 1 of 4096 at the peer"):
        a.read_pages(pages, None, b.expose(huge).remote.pages(4096), None)


def test_shapes_that_do_not_fit_are_refused(pair: Pair) -> None:
    memory = linkspan.Memory(bytearray(100))
    remote = pair[1].expose(bytearray(100)).remote
    for place in (memory, remote):
        assert place.pages(30).count == 3 and place.pages(200, count=0).count == 0
        for asked in ({"count": 4}, {"stride": 29}, {"pieces": 0}, {"pieces": 2, "piece_stride": 29}, {"stride": 2**63}):
            if asked == {"stride": 2**63}:
                assert place.pages(30, **asked).count == 1
                continue
            with pytest.raises(linkspan.OutOfBounds, match="^LS1130 "):
                place.pages(30, **asked)
        with pytest.raises(linkspan.OutOfBounds, match="^LS1130 "):
            place.pages(0)
    with pytest.raises(linkspan.BadValue, match="^LS1131 a page has 1 pieces of 10 bytes here and 2 of 10 at the peer"):
        pair[0].write_pages(memory.pages(10), [0], remote.pages(10, pieces=2), [0])
    with pytest.raises(linkspan.ReadOnly):
        pair[0].read_pages(linkspan.Memory(bytes(100)).pages(10), [0], remote.pages(10), [0])


def test_pages_that_nobody_counted_fill_their_pieces(pair: Pair) -> None:
    # 4 layers of 8 blocks of 1024 bytes.
    memory, remote = linkspan.Memory(bytearray(4 * 8192)), pair[1].expose(bytearray(4 * 8192)).remote
    place: linkspan.Memory | linkspan.RemoteBuffer
    for place in (memory, remote):
        assert place.pages(1024, pieces=4).count == 8
        assert place.pages(256, stride=1024, pieces=4).count == 8
        cases: list[tuple[Callable[[], object], str]] = [
            # These would lie across the blocks.
            (lambda: place.pages(1000, pieces=4), "^LS1130 8 pages of 4 x 1000 bytes, .*: part of a page is left over in each piece; pass count"),
            (lambda: place.pages(1000, pieces=4, piece_stride=8192), "^LS1130 8 pages .* left over"),
            (lambda: place.pages(1024, stride=1500, pieces=4), "^LS1130 5 pages .* left over"),
            (lambda: place.pages(1024, pieces=3), "^LS1130 10 pages .* no equal pieces"),
            (lambda: place.pages(10**6), "^LS1130 0 pages .*: not one fits; pass count=0"),
            (lambda: place.pages(9000, pieces=4), "^LS1130 0 pages .* would overlap"),
            (lambda: place.view(0, 0).pages(16), "^LS1130 0 pages .* not one fits"),
        ]
        for refused, said in cases:
            with pytest.raises(linkspan.OutOfBounds, match=said):
                refused()
        # Who counts them means them.
        assert place.pages(1000, pieces=4, count=8).count == 8 and place.pages(1024, pieces=3, count=10).count == 10
        assert place.pages(10**6, count=0).count == 0 and place.view(0, 0).pages(16, count=0).count == 0
        # A quarter of each block, the second one: nothing lies behind the last.
        assert place.view(256).pages(256, stride=1024).count == 32
        assert place.view(256, 4 * 8192 - 256).pages(256, stride=1024, pieces=4, piece_stride=8192).count == 8


def test_pages_show_how_they_lie(pair: Pair) -> None:
    memory, remote = linkspan.Memory(bytearray(400)), pair[1].expose(bytearray(400)).remote
    assert repr(memory.pages(64, stride=100)) == "<linkspan.Pages of 4 x 64 bytes, stride=100>"
    assert repr(remote.pages(10, pieces=2)) == (
        "<linkspan.RemotePages of 20 x 20 bytes, stride=10, pieces=2 of 10 bytes, piece_stride=200>"
    )


def test_dlpack_indices_of_a_wrong_kind_are_refused(pair: Pair) -> None:
    np = pytest.importorskip("numpy")
    pages, there = linkspan.Memory(bytes(64)).pages(16), pair[1].expose(bytearray(64)).remote.pages(16)
    for ours, kind, said in (
        (OnlyDLPack(np.array([0.0])), linkspan.UnsupportedMemory, "DLPack's type 2 with 64 bits"),
        (OnlyDLPack(np.array([[0]])), linkspan.UnsupportedMemory, "it has 2 dimensions"),
        (OnGPU(np.array([0])), linkspan.UnsupportedMemory, r"it is on cuda:0, and indices are read on the host"),
        (OnlyDLPack(np.array([2, -3])), linkspan.OutOfBounds, "LS1193 index -3, at position 1"),
    ):
        with pytest.raises(kind, match=said):
            pair[0].write_pages(pages, ours, there, [0])


def test_torch_indices_and_tensors(pair: Pair) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = pair
    cache = torch.arange(4 * 8, dtype=torch.float32).reshape(4, 8)
    inbox = torch.zeros(4, 8)
    pages, there = linkspan.Memory(cache).pages(32), b.expose(inbox).remote.pages(32)
    for kind in (torch.int64, torch.int32, torch.int16):
        inbox.zero_()
        a.write_pages(pages, torch.tensor([2, 9, 0], dtype=kind)[::2], there, torch.tensor([1, 3]), notify=True, timeout=LONG)
        b.wait_for_write(LONG)
        assert torch.equal(inbox[1], cache[2]) and torch.equal(inbox[3], cache[0])
    with pytest.raises(linkspan.UnsupportedMemory, match="^LS1192 torch.Tensor is no list of pages"):
        a.write_pages(pages, torch.tensor([0.0]), there, [0])


def test_the_memory_of_pages_stays_until_they_have_moved(pair: Pair) -> None:
    a, b = pair
    source, inbox = bytearray(b"y" * (1 << 20)), bytearray(1 << 20)
    pages = linkspan.Memory(source).pages(4096)
    op = a.write_pages_async(pages, None, b.expose(inbox).remote.pages(4096), None, notify=1, timeout=LONG)
    del pages
    with pytest.raises(BufferError):
        source.append(1)
    assert op.wait() == 1 << 20 and b.wait_for_write(LONG) == 1 and inbox == source


def test_a_peer_that_goes_in_the_midst_ends_the_batch_with_an_error(pair: Pair) -> None:
    a, b = pair
    pages = linkspan.Memory(bytes(64 << 20)).pages(4096)
    there = b.expose(bytearray(64 << 20)).remote.pages(4096)
    op = a.write_pages_async(pages, None, there, None, notify=True, timeout=LONG)
    b.close()
    with pytest.raises(linkspan.Error) as caught:
        op.wait()
    assert caught.value.code in ("LS1104", "LS0013", "LS1103")


def test_4096_indices_take_less_processor_time_than_pairs(pair: Pair) -> None:
    """What is built for a list, beside what is built for a batch of pairs: the latter makes two objects for each page."""
    np = pytest.importorskip("numpy")
    a, b = pair
    count, size = 4096, 8
    memory, remote = linkspan.Memory(bytearray(count * size)), b.expose(bytearray(count * size)).remote
    order = np.random.default_rng(1).permutation(count)
    pages, there = memory.pages(size), remote.pages(size)

    def paged() -> None:
        # Refused at its end, after all indices were read and looked at: nothing is moved.
        with pytest.raises(linkspan.OutOfBounds):
            a.write_pages(pages, order, there, np.append(order[:-1], count))

    def paired() -> None:
        for i in order.tolist():
            _ = (memory.view(i * size, size), remote.view(i * size, size))

    def processor(call: Callable[[], None]) -> float:
        took = []
        for _ in range(9):
            began = time.thread_time()
            call()
            took.append(time.thread_time() - began)
        return min(took)

    assert processor(paged) * 2 < processor(paired)
