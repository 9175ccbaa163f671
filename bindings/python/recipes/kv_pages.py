"""KV pages between two processes: a prefill engine writes finished pages into a decode engine's cache.

The decoder says where (page numbers in its cache); the prefiller writes all layers of a request in one call with page lists, and one
notification with the number of the request follows the last byte. `python kv_pages.py` runs both on this machine. Tensors of torch are
memory as numpy's arrays are.
"""

import argparse
import multiprocessing
import random
import time
from multiprocessing.queues import Queue

import linkspan
import numpy as np

words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
words.add_argument("--layers", type=int, default=8, help="pieces of a page, one in each layer (8)")
words.add_argument("--requests", type=int, default=12, help="of 1 to 64 pages each (12)")
# The processes that are started read the same command line.
options = words.parse_args()
if options.layers < 1 or options.requests < 1:
    words.error("--layers and --requests are numbers from 1 on")

LAYERS, PAGES = options.layers, 512
TOKENS, HEADS, WIDTH = 16, 4, 64  # A page: 16 tokens x 4 heads x 64 numbers of 2 bytes = 8 KiB.
PAGE = TOKENS * HEADS * WIDTH * 2
REQUESTS, LONGEST = options.requests, 64
TIMEOUT = 60.0
ASK, TELL = 1, 2  # Tags: a request with its place in the cache, the cache itself.


def page(request: int, layer: int, position: int) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
    """What a page holds, so that the decoder can check it."""
    seed = request * 1009 + layer * 31 + position
    return (np.arange(PAGE // 2) + seed).astype(np.uint16)


def prefill(pipe: "Queue[linkspan.Url]") -> None:
    """Computes pages and writes them where it is told."""
    link = linkspan.Transport("cpu")
    link.connect(pipe.get(timeout=TIMEOUT), timeout=TIMEOUT)
    told = bytearray(40)
    link.recv(TELL, told, timeout=TIMEOUT)
    work = np.zeros((LAYERS, LONGEST, PAGE // 2), np.uint16)
    # Page n: place n of every layer, here as there. Made once, used with other numbers for every request.
    ours = linkspan.Memory(work).pages(PAGE, pieces=LAYERS)
    theirs = linkspan.RemoteBuffer.from_bytes(bytes(told)).pages(PAGE, pieces=LAYERS)
    moved, took = 0, 0.0
    for request in range(1, REQUESTS + 1):
        asked = np.zeros(LONGEST, np.int64)
        count = link.recv(ASK, asked, timeout=TIMEOUT) // 8
        for layer in range(LAYERS):
            for position in range(count):
                work[layer, position] = page(request, layer, position)
        begun = time.perf_counter()
        moved += link.write_pages(ours, np.arange(count), theirs, asked[:count], notify=request, timeout=TIMEOUT)
        took += time.perf_counter() - begun
    rate = moved / took / 1e9
    print(f"kv_pages: {moved} bytes in {took:.4f} s, {rate:.2f} GB/s, from each call until it had written all", flush=True)
    # The decoder closes the transport when it has seen everything.
    try:
        link.wait_for_write(timeout=TIMEOUT)
    except linkspan.Broken:
        pass


def decode(pipe: "Queue[linkspan.Url]") -> None:
    """Owns the cache; hands out free pages and checks what arrives in them."""
    link = linkspan.Transport("cpu")
    pipe.put(link.bind())
    cache = np.zeros((LAYERS, PAGES, PAGE // 2), np.uint16)
    region = link.expose(cache, "write")
    link.wait_connected(timeout=TIMEOUT)
    link.send(TELL, region.remote.to_bytes(), timeout=TIMEOUT)
    chance, pages = random.Random(4), 0
    for request in range(1, REQUESTS + 1):
        places = chance.sample(range(PAGES), chance.randint(1, LONGEST))
        others = np.setdiff1d(np.arange(PAGES), places)
        before = cache[:, others].copy()
        link.send(ASK, np.array(places, np.int64), timeout=TIMEOUT)
        assert link.wait_for_write(timeout=TIMEOUT) == request
        for layer in range(LAYERS):
            for position, number in enumerate(places):
                assert (cache[layer, number] == page(request, layer, position)).all(), (request, layer, position)
        assert (cache[:, others] == before).all(), f"request {request}: pages that nobody asked for were written"
        pages += LAYERS * len(places)
    print(f"kv_pages: {pages} pages of {PAGE} bytes in {REQUESTS} requests, all as they should be, over {link.path}")
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
