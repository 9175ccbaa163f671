"""linkspan beside NIXL and torch.distributed (gloo), the same work in turns in one run, between two processes of one host.

    pip install numpy torch nixl-cu13
    LINKSPAN_IFNAME==lo python bindings/python/bench/beside.py
    LINKSPAN_IFNAME==lo python bindings/python/bench/beside.py --load 2
    python bindings/python/bench/beside.py --memory cuda

What is not installed is left out, and that is said. With `--load` so many processes that spin run beside everything. NIXL moves by UCX: over TCP with UCX_TLS=tcp, over shared memory with shm and cma, and `free` is its own
choice, which for memory of a GPU on one host is the copy between processes by CUDA. The piece of 64 MiB is checked in every round.

A list of pages begins with arrays of numbers, other ones each time, and ends when all pages are there. linkspan reads the numbers in the call that
begins the write, so that its time for a list has all of that call in it; NIXL's has its request, which it begins by another call.
"""

import argparse
import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT = 60.0
MIB = 1 << 20
PAGE, PAGES = 16 << 10, 4096
WHOLE = PAGE * PAGES
WINDOW = 8
# Of the bytes that the other side looks for.
SEED = 10

# Name, library, settings. The settings stand before the library is loaded.
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "linkspan, TCP": ("linkspan", {"LINKSPAN_PATH": "tcp"}),
    "NIXL, TCP": ("nixl", {"UCX_TLS": "tcp,self,cuda_copy", "UCX_NET_DEVICES": "lo"}),
    "gloo, TCP": ("gloo", {"GLOO_SOCKET_IFNAME": "lo"}),
    "linkspan, shared memory": ("linkspan", {"LINKSPAN_PATH": "shm"}),
    "NIXL, shared memory": ("nixl", {"UCX_TLS": "shm,cma,self,cuda_copy"}),
    "NIXL, free": ("nixl", {}),
}
# How pages lie in a list: one behind the other on both sides, so in runs of so many, or each elsewhere.
RUN = 64
LISTS = ("in order", f"in scattered rows of {RUN}", "scattered")
ROWS = (
    "8 B written, us",
    "8 B written, asked whether it is done in a loop, us",
    "8 B to the other one and back, half of it, us",
    f"{WHOLE // MIB} MiB in one piece, GB/s",
    f"1 MiB, {WINDOW} under way, GB/s",
    f"a list of {PAGES} scattered pages, us",
    *(f"{PAGES} pages of {PAGE >> 10} KiB {how}, with their list, GB/s" for how in LISTS),
)


def module(name: str) -> Any:
    """One that may not be installed."""
    return importlib.import_module(name)


def nixl_module() -> str:
    """The one of its wheels that is there."""
    return next((name for name in ("nixl_cu13", "nixl_cu12") if importlib.util.find_spec(name)), "nixl_cu13")


def memory(kind: str, nbytes: int) -> Any:
    """Bytes that both libraries take: numpy on the host, torch on a GPU."""
    if kind == "cpu":
        import numpy

        return numpy.zeros(nbytes, numpy.uint8)
    torch = module("torch")
    return torch.zeros(nbytes, dtype=torch.uint8, device="cuda")


def put(place: Any, seed: int) -> None:
    """Other bytes for every seed."""
    import numpy

    data = (numpy.arange(len(place), dtype=numpy.uint32) * 2654435761 + seed).view(numpy.uint8)[::4]
    if isinstance(place, numpy.ndarray):
        place[:] = data
    else:
        torch = module("torch")
        place.copy_(torch.from_numpy(data.copy()))
        torch.cuda.synchronize()


def same(one: Any, seed: int) -> bool:
    other = memory("cpu", len(one))
    put(other, seed)
    got = one if isinstance(one, type(other)) else one.cpu().numpy()
    return bool((got == other).all())


class Linkspan:
    """Blocking calls of a transport."""

    def __init__(self, kind: str, first: bool, say: Callable[[str], None], hear: Callable[[], str]) -> None:
        import linkspan

        self.lib = linkspan
        self.own, self.word = memory(kind, WHOLE), memory("cpu", 8)
        put(self.own, int(first))
        self.link = linkspan.Transport("cuda:0" if kind == "cuda" else "cpu")
        self.whole = linkspan.Memory(self.own)
        remote = self.link.expose(self.whole).remote
        if first:
            self.link.connect(hear(), timeout=LIMIT)
        else:
            say(str(self.link.bind()))
            self.link.wait_connected(LIMIT)
        say(remote.to_bytes().hex())
        self.remote = linkspan.RemoteBuffer.from_bytes(bytes.fromhex(hear()))
        self.eight, self.to_eight = self.whole.view(0, 8), self.remote.view(0, 8)
        self.pieces = [(self.whole.view(n * MIB, MIB), self.remote.view(n * MIB, MIB)) for n in range(WINDOW)]

    def what(self) -> str:
        return self.link.path or "no path"

    def small(self, count: int) -> None:
        write = self.link.write
        for _ in range(count):
            write(self.eight, self.to_eight, None, LIMIT)

    def asked(self, count: int) -> None:
        begin = self.link.write_async
        for _ in range(count):
            op = begin(self.eight, self.to_eight, None, LIMIT)
            while not op.done():
                pass

    def bounce(self, count: int, first: bool) -> None:
        write, wait = self.link.write, self.link.wait_for_write
        for _ in range(count):
            if first:
                write(self.eight, self.to_eight, True, LIMIT)
            wait(LIMIT)
            if not first:
                write(self.eight, self.to_eight, True, LIMIT)

    def one_piece(self) -> None:
        self.link.write(self.whole, self.remote, None, LIMIT)

    def window(self, count: int) -> None:
        pending = [self.link.write_async(*self.pieces[n], timeout=LIMIT) for n in range(WINDOW)]
        for n in range(count - WINDOW):
            pending[n % WINDOW].wait()
            pending[n % WINDOW] = self.link.write_async(*self.pieces[n % WINDOW], timeout=LIMIT)
        for op in pending:
            op.wait()

    def make_list(self, ours: Any, theirs: Any) -> Callable[[], object]:
        here, there = self.whole.pages(PAGE), self.remote.pages(PAGE)
        op = self.link.write_pages_async(here, ours, there, theirs, None, LIMIT)
        return op.wait

    def end(self) -> None:
        self.link.close()


class Nixl:
    """Its transfers, made once where it has that, and asked about in a loop, as its examples do."""

    def __init__(self, kind: str, first: bool, say: Callable[[str], None], hear: Callable[[], str]) -> None:
        nixl = module(nixl_module())
        self.mine, self.other = ("first", "second") if first else ("second", "first")
        self.agent = nixl.nixl_agent(self.mine, nixl.nixl_agent_config(backends=[]))
        # UCX's shared memory cannot tell that a peer has died, which NIXL asks for unless told otherwise.
        mode = "none" if os.environ.get("UCX_TLS", "").startswith("shm") else "peer"
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": mode})
        self.own = memory(kind, WHOLE)
        put(self.own, int(first))
        self.kind = "VRAM" if kind == "cuda" else "DRAM"
        self.at = self.own.ctypes.data if kind == "cpu" else self.own.data_ptr()
        self.agent.register_memory([(self.at, WHOLE, 0, "")], self.kind)
        say(f"{self.at} {self.agent.get_agent_metadata().hex()}")
        there, metadata = hear().split()
        self.there = int(there)
        self.agent.add_remote_agent(bytes.fromhex(metadata))
        self.eight = self.request(0, 8)
        self.told = self.request(0, 8, b"x")
        self.whole = self.request(0, WHOLE)
        self.pieces = [self.request(n * MIB, MIB) for n in range(WINDOW)]

    def request(self, at: int, nbytes: int, notify: bytes = b"") -> Any:
        ours = self.agent.get_xfer_descs([(self.at + at, nbytes, 0)], self.kind)
        theirs = self.agent.get_xfer_descs([(self.there + at, nbytes, 0)], self.kind)
        return self.agent.initialize_xfer("WRITE", ours, theirs, self.other, notify)

    def what(self) -> str:
        return "UCX_TLS=" + os.environ.get("UCX_TLS", "")

    def all_of(self, request: Any, notify: bytes = b"") -> None:
        # The notification leaves while the state is asked for.
        state = self.agent.transfer(request, notify)
        while state == "PROC":
            state = self.agent.check_xfer_state(request)
        assert state == "DONE", state

    def small(self, count: int) -> None:
        for _ in range(count):
            self.all_of(self.eight)

    # It has no other way to wait.
    asked = small

    def notified(self) -> None:
        while self.other not in self.agent.get_new_notifs():
            pass

    def bounce(self, count: int, first: bool) -> None:
        for _ in range(count):
            if first:
                self.all_of(self.told, b"x")
            self.notified()
            if not first:
                self.all_of(self.told, b"x")

    def one_piece(self) -> None:
        self.all_of(self.whole)

    def window(self, count: int) -> None:
        for request in self.pieces:
            self.agent.transfer(request)
        for n in range(count):
            request = self.pieces[n % WINDOW]
            while (state := self.agent.check_xfer_state(request)) == "PROC":
                pass
            assert state == "DONE", state
            if n < count - WINDOW:
                self.agent.transfer(request)

    def make_list(self, ours: Any, theirs: Any) -> Callable[[], None]:
        import numpy

        if not hasattr(self, "lists"):
            # Prepared once, as its own guide has it; what is measured is a request with other numbers.
            def strided(at: int) -> Any:
                return numpy.array([[at, PAGE, 0, PAGE, PAGES]], dtype=numpy.uint64)

            here = self.agent.prep_xfer_dlist("", strided(self.at), self.kind)
            self.lists = here, self.agent.prep_xfer_dlist(self.other, strided(self.there), self.kind)
        request = self.agent.make_prepped_xfer("WRITE", self.lists[0], ours, self.lists[1], theirs)
        return lambda: self.all_of(request)

    def end(self) -> None:
        pass


class Gloo:
    """Two-sided messages of torch.distributed."""

    def __init__(self, kind: str, first: bool, say: Callable[[str], None], hear: Callable[[], str]) -> None:
        torch, dist = module("torch"), module("torch.distributed")
        if kind != "cpu":
            raise SystemExit("gloo sends no memory of a GPU")
        self.dist, self.own = dist, memory(kind, WHOLE)
        put(self.own, int(first))
        self.tensor = torch.from_numpy(self.own)
        self.peer = 1 if first else 0
        store = dist.TCPStore("127.0.0.1", 0 if not first else int(hear()), is_master=not first, wait_for_workers=False)
        if not first:
            say(str(store.port))
        dist.init_process_group("gloo", store=store, rank=1 - self.peer, world_size=2)

    def what(self) -> str:
        return "send and recv"

    def bounce(self, count: int, first: bool) -> None:
        eight = self.tensor[:8]
        for _ in range(count):
            if first:
                self.dist.send(eight, self.peer)
            self.dist.recv(eight, self.peer)
            if not first:
                self.dist.send(eight, self.peer)

    def moved(self, first: bool, nbytes: int, count: int, window: int) -> None:
        """One way, with a word at the end."""
        parts = [self.tensor[n * nbytes : (n + 1) * nbytes] for n in range(window)]
        begin = self.dist.isend if first else self.dist.irecv
        pending = [begin(part, self.peer) for part in parts]
        for n in range(count - window):
            pending[n % window].wait()
            pending[n % window] = begin(parts[n % window], self.peer)
        for work in pending:
            work.wait()
        word = self.tensor[:1].clone()
        if first:
            self.dist.recv(word, self.peer)
        else:
            self.dist.send(word, self.peer)

    def end(self) -> None:
        self.dist.destroy_process_group()


# How much of each is in a round, on both sides.
COUNTS = {"small": 5000, "bounce": 2000, "pieces": 8, "window": 256, "lists": 20}
# Until the one that started it is gone.
SPINS = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
KINDS: dict[str, Any] = {"linkspan": Linkspan, "nixl": Nixl, "gloo": Gloo}


def numbers(how: str, seed: int) -> Any:
    import numpy

    run = {"in order": PAGES, "scattered": 1}.get(how, RUN)
    rows = numpy.random.default_rng(seed).permutation(PAGES // run)
    return (rows[:, None] * run + numpy.arange(run)).ravel().astype(numpy.int32)


def first(library: str, kind: str, say: Callable[[str], None], hear: Callable[[], str]) -> None:
    """The side that measures: a line with all figures, when there is a line of input."""
    side = KINDS[library](kind, True, say, hear)

    def timed(work: Callable[..., Any], *args: Any) -> float:
        began = time.perf_counter()
        work(*args)
        return time.perf_counter() - began

    def agree(word: str) -> None:
        say(word)
        assert hear() == word

    agree("ready")
    print(f"path {side.what()}", flush=True)
    sys.stdin.readline()
    figures: list[float | None] = []
    two_sided = library == "gloo"
    figures.append(None if two_sided else timed(side.small, COUNTS["small"]) / COUNTS["small"] * 1e6)
    figures.append(None if two_sided else timed(side.asked, COUNTS["small"]) / COUNTS["small"] * 1e6)
    agree("bounce")
    figures.append(timed(side.bounce, COUNTS["bounce"], True) / COUNTS["bounce"] / 2 * 1e6)
    agree("whole")
    put(side.own, SEED)
    if two_sided:
        took = timed(side.moved, True, WHOLE, COUNTS["pieces"], 1)
    else:
        took = timed(lambda: [side.one_piece() for _ in range(COUNTS["pieces"])])
    figures.append(WHOLE * COUNTS["pieces"] / took / 1e9)
    agree(f"check {SEED}")
    took = timed(side.moved, True, MIB, COUNTS["window"], WINDOW) if two_sided else timed(side.window, COUNTS["window"])
    figures.append(MIB * COUNTS["window"] / took / 1e9)
    agree("window")
    if two_sided:
        figures += [None] * (1 + len(LISTS))
    else:
        rates, made = [], 0.0
        for how in LISTS:
            made, all_of_it = 0.0, 0.0
            for n in range(COUNTS["lists"]):
                ours, theirs = numbers(how, n), numbers(how, n + 1000)
                began = time.perf_counter()
                go = side.make_list(ours, theirs)
                made += time.perf_counter() - began
                go()
                all_of_it += time.perf_counter() - began
            rates.append(WHOLE * COUNTS["lists"] / all_of_it / 1e9)
        # Of the last kind, the scattered ones.
        figures += [made / COUNTS["lists"] * 1e6, *rates]
    print("figures " + " ".join("-" if f is None else f"{f:.3f}" for f in figures), flush=True)
    agree("end")
    side.end()


def second(library: str, kind: str, say: Callable[[str], None], hear: Callable[[], str]) -> None:
    side = KINDS[library](kind, False, say, hear)
    while True:
        word = hear()
        if word.startswith("check ") and not same(side.own, int(word.split()[1])):
            raise SystemExit("other bytes than were written")
        say(word)
        if word == "bounce":
            side.bounce(COUNTS["bounce"], False)
        elif library == "gloo" and word == "whole":
            side.moved(False, WHOLE, COUNTS["pieces"], 1)
        elif library == "gloo" and word.startswith("check "):
            side.moved(False, MIB, COUNTS["window"], WINDOW)
        elif word == "end":
            side.end()
            return


def process(role: str, name: str, kind: str) -> None:
    """One side. The two have a pair of pipes between them, by the numbers in the environment."""
    inward, outward = os.fdopen(int(os.environ["BESIDE_IN"])), os.fdopen(int(os.environ["BESIDE_OUT"]), "w")

    def say(text: str) -> None:
        print(text, file=outward, flush=True)

    def hear() -> str:
        line = inward.readline()
        if not line:
            raise SystemExit("the other side has ended")
        return line.rstrip("\n")

    {"first": first, "second": second}[role](SIDES[name][0], kind, say, hear)


def start(name: str, kind: str, more: list[str]) -> list[subprocess.Popen[str]]:
    a_in, b_out = os.pipe()
    b_in, a_out = os.pipe()
    sides = []
    for role, inward, outward in (("first", a_in, a_out), ("second", b_in, b_out)):
        sides.append(
            subprocess.Popen(
                [sys.executable, __file__, "--role", role, "--name", name, "--memory", kind, *more],
                env={**os.environ, **SIDES[name][1], "BESIDE_IN": str(inward), "BESIDE_OUT": str(outward)},
                pass_fds=(inward, outward),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if role == "first" else None,
                text=True,
            )
        )
    for descriptor in (a_in, b_out, b_in, a_out):
        os.close(descriptor)
    return sides


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--memory", choices=("cpu", "cuda"), default="cpu")
    words.add_argument("--quick", action="store_true", help="an eighth of the work: does it run")
    words.add_argument("--load", metavar="N", type=int, default=0, help="processes that spin beside everything")
    words.add_argument("--only", metavar="WORD", default="", help="sides with this in their name")
    words.add_argument("--role", choices=("first", "second"), help=argparse.SUPPRESS)
    words.add_argument("--name", choices=SIDES, help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.quick:
        COUNTS.update({name: count // 8 for name, count in COUNTS.items()})
    if args.role is not None:
        return process(args.role, args.name, args.memory)
    modules = {"linkspan": "linkspan", "nixl": nixl_module(), "gloo": "torch"}
    names = []
    for name, (library, _) in SIDES.items():
        if importlib.util.find_spec(modules[library]) is None:
            print(f"left out: {name}: {modules[library]} is not installed")
        elif args.only in name and (args.memory == "cpu" or library != "gloo"):
            names.append(name)
    figures: dict[str, list[list[float | None]]] = {name: [] for name in names}
    load = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in range(args.load)]
    for turn in range(args.rounds):
        for name in list(names):
            # Those of the others are not there: some spin without work.
            sides = start(name, args.memory, ["--quick"] if args.quick else [])
            said, _ = sides[0].communicate("\n")
            lines = dict(line.split(" ", 1) for line in said.splitlines() if line.startswith(("path ", "figures ")))
            for side in sides:
                if "figures" not in lines:
                    side.kill()
                side.wait(LIMIT)
            if "figures" not in lines:
                names.remove(name)
                print(f"{name}: ended in round {turn}" if figures[name] else f"left out: {name}: it did not come up", flush=True)
                continue
            if turn == 0:
                print(f"{name}: {lines['path']}", flush=True)
            print(f"round {turn}: {name}: {lines['figures']}", flush=True)
            figures[name].append([None if word == "-" else float(word) for word in lines["figures"].split()])
    for spinning in load:
        spinning.kill()
        spinning.wait()
    beside = f", beside {args.load} processes that spin" if args.load else ""
    print(f"{args.memory}: median of {args.rounds} rounds in turns (least to most){beside}")
    print("| |" + "".join(f" {row} |" for row in ROWS))
    print("|---|" + "---|" * len(ROWS))
    for name, rounds in figures.items():
        cells = []
        for column in zip(*rounds, strict=True):
            known = [each for each in column if each is not None]
            cells.append(f"{statistics.median(known):.2f} ({min(known):.2f}..{max(known):.2f})" if known else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
