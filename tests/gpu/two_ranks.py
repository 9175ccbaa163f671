"""Real NCCL over the plugin, two ranks on one GPU (or one each), with every value checked.

    NCCL_NET_PLUGIN=/path/to/liblinkspan_nccl.so python3 two_ranks.py
    NCCL_NET_PLUGIN=/path/to/liblinkspan_nccl.so python3 two_ranks.py --bench

NCCL takes the ranks for two hosts (NCCL_HOSTID), so that it neither refuses one GPU twice nor goes past the network.
NCCL must hand over host memory, unless LINKSPAN_GPU=staged asks for the GPU's: then it hangs (docs/GPU.md).
With --bench, AllReduce beside NCCL's own socket transport over loopback, in turns.
Needs torch with NCCL (or RCCL), or nccl-tests with MPI. Exit code 77 where something is missing, with a line that says what.
"""

import importlib.util
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

RANKS = 2
SKIP = 77
PATIENCE = 90
# Of --bench: what is measured in turns, each with its settings, and how often.
SIDES = {
    "NCCL's sockets": {"NCCL_NET": "Socket"},
    "linkspan, TCP": {"LINKSPAN_PATH": "tcp"},
    "linkspan, shared memory": {"LINKSPAN_PATH": "shm"},
}
SIZES = (8, 64 << 10, 1 << 20, 64 << 20)
ROUNDS = 5


def rank(number: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=RANKS)
    for count in (1, 1000, 1 << 18, (1 << 22) + 3):
        mine = torch.arange(count, device="cuda", dtype=torch.float64) * (number + 1)
        dist.all_reduce(mine)
        # A copy to ordinary memory on the default stream behind the kernel, during which CUDA starts no other of the process.
        mine.cpu()
        want = torch.arange(count, device="cuda", dtype=torch.float64) * sum(range(1, RANKS + 1))
        assert torch.equal(mine, want), f"all_reduce of {count}"
        parts = [torch.empty(count, device="cuda", dtype=torch.int32) for _ in range(RANKS)]
        dist.all_gather(parts, torch.full((count,), number + 7, device="cuda", dtype=torch.int32))
        assert all(bool((p == r + 7).all()) for r, p in enumerate(parts)), f"all_gather of {count}"
        got = torch.empty(count, device="cuda", dtype=torch.int32)
        sent = torch.arange(count, device="cuda", dtype=torch.int32) + number
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, 1 - number), dist.P2POp(dist.irecv, got, 1 - number)]
        ):
            request.wait()
        assert torch.equal(got, torch.arange(count, device="cuda", dtype=torch.int32) + 1 - number), f"send of {count}"
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"rank {number}: every value is right")


def measure(number: int, port: int) -> None:
    """Microseconds of an AllReduce of each size, the median of many."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=RANKS)
    for size in SIZES:
        tensor = torch.ones(size // 4, device="cuda")
        took = []
        for repeat in range(10 + (300 if size < 1 << 20 else 30)):
            torch.cuda.synchronize()
            began = time.perf_counter()
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        assert bool((tensor == 1).all()), f"AllReduce of {size} bytes"
        if number == 0:
            print(f"measured {size} {statistics.median(took[10:]) * 1e6}", flush=True)
    dist.destroy_process_group()


def environment(number: int) -> dict:
    """Of one rank: another host for NCCL, our plugin or none, and NCCL's own messages in the output."""
    env = dict(
        os.environ,
        NCCL_HOSTID=f"linkspan-{number}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_MNNVL_ENABLE="0",
        NCCL_NET="linkspan",
        # By default it hands device memory to a network adapter only that shares a PCIe switch with the GPU.
        NCCL_NET_GDR_LEVEL="SYS",
        NCCL_DEBUG="INFO",
    )
    env.pop("NCCL_DEBUG_FILE", None)
    return env


def run(commands: list, environments: list) -> list:
    """Output and exit code of each; none is left running, and one that fails takes the others along."""
    ranks = []
    for command, env in zip(commands, environments):
        out = tempfile.TemporaryFile("w+")
        ranks.append((subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT), out))
    until = time.monotonic() + PATIENCE
    try:
        while any(process.poll() is None for process, _ in ranks):
            failed = any(process.poll() for process, _ in ranks)
            if failed:
                time.sleep(5)
            if failed or time.monotonic() > until:
                break
            time.sleep(0.1)
    finally:
        late = [process for process, _ in ranks if process.poll() is None]
        for process in late:
            process.kill()
    ended = []
    for process, out in ranks:
        process.wait()
        out.seek(0)
        ended.append((process.returncode, out.read()))
    if late and not any(process.returncode > 0 for process, _ in ranks):
        print(f"not done after {PATIENCE} s")
    return ended


def verdict(ended: list, what: str) -> int:
    # "Using network" until 2.27 and later still; "Assigned NET plugin" since 2.28.
    took = [any(words + " linkspan" in text for words in ("Using network", "Assigned NET plugin")) for _, text in ended]
    unpack = all("Using NCCL_NET_DEVICE_UNPACK" in text for _, text in ended)
    device = all("/GDRDMA" in text for _, text in ended)
    expected = os.environ.get("LINKSPAN_GPU") == "staged"
    if all(code == 0 for code, _ in ended) and all(took) and device == expected:
        memory = "NCCL's kernels unpack device memory" if unpack else "device memory" if device else "host memory"
        print(f"{what}, {memory}: right")
        return 0
    print("\n".join(text for _, text in ended))
    if not all(took):
        print("NCCL did not take the plugin")
    elif device != expected:
        print(f"NCCL handed the plugin {'device' if device else 'host'} memory, which was not expected")
    else:
        print("NCCL over the plugin failed")
    return 1


def commands(what: str) -> list:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [[sys.executable, __file__, what, str(number), str(port)] for number in range(RANKS)]


def bench() -> int:
    import torch

    times = {(side, size): [] for side in SIDES for size in SIZES}
    for turn in range(ROUNDS):
        for side, settings in SIDES.items():
            ended = run(commands("measure"), [environment(number) | settings for number in range(RANKS)])
            if any(code != 0 for code, _ in ended):
                print("\n".join(text for _, text in ended))
                print(f"{side} failed")
                return 1
            for line in ended[0][1].splitlines():
                if line.startswith("measured "):
                    _, size, took = line.split()
                    times[side, int(size)].append(float(took))
    version = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"AllReduce of NCCL {version}, {RANKS} ranks on {torch.cuda.get_device_name(0)}, us: median of {ROUNDS} rounds (least to most)")
    print("| |" + "".join(f" {size} B |" for size in SIZES))
    for side in SIDES:
        cells = [times[side, size] for size in SIZES]
        print(f"| {side} |" + "".join(f" {statistics.median(c):.1f} ({min(c):.1f}..{max(c):.1f}) |" for c in cells))
    return 0


def with_torch() -> int:
    import torch

    if not torch.cuda.is_available():
        print("skipped: NCCL: torch sees no GPU")
        return SKIP
    ended = run(commands("check"), [environment(number) for number in range(RANKS)])
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return verdict(ended, f"NCCL {version} over linkspan, {RANKS} ranks on {torch.cuda.get_device_name(0)}")


def with_tests(program: str, mpirun: str) -> int:
    """nccl-tests built with MPI: one launch of two programs that differ in their host's name."""
    command = [mpirun, "--allow-run-as-root"]
    for number in range(RANKS):
        env = environment(number)
        names = [name for name in env if name.startswith(("NCCL_", "LINKSPAN_", "LD_LIBRARY_PATH"))]
        told = [word for name in names for word in ("-x", f"{name}={env[name]}")]
        command += [":"] * (number > 0) + ["-np", "1", *told, program, "-b", "8", "-e", "16M", "-f", "8", "-c", "1", "-g", "1"]
    [(code, text)] = run([command], [dict(os.environ)])
    right = "Out of bounds values : 0 OK" in text
    return verdict([(code if right else 1, text)], f"nccl-tests over linkspan, {RANKS} ranks")


def main() -> int:
    if importlib.util.find_spec("torch") is not None:
        return bench() if "--bench" in sys.argv else with_torch()
    program, mpirun = shutil.which("all_reduce_perf"), shutil.which("mpirun")
    if program and mpirun:
        return with_tests(program, mpirun)
    print("skipped: NCCL: neither torch (pip install torch) nor nccl-tests with MPI (all_reduce_perf and mpirun on PATH)")
    return SKIP


if __name__ == "__main__":
    if len(sys.argv) == 4:
        {"check": rank, "measure": measure}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
