"""Weights from a trainer to workers that come, go and are killed, each with a shard of its own.

The trainer has the whole matrix, a worker a quarter of its columns: what is a strided part here lies in one piece there, so that each
step is one call with page lists for each worker, and no copy in between. The workers of a step are those that are there; one that dies
meanwhile is named in the error of its write, the others have their step, and another process may take its name and its shard.

`python elastic.py` runs a trainer and its workers on this machine: one is killed, one leaves, and others take their places. On several
machines give each worker the trainer's URL: `python elastic.py NAME SHARD URL`.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass

import linkspan
import numpy as np

ROWS, COLUMNS, SHARDS = 1024, 1024, 4
WIDTH = COLUMNS // SHARDS
STEPS, KILLED, LEAVES = 6, 2, 4  # Steps in which a worker is killed, and one leaves.
TIMEOUT = 60.0
JOIN, USED = 1, 2  # Tags: a shard with its place, a step that was used.


def weights(step: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """The matrix of a step, so that workers can check what they got; whole numbers, which float32 has exactly."""
    return (np.arange(ROWS * COLUMNS, dtype=np.float32) + step).reshape(ROWS, COLUMNS)


def work(name: str, shard: int, url: str) -> None:
    """Has its shard written, and checks it, until the trainer closes or says that it shall leave (step 0)."""
    with linkspan.Endpoint(name) as own:
        mine = np.zeros((ROWS, WIDTH), np.float32)
        place = own.expose(mine, "write").remote
        trainer = own.connect("trainer", url, timeout=TIMEOUT)
        trainer.send(JOIN, bytes([shard]) + place.to_bytes(), timeout=TIMEOUT)
        while (event := own.next_event(TIMEOUT)).kind != "lost" and event.value != 0:
            if event.value is not None:
                assert (mine == weights(event.value)[:, shard * WIDTH : (shard + 1) * WIDTH]).all(), (name, event)
                # From here on the trainer may write the next step over this one.
                trainer.send(USED, event.value.to_bytes(8, "little"), timeout=TIMEOUT)


@dataclass
class Worker:
    """A worker that has joined."""

    link: linkspan.Transport
    shard: int
    place: linkspan.RemoteBuffer


class Trainer:
    """Writes each step to the workers that are there."""

    def __init__(self, own: linkspan.Endpoint) -> None:
        self.own = own
        self.workers: dict[str, Worker] = {}
        self.changed = asyncio.Condition()
        self.matrix = weights(0)
        self.moved, self.took = 0, 0.0
        # Page r of a shard: its columns of row r.
        whole = linkspan.Memory(self.matrix)
        starts = [shard * WIDTH * 4 for shard in range(SHARDS)]
        self.pages = [whole.view(start).pages(WIDTH * 4, stride=COLUMNS * 4, count=ROWS) for start in starts]

    async def watch(self) -> None:
        """Who is there."""
        async for event in self.own.events():
            if event.kind == "connected":
                link, told = self.own.peer(event.peer), bytearray(41)
                try:
                    await link.recv_async(JOIN, told, timeout=TIMEOUT)
                except linkspan.Broken:
                    continue  # It died at once; its "lost" comes next.
                place = linkspan.RemoteBuffer.from_bytes(bytes(told[1:]))
                self.workers[event.peer] = Worker(link, told[0], place)
            elif event.kind == "lost":
                self.workers.pop(event.peer, None)
                print(f"{event.peer} has gone: {event.why}", flush=True)
            async with self.changed:
                self.changed.notify_all()

    async def all_shards(self) -> None:
        """Until there is a worker for each shard."""
        async with self.changed:
            await self.changed.wait_for(lambda: {one.shard for one in self.workers.values()} == set(range(SHARDS)))

    async def give(self, name: str, step: int) -> str | None:
        """A step to one worker, until it has used it. Its name, if it is gone instead."""
        worker, used = self.workers[name], bytearray(8)
        try:
            every = self.pages[worker.shard]
            there = worker.place.pages(WIDTH * 4)
            await worker.link.write_pages_async(every, None, there, None, notify=step, timeout=TIMEOUT)
            await worker.link.recv_async(USED, used, timeout=TIMEOUT)
        except (linkspan.Broken, linkspan.Interrupted, linkspan.Aborted) as error:
            print(f"step {step}: not to {name} ({error.code})", flush=True)
            return name
        assert int.from_bytes(used, "little") == step
        return None

    async def step(self, step: int) -> None:
        """A step to all workers that are there."""
        self.matrix[:] = weights(step)
        names, begun = sorted(self.workers), time.perf_counter()
        lost = [name for name in await asyncio.gather(*(self.give(name, step) for name in names)) if name]
        took = time.perf_counter() - begun
        rest = [name for name in names if name not in lost]
        self.moved, self.took = self.moved + ROWS * WIDTH * 4 * len(rest), self.took + took
        print(f"step {step}: {ROWS * WIDTH * 4} bytes to each of {', '.join(rest)}, {took * 1e3:.1f} ms", flush=True)
        async with self.changed:
            # A worker that is lost is told by an event, after all that it had said.
            await self.changed.wait_for(lambda: not any(name in self.workers for name in lost))


async def main() -> None:
    """A trainer, and the workers that somebody starts, kills and replaces."""
    running: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str, shard: int) -> None:
        running[name] = subprocess.Popen([sys.executable, __file__, name, str(shard), str(own.url)])

    with linkspan.Endpoint("trainer") as own:
        trainer = Trainer(own)
        watching = asyncio.create_task(trainer.watch())
        try:
            for shard in range(SHARDS):
                start(f"w{shard}", shard)
            for step in range(1, STEPS + 1):
                await trainer.all_shards()
                if step == KILLED:
                    running["w1"].kill()
                await trainer.step(step)
                if step == KILLED:
                    running.pop("w1").wait()
                    start("w1", 1)  # The same name and shard, another process.
                if step == LEAVES:
                    # Step 0: it is asked to leave, and does so in good order.
                    await trainer.workers["w2"].link.write_async(b"", trainer.workers["w2"].place, notify=0, timeout=TIMEOUT)
                    running.pop("w2").wait()
                    async with trainer.changed:
                        await trainer.changed.wait_for(lambda: "w2" not in trainer.workers)
                    start("w9", 2)  # Another name for its shard.
        finally:
            own.close()
            await watching
            codes = [process.wait() for process in running.values()]
        assert not any(codes), codes
    print(f"elastic: {STEPS} steps, one worker killed, one left, all shards as they should be")
    rate = trainer.moved / trainer.took / 1e9
    print(f"elastic: {trainer.moved} bytes in {trainer.took:.4f} s, {rate:.2f} GB/s, until each worker had used its part")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("worker", nargs="*", help="NAME SHARD URL: this worker alone, of the trainer with this URL")
    match words.parse_args().worker:
        case []:
            asyncio.run(main())
        case [name, shard, url] if shard in [str(one) for one in range(SHARDS)]:
            work(name, int(shard), url)
        case _:
            words.error(f"a worker is NAME SHARD URL, its shard a number below {SHARDS}")
