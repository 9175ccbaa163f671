"""Real NCCL over the plugin, two ranks on one GPU (or one each), with every value checked.

    NCCL_NET_PLUGIN=/path/to/liblinkspan_nccl.so python3 two_ranks.py

NCCL takes the ranks for two hosts (NCCL_HOSTID), so that it neither refuses one GPU twice nor goes past the network.
Needs torch with NCCL (or RCCL). Exit code 77 where something is missing, with a line that says what.
"""

import os
import socket
import subprocess
import sys

RANKS = 2
SKIP = 77


def rank(number: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number % torch.cuda.device_count())
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=RANKS)
    for count in (1, 1000, 1 << 18, (1 << 22) + 3):
        mine = torch.arange(count, device="cuda", dtype=torch.float64) * (number + 1)
        dist.all_reduce(mine)
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


def main() -> int:
    try:
        import torch
    except ImportError:
        print("skipped: NCCL: no torch (pip install torch)")
        return SKIP
    if not torch.cuda.is_available():
        print("skipped: NCCL: torch sees no GPU")
        return SKIP
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for number in range(RANKS):
        env = dict(os.environ, NCCL_HOSTID=f"linkspan-{number}", NCCL_SOCKET_IFNAME="lo", NCCL_MNNVL_ENABLE="0")
        env.setdefault("NCCL_DEBUG", "INFO")
        command = [sys.executable, __file__, str(number), str(port)]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    texts = [process.communicate(timeout=240)[0] for process in ranks]
    plugin = "Using network linkspan"
    if any(process.returncode for process in ranks) or not all(plugin in text for text in texts):
        print("\n".join(texts))
        print("NCCL over the plugin failed" if all(plugin in t for t in texts) else "NCCL did not take the plugin")
        return 1
    version = torch.cuda.nccl.version()
    print(f"NCCL {'.'.join(map(str, version))} over linkspan, {RANKS} ranks on {torch.cuda.get_device_name(0)}: right")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        rank(int(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.exit(main())
