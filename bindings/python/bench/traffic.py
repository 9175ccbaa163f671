"""Traffic as in the recipes, with larger matrices, by linkspan, NIXL and torch.distributed (gloo), in turns in one run, between processes of one host.

    pip install numpy torch nixl-cu13
    LINKSPAN_IFNAME==lo python bindings/python/bench/traffic.py

`weights`: two processes with the rows of a matrix to four with its columns. `elastic`: one process with all of it to four with its columns.
`kv`: pages of a request, all layers, from a prefiller's memory into scattered places of a decoder's cache, other places each time. A figure is
the bytes of a step over the time from the word to begin until every receiver has said that all are there, so that what a library
does to gather and scatter is in it. gloo has no page lists: it copies pages together, sends, and copies them apart. What is not
installed is left out, and that is said. The bytes are checked at the end of each round.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from beside import LIMIT, SIDES, module, nixl_module

MODULES = {"linkspan": "linkspan", "nixl": nixl_module(), "gloo": "torch"}


@dataclass(frozen=True)
class Traffic:
    """Who has what: pages of one size, by their numbers on both sides."""

    senders: int
    receivers: int
    page: int
    here: int  # Pages that a sender has.
    there: int  # Pages that a receiver has.
    moved: int  # Pages of a step from each sender to each receiver.

    def numbers(self, sender: int, receiver: int, step: int) -> tuple[Any, Any]:
        """The pages of a step, as the sender and as the receiver counts them."""
        import numpy

        if self.there > self.moved * self.senders:
            # A cache, of which layer by layer some places are written: as many as there are of the work.
            chance = numpy.random.default_rng(step)
            layers = numpy.arange(LAYERS)[:, None]
            places = chance.permutation(self.there // LAYERS)[: self.moved // LAYERS]
            ours = layers * (self.here // LAYERS) + numpy.arange(self.moved // LAYERS)
            theirs = layers * (self.there // LAYERS) + places
            return ours.ravel().astype(numpy.int32), theirs.ravel().astype(numpy.int32)
        rows = numpy.arange(self.moved, dtype=numpy.int32)
        return rows * self.receivers + receiver, rows + sender * self.moved


LAYERS = 8
ROWS = 2048
KINDS: dict[str, Traffic] = {
    "weights": Traffic(2, 4, 2 << 10, ROWS * 2, ROWS, ROWS // 2),
    "elastic": Traffic(1, 4, 2 << 10, ROWS * 4, ROWS, ROWS),
    "kv": Traffic(1, 1, 8 << 10, LAYERS * 64, LAYERS * 512, LAYERS * 64),
}


class Linkspan:
    """An endpoint each; the senders write pages, the notification behind them wakes the receiver."""

    def __init__(self, traffic: Traffic, sends: bool, number: int, own: Any) -> None:
        import linkspan

        self.lib, self.traffic, self.sends, self.number = linkspan, traffic, sends, number
        self.end = linkspan.Endpoint(f"{'s' if sends else 'r'}{number}")
        self.memory = linkspan.Memory(own)
        self.offer = "" if sends else f"{self.end.url} {self.end.expose(self.memory).remote.to_bytes().hex()}"

    def meet(self, offers: list[str]) -> None:
        self.links: list[Any] = []
        if not self.sends:
            while len(self.links) < self.traffic.senders:
                event = self.end.next_event(LIMIT)
                if event.kind == "connected":
                    self.links.append(self.end.peer(event.peer))
            return
        self.pages, self.theirs = self.memory.pages(self.traffic.page), []
        for at, offer in enumerate(offers[self.traffic.senders :]):
            url, remote = offer.split()
            self.links.append(self.end.connect(f"r{at}", url, timeout=LIMIT))
            self.theirs.append(self.lib.RemoteBuffer.from_bytes(bytes.fromhex(remote)).pages(self.traffic.page))

    def what(self) -> str:
        return self.links[0].path or "no path"

    def send(self, step: int) -> None:
        writes = []
        for at, (link, theirs) in enumerate(zip(self.links, self.theirs, strict=True)):
            here, there = self.traffic.numbers(self.number, at, step)
            writes.append(link.write_pages_async(self.pages, here, theirs, there, True, LIMIT))
        for write in writes:
            write.wait()

    def receive(self, step: int) -> None:
        for link in self.links:
            link.wait_for_write(LIMIT)


class Nixl:
    """Prepared lists on both sides; each step is a transfer with its numbers and a notification, asked about in a loop."""

    def __init__(self, traffic: Traffic, sends: bool, number: int, own: Any) -> None:
        nixl = module(nixl_module())
        self.traffic, self.sends, self.number = traffic, sends, number
        self.agent = nixl.nixl_agent(f"{'s' if sends else 'r'}{number}", nixl.nixl_agent_config(backends=[]))
        # UCX's shared memory cannot tell that a peer has died, which NIXL asks for unless told otherwise.
        mode = "none" if os.environ.get("UCX_TLS", "").startswith("shm") else "peer"
        self.agent.create_backend("UCX", {"ucx_error_handling_mode": mode})
        self.own, self.at = own, own.ctypes.data
        self.agent.register_memory([(self.at, own.nbytes, 0, "")], "DRAM")
        self.offer = f"{self.at} {self.agent.get_agent_metadata().hex()}"

    def meet(self, offers: list[str]) -> None:
        senders = self.traffic.senders
        others = offers[senders:] if self.sends else offers[:senders]
        for offer in others:
            self.agent.add_remote_agent(bytes.fromhex(offer.split()[1]))
        if self.sends:
            self.pages = self.listed("", self.at, self.traffic.here)
            self.theirs = [
                self.listed(f"r{at}", int(offer.split()[0]), self.traffic.there) for at, offer in enumerate(others)
            ]

    def listed(self, agent: str, at: int, count: int) -> Any:
        import numpy

        page = self.traffic.page
        return self.agent.prep_xfer_dlist(agent, numpy.array([[at, page, 0, page, count]], dtype=numpy.uint64), "DRAM")

    def what(self) -> str:
        return "UCX_TLS=" + os.environ.get("UCX_TLS", "")

    def send(self, step: int) -> None:
        pending = []
        for at, theirs in enumerate(self.theirs):
            here, there = self.traffic.numbers(self.number, at, step)
            request = self.agent.make_prepped_xfer("WRITE", self.pages, here, theirs, there, b"x")
            self.agent.transfer(request)
            pending.append(request)
        for request in pending:
            while (state := self.agent.check_xfer_state(request)) == "PROC":
                pass
            assert state == "DONE", state
            self.agent.release_xfer_handle(request)

    def receive(self, step: int) -> None:
        left = self.traffic.senders
        while left:
            left -= sum(len(told) for told in self.agent.get_new_notifs().values())


class Gloo:
    """Two-sided messages of torch.distributed, with a copy of the pages on each side."""

    def __init__(self, traffic: Traffic, sends: bool, number: int, own: Any) -> None:
        self.torch, self.dist = module("torch"), module("torch.distributed")
        self.torch.set_num_threads(1)
        self.traffic, self.sends, self.number = traffic, sends, number
        self.own = self.torch.from_numpy(own).view(-1, traffic.page)
        peers = traffic.receivers if sends else traffic.senders
        self.parts = [self.torch.empty(traffic.moved, traffic.page, dtype=self.torch.uint8) for _ in range(peers)]
        self.rank = number if sends else traffic.senders + number
        self.offer, self.store = "", None
        if self.rank == 0:
            self.store = self.dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self.offer = str(self.store.port)

    def meet(self, offers: list[str]) -> None:
        store = self.store or self.dist.TCPStore("127.0.0.1", int(offers[0]), is_master=False)
        self.dist.init_process_group("gloo", store=store, rank=self.rank, world_size=len(offers))
        first = self.traffic.senders if self.sends else 0
        self.peers = range(first, first + len(self.parts))

    def what(self) -> str:
        return "isend and irecv"

    def pairs(self, step: int) -> Any:
        """Each peer's piece with the numbers of its pages, as this side counts them."""
        for at, part in enumerate(self.parts):
            sender, receiver = (self.number, at) if self.sends else (at, self.number)
            numbers = self.traffic.numbers(sender, receiver, step)[0 if self.sends else 1]
            yield self.peers[at], part, self.torch.from_numpy(numbers)

    def send(self, step: int) -> None:
        pending = []
        for peer, part, numbers in self.pairs(step):
            self.torch.index_select(self.own, 0, numbers, out=part)
            pending.append(self.dist.isend(part, peer))
        for work in pending:
            work.wait()

    def receive(self, step: int) -> None:
        pending = [(self.dist.irecv(part, peer), part, numbers) for peer, part, numbers in self.pairs(step)]
        for work, part, numbers in pending:
            work.wait()
            self.own.index_copy_(0, numbers.long(), part)


LIBRARIES: dict[str, Any] = {"linkspan": Linkspan, "nixl": Nixl, "gloo": Gloo}


def filled(traffic: Traffic, sender: int, turn: int) -> Any:
    """What a sender has in a round: other bytes for every page, sender and round."""
    import numpy

    words = traffic.here * traffic.page // 8
    return (numpy.arange(words, dtype=numpy.uint64) * 2654435761 + sender * 1000003 + turn).view(numpy.uint8)


def process(kind: str, name: str, role: str, steps: int) -> None:
    """One process of a side, told what to do by lines of input."""
    import numpy

    traffic, sends, number = KINDS[kind], role[0] == "s", int(role[1:])
    own = numpy.zeros((traffic.here if sends else traffic.there) * traffic.page, numpy.uint8)
    side = LIBRARIES[SIDES[name][0]](traffic, sends, number, own)
    print("offer " + side.offer, flush=True)
    side.meet(json.loads(sys.stdin.readline()))
    print("path " + side.what(), flush=True)
    for line in sys.stdin:
        turn = int(line)
        if sends:
            own[:] = filled(traffic, number, turn)
        else:
            own[:] = 0
        print("ready", flush=True)
        for step in range(turn * steps, (turn + 1) * steps):
            sys.stdin.readline()
            (side.send if sends else side.receive)(step)
            print("there", flush=True)
        if not sends:
            got, page = own.reshape(-1, traffic.page), traffic.page
            for sender in range(traffic.senders):
                # Of the last step.
                here, there = traffic.numbers(sender, number, (turn + 1) * steps - 1)
                expected = filled(traffic, sender, turn).reshape(-1, page)[here]
                if not (got[there] == expected).all():
                    raise SystemExit(f"{name}: receiver {number} has other bytes of sender {sender} than were sent")
        print("checked", flush=True)


class Side:
    """The processes of one library for one kind of traffic."""

    def __init__(self, kind: str, name: str, steps: int) -> None:
        self.name, self.traffic, self.steps = name, KINDS[kind], steps
        roles = [f"s{n}" for n in range(self.traffic.senders)] + [f"r{n}" for n in range(self.traffic.receivers)]
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--role", role, "--name", name, "--only", kind, "--steps", str(steps)],
                env={**os.environ, **SIDES[name][1]},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for role in roles
        ]

    def meet(self) -> str:
        """The path, when all are connected."""
        offers = json.dumps([self.line(process, "offer") for process in self.processes])
        for process in self.processes:
            self.tell(process, offers)
        return [self.line(process, "path") for process in self.processes][0]

    def tell(self, process: "subprocess.Popen[str]", line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    def line(self, process: "subprocess.Popen[str]", word: str) -> str:
        assert process.stdout is not None
        for text in process.stdout:
            # UCX and torch say things of their own.
            if text.split(None, 1)[:1] == [word]:
                return text[len(word) + 1 :].rstrip("\n")
        raise SystemExit(f"{self.name}: a process has ended")

    def all(self, line: str, word: str) -> None:
        for process in self.processes:
            self.tell(process, line)
        for process in self.processes:
            self.line(process, word)

    def round(self, turn: int) -> float:
        """GB/s."""
        self.all(str(turn), "ready")
        took = 0.0
        for _ in range(self.steps):
            began = time.perf_counter()
            self.all("go", "there")
            took += time.perf_counter() - began
        for process in self.processes:
            self.line(process, "checked")
        moved = self.traffic.moved * self.traffic.senders * self.traffic.receivers * self.traffic.page
        return moved * self.steps / took / 1e9

    def end(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(LIMIT)


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--steps", type=int, default=20, help="of a round")
    words.add_argument("--only", choices=KINDS, help="this traffic alone")
    words.add_argument("--role", help=argparse.SUPPRESS)
    words.add_argument("--name", choices=SIDES, help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.role is not None:
        return process(args.only, args.name, args.role, args.steps)
    names = []
    for name, (library, _) in SIDES.items():
        if importlib.util.find_spec(MODULES[library]) is None:
            print(f"left out: {name}: {MODULES[library]} is not installed")
        elif name != "NIXL, free":
            names.append(name)
    table: dict[str, dict[str, list[float]]] = {}
    for kind in [args.only] if args.only else KINDS:
        table[kind] = {name: [] for name in names}
        for turn in range(args.rounds):
            for name in names:
                # Those of the others are not there: some spin without work.
                side = Side(kind, name, args.steps)
                path = side.meet()
                if turn == 0:
                    print(f"{kind}: {name}: {path}", flush=True)
                table[kind][name].append(side.round(turn))
                side.end()
            said = ", ".join(f"{name} {rates[-1]:.2f}" for name, rates in table[kind].items())
            print(f"{kind}: round {turn}, GB/s: {said}", flush=True)
    print(f"GB/s, median of {args.rounds} rounds in turns (least to most), {args.steps} steps each")
    print("| |" + "".join(f" {kind} |" for kind in table))
    print("|---|" + "---|" * len(table))
    for name in names:
        cells = [f"{statistics.median(rates[name]):.2f} ({min(rates[name]):.2f}..{max(rates[name]):.2f})" for rates in table.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
