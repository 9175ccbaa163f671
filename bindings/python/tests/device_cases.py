"""Memory of GPUs, on stand-ins for their drivers: run by test_device.py, in a process that finds them.

The stand-ins run queued work late, as real devices do, and the one of CUDA keeps its memory where the processor faults.
With REAL_GPUS (names of devices, cuda:0 or hip:0) they run on those (`cargo xtask gpu`), but for what only stand-ins show.
"""

import asyncio
import ctypes
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import linkspan
import pytest

from conftest import LONG, Pair, calls_with_the_lock_held

u64 = ctypes.c_ulonglong

REAL = os.environ.get("REAL_GPUS", "").split()


class Cuda:
    """A program's own use of the CUDA driver. Threads have its context only while they call."""

    name, dlpack = "cuda:0", (2, 0)

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0) == 0

    @contextmanager
    def current(self) -> Iterator[None]:
        assert self.lib.cuCtxPushCurrent_v2(self.context) == 0
        yield
        assert self.lib.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0

    def alloc(self, length: int) -> int:
        at = u64()
        with self.current():
            assert self.lib.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(length)) == 0
        return at.value

    def up(self, to: int, data: bytes) -> None:
        with self.current():
            assert self.lib.cuMemcpyHtoD_v2(u64(to), data, ctypes.c_size_t(len(data))) == 0
            # A copy of little memory is not over when its call returns, and no stream of others waits for it.
            assert self.lib.cuStreamSynchronize(ctypes.c_void_p(0)) == 0

    def down(self, source: int, length: int) -> bytes:
        out = ctypes.create_string_buffer(length)
        with self.current():
            assert self.lib.cuMemcpyDtoH_v2(out, u64(source), ctypes.c_size_t(length)) == 0
        return out.raw

    def queue_copy(self, to: int, source: int, length: int, stream: int) -> None:
        with self.current():
            assert self.lib.cuMemcpyAsync(u64(to), u64(source), ctypes.c_size_t(length), ctypes.c_void_p(stream)) == 0

    def stream(self) -> int:
        made = ctypes.c_void_p()
        with self.current():
            assert self.lib.cuStreamCreate(ctypes.byref(made), 1) == 0
        return made.value or 0


class Hip:
    """A program's own use of HIP."""

    # A second one, where it is known that there is one.
    index = 0 if REAL else 1
    name, dlpack = f"hip:{index}", (10, index)

    def __init__(self) -> None:
        self.lib = self.library()

    @staticmethod
    def library() -> ctypes.CDLL:
        for version in (7, 6):
            try:
                return ctypes.CDLL(f"libamdhip64.so.{version}")
            except OSError:
                continue
        return ctypes.CDLL("libamdhip64.so")

    def alloc(self, length: int) -> int:
        at = ctypes.c_void_p()
        assert self.lib.hipSetDevice(self.index) == 0
        assert self.lib.hipMalloc(ctypes.byref(at), ctypes.c_size_t(length)) == 0
        assert self.lib.hipSetDevice(0) == 0
        return at.value or 0

    def up(self, to: int, data: bytes) -> None:
        assert self.lib.hipMemcpy(ctypes.c_void_p(to), data, ctypes.c_size_t(len(data)), 4) == 0

    def down(self, source: int, length: int) -> bytes:
        out = ctypes.create_string_buffer(length)
        assert self.lib.hipMemcpy(out, ctypes.c_void_p(source), ctypes.c_size_t(length), 4) == 0
        return out.raw

    def queue_copy(self, to: int, source: int, length: int, stream: int) -> None:
        pointers = ctypes.c_void_p(to), ctypes.c_void_p(source)
        assert self.lib.hipMemcpyAsync(*pointers, ctypes.c_size_t(length), 4, ctypes.c_void_p(stream)) == 0

    def stream(self) -> int:
        made = ctypes.c_void_p()
        assert self.lib.hipStreamCreateWithFlags(ctypes.byref(made), 1) == 0
        return made.value or 0


Driver = Cuda | Hip

_DRIVERS: dict[type[Driver], Driver] = {}


def driver_of(kind: type[Driver]) -> Driver:
    if REAL and kind.name not in REAL:
        pytest.skip(f"{kind.name} is not among {' '.join(REAL)}")
    if kind not in _DRIVERS:
        _DRIVERS[kind] = kind()
    return _DRIVERS[kind]


@pytest.fixture(params=[Cuda, Hip])
def gpu(request: pytest.FixtureRequest) -> Driver:
    return driver_of(request.param)


@pytest.fixture
def cuda() -> Driver:
    return driver_of(Cuda)


def pair_on(gpu: Driver) -> Pair:
    a, b = linkspan.Transport(gpu.name), linkspan.Transport(gpu.name)
    a.connect(b.bind(), timeout=LONG)
    b.wait_connected(timeout=LONG)
    return a, b


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """Bytes on a GPU that speak DLPack."""

    def __init__(self, gpu: Driver, data: bytes | int, device: tuple[int, int] | None = None) -> None:
        self.gpu, self.device = gpu, device or gpu.dlpack
        self.nbytes = data if isinstance(data, int) else len(data)
        self.address = gpu.alloc(self.nbytes)
        if isinstance(data, bytes):
            gpu.up(self.address, data)
        self.flags = 0
        self.streams: list[int] = []
        # Queued behind everything that came before, on the stream that it is given.
        self.last_work: Callable[[int], None] = lambda _: None
        self._shape = (ctypes.c_int64 * 1)(self.nbytes)
        self._managed: list[DLManagedTensorVersioned] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        assert max_version is not None and copy is False
        self.streams.append(stream)
        self.last_work(stream)
        tensor = DLTensor(self.address, *self.device, 1, 1, 8, 1, self._shape, None, 0)
        managed = DLManagedTensorVersioned(1, 0, None, None, self.flags, tensor)
        self._managed.append(managed)
        return new_capsule(ctypes.addressof(managed), b"dltensor_versioned", None)

    def bytes(self) -> bytes:
        return self.gpu.down(self.address, self.nbytes)


class Array:
    """Bytes on a GPU that have `__cuda_array_interface__`."""

    def __init__(self, gpu: Driver, data: bytes | int, **more: Any) -> None:
        self.gpu = gpu
        self.nbytes = data if isinstance(data, int) else len(data)
        self.address = gpu.alloc(self.nbytes)
        if isinstance(data, bytes):
            gpu.up(self.address, data)
        place = {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}
        self.__cuda_array_interface__ = place | more

    def bytes(self) -> bytes:
        return self.gpu.down(self.address, self.nbytes)


def random(length: int, seed: int) -> bytes:
    return bytes((seed * 131 + i * 7 + (i >> 8)) & 0xFF for i in range(length))


@pytest.mark.parametrize("length", [1, 8192, 8193, 300_000])
def test_gpu_memory_is_written_read_and_sent(gpu: Driver, length: int) -> None:
    a, b = pair_on(gpu)
    up, down, data = Tensor(gpu, random(length, 1)), Tensor(gpu, length), random(length, 1)
    region = b.expose(down, "readwrite")
    assert a.write(up, region.remote, notify=5, timeout=LONG) == length
    assert b.wait_for_write(timeout=LONG) == 5 and down.bytes() == data
    host = bytearray(length)
    a.read(host, region.remote, timeout=LONG)
    assert host == data
    a.write(bytes(reversed(data)), region.remote, timeout=LONG)
    assert down.bytes() == bytes(reversed(data))
    back = Tensor(gpu, length)
    a.read(back, region.remote, timeout=LONG)
    assert back.bytes() == bytes(reversed(data))
    received = b.recv_async(1, down)
    a.send(1, up, timeout=LONG)
    assert received.wait() == length and down.bytes() == data
    assert gpu.name in (a.path or "")
    a.close()
    b.close()


def test_views_say_where_they_are(gpu: Driver) -> None:
    memory = linkspan.Memory(Tensor(gpu, b"0123456789"))
    assert memory.device == gpu.name and memory[2:5].device == gpu.name and memory[2:5].tobytes() == b"234"
    assert f"on {gpu.name}" in repr(memory) and not memory.readonly
    assert linkspan.Memory(bytearray(3)).device == "cpu"
    with pytest.raises(linkspan.OutOfBounds):
        memory[5:11]


def test_parts_of_gpu_memory_in_one_call(gpu: Driver) -> None:
    a, b = pair_on(gpu)
    up, down = Tensor(gpu, random(40_000, 3)), Tensor(gpu, 40_000)
    source, remote = linkspan.Memory(up), b.expose(down).remote
    pages = [(source[at : at + 1000], remote[39_000 - at : 40_000 - at]) for at in range(0, 40_000, 1000)]
    a.write_batch(pages, notify=True, timeout=LONG)
    b.wait_for_write(timeout=LONG)
    data, got = random(40_000, 3), down.bytes()
    assert all(got[39_000 - at : 40_000 - at] == data[at : at + 1000] for at in range(0, 40_000, 1000))


def test_a_producer_of_dlpack_is_waited_for(gpu: Driver) -> None:
    a, b = pair_on(gpu)
    up, fresh, down = Tensor(gpu, random(64, 1)), Tensor(gpu, random(64, 2)), Tensor(gpu, 64)
    # The producer's last kernel stands behind the stream that we hand over.
    up.last_work = lambda stream: gpu.queue_copy(up.address, fresh.address, 64, stream)
    a.write(up, b.expose(down).remote, timeout=LONG)
    # Above 2: none of the default streams, which the two kinds number differently.
    assert down.bytes() == random(64, 2) and up.streams[-1] > 2


def test_a_stream_of_the_cuda_array_interface_is_waited_for(cuda: Driver) -> None:
    a, b = pair_on(cuda)
    own = cuda.stream()
    for stream in (own, 1, 2):
        up, fresh, down = Array(cuda, random(64, 1), stream=stream), Array(cuda, random(64, 2)), Array(cuda, 64)
        cuda.queue_copy(up.address, fresh.address, 64, stream)
        a.write(up, b.expose(down).remote, timeout=LONG)
        assert down.bytes() == random(64, 2), stream
    # Nobody else is waited for: without a stream the work is the program's own affair. A real device may well have done it.
    if REAL:
        return
    up, fresh, down = Array(cuda, random(64, 1), stream=None), Array(cuda, random(64, 2)), Array(cuda, 64)
    cuda.queue_copy(up.address, fresh.address, 64, own)
    a.write(up, b.expose(down).remote, timeout=LONG)
    assert down.bytes() == random(64, 1)


def test_the_cuda_array_interface_is_memory(cuda: Driver) -> None:
    a, b = pair_on(cuda)
    up = Array(cuda, random(96, 4), shape=(2, 3, 4), typestr="<f4", strides=(48, 16, 4))
    down = Array(cuda, 96, shape=(24,), typestr="<f4", version=2)
    assert linkspan.Memory(up).nbytes == 96
    a.write(up, b.expose(down).remote, timeout=LONG)
    assert down.bytes() == random(96, 4)
    frozen = Array(cuda, 8)
    frozen.__cuda_array_interface__["data"] = (frozen.address, True)
    assert linkspan.Memory(frozen).readonly
    with pytest.raises(linkspan.ReadOnly):
        b.expose(frozen, "write")
    with pytest.raises(linkspan.NotContiguous):
        linkspan.Memory(Array(cuda, 96, shape=(4, 6), typestr="<f4", strides=(4, 16)))
    with pytest.raises(linkspan.UnsupportedMemory, match="masked"):
        linkspan.Memory(Array(cuda, 8, mask=object()))
    for wrong, why in (
        ({"strides": (1, 1)}, "it has 2 strides and 1 dimensions"),
        ({"strides": "none"}, "its strides is none"),
        ({"typestr": "floats"}, "its typestr is \"floats\""),
        ({"shape": (1 << 62, 4)}, "its shape is larger than any memory"),
        ({"shape": (-1,)}, "its shape is"),
    ):
        with pytest.raises(linkspan.UnsupportedMemory, match=f"^LS1180 device_cases.Array .*: {why}"):
            linkspan.Memory(Array(cuda, 8, **wrong))
    nothing = Array(cuda, 8, shape=(0, 3))
    nothing.__cuda_array_interface__["data"] = (0, False)
    assert a.write(nothing, b.expose(down).remote[:0], timeout=LONG) == 0


def test_gpu_memory_in_threads_and_asyncio(gpu: Driver) -> None:
    a, b = pair_on(gpu)
    downs = [Tensor(gpu, 5000) for _ in range(8)]
    remotes = [b.expose(down).remote for down in downs]

    async def all_of_them() -> None:
        ups = [Tensor(gpu, random(5000, seed)) for seed in range(8)]
        await asyncio.gather(*(a.write_async(up, remote) for up, remote in zip(ups, remotes, strict=True)))

    asyncio.run(asyncio.wait_for(all_of_them(), LONG))
    assert [down.bytes() for down in downs] == [random(5000, seed) for seed in range(8)]

    def one(seed: int) -> None:
        a.write(Tensor(gpu, random(5000, seed + 50)), remotes[seed], timeout=LONG)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [down.bytes() for down in downs] == [random(5000, seed + 50) for seed in range(8)]


def test_a_listener_for_gpu_memory(gpu: Driver) -> None:
    with linkspan.Listener(gpu.name) as listener:
        a = linkspan.Transport(gpu.name)
        a.connect(listener.url, timeout=LONG)
        b = listener.accept(timeout=LONG)
        down = Tensor(gpu, 10)
        a.write(Tensor(gpu, b"0123456789"), b.expose(down).remote, timeout=LONG)
        assert down.bytes() == b"0123456789"


def test_a_tensor_lives_as_long_as_it_is_used(gpu: Driver) -> None:
    a, b = pair_on(gpu)
    down = Tensor(gpu, 10)
    alive = weakref.ref(down)
    # What keeps a capsule's tensor is the producer's affair; this one keeps it by the object itself.
    array = Array(gpu, 10)
    kept = weakref.ref(array)
    memory = linkspan.Memory(array)
    del array
    gc.collect()
    assert kept() is not None and memory.nbytes == 10 and alive() is not None
    del memory
    gc.collect()
    assert kept() is None
    a.close()
    b.close()


def test_what_is_not_carried_is_said(gpu: Driver, pair: Pair) -> None:
    tensor = Tensor(gpu, 64)
    for call in (lambda: pair[0].expose(tensor), lambda: pair[0].send(1, tensor, timeout=LONG)):
        with pytest.raises(linkspan.DeviceMemory) as caught:
            call()
        assert caught.value.code == "LS1127" and gpu.name in str(caught.value)
    # It says that it is on a GPU, and its address is the host's.
    host = ctypes.create_string_buffer(64)
    tensor.address = ctypes.addressof(host)
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Memory(tensor)
    assert caught.value.code == "LS1306"
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Memory(Tensor(gpu, 64, (gpu.dlpack[0], 99)))
    assert caught.value.code == "LS1304"
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Transport(gpu.name.partition(":")[0] + ":99")
    assert caught.value.code == "LS1304"


def test_memory_of_another_gpu_is_said(cuda: Driver) -> None:
    a, _ = pair_on(cuda)
    other = driver_of(Hip)
    with pytest.raises(linkspan.DeviceMemory) as caught:
        a.expose(Tensor(other, 64))
    assert caught.value.code == "LS1127" and "hip:1" in str(caught.value)
    # Unallocated memory.
    lost = Array(cuda, 8)
    lost.__cuda_array_interface__["data"] = (4096, False)
    with pytest.raises(linkspan.DeviceMemory) as caught:
        linkspan.Memory(lost)
    assert caught.value.code == "LS1313"


def test_managed_memory_goes_by_its_gpu(cuda: Driver) -> None:
    assert linkspan.Memory(Tensor(cuda, b"managed", (13, 0))).device == "cuda:0"


LOCKED = """
from device_cases import Array, Cuda, Hip, Tensor

drivers = [Cuda(), Hip()]

def run():
    for gpu in drivers:
        tensor, cuda = Tensor(gpu, bytes(64)), Array(drivers[0], bytes(64), stream=1)
        a, b = watched(f"Transport({gpu.name})", lambda: linkspan.Transport(gpu.name)), linkspan.Transport(gpu.name)
        a.connect(b.bind(), timeout=30)
        memory = watched("Memory of DLPack", lambda: linkspan.Memory(tensor))
        assert watched("Memory of CAI", lambda: linkspan.Memory(cuda)).nbytes == 64
        watched("tobytes", memory.tobytes)
        region = watched("expose", lambda: b.expose(memory))
        watched("write", lambda: a.write(tensor if gpu.name.startswith("cuda") else bytes(64), region.remote, timeout=30))
        watched("close", b.close)

main(run)
"""


@pytest.mark.skipif(bool(REAL), reason="the program beside needs both kinds")
def test_no_call_of_a_driver_has_the_lock_of_python() -> None:
    names, held = calls_with_the_lock_held(f"sys.path.insert(0, {os.path.dirname(__file__)!r})" + LOCKED)
    assert len(names) == 14 and not held, sorted(held)


@pytest.mark.skipif(not REAL, reason="torch finds no GPU in the stand-ins")
def test_torch_tensors_of_a_gpu() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device = torch.device("cuda")
    a, b = linkspan.Transport(device), linkspan.Transport(device)
    a.connect(b.bind(), timeout=LONG)
    b.wait_connected(timeout=LONG)
    up = torch.arange(1 << 20, dtype=torch.float32, device=device)
    down, few = torch.zeros_like(up), torch.zeros(3, device=device)
    # Queued on torch's own stream, and not waited for.
    up.mul_(2).add_(1)
    a.write(up, b.expose(down).remote, notify=True, timeout=LONG)
    a.write(up[5:8], b.expose(few).remote, notify=True, timeout=LONG)
    assert [b.wait_for_write(timeout=LONG) for _ in range(2)] == [0, 0]
    assert torch.equal(up, down) and few.tolist() == [11.0, 13.0, 15.0]
    cache = torch.zeros(4, 8, device=device)
    pages, remote = linkspan.Memory(up[:32]).pages(32), b.expose(cache).remote.pages(32)
    a.write_pages(pages, [3, 0], remote, [0, 2], timeout=LONG)
    assert torch.equal(cache[0], up[24:32]) and torch.equal(cache[2], up[:8]) and not cache[1].any()


def test_devices_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        def __init__(self, text: str) -> None:
            self.text = text

        def __str__(self) -> str:
            return self.text

    version = SimpleNamespace(hip=None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=Device, version=version))
    cuda, hip = driver_of(Cuda), driver_of(Hip)
    assert linkspan.Transport(Device("cuda")).expose(Tensor(cuda, 8)).remote.nbytes == 8
    # torch for AMD's GPUs calls them so too.
    version.hip = "6.2"
    assert linkspan.Transport(Device("cuda:1")).expose(Tensor(hip, 8)).remote.nbytes == 8
    assert linkspan.Transport("cuda:0").expose(Tensor(cuda, 8)).remote.nbytes == 8
