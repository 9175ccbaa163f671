"""Two transports in one process, on loopback."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("LINKSPAN_IFNAME", "=lo")
os.environ.setdefault("LINKSPAN_STATS_DIR", "off")

import linkspan

LONG = 30.0

Pair = tuple[linkspan.Transport, linkspan.Transport]


def make_pair() -> Pair:
    a, b = linkspan.Transport("cpu"), linkspan.Transport("cpu")
    a.connect(b.bind(), timeout=LONG)
    b.wait_connected(timeout=LONG)
    return a, b


def until_done(op: linkspan.Op[Any]) -> None:
    """Asks an operation until it has reported."""
    end = time.monotonic() + LONG
    while not op.done():
        assert time.monotonic() < end


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = make_pair()
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def pattern() -> Callable[[int, int], bytes]:
    def made(length: int, seed: int) -> bytes:
        return bytes((seed * 131 + i * 7 + (i >> 8)) & 0xFF for i in range(length))

    return made
