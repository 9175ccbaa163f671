"""The connector in vLLM itself: engines that compute prompts, engines that go on from there, on the processor.

Run by `cargo xtask python --vllm`, in an environment that has vLLM. The model is a small one with random numbers in it, so a wrong block
gives other tokens. What is right is what an engine says that computes everything itself.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import linkspan
import pytest
import torch
from linkspan.vllm import _ANSWER, _HELD, _LAYOUT, _QUESTION, _source, _Worker, regions

BLOCK = 32
# Engines take a minute to start on two processors.
PATIENCE = 600.0
KEEP = 20


class Engine:
    """`vllm serve`, with a connector where it has a role."""

    def __init__(self, model: Path, role: str | None, *more: str, **settings: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.model, self.log = str(model), model.parent / f"{role}-{self.port}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, "--skip-tokenizer-init"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--dtype", "bfloat16", "--max-model-len", "512", "--enforce-eager"]
        command += ["--block-size", str(BLOCK), "--max-num-seqs", "16", "--num-gpu-blocks-override", "256", *more]
        if role is not None:
            config = {"kv_connector": "LinkspanConnector", "kv_connector_module_path": "linkspan.vllm", "kv_role": role, **settings}
            command += ["--kv-transfer-config", json.dumps(config)]
        environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "LINKSPAN_IFNAME": "=lo"}
        # One thread each: those of OpenMP spin where there are fewer processors than threads.
        environment |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def ready(self) -> "Engine":
        end = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            try:
                self.text("/health")
                return self
            except OSError:
                time.sleep(0.5)

    def complete(self, prompt: list[int], tokens: int, params: dict[str, Any] | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        body |= {"ignore_eos": True, "return_token_ids": True, "kv_transfer_params": params}
        wanted = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode())
        wanted.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(wanted, timeout=PATIENCE) as answer:
            return dict(json.load(answer))

    def tokens(self, prompt: list[int], count: int, params: dict[str, Any] | None = None) -> list[int]:
        return list(self.complete(prompt, count, params)["choices"][0]["token_ids"])

    def prefill(self, prompt: list[int]) -> dict[str, Any]:
        """What a proxy does first."""
        answer = self.complete(prompt, 1, {"do_remote_decode": True, "do_remote_prefill": False})
        return dict(answer["kv_transfer_params"])

    def metric(self, name: str) -> float:
        lines = [line for line in self.text("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.split()[-1]) for line in lines)

    def said(self, words: str) -> int:
        return self.log.read_text().count(words)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def numbers(length: int, seed: int) -> list[int]:
    """A prompt."""
    return [(place * 37 + seed * place * place + 11 * seed) % 500 + 3 for place in range(length)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    shape = transformers.LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, initializer_range=0.3,
    )  # fmt: skip
    place = tmp_path_factory.mktemp("vllm") / "model"
    transformers.LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def engines(model: Path) -> Iterator[tuple[Engine, Engine]]:
    extra = {"kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"keep_seconds": KEEP, "timeout_seconds": 15}}
    started = [Engine(model, role, **extra) for role in ("kv_producer", "kv_consumer")]
    try:
        yield started[0].ready(), started[1].ready()
    finally:
        for engine in started:
            engine.end()


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 100, 8 * BLOCK, 400])
def test_tokens_are_those_of_an_engine_that_computes_everything(engines: tuple[Engine, Engine], length: int) -> None:
    prefill, decode = engines
    prompt, before = numbers(length, length), decode.metric("vllm:external_prefix_cache_hits_total")
    expected = prefill.tokens(prompt, 16)
    assert decode.tokens(prompt, 16, prefill.prefill(prompt)) == expected
    # All but the last token, which every engine computes.
    assert decode.metric("vllm:external_prefix_cache_hits_total") - before >= length - 1


def test_many_requests_at_once_are_all_right(engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    got: dict[int, list[int]] = {}

    def one(seed: int) -> None:
        prompt = numbers(40 + 13 * seed, seed)
        got[seed] = decode.tokens(prompt, 12, prefill.prefill(prompt))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(20, 36)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(threads)
    for seed, tokens in got.items():
        assert tokens == prefill.tokens(numbers(40 + 13 * seed, seed), 12), seed


def test_only_blocks_that_are_not_there_already_are_read(engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    common = numbers(6 * BLOCK, 70)
    first, second = common + numbers(20, 71), common + numbers(50, 72)
    for prompt in (first, second):
        before = decode.metric("vllm:external_prefix_cache_hits_total")
        expected = prefill.tokens(prompt, 12)
        assert decode.tokens(prompt, 12, prefill.prefill(prompt)) == expected
    # The second one has its beginning from the first.
    read = decode.metric("vllm:external_prefix_cache_hits_total") - before
    assert 49 <= read <= 50 + BLOCK, read


def test_blocks_that_nobody_fetches_are_freed_and_late_readers_compute_themselves(engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    prompt, other = numbers(150, 80), numbers(400, 81)
    params = prefill.prefill(prompt)
    end = time.monotonic() + 3 * KEEP
    while not prefill.said(f"nobody has fetched the blocks of request {params['remote_request_id']}"):
        assert time.monotonic() < end, prefill.log.read_text()[-2000:]
        time.sleep(0.2)
    # They hold bytes of another request by now.
    prefill.tokens(other, 4)
    late = numbers(150, 82)
    assert decode.tokens(late, 12, params) == prefill.tokens(late, 12)
    assert decode.said("had freed them by then")


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_another_request(engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    gone, prompt, other = numbers(150, 83), numbers(150, 84), numbers(150, 85)
    assert decode.tokens(prompt, 12, prefill.prefill(prompt)) == prefill.tokens(prompt, 12)
    stale = prefill.prefill(gone)
    end = time.monotonic() + 3 * KEEP
    while not prefill.said(f"nobody has fetched the blocks of request {stale['remote_request_id']}"):
        assert time.monotonic() < end, prefill.log.read_text()[-2000:]
        time.sleep(0.2)
    params = prefill.prefill(prompt[1:])
    # It is asked for blocks, and answers when its decoder has given up.
    os.killpg(prefill.process.pid, signal.SIGSTOP)
    try:
        late = decode.tokens(prompt[1:], 12, params)
    finally:
        os.killpg(prefill.process.pid, signal.SIGCONT)
    assert late == prefill.tokens(prompt[1:], 12) and decode.said("did not come: not in 15 s")
    freed = decode.said("had freed them by then")
    assert decode.tokens(other[1:], 12, stale) == prefill.tokens(other[1:], 12)
    assert decode.said("had freed them by then") == freed + 1


def test_parameters_that_name_no_blocks_are_told_and_change_no_token(engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    prompt = numbers(90, 90)
    expected, good = prefill.tokens(prompt, 8), prefill.prefill(prompt)
    ours = good["linkspan"]
    for bad in (
        {**good, "linkspan": None},
        {**good, "remote_block_ids": "1, 2"},
        {**good, "remote_block_ids": []},
        {**good, "linkspan": {**ours, "block_size": 2 * BLOCK}},
        {**good, "linkspan": {**ours, "number": -1}},
        {**good, "linkspan": {**ours, "tokens": 1 << 40}},
    ):
        prompt = numbers(90, 90 + len(json.dumps(bad)))
        assert decode.tokens(prompt, 8, bad) == prefill.tokens(prompt, 8), bad
    assert decode.said("kv_transfer_params name none to read") >= 6
    # Well formed, and wrong: blocks that are not there, an address of nobody.
    for bad in (
        {**good, "remote_block_ids": [1 << 30] * len(good["remote_block_ids"])},
        {**good, "linkspan": {**ours, "addresses": [["vllm-nobody", ours["addresses"][0][1]]]}},
        {**good, "linkspan": {**ours, "addresses": [["vllm-nobody", "linkspan://nothing"]]}},
        {**good, "linkspan": {**ours, "addresses": []}},
    ):
        prompt = numbers(90, 95 + len(json.dumps(bad)))
        assert decode.tokens(prompt, 8, bad) == prefill.tokens(prompt, 8), bad
    assert decode.said("did not come") >= 4
    # And the path is as good as before.
    prompt = numbers(90, 90)
    assert decode.tokens(prompt, 8, good) == expected


def test_a_prefill_engine_that_is_killed_costs_the_decoder_its_own_computing(model: Path, engines: tuple[Engine, Engine]) -> None:
    prefill, decode = engines
    other = Engine(model, "kv_producer").ready()
    try:
        prompt = numbers(100, 100)
        assert decode.tokens(prompt, 8, other.prefill(prompt)) == prefill.tokens(prompt, 8)
        lost = [numbers(100, seed) for seed in range(101, 104)]
        params = [other.prefill(prompt) for prompt in lost]
    finally:
        other.end()
    for prompt, told in zip(lost, params, strict=True):
        assert decode.tokens(prompt, 8, told) == prefill.tokens(prompt, 8)
    prompt = numbers(100, 105)
    assert decode.tokens(prompt, 8, prefill.prefill(prompt)) == prefill.tokens(prompt, 8)


def test_all_blocks_of_a_cache_are_found_whatever_its_layout() -> None:
    blocks, page = 6, 4 * 16 * 8 * 2
    # Blocks first; keys and values first; keys and values first and blocks outermost in memory; heads before tokens.
    first = torch.zeros(blocks, 2, 16, 4, 8, dtype=torch.bfloat16)
    pair = torch.zeros(2, blocks, 16, 4, 8, dtype=torch.bfloat16)
    swapped = torch.zeros(blocks, 2, 16, 4, 8, dtype=torch.bfloat16).transpose(0, 1)
    heads = torch.zeros(blocks, 2, 4, 16, 8, dtype=torch.bfloat16).transpose(2, 3)
    # Blocks of the attention kernel are half a block; layers within each block of one tensor.
    halves = torch.zeros(2 * blocks, 2, 8, 4, 8, dtype=torch.bfloat16)
    shared = torch.zeros(blocks, 3, 2, 16, 4, 8, dtype=torch.bfloat16)
    for cache, expected in ((first, (2 * page, 1)), (pair, (page, 2)), (swapped, (2 * page, 1)), (heads, (2 * page, 1)), (halves, (2 * page, 1))):
        (region,) = regions({"layer": cache}, blocks)
        assert (region.nbytes, region.pieces) == expected and region.memory.numel() == 2 * blocks * page
    (region,) = regions({str(layer): shared[:, layer] for layer in range(3)}, blocks)
    assert (region.nbytes, region.pieces, region.memory.numel()) == (6 * page, 1, 6 * blocks * page)
    one = torch.zeros(2 * blocks * 2 * page, dtype=torch.uint8)
    parts = {str(n): one[n * 2 * blocks * page :][: 2 * blocks * page].view(blocks, -1) for n in range(2)}
    assert [region.memory.data_ptr() - one.data_ptr() for region in regions(parts, blocks)] == [0, 2 * blocks * page]
    for bad in (torch.zeros(7, 2, 16), torch.zeros(4, blocks, 16).transpose(0, 2).transpose(0, 1), [first], torch.zeros(3, 8, blocks)):
        with pytest.raises(ValueError, match="layer bad"):
            regions({"bad": bad}, blocks)


def test_a_peer_is_answered_where_messages_to_it_were_interrupted() -> None:
    sent: list[tuple[int, bytes]] = []

    class Link:
        questions = [_QUESTION.pack(1, 10), _QUESTION.pack(2, 20)]

        async def send_async(self, tag: int, source: bytes) -> int:
            sent.append((tag, source))
            # The layout, and each answer once.
            if tag == _LAYOUT or sent.count((tag, source)) == 1:
                raise linkspan.Interrupted("LS1105")
            return len(source)

        async def recv_async(self, tag: int, into: bytearray) -> int:
            if not self.questions:
                raise linkspan.Aborted("LS1103")
            into[:] = self.questions.pop(0)
            return len(into)

    released: list[int] = []

    def release(number: int) -> bool:
        released.append(number)
        return number == 10

    link: Any = Link()
    worker: Any = SimpleNamespace(_endpoint=SimpleNamespace(peer=lambda name: link), _layout={}, _release=release)
    asyncio.run(_Worker._answer(worker, "decoder"))
    answers = [(_HELD, _ANSWER.pack(1, True))] * 2 + [(_HELD, _ANSWER.pack(2, False))] * 2
    assert sent == [(_LAYOUT, b"{}"), *answers] and released == [10, 20]


def test_parameters_are_taken_for_blocks_only_where_they_name_them() -> None:
    ours = {"addresses": [["a", "url"]], "number": 4, "tokens": 40, "block_size": BLOCK}
    good = {"do_remote_prefill": True, "remote_block_ids": [3, 1, 2], "linkspan": ours}
    found = _source(good, BLOCK)
    assert found is not None and (found.number, found.tokens, found.blocks) == (4, 40, [3, 1, 2])
    assert _source(None, BLOCK) is None and _source({**good, "do_remote_prefill": False}, BLOCK) is None
    for change in ({"tokens": 3 * BLOCK + 1}, {"tokens": "x"}, {"number": 1 << 63}, {"addresses": [["a"]]}, {"block_size": 8}):
        assert _source({**good, "linkspan": {**ours, **change}}, BLOCK) is None, change
