"""What a blocking call costs from Python, over what it costs from Rust, in one run.

    cargo build --release -p linkspan --example blocking_bench
    python bindings/python/bench/blocking.py --rust target/release/examples/blocking_bench

8 bytes are written with a notification while the other side sits in a blocking wait; the time is that of one write on the
writing side, over TCP and over shared memory: by `write`, and by `write_async` with a loop that asks its `done()`. Rust has its two sides in two threads, Python in two processes (two threads would
share its lock). Rounds of both alternate; each line is a round, the last ones are medians with their spread and the
differences. Without --rust only Python is measured. The settings are the LINKSPAN_* variables.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import linkspan

LIMIT = 60.0
PATHS = ("tcp", "shm")


def target(rounds: int, count: int) -> None:
    """The other side: it waits for every write, and says when a round is over."""
    transport = linkspan.Transport("cpu")
    region = transport.expose(bytearray(8), "write")
    print(str(transport.bind()), region.remote.to_bytes().hex(), flush=True)
    transport.wait_connected(LIMIT)
    # Written by blocking calls, then with a loop of done().
    for _ in range(2 * rounds):
        wait = transport.wait_for_write
        for _ in range(count):
            wait(LIMIT)
        print("done", flush=True)


class Lane:
    """One path, with a process at its other end."""

    def __init__(self, path: str, rounds: int, count: int) -> None:
        # Read when the first transport is made; a process has one path for all of them.
        command = [sys.executable, __file__, "--target", "--rounds", str(rounds), "--count", str(count)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "LINKSPAN_PATH": path}
        )
        url, remote = self.line().split()
        self.transport = linkspan.Transport("cpu")
        self.transport.connect(url, timeout=LIMIT)
        if not (self.transport.path or "").startswith(path):
            raise SystemExit(f"asked for {path}, got {self.transport.path}")
        self.remote = linkspan.RemoteBuffer.from_bytes(bytes.fromhex(remote))

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the other side has ended")
        return line

    def round(self, count: int) -> tuple[float, float]:
        """Microseconds for a write: a blocking one, and one that is asked whether it is done."""
        write, word, remote = self.transport.write, linkspan.Memory(bytearray(8)).view(0, 8), self.remote
        began = time.perf_counter()
        for _ in range(count):
            write(word, remote, True, LIMIT)
        blocking = time.perf_counter() - began
        assert self.line() == "done\n"
        begin = self.transport.write_async
        began = time.perf_counter()
        for _ in range(count):
            op = begin(word, remote, True, LIMIT)
            while not op.done():
                pass
        asked = time.perf_counter() - began
        assert self.line() == "done\n"
        return blocking * 1e6 / count, asked * 1e6 / count


def rust(program: str, count: int) -> dict[str, float]:
    """A round of both paths from Rust: there too one side writes, and the other one waits."""
    output = subprocess.run(
        [program, "--rounds", "1", "--count", str(count)], check=True, capture_output=True, text=True, timeout=LIMIT
    ).stdout
    found = dict(re.findall(r"^(\w+): alone median ([\d.]+) us", output, re.MULTILINE))
    if missing := [path for path in PATHS if path not in found]:
        raise SystemExit(f"{program} says nothing of {', '.join(missing)}:\n{output}")
    return {path: float(found[path]) for path in PATHS}


def python(path: str, rounds: int, count: int) -> None:
    """A process for each path: rounds on demand, one line of input for each."""
    lane = Lane(path, rounds, count)
    for _ in range(rounds):
        if not sys.stdin.readline():
            return
        print(*lane.round(count), flush=True)


def measure(rounds: int, count: int, program: str | None) -> None:
    """Rounds of everything in turn."""
    common = ["--rounds", str(rounds), "--count", str(count)]
    sides = {
        path: subprocess.Popen(
            [sys.executable, __file__, "--side", path, *common],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LINKSPAN_PATH": path},
        )
        for path in PATHS
    }
    times: dict[str, list[float]] = {}
    for number in range(rounds):
        took = {}
        if program is not None:
            took.update({f"rust {path}": each for path, each in rust(program, count).items()})
        for path, side in sides.items():
            assert side.stdin is not None and side.stdout is not None
            side.stdin.write("\n")
            side.stdin.flush()
            blocking, asked = side.stdout.readline().split()
            took[f"python {path}"], took[f"python {path}, done()"] = float(blocking), float(asked)
        for name, each in took.items():
            times.setdefault(name, []).append(each)
        print(f"round {number}: " + ", ".join(f"{name} {each:.2f} us" for name, each in took.items()))
    for side in sides.values():
        side.communicate()
    for name, all_of_it in times.items():
        print(f"{name}: median {statistics.median(all_of_it):.2f} us, {min(all_of_it):.2f} to {max(all_of_it):.2f}")
    for path in PATHS:
        pairs = [d - p for d, p in zip(times[f"python {path}, done()"], times[f"python {path}"], strict=True)]
        print(f"done() over write, {path}: median {statistics.median(pairs):.2f} us, {min(pairs):.2f} to {max(pairs):.2f}")
    for path in PATHS if program is not None else ():
        pairs = [p - r for p, r in zip(times[f"python {path}"], times[f"rust {path}"], strict=True)]
        print(f"python over rust, {path}: median {statistics.median(pairs):.2f} us, {min(pairs):.2f} to {max(pairs):.2f}")


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rounds", type=int, default=11)
    words.add_argument("--count", type=int, default=20_000)
    words.add_argument("--rust", metavar="PROGRAM", help="the Rust example blocking_bench, for comparison")
    words.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    words.add_argument("--side", choices=PATHS, help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.target:
        target(args.rounds, args.count)
    elif args.side is not None:
        python(args.side, args.rounds, args.count)
    else:
        measure(args.rounds, args.count, args.rust)


if __name__ == "__main__":
    main()
