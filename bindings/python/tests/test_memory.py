"""What counts as memory, and that it stays where it is while something uses it."""

import array
import ctypes
import gc
import mmap
import pickle
import struct
import weakref
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


@pytest.mark.parametrize("thing", [None, 5, "text", [1, 2], object()])
def test_things_without_memory_are_refused(thing: Any) -> None:
    with pytest.raises(linkspan.UnsupportedMemory) as caught:
        linkspan.Memory(thing)
    assert caught.value.code == "LS1180" and isinstance(caught.value, TypeError)


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

    def __init__(self, device: Any, shape: tuple[int, ...] = (), capsule: bool = True) -> None:
        self.device, self.capsule = device, capsule
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        # DLTensor, behind it the manager and its deleter: dmlc/dlpack, version 0.8.
        self.tensor = ctypes.create_string_buffer(
            struct.pack("PiiiBBHPPQPP", 0, 1, 0, len(shape) - 5 * (not shape), 0, 64, 1, ctypes.addressof(self.shape), 0, 0, 0, 0)
        )

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_: Any) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None) if self.capsule else 5


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
