"""Weights from a trainer to workers that are sharded otherwise: it has rows, they have columns.

The trainer is two processes with half of the rows of a matrix each; each of the four workers has a quarter of its columns. What a trainer
process has for a worker is a strided part of its memory, and lies in one piece in the worker's: one call with page lists moves it, without
a copy in between. The lists are made once, and a worker's memory is exposed once for both. `python weights.py` runs all of them on this
machine. Tensors of torch are memory as numpy's arrays are.
"""

import argparse
import multiprocessing
import time
from multiprocessing.queues import Queue

import linkspan
import numpy as np

TRAINERS, WORKERS = 2, 4
words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
words.add_argument("--size", type=int, default=2048, help="rows of the matrix, and columns: a multiple of 4 (2048)")
words.add_argument("--steps", type=int, default=5, help="how often all of it is moved (5)")
# The processes that are started read the same command line.
options = words.parse_args()
if options.size < WORKERS or options.size % WORKERS or options.steps < 1:
    words.error("--size is a multiple of 4 from 4 on, and --steps a number from 1 on")
ROWS, COLUMNS, STEPS = options.size, options.size, options.steps
HEIGHT, WIDTH = ROWS // TRAINERS, COLUMNS // WORKERS
TIMEOUT = 60.0
JOIN, USED = 1, 2  # Tags: a shard with its place, a step that was used.


def weights(step: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """The matrix of a step, so that workers can check what they got; whole numbers, which float32 has exactly."""
    return ((np.arange(ROWS * COLUMNS) + step) % (1 << 24)).astype(np.float32).reshape(ROWS, COLUMNS)


def train(number: int, urls: "Queue[tuple[int, linkspan.Url]]", figures: "Queue[tuple[int, float]]") -> None:
    """Writes its rows of each step to all workers at a time, and goes on when all have used them."""
    mine = np.zeros((HEIGHT, COLUMNS), np.float32)
    first = number * HEIGHT
    with linkspan.Endpoint(f"t{number}") as own:
        urls.put((number, own.url))
        pairs: list[tuple[linkspan.Transport, linkspan.Pages, linkspan.RemotePages]] = []
        while len(pairs) < WORKERS:
            event = own.next_event(TIMEOUT)
            assert event.kind == "connected", event
            link, told = own.peer(event.peer), bytearray(41)
            link.recv(JOIN, told, timeout=TIMEOUT)
            # Page r here: its columns of our row r. Page r there: its row r.
            ours = linkspan.Memory(mine).view(told[0] * WIDTH * 4).pages(WIDTH * 4, stride=COLUMNS * 4, count=HEIGHT)
            pairs.append((link, ours, linkspan.RemoteBuffer.from_bytes(bytes(told[1:])).pages(WIDTH * 4)))
        here, there = np.arange(HEIGHT), np.arange(first, first + HEIGHT)
        moved, took = 0, 0.0
        for step in range(1, STEPS + 1):
            mine[:] = weights(step)[first : first + HEIGHT]
            # Asked for before they can come: a worker may close right after its last one.
            used = [bytearray(8) for _ in pairs]
            asked = zip(pairs, used, strict=True)
            replies = [link.recv_async(USED, each, timeout=TIMEOUT) for (link, _, _), each in asked]
            begun = time.perf_counter()
            writes = [
                link.write_pages_async(ours, here, theirs, there, notify=step, timeout=TIMEOUT)
                for link, ours, theirs in pairs
            ]
            moved += sum(write.wait() for write in writes)
            took += time.perf_counter() - begun
            for reply, each in zip(replies, used, strict=True):
                assert reply.wait() == 8 and int.from_bytes(each, "little") == step
        figures.put((moved, took))


def work(shard: int, urls: list[linkspan.Url]) -> None:
    """Has its columns written by all trainer processes, and checks them."""
    mine = np.zeros((ROWS, WIDTH), np.float32)
    with linkspan.Endpoint(f"w{shard}") as own:
        place = own.expose(mine, "write").remote
        trainers = [own.connect(f"t{number}", url, timeout=TIMEOUT) for number, url in enumerate(urls)]
        for trainer in trainers:
            trainer.send(JOIN, bytes([shard]) + place.to_bytes(), timeout=TIMEOUT)
        for step in range(1, STEPS + 1):
            assert [trainer.wait_for_write(TIMEOUT) for trainer in trainers] == [step] * TRAINERS
            assert (mine == weights(step)[:, shard * WIDTH : (shard + 1) * WIDTH]).all(), f"w{shard}, step {step}"
            # From here on the next step may be written over this one.
            for trainer in trainers:
                trainer.send(USED, step.to_bytes(8, "little"), timeout=TIMEOUT)


def main() -> None:
    """Starts all of them."""
    # "spawn": a fork would share the parent's connections.
    context = multiprocessing.get_context("spawn")
    urls: "Queue[tuple[int, linkspan.Url]]" = context.Queue()
    figures: "Queue[tuple[int, float]]" = context.Queue()
    processes = [context.Process(target=train, args=(number, urls, figures)) for number in range(TRAINERS)]
    for process in processes:
        process.start()
    found = [url for _, url in sorted((urls.get(timeout=TIMEOUT) for _ in processes), key=lambda told: told[0])]
    processes += [context.Process(target=work, args=(shard, found)) for shard in range(WORKERS)]
    for process in processes[TRAINERS:]:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
    told = [figures.get(timeout=TIMEOUT) for _ in range(TRAINERS)]
    # The trainer processes write at the same time.
    moved, took = sum(each for each, _ in told), max(each for _, each in told)
    print(f"weights: {STEPS} steps from {TRAINERS} shards of rows to {WORKERS} of columns, all as they should be")
    rate = moved / took / 1e9
    print(f"weights: {moved} bytes in {took:.4f} s, {rate:.2f} GB/s, from the first call of a step until all had written")


if __name__ == "__main__":
    main()
