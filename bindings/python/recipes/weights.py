"""Weights from a trainer to several workers: each step the trainer writes its parameters into every worker's memory.

torch.distributed (gloo) is the rendezvous only: by it the workers hand over their URLs and remote buffers, once. Run it with
`torchrun --nproc-per-node 4 weights.py`, or `python weights.py` for four processes on this machine.
"""

import asyncio
import multiprocessing
import os
import tempfile
from typing import Any

import linkspan
import torch
import torch.distributed as dist

STEPS = 3
TIMEOUT = 60.0
USED = 1  # Tag of the message with which a worker says that it has used a step.


def model(seed: int) -> torch.nn.Module:
    """The same shapes everywhere, other values for every seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).bfloat16()


def tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What is shipped: parameters without their gradients, and buffers."""
    return {name: tensor.detach() for name, tensor in module.state_dict().items()}


async def train(rank: int, world: int) -> None:
    """Writes to all workers at a time, and goes on when all have said that they used what they got."""
    offers: list[Any] = [None] * world
    dist.all_gather_object(offers, None)
    links: dict[int, linkspan.Transport] = {}
    for worker, offer in enumerate(offers):
        if worker != rank:
            links[worker] = linkspan.Transport("cpu")
            await links[worker].connect_async(offer["url"], timeout=TIMEOUT)
    weights = tensors(model(0))
    sources = {name: linkspan.Memory(tensor) for name, tensor in weights.items()}
    for step in range(1, STEPS + 1):
        for tensor in weights.values():
            tensor.add_(step)
        writes = [
            # One call for all parameters, one notification after the last of them.
            link.write_batch_async(
                [(sources[name], offers[worker]["memory"][name]) for name in sources], notify=step, timeout=TIMEOUT
            )
            for worker, link in links.items()
        ]
        shipped = await asyncio.gather(*writes)
        replies = {worker: bytearray(8) for worker in links}
        await asyncio.gather(
            *(link.recv_async(USED, replies[worker], timeout=TIMEOUT) for worker, link in links.items())
        )
        assert all(int.from_bytes(reply, "little") == step for reply in replies.values()), replies
        print(f"step {step}: {sum(shipped)} bytes to {len(links)} workers", flush=True)
    dist.barrier()


def work(rank: int, world: int) -> None:
    """Offers its parameters to be written, and checks them after each notification."""
    module = model(rank)
    weights, expected = tensors(module), tensors(model(0))
    link = linkspan.Transport("cpu")
    # Told to the trainer once: the workers' memory stays where it is.
    memory = {name: link.expose(tensor, "write").remote for name, tensor in weights.items()}
    offers: list[Any] = [None] * world
    dist.all_gather_object(offers, {"url": link.bind(), "memory": memory})
    link.wait_connected(timeout=TIMEOUT)
    for step in range(1, STEPS + 1):
        assert link.wait_for_write(timeout=TIMEOUT) == step
        for name, tensor in expected.items():
            tensor.add_(step)
            assert torch.equal(weights[name], tensor), f"worker {rank}, step {step}: {name} differs"
        # From here on the trainer may write the next step over this one.
        link.send(USED, step.to_bytes(8, "little"), timeout=TIMEOUT)
    dist.barrier()


def main(rank: int, world: int, store: str) -> None:
    """One process; `store` is empty where torchrun has set the environment."""
    dist.init_process_group("gloo", init_method=store or "env://", rank=rank, world_size=world)
    try:
        if rank == 0:
            asyncio.run(train(rank, world))
        else:
            work(rank, world)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "")
    else:
        with tempfile.TemporaryDirectory() as folder:
            # "spawn": a fork would share the parent's connections.
            context = multiprocessing.get_context("spawn")
            processes = [context.Process(target=main, args=(n, 4, f"file://{folder}/store")) for n in range(4)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        if any(process.exitcode for process in processes):
            raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
        print("weights: every worker had every step")
