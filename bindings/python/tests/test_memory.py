"""What counts as memory, and that it stays where it is while something uses it."""

import array
import ctypes
import gc
import mmap
import pickle
import re
import struct
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import linkspan
import pytest
from linkspan._tensors import fix_storage

from conftest import LONG, Pair


class Fake:
    """Memory on some device, as its interfaces say."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 300)

    def __dlpack__(self, **_: Any) -> object:
        raise AssertionError("the device is asked first")


class Cuda:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "|u1", "data": (4096, False), "version": 3}


def test_buffer_protocol(pair: Pair) -> None:
    a, b = pair
    mapped = mmap.mmap(-1, 4096)
    for target in (bytearray(24), array.array("d", [0.0] * 3), memoryview(bytearray(32))[4:28], mapped):
        size = memoryview(target).nbytes
        a.write(bytes(range(24)).ljust(size), b.expose(target).remote, timeout=LONG)
        assert bytes(memoryview(target).cast("B"))[:24] == bytes(range(24))
    assert linkspan.Memory(b"abc").readonly and not linkspan.Memory(bytearray(3)).readonly


def test_an_exposed_buffer_cannot_be_resized_or_released(pair: Pair) -> None:
    buffer, mapped, numbers = bytearray(64), mmap.mmap(-1, 4096), array.array("b", bytes(8))
    regions = [pair[0].expose(memory) for memory in (buffer, mapped, numbers)]
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    with pytest.raises(BufferError):
        mapped.close()
    with pytest.raises(BufferError):
        numbers.append(1)
    for region in regions:
        pair[0].unexpose(region)
    gc.collect()
    buffer.extend(b"more")
    mapped.close()
    numbers.append(1)


def test_a_released_buffer_is_refused() -> None:
    view = memoryview(bytearray(8))
    view.release()
    with pytest.raises(linkspan.UnsupportedMemory) as caught:
        linkspan.Memory(view)
    assert caught.value.code == "LS1180" and "released" in str(caught.value)


def test_objects_live_as_long_as_they_are_used(pair: Pair) -> None:
    class Bytes(bytearray):
        pass

    a, b = pair
    inbox = Bytes(8)
    alive = weakref.ref(inbox)
    region = b.expose(inbox, "readwrite")
    del inbox
    gc.collect()
    assert alive() is not None
    a.write(b"reached!", region.remote, timeout=LONG)
    back = bytearray(8)
    a.read(back, region.remote, timeout=LONG)
    assert back == b"reached!"
    into = Bytes(8)
    pending = weakref.ref(into)
    op = b.recv_async(1, into)
    del into
    gc.collect()
    assert pending() is not None and not op.done()
    op.cancel()
    b.unexpose(region)
    a.poll()
    gc.collect()
    assert alive() is None and pending() is None


def test_views_keep_their_memory() -> None:
    view = linkspan.Memory(bytearray(b"0123456789"))[2:8]
    gc.collect()
    assert view.tobytes() == b"234567" and view[1:3].tobytes() == b"34"


def test_memory_with_gaps_is_refused() -> None:
    with pytest.raises(linkspan.NotContiguous) as caught:
        linkspan.Memory(memoryview(bytearray(8))[::2])
    assert caught.value.code == "LS1181" and isinstance(caught.value, BufferError)


@pytest.mark.parametrize(
    ("memory", "name", "codes"),
    [
        (Fake(7), "vulkan:300", {"LS1182"}),
        (Fake(99), "device:300", {"LS1182"}),
        # Without a driver, and with one that has no such device.
        (Fake(2), "libcuda|cuda:300", {"LS1301", "LS1304"}),
        (Fake(10), "libamdhip64|hip:300", {"LS1301", "LS1304"}),
        (Cuda(), "0x1000", {"LS1313"}),
    ],
)
def test_memory_of_devices_that_are_not_there_is_a_typed_error(memory: Any, name: str, codes: set[str]) -> None:
    with pytest.raises(linkspan.DeviceMemory, match=name) as caught:
        linkspan.Memory(memory)
    assert caught.value.code in codes


@pytest.mark.parametrize(("device", "codes"), [("tpu", {"LS1185"}), ("cuda:300", {"LS1301", "LS1304"}), ("hip:x", {"LS1312"})])
def test_transports_for_devices_that_are_not_there_are_a_typed_error(device: str, codes: set[str]) -> None:
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Transport(device)
    assert caught.value.code in codes
    # As help() has it.
    assert re.search(r"DeviceMemory: .*no such GPU, or no driver", linkspan.Transport.__doc__ or "")


@pytest.mark.parametrize("thing", [None, 5, "text", [1, 2], object()])
def test_things_without_memory_are_refused(thing: Any) -> None:
    with pytest.raises(linkspan.UnsupportedMemory) as caught:
        linkspan.Memory(thing)
    assert caught.value.code == "LS1180" and isinstance(caught.value, TypeError)


def numpy_of_objects() -> list[Any]:
    try:
        import numpy as np
    except ImportError:
        return []
    mixed: Any = [1, "a", None]
    plain: Any = np.array(mixed, object)
    # The last one has a number called O too, beside objects.
    kinds: list[Any] = [[("a", "i4"), ("o", "O")], [("o", "O", (2, 2))], [("a", "i4"), ("in", [("b", "u1"), ("o", "O")])], [("O", "i4"), ("o", "O")]]
    parts: Any = np.zeros(3, kinds[0])
    return [plain, plain[1:], memoryview(plain), *(np.zeros(3, kind) for kind in kinds), parts[["a"]]]


class WithObject(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("object", ctypes.py_object)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("number", ctypes.c_int), ("object", ctypes.py_object)]


class Either(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("object", ctypes.py_object)]


class Nested(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("either", Either * 2)]


class Heir(Nested):
    _fields_ = [("more", ctypes.c_int)]


OF_CTYPES: list[type[Any]] = [
    *(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p),
    *(ctypes.POINTER(ctypes.c_int), ctypes.CFUNCTYPE(None), ctypes.POINTER(ctypes.c_int) * 3),
    *(WithObject, WithObject * 2, Packed, Packed * 2, Either, Either * 2, Nested, Nested * 2, Heir, Heir * 2),
]


@pytest.mark.parametrize(
    "memory",
    [*numpy_of_objects(), *(kind() for kind in OF_CTYPES), memoryview(bytearray(16)).cast("P")],
    ids=lambda one: f"{type(one).__name__}-{memoryview(one).format}",
)
def test_memory_that_holds_objects_or_pointers_is_refused_everywhere(pair: Pair, memory: Any) -> None:
    a, b = pair
    place = bytearray(4096)
    remote = b.expose(place).remote
    was = bytes(memoryview(memory).tobytes()) if memoryview(memory).format == "B" else None
    calls: list[Callable[[], object]] = [
        lambda: linkspan.Memory(memory),
        lambda: a.expose(memory),
        lambda: a.write(memory, remote, timeout=LONG),
        lambda: a.read(memory, remote, timeout=LONG),
        lambda: a.write_batch([(memory, remote)], timeout=LONG),
        lambda: a.read_batch([(memory, remote)], timeout=LONG),
        lambda: a.write_async(memory, remote, timeout=LONG),
        lambda: a.read_async(memory, remote, timeout=LONG),
        lambda: a.send(1, memory, timeout=LONG),
        lambda: a.recv(1, memory, timeout=LONG),
    ]
    for call in calls:
        with pytest.raises(linkspan.UnsupportedMemory, match="^LS1180 .*: it holds Python objects or pointers") as caught:
            call()
        assert isinstance(caught.value, TypeError)
    assert place == bytes(4096) and (was is None or memoryview(memory).tobytes() == was)


class Header(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("kind", ctypes.c_uint8), ("O", ctypes.c_uint32), ("P", ctypes.c_uint8 * 3)]


class Word(ctypes.Union):
    _fields_ = [("whole", ctypes.c_uint32), ("bytes", ctypes.c_uint8 * 4)]


def test_numbers_in_structures_are_memory_whatever_their_names() -> None:
    for memory in ((Header * 2)(), (Word * 3)(), (ctypes.c_longdouble * 2)(), (Header * 1).from_buffer(Header())):
        assert linkspan.Memory(memory).nbytes == ctypes.sizeof(memory)
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    kinds: list[Any] = ["c8", "c16", "clongdouble", "S3", "U3", "V5", [("O", "i4"), ("Z", "c16"), ("P", "u1", (2, 2)), ("X", [("z", "?")])]]
    for kind in kinds:
        array = np.zeros(3, kind)
        assert linkspan.Memory(array).nbytes == array.nbytes
    parts: Any = np.zeros(3, [("a", "i4"), ("b", "i4")])
    assert linkspan.Memory(parts[["a"]]).nbytes == 24


@pytest.mark.parametrize("single", [Header(), Word(), ctypes.c_int(5)])
def test_a_single_item_is_refused_with_the_way_to_an_array_of_it(single: Any) -> None:
    with pytest.raises(linkspan.UnsupportedMemory, match=r"^LS1180 .*: it has no dimensions: .*\(type\(x\) \* 1\).from_buffer\(x\)"):
        linkspan.Memory(single)
    kind: Any = type(single)
    assert linkspan.Memory((kind * 1).from_buffer(single)).address == ctypes.addressof(single)


def test_times_of_numpy_are_memory_as_numbers() -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    for kind in ("datetime64[s]", "timedelta64[ns]"):
        times = np.zeros(3, kind)
        with pytest.raises(linkspan.UnsupportedMemory, match="^LS1180 numpy.ndarray .* cannot include dtype .*i8") as caught:
            linkspan.Memory(times)
        assert "DLPack only" not in str(caught.value)
        assert linkspan.Memory(times.view("i8")).nbytes == 24


def test_what_an_object_says_itself_comes_before_what_is_memory() -> None:
    class Graded:
        """As a tensor of torch that requires grad."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> object:
            raise BufferError("use tensor.detach()")

    with pytest.raises(linkspan.UnsupportedMemory, match=r"Graded shows no memory that can be used: use tensor.detach\(\); pass an object"):
        linkspan.Memory(Graded())


def test_text_is_to_be_encoded(pair: Pair) -> None:
    text: Any = "hi"
    with pytest.raises(linkspan.UnsupportedMemory, match=r"^LS1180 str shows no memory that can be used: encode the text \(.encode\(\)\)"):
        pair[0].send(1, text)


def test_numpy(pair: Pair) -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    a, b = pair
    inbox, data = np.zeros((8, 16), np.float32), np.arange(128, dtype=np.float32).reshape(8, 16)
    a.write(data, b.expose(inbox).remote, timeout=LONG)
    assert (inbox == data).all()
    with pytest.raises(linkspan.NotContiguous):
        linkspan.Memory(data[:, ::2])
    with pytest.raises(linkspan.NotContiguous):
        linkspan.Memory(np.asfortranarray(data))
    data.flags.writeable = False
    assert linkspan.Memory(data).readonly
    with pytest.raises(ValueError):
        inbox.resize((1, 1))


def test_dlpack_without_the_buffer_protocol(pair: Pair) -> None:
    np = pytest.importorskip("numpy", reason="numpy is not installed")

    class Tensor:
        """Speaks DLPack only, in the newest form or in the oldest."""

        def __init__(self, array: Any, modern: bool) -> None:
            self.array, self.modern = array, modern

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

        def __dlpack__(self, **keywords: Any) -> Any:
            if keywords and not self.modern:
                raise TypeError("no keywords here")
            return self.array.__dlpack__(**keywords)

    a, b = pair
    for modern in (True, False):
        inbox, data = np.zeros((3, 4), np.int64), np.arange(12, dtype=np.int64).reshape(3, 4)
        a.write(Tensor(data, modern), b.expose(Tensor(inbox, modern)).remote, timeout=LONG)
        assert (inbox == data).all()
        assert linkspan.Memory(Tensor(data[1:], modern)).address == data[1:].ctypes.data
        with pytest.raises(linkspan.NotContiguous):
            linkspan.Memory(Tensor(data.T, modern))
        assert linkspan.Memory(Tensor(data[:, :0], modern)).nbytes == 0
    data.flags.writeable = False
    assert linkspan.Memory(Tensor(data, True)).readonly
    kept = np.arange(5)
    count = weakref.ref(kept)
    memory = linkspan.Memory(Tensor(kept, True))
    del kept
    gc.collect()
    assert count() is not None and memory.nbytes == 40
    del memory
    gc.collect()
    assert count() is None


class Odd:
    """An object of which DLPack or `__cuda_array_interface__` says what cannot be."""

    def __init__(self, device: Any, shape: tuple[int, ...] = (), capsule: bool = True, code: int = 0) -> None:
        self.device, self.capsule = device, capsule
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        # DLTensor, behind it the manager and its deleter: dmlc/dlpack, version 0.8.
        self.tensor = ctypes.create_string_buffer(
            struct.pack("PiiiBBHPPQPP", 0, 1, 0, len(shape) - 5 * (not shape), code, 64, 1, ctypes.addressof(self.shape), 0, 0, 0, 0)
        )

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_: Any) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None) if self.capsule else 5


class OfObjects:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "|O8", "data": (4096, False), "version": 3}


class NoDict:
    __cuda_array_interface__ = (1, 2)


class Little:
    __cuda_array_interface__ = {"shape": (4,)}


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        (Odd("cpu"), "Odd .*: its device is cpu"),
        (Odd((1, 0), capsule=False), "Odd .*: its __dlpack__ gives no capsule"),
        (Odd((1, 0), (1 << 40, 1 << 40)), "Odd .*: its shape is none, or larger"),
        (Odd((1, 0), (1 << 60,)), "Odd .*: its shape is none, or larger"),
        (Odd((1, 0), (-1,)), "Odd .*: its shape is none, or larger"),
        (Odd((1, 0)), "Odd .*: its shape is none, or larger"),
        # kDLOpaqueHandle
        (Odd((1, 0), (4,), code=3), "Odd .*: it holds Python objects or pointers"),
        (OfObjects(), "OfObjects .*: it holds Python objects or pointers"),
        (NoDict(), "NoDict .*: its __cuda_array_interface__ is no dict"),
        (Little(), 'Little .*: its __cuda_array_interface__ has no "data"'),
    ],
)
def test_memory_of_which_a_protocol_says_what_cannot_be_is_a_typed_error(memory: Any, why: str) -> None:
    with pytest.raises(linkspan.UnsupportedMemory, match=f"^LS1180 test_memory.{why}"):
        linkspan.Memory(memory)


def test_torch(pair: Pair) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = pair
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool):
        inbox, data = torch.zeros(6, 7, dtype=dtype), (torch.arange(42) % 3).reshape(6, 7).to(dtype)
        a.write(data, b.expose(inbox).remote, timeout=LONG)
        assert torch.equal(inbox, data)
        back = torch.zeros(2, 7, dtype=dtype)
        a.read(back, b.expose(data, "read").remote[: back.nbytes], timeout=LONG)
        assert torch.equal(back, data[:2])
    with pytest.raises(linkspan.NotContiguous):
        linkspan.Memory(data.t())
    with pytest.raises(linkspan.UnsupportedMemory, match="detach"):
        linkspan.Memory(torch.zeros(3, requires_grad=True))
    with pytest.raises(linkspan.DeviceMemory):
        linkspan.Transport(torch.device("cuda", 63))
    assert not linkspan.Transport(torch.device("cpu")).connected


def test_a_storage_on_a_gpu_is_taken_as_it_is() -> None:
    # Nothing of torch's fixes one, and every storage of its own can be resized.
    storage = SimpleNamespace(device=SimpleNamespace(type="cuda"), resizable=lambda: True)
    fix_storage(SimpleNamespace(untyped_storage=lambda: storage))


def test_a_torch_storage_cannot_be_resized_while_it_is_memory() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.zeros(16, dtype=dtype)
        memory = linkspan.Memory(tensor)
        with pytest.raises(RuntimeError):
            tensor.resize_(1 << 20)
        with pytest.raises(RuntimeError):
            tensor.untyped_storage().resize_(0)
        assert memory.tobytes() == bytes(16 * tensor.itemsize)


def test_torch_without_numpy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def numpy(_: object) -> None:
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    with pytest.raises(linkspan.UnsupportedMemory, match="install numpy"):
        linkspan.Memory(torch.zeros(3))


def test_memory_has_no_pickle() -> None:
    with pytest.raises(linkspan.BadType, match="^LS1195 .*remote buffer"):
        pickle.dumps(linkspan.Memory(bytearray(4))[1:2])
