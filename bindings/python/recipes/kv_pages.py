"""KV pages between two processes: a prefill engine writes finished pages into a decode engine's cache.

The decoder says where (page numbers in its cache), the prefiller writes all layers of a request in one scattered call, and
one notification with the number of the request follows the last byte. `python kv_pages.py` runs both on this machine.
"""

import multiprocessing
import random
import time
from multiprocessing.queues import Queue

import linkspan
import torch

LAYERS, PAGES = 8, 512
TOKENS, HEADS, WIDTH = 16, 4, 64  # A page: 16 tokens x 4 heads x 64 numbers of 2 bytes = 8 KiB.
PAGE = TOKENS * HEADS * WIDTH * 2
REQUESTS, LONGEST = 12, 64
TIMEOUT = 60.0
ASK, TELL = 1, 2  # Tags: a request with its place in the cache, the cache itself.


def page(request: int, layer: int, position: int) -> torch.Tensor:
    """What a page holds, so that the decoder can check it."""
    seed = (request * 1009 + layer * 31 + position) % 251
    return torch.arange(PAGE // 2).add_(seed).remainder_(127).to(torch.bfloat16).reshape(TOKENS, HEADS, WIDTH)


def prefill(pipe: "Queue[linkspan.Url]") -> None:
    """Computes pages and writes them where it is told."""
    link = linkspan.Transport("cpu")
    link.connect(pipe.get(timeout=TIMEOUT), timeout=TIMEOUT)
    caches = bytearray(40 * LAYERS)
    link.recv(TELL, caches, timeout=TIMEOUT)
    remote = [linkspan.RemoteBuffer.from_bytes(caches[40 * n : 40 * (n + 1)]) for n in range(LAYERS)]
    work = torch.zeros(LAYERS, LONGEST, TOKENS, HEADS, WIDTH, dtype=torch.bfloat16)
    memory = linkspan.Memory(work)
    for request in range(1, REQUESTS + 1):
        asked = torch.zeros(LONGEST, dtype=torch.int64)
        count = link.recv(ASK, asked, timeout=TIMEOUT) // 8
        parts: list[tuple[linkspan.View, linkspan.RemoteBuffer]] = []
        for layer in range(LAYERS):
            for position, number in enumerate(asked[:count].tolist()):
                work[layer, position] = page(request, layer, position)
                here = (layer * LONGEST + position) * PAGE
                parts.append((memory[here : here + PAGE], remote[layer].view(number * PAGE, PAGE)))
        link.write_batch(parts, notify=request, timeout=TIMEOUT)
    # The decoder closes the transport when it has seen everything.
    try:
        link.wait_for_write(timeout=TIMEOUT)
    except linkspan.Broken:
        pass


def decode(pipe: "Queue[linkspan.Url]") -> None:
    """Owns the cache; hands out free pages and checks what arrives in them."""
    link = linkspan.Transport("cpu")
    pipe.put(link.bind())
    cache = torch.zeros(LAYERS, PAGES, TOKENS, HEADS, WIDTH, dtype=torch.bfloat16)
    regions = [link.expose(cache[layer], "write") for layer in range(LAYERS)]
    link.wait_connected(timeout=TIMEOUT)
    link.send(TELL, b"".join(region.remote.to_bytes() for region in regions), timeout=TIMEOUT)
    chance, pages, took = random.Random(4), 0, 0.0
    for request in range(1, REQUESTS + 1):
        places = chance.sample(range(PAGES), chance.randint(1, LONGEST))
        untouched = next(number for number in range(PAGES) if number not in places)
        before = cache[:, untouched].clone()
        begun = time.perf_counter()
        link.send(ASK, torch.tensor(places), timeout=TIMEOUT)
        assert link.wait_for_write(timeout=TIMEOUT) == request
        took += time.perf_counter() - begun
        for layer in range(LAYERS):
            for position, number in enumerate(places):
                assert torch.equal(cache[layer, number], page(request, layer, position)), (request, layer, position)
        assert torch.equal(cache[:, untouched], before)
        pages += LAYERS * len(places)
    print(f"kv_pages: {pages} pages of {PAGE} bytes in {REQUESTS} requests, all as they should be, over {link.path}")
    for region in regions:
        link.unexpose(region)
    link.close()


if __name__ == "__main__":
    # "spawn": a fork would share the parent's connections.
    context = multiprocessing.get_context("spawn")
    pipe: "Queue[linkspan.Url]" = context.Queue()
    processes = [context.Process(target=target, args=(pipe,)) for target in (decode, prefill)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
