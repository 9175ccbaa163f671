"""A KV connector for vLLM: prefill on some engines, decode on others, and the KV cache moves over linkspan.

vLLM loads it by name, with ``"kv_connector": "LinkspanConnector", "kv_connector_module_path": "linkspan.vllm"`` in
``--kv-transfer-config``; docs/vllm.md has the commands. The decoding engine reads the blocks of a finished prompt out of the cache of
the engine that has computed them, which keeps them until then. Parameters of a request are those that proxies for vLLM's NIXL
connector pass on.

It has two halves, as vLLM runs them: one in the scheduler's process, which names blocks, and one in each worker, which moves them. A
worker reads from the worker of its own rank, so both engines have the same tensor parallelism.
"""

import asyncio
import json
import struct
import threading
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from . import Endpoint, Error, Event, Interrupted, Memory, Pages, RemoteBuffer, RemotePages, Transport

logger = init_logger("vllm.linkspan")

# Tags of messages: how a cache is laid out; the number of a request whose blocks were read, and that of the question; the latter, and whether
# they still were its blocks. One who has asked may have given up by then, so an answer says to what.
_LAYOUT: Final = 1
_TAKEN: Final = 2
_HELD: Final = 3
_QUESTION: Final = struct.Struct("<QQ")
_ANSWER: Final = struct.Struct("<Q?")
# A layout has some 150 bytes for each tensor of a cache; models have hundreds.
_LAYOUT_MOST: Final = 1 << 20
# Requests that a decoder may be done with before this worker has heard of them: both come from the same step.
_EARLY_MOST: Final = 4096


@dataclass
class Address(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """Where a worker that has computed blocks can be connected to. The URL is a secret."""

    name: str
    url: str


@dataclass
class Load:
    """Blocks of a request, which lie at one of a decoder's and one of a prefiller's numbers each; none where they are not needed."""

    addresses: list[list[str]]
    number: int
    ours: list[int]
    theirs: list[int]


@dataclass
class Step(KVConnectorMetadata):  # type: ignore[misc]
    """What the scheduler tells workers with a step: what to load, and which finished requests keep their blocks for others."""

    loads: dict[str, Load] = field(default_factory=dict)
    holds: dict[int, str] = field(default_factory=dict)


@dataclass
class Source:
    """Where a request's blocks are, as its parameters say; a client may have written them."""

    addresses: list[list[str]]
    number: int
    tokens: int
    blocks: list[int]


def _source(params: dict[str, Any] | None, block_size: int) -> Source | None:
    """What parameters of a request say, or None where they name no blocks that can be read."""
    if not params or not params.get("do_remote_prefill"):
        return None
    ours, blocks = params.get("linkspan"), params.get("remote_block_ids")
    try:
        if not isinstance(ours, dict) or not isinstance(blocks, list):
            raise TypeError("there is no `linkspan` in them, or no `remote_block_ids`")
        addresses = [[str(name), str(url)] for name, url in ours["addresses"]]
        number, tokens, theirs = int(ours["number"]), int(ours["tokens"]), int(ours["block_size"])
        numbers = [int(block) for block in blocks]
        if theirs != block_size:
            raise ValueError(f"a block has {theirs} tokens there and {block_size} here: give both engines the same --block-size")
        if not 0 <= number < 1 << 63 or not 0 <= tokens <= len(numbers) * block_size:
            raise ValueError(f"{tokens} tokens are not in {len(numbers)} blocks of {block_size}")
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("linkspan: the blocks of a prompt are computed here, for its kv_transfer_params name none to read: %s", error)
        return None
    return Source(addresses, number, tokens, numbers)


class _Scheduler:
    """The half in the scheduler's process."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._block_size: int = config.cache_config.block_size
        self._addresses: list[list[str]] = []
        self._step = Step()
        self._last = 0

    def addresses(self, metadata: dict[int, Address]) -> None:
        self._addresses = [[metadata[rank].name, metadata[rank].url] for rank in sorted(metadata)]

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        source = _source(request.kv_transfer_params, self._block_size)
        if source is None:
            return 0, False
        count = min(source.tokens, request.num_prompt_tokens) - computed
        return (count, True) if count > 0 else (0, False)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        params = request.kv_transfer_params
        source = _source(params, self._block_size)
        if source is None:
            return
        # It is asked again when the blocks have come.
        params["do_remote_prefill"] = False
        ours: list[int] = []
        theirs: list[int] = []
        if external > 0:
            end = min(source.tokens, request.num_prompt_tokens)
            first, last = (end - external) // self._block_size, -(-end // self._block_size)
            (numbers,) = blocks.get_block_ids()
            ours, theirs = list(numbers[first:last]), source.blocks[first:last]
        self._step.loads[request.request_id] = Load(source.addresses, source.number, ours, theirs)

    def finished(self, request: Any, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        params = request.kv_transfer_params
        if not params:
            return False, None
        source = _source(params, self._block_size)
        if source is not None:
            # Ended before it was scheduled: the other engine need not keep its blocks.
            params["do_remote_prefill"] = False
            self._step.loads[request.request_id] = Load(source.addresses, source.number, [], [])
            return False, None
        ended_well = request.status in (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
        if not params.get("do_remote_decode") or not ended_well or not blocks or not self._addresses:
            return False, None
        self._last += 1
        self._step.holds[self._last] = request.request_id
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._config.kv_transfer_config.engine_id,
            "remote_request_id": request.request_id,
            "remote_block_ids": blocks,
            "linkspan": {
                "addresses": self._addresses,
                "number": self._last,
                "tokens": min(request.num_computed_tokens, len(blocks) * self._block_size),
                "block_size": self._block_size,
            },
        }

    def step(self) -> Step:
        step, self._step = self._step, Step()
        return step


@dataclass
class Region:
    """Memory of a cache in which block ``i`` is page ``i``: the bytes, those of a piece of a page, and the pieces of each."""

    memory: torch.Tensor
    nbytes: int
    pieces: int


def regions(caches: dict[str, Any], blocks: int) -> list[Region]:
    """The memory of a cache, each byte of it once, though layers may share a tensor.

    Args:
        caches: The tensor of each layer.
        blocks: Blocks of the cache: of each tensor the length of its first or second dimension, or a divisor of it.

    Returns:
        The regions, in the order of the layers.

    Raises:
        ValueError: A layer whose blocks are not in one piece, or in equal ones.
    """
    found: dict[tuple[int, int], Region] = {}
    for name, cache in caches.items():
        if not isinstance(cache, torch.Tensor):
            raise ValueError(f"layer {name} has a state that is no tensor of blocks; only attention is moved")
        dims = [dim for dim in (0, 1) if dim < cache.dim() and cache.shape[dim] and cache.shape[dim] % blocks == 0]
        shape, strides = tuple(cache.shape), cache.stride()
        if not dims:
            raise ValueError(f"layer {name} is {shape}, and {blocks} blocks are in neither of its first two dimensions")
        dim, size = dims[0], cache.element_size()
        stride = strides[dim] * (shape[dim] // blocks) * size
        outer = [other for other in range(cache.dim()) if strides[other] > strides[dim] and shape[other] > 1]
        pieces, start = 1, cache.storage_offset() * size
        if outer == [0] and strides[0] * size == stride * blocks:
            pieces = shape[0]
        elif outer:
            raise ValueError(f"layer {name} is {shape} by strides {strides}: the bytes of a block are all over it")
        else:
            start -= start % (stride * blocks)
        storage = cache.untyped_storage()
        if (storage.data_ptr(), start) in found:
            continue
        length = stride * blocks * pieces
        whole = torch.empty(0, dtype=torch.uint8, device=cache.device).set_(storage)
        if start + length > whole.numel():
            raise ValueError(f"layer {name} is {shape} by strides {strides}: {length} bytes from {start} on are more than it has")
        found[storage.data_ptr(), start] = Region(whole[start : start + length], stride, pieces)
    return list(found.values())


@dataclass
class _Peer:
    link: Transport
    pages: list[RemotePages]
    asked: dict[int, "asyncio.Future[bool]"] = field(default_factory=dict)


class _Worker:
    """The half in a worker's process. What it waits for, it waits for in a thread of its own, so that a step never does."""

    def __init__(self, config: Any, kv_cache_config: Any) -> None:
        self._config = config
        self._blocks: int = kv_cache_config.num_blocks
        transfer = config.kv_transfer_config
        self._gives: bool = transfer.is_kv_producer
        self._keep = float(transfer.get_from_extra_config("keep_seconds", 480))
        self._timeout = float(transfer.get_from_extra_config("timeout_seconds", 60))
        self._paired = bool(transfer.get_from_extra_config("paired", False))
        self._rank: int = get_tensor_model_parallel_rank()
        self._endpoint: Endpoint | None = None
        self._pages: list[Pages] = []
        self._layout: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="linkspan", daemon=True)
        # All of these belong to the thread.
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: dict[str, asyncio.Task[_Peer]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self._early: set[int] = set()
        self._newest = 0
        self._questions = 0
        # These do not.
        self._lock = threading.Lock()
        self._sent: set[str] = set()
        self._received: set[str] = set()
        self._failed: set[int] = set()

    def register(self, caches: dict[str, Any]) -> None:
        found = regions(caches, self._blocks)
        device = next(iter(caches.values())).device
        endpoint = Endpoint(f"vllm-{uuid.uuid4().hex}", device, paired=self._paired)
        remotes: list[str] = []
        for region in found:
            memory = Memory(region.memory)
            self._pages.append(memory.pages(region.nbytes, pieces=region.pieces))
            if self._gives:
                remotes.append(endpoint.expose(memory, "read").remote.to_bytes().hex())
        self._layout = {
            "architectures": list(self._config.model_config.hf_config.architectures or []),
            "dtypes": sorted({str(cache.dtype) for cache in caches.values()}),
            "rank": self._rank,
            "ranks": self._config.parallel_config.tensor_parallel_size,
            "regions": [[region.nbytes, region.pieces] for region in found],
            "remotes": remotes,
        }
        self._endpoint = endpoint
        self._thread.start()

    def address(self) -> Address | None:
        if self._endpoint is None or not self._gives:
            return None
        return Address(self._endpoint.name, str(self._endpoint.url))

    def begin(self, step: Step) -> None:
        if step.loads or step.holds:
            self._loop.call_soon_threadsafe(self._begin, step)

    def finished(self) -> tuple[set[str], set[str]]:
        with self._lock:
            sent, self._sent = self._sent, set()
            received, self._received = self._received, set()
        return sent, received

    def failed(self) -> set[int]:
        with self._lock:
            failed, self._failed = self._failed, set()
        return failed

    def close(self) -> None:
        if self._endpoint is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._endpoint.close()
        self._endpoint = None

    # From here on in the thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._spawn(self._serve())
        self._spawn(self._let_go())
        self._loop.run_forever()
        for task in [*self._tasks, *self._peers.values()]:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, *self._peers.values(), return_exceptions=True))
        self._loop.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, step: Step) -> None:
        until = time.monotonic() + self._keep
        for number, request in step.holds.items():
            self._newest = max(self._newest, number)
            self._held[number] = (request, until)
            if number in self._early:
                self._early.discard(number)
                self._release(number)
        for request, load in step.loads.items():
            self._spawn(self._load(request, load))

    def _release(self, number: int) -> bool:
        """Lets the blocks of a request go; False where they went earlier, and may hold another one's bytes."""
        if number > self._newest and len(self._early) < _EARLY_MOST:
            self._early.add(number)
            return True
        held = self._held.pop(number, None)
        if held is None:
            return False
        with self._lock:
            self._sent.add(held[0])
        return True

    async def _let_go(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            for number in [number for number, (_, until) in self._held.items() if until < now]:
                request, _ = self._held[number]
                logger.warning("linkspan: nobody has fetched the blocks of request %s in %.0f s; they are freed", request, self._keep)
                self._release(number)

    async def _serve(self) -> None:
        assert self._endpoint is not None
        event: Event
        async for event in self._endpoint.events():
            if event.kind == "connected" and self._gives:
                self._spawn(self._answer(event.peer))
            elif event.kind == "lost":
                logger.info("linkspan: %s is lost: %s", event.peer, event.why)
                self._peers.pop(event.peer, None)

    async def _answer(self, name: str) -> None:
        """Says to a peer how the cache is laid out, and then whether what it has read was what it asked for."""
        assert self._endpoint is not None
        try:
            link = self._endpoint.peer(name)
            with suppress(Interrupted):  # It may have arrived. A peer that does not have it connects anew.
                await link.send_async(_LAYOUT, json.dumps(self._layout).encode())
            asked, answer = bytearray(_QUESTION.size), b""
            while True:
                with suppress(Interrupted):  # A read was given up, and its path made anew.
                    if not answer and await link.recv_async(_TAKEN, asked) == _QUESTION.size:
                        question, number = _QUESTION.unpack(asked)
                        answer = _ANSWER.pack(question, self._release(number))
                    if answer:
                        # Again where it may not have arrived: one that a peer has had already says nothing to it.
                        await link.send_async(_HELD, answer)
                        answer = b""
        except Error as error:
            logger.debug("linkspan: %s is not answered any more: %s", name, error)

    async def _meet(self, name: str, url: str) -> _Peer:
        assert self._endpoint is not None
        link = await self._endpoint.connect_async(name, url, self._timeout)
        try:
            space = bytearray(_LAYOUT_MOST)
            length = await link.recv_async(_LAYOUT, space, self._timeout)
            theirs = json.loads(space[:length])
            for what in ("architectures", "dtypes", "rank", "ranks", "regions"):
                if theirs[what] != self._layout[what]:
                    raise ValueError(f"the engines differ in {what}: {theirs[what]} there, {self._layout[what]} here")
            pages: list[RemotePages] = []
            for remote, (nbytes, pieces) in zip(theirs["remotes"], theirs["regions"], strict=True):
                pages.append(RemoteBuffer.from_bytes(bytes.fromhex(remote)).pages(nbytes, pieces=pieces))
        except BaseException:
            # It says how its cache is laid out when it is connected to, and only then.
            link.close()
            raise
        logger.info("linkspan: blocks come from %s over %s", name, link.path)
        peer = _Peer(link, pages)
        self._spawn(self._hear(peer))
        return peer

    async def _hear(self, peer: _Peer) -> None:
        answer = bytearray(_ANSWER.size)
        try:
            while True:
                try:
                    await peer.link.recv_async(_HELD, answer)
                except Interrupted:
                    continue
                question, held = _ANSWER.unpack(answer)
                waits = peer.asked.get(question)
                if waits is not None and not waits.done():
                    waits.set_result(held)
        except Error as error:
            for waits in peer.asked.values():
                if not waits.done():
                    waits.set_exception(error)

    async def _peer(self, name: str, url: str) -> _Peer:
        task = self._peers.get(name)
        # One that failed after those who waited for it had given up is no answer to this request.
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._peers[name] = self._loop.create_task(self._meet(name, url))
        try:
            # Others may wait for the same connection.
            return await asyncio.shield(task)
        except (Error, KeyError, TypeError, ValueError):
            if self._peers.get(name) is task:
                del self._peers[name]
            raise

    async def _load(self, request: str, load: Load) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._read(load)
        except Exception as error:  # Whatever it was, vLLM is told that these blocks did not come.
            for cause in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
                logger.error("linkspan: the blocks of request %s did not come: %s", request, str(cause) or f"not in {self._timeout:.0f} s")
            with self._lock:
                self._failed.update(load.ours)
        finally:
            if load.ours:
                with self._lock:
                    self._received.add(request)

    async def _read(self, load: Load) -> None:
        if self._rank >= len(load.addresses):
            raise ValueError(f"this is rank {self._rank}, and the other engine has {len(load.addresses)}: tensor parallelism must be equal")
        peer = await self._peer(*load.addresses[self._rank])
        if load.ours:
            # One that fails cancels the others: nothing lands in blocks that vLLM has been told of.
            async with asyncio.TaskGroup() as group:
                for ours, theirs in zip(self._pages, peer.pages, strict=True):
                    group.create_task(peer.link.read_pages_async(ours, load.ours, theirs, load.theirs))
        self._questions += 1
        question = self._questions
        peer.asked[question] = self._loop.create_future()
        try:
            await peer.link.send_async(_TAKEN, _QUESTION.pack(question, load.number))
            held = await peer.asked[question]
        finally:
            del peer.asked[question]
        if load.ours and not held:
            raise TimeoutError("the other engine had freed them by then; its keep_seconds is too short")


class LinkspanConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """What vLLM loads. Keys of ``kv_connector_extra_config``, all optional:

    - ``keep_seconds`` (480): for how long an engine that has computed a prompt keeps its blocks for another one.
    - ``timeout_seconds`` (60): for how long a decoding engine tries to connect and to read the blocks of a request.
    - ``paired`` (false): only hosts that ``lspan pair`` has paired may connect; else whoever has the URL, which travels in
      ``kv_transfer_params``.
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        parallel = vllm_config.parallel_config
        if parallel.pipeline_parallel_size != 1:
            raise ValueError(f"linkspan's connector knows no pipelines; --pipeline-parallel-size is {parallel.pipeline_parallel_size}")
        groups = len(kv_cache_config.kv_cache_groups)
        if groups > 1:
            raise ValueError(f"linkspan's connector moves caches of one kind of attention, and this model has {groups} kinds")
        self._scheduler = _Scheduler(vllm_config)
        self._worker = None if role == KVConnectorRole.SCHEDULER else _Worker(vllm_config, kv_cache_config)

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """Memory that is exposed stays where it is."""
        return False

    # Called in the scheduler's process.

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        self._scheduler.addresses(metadata)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return self._scheduler.step()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finished(request, block_ids)

    # Called in a worker's.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        assert self._worker is not None
        self._worker.register(kv_caches)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        assert self._worker is not None
        return self._worker.address()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        step = self._get_connector_metadata()
        assert self._worker is not None and isinstance(step, Step)
        self._worker.begin(step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is waited for: a request runs when its blocks have come."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is saved: blocks are read where they are."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        assert self._worker is not None
        return self._worker.finished()

    def get_block_ids_with_load_errors(self) -> set[int]:
        assert self._worker is not None
        return self._worker.failed()

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
