"""Peers by the names of paired hosts, between processes of two users."""

import os
import subprocess
import sys
from pathlib import Path

import linkspan
import pytest

from conftest import LONG
from test_guide import OF_README

# Keys of users who are nobody else's: private in hexadecimal digits, public in base 64.
KEYS = {
    "alice": ("01" * 32, "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk="),
    "mini2": ("02" * 32, "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk="),
}

# The programs of the README, at ports that are free here.
SERVES = OF_README["serves"].replace("own.serve_at()", 'print(own.serve_at(0), end=" ")')
FINDS = OF_README["finds"].replace('"mini2"', 'f"mini2:{one}"')

SERVER = f"""
import linkspan, sys
{SERVES}
listener = linkspan.Listener(paired=True)
print(listener.serve_at(0), flush=True)
came = own.next_event(30)
there = listener.accept(30)
print(came.peer, own.peer(came.peer).peer_name, there.peer_name, flush=True)
sys.stdin.read()
"""

CLIENT = """
import asyncio, linkspan, sys, time

async def later(host):
    # A host that serves nothing is asked until the time is over, and the loop goes on; a task that is cancelled ends at once.
    turns = 0
    asking = asyncio.create_task(linkspan.find_host_async("mini2:1", 0.6))
    while not asking.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 4 and asking.exception().code == "LS0732", (turns, asking)
    asking = asyncio.create_task(linkspan.find_host_async("mini2:1", None))
    await asyncio.sleep(0.1)
    asking.cancel()
    begun = time.monotonic()
    await asyncio.wait([asking])
    assert asking.cancelled() and time.monotonic() - begun < 5
    for host_name, timeout in (("mini2:1", -1.0), ("two words", 1.0)):
        try:
            await linkspan.find_host_async(host_name, timeout)
        except linkspan.BadValue:
            continue
        raise SystemExit(f"{host_name}, {timeout}: taken")
    return await linkspan.find_host_async(host, 30)

one, two = sys.argv[1:]
FINDS
t = linkspan.Transport(paired=True)
t.connect(asyncio.run(later(f"mini2:{two}")), timeout=30)
print(trainer.peer_name, t.peer_name, flush=True)
for name, error in (("eve.invalid", "LS0731"), ("mini2:1", "LS0732"), ("two words", "LS0738")):
    try:
        linkspan.find_host(name, 0)
    except linkspan.Error as failed:
        assert failed.code == error, failed
sys.stdin.read()
""".replace("FINDS", FINDS)


def user(folder: Path, name: str, peers: list[str]) -> dict[str, str]:
    """The environment of a user who trusts these peers, who are on this host."""
    keys = folder / name / "linkspan"
    keys.mkdir(parents=True)
    (keys / "key").touch(0o600)
    (keys / "key").write_text(KEYS[name][0])
    (keys / "peers").touch(0o600)
    (keys / "peers").write_text("".join(f"linkspan1 {KEYS[peer][1]} {peer} 127.0.0.1\n" for peer in peers))
    return {**os.environ, "XDG_CONFIG_HOME": str(folder / name)}


def run(program: str, words: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_paired_host_is_found_by_its_name_and_both_sides_know_the_other(tmp_path: Path) -> None:
    server = run(SERVER, [], user(tmp_path, "mini2", ["alice"]))
    client = run(CLIENT, line(server).split(), user(tmp_path, "alice", ["mini2"]))
    assert line(client) == "mini2 mini2"
    assert line(server) == "w0 alice alice"
    for process in (client, server):
        process.communicate(timeout=LONG)
        assert process.returncode == 0


def test_without_keys_it_is_said_what_makes_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for make in (lambda: linkspan.Endpoint("a", paired=True), lambda: linkspan.find_host("b", 0)):
        with pytest.raises(linkspan.NotPaired, match="LS0524.*lspan pair"):
            make()
    with linkspan.Endpoint("a") as own, pytest.raises(linkspan.NotPaired, match="LS1138"):
        own.serve_at(0)
