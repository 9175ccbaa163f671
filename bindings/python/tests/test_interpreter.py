"""The interpreter's lock, which no system call has, and the end of the interpreter with operations under way."""

import subprocess
import sys

import pytest

from conftest import LONG, calls_with_the_lock_held

CALLS = """
from linkspan._linkspan import Notifier

def run():
    things = []
    def made(name, call):
        things.append(watched(name, call))
        return things[-1]
    a, b = made("Transport()", linkspan.Transport), linkspan.Transport()
    url = watched("bind", b.bind)
    watched("connect", lambda: a.connect(url, timeout=30))
    watched("wait_connected", lambda: b.wait_connected(30))
    for name in ("connected", "path", "peer_name", "epoch"):
        watched(name, lambda: getattr(a, name))
    watched("repr", lambda: repr(a))
    watched("stats", a.stats)
    inbox = bytearray(1 << 20)
    region = watched("expose", lambda: b.expose(inbox))
    remote = region.remote
    pages, there = linkspan.Memory(inbox).pages(4096), remote.pages(4096)
    for name, arguments in {
        "write": (bytes(1 << 20), remote, 1), "read": (bytearray(1 << 20), remote), "write_batch": ([(bytes(64), remote)] * 4, 1),
        "read_batch": ([(bytearray(64), remote)] * 4,), "write_pages": (pages, None, there, None, 1),
        "read_pages": (pages, None, there, None), "send": (7, b"small"), "wait_for_write": (),
    }.items():
        side = b if name == "wait_for_write" else a
        watched(name, lambda: getattr(side, name)(*arguments, timeout=0.05 if side is b else 30))
        op = watched(name + "_async", lambda: getattr(side, name + "_async")(*arguments, timeout=30))
        while not watched("done", op.done):
            if side is b:
                watched("cancel", op.cancel)
        watched("wait", op.wait)
    op = watched("recv_async", lambda: b.recv_async(7, inbox))
    watched("recv", lambda: b.recv(7, inbox, timeout=30))
    watched("wait", op.wait)
    things.append(watched("recv_async", lambda: a.recv_async(7, inbox)))
    watched("drop an Op under way", things.pop)
    watched("unexpose", lambda: b.unexpose(region))
    watched("fileno", a.fileno)
    watched("poll", a.poll)
    watched("abort", a.abort)

    notifier = made("Notifier()", Notifier)
    op = a.wait_for_write_async()
    watched("_watch", lambda: op._watch(notifier, 1))
    watched("abort", a.abort)
    watched("drain", notifier.drain)
    del notifier
    watched("drop a Notifier", things.pop)
    watched("close", b.close)
    del a
    watched("drop a Transport", things.pop)
    assert things == []

    listener = made("Listener()", linkspan.Listener)
    peer = linkspan.Transport()
    peer.connect(listener.url, timeout=30)
    things.append(watched("accept", lambda: listener.accept(30)))
    watched("drop a Transport that was accepted", things.pop)
    op = watched("accept_async", listener.accept_async)
    watched("done", op.done)
    peer.close()
    del op, listener
    watched("drop a Listener", things.pop)
    watched("close a Listener", linkspan.Listener().close)

    hub, other = made("Endpoint()", lambda: linkspan.Endpoint("hub")), linkspan.Endpoint("other")
    watched("Endpoint.connect", lambda: hub.connect("other", other.url, timeout=30))
    watched("Endpoint.connect", lambda: hub.connect("other", lambda name: other.url, timeout=30))
    op = watched("Endpoint.connect_async", lambda: hub.connect_async("other", other.url, timeout=30))
    watched("wait", op.wait)
    del op
    watched("next_event", lambda: hub.next_event(30))
    watched("next_event", lambda: hub.next_event(0.01))
    watched("peer", lambda: hub.peer("other")).write(b"x", other.expose(bytearray(8)).remote, notify=1)
    op = watched("next_event_async", other.next_event_async)
    watched("wait", op.wait)
    watched("Endpoint.expose", lambda: hub.expose(inbox))
    watched("peers", hub.peers)
    watched("repr", lambda: repr(hub))
    watched("Endpoint.fileno", hub.fileno)
    watched("Endpoint.poll", hub.poll)
    watched("remove", lambda: hub.remove("other"))
    del hub, op
    watched("drop an Endpoint", things.pop)
    watched("close an Endpoint", other.close)
    watched("supported", linkspan.Transport.supported)

    # What another thread has closed ends with the call that uses it.
    for opened, call, end in (
        (linkspan.Transport(), "wait_for_write", "abort"), (linkspan.Listener(), "accept", ""), (linkspan.Endpoint("e"), "next_event", ""),
    ):
        if call == "wait_for_write":
            peer = linkspan.Transport()
            peer.connect(opened.bind(), timeout=30)
            opened.wait_connected(30)
        thread = threading.Thread(target=watched, args=(call + " of what is closed meanwhile", getattr(opened, call)))
        thread.start()
        # In its call: then it sleeps, whenever it is looked at.
        slept = 0
        while slept < 100:
            state = open(f"/proc/self/task/{thread.native_id}/stat").read().rsplit(") ", 1)[1][0]
            slept = slept + 1 if state == "S" and cells[THREAD] != 0 else 0
        opened.close()
        thread.join()

main(run)
"""


def test_no_system_call_has_the_lock_of_python() -> None:
    names, held = calls_with_the_lock_held(CALLS)
    assert len(set(names)) > 60 and not held, sorted(held)


ENDS = """
import linkspan, sys, threading, time

def started(*calls):
    # In their calls: their threads sleep, or have gone round once.
    ids = []
    def run(call):
        ids.append(threading.get_native_id())
        call()
    for call in calls:
        threading.Thread(target=run, args=(call,), daemon=True).start()
    while len(ids) < len(calls):
        time.sleep(0.001)
    time.sleep(0.02)

def pair():
    a, b = linkspan.Transport(), linkspan.Transport()
    a.connect(b.bind(), timeout=30)
    return a, b

"""

UNDER_WAY = {
    "operations": """
a, b = pair()
remote = b.expose(bytearray(1 << 22)).remote
listener, hub = linkspan.Listener(), linkspan.Endpoint("hub")
ops = [a.wait_for_write_async(), a.recv_async(1, bytearray(8)), a.send_async(2, bytes(1 << 20)), a.write_async(bytes(1 << 22), remote, notify=1),
       a.read_async(bytearray(1 << 22), remote), listener.accept_async(), hub.next_event_async(), linkspan.Transport().wait_connected_async()]
""",
    "threads that wait": """
a, b = pair()
listener, hub = linkspan.Listener(), linkspan.Endpoint("hub")
started(a.wait_for_write, b.wait_for_write, a.wait_for_write_async().wait, lambda: a.recv(1, bytearray(8)), lambda: b.send(9, bytes(1 << 20)),
        listener.accept, hub.next_event, linkspan.Transport().wait_connected)
""",
    "threads that write": """
a, b = pair()
remote = b.expose(bytearray(1 << 22)).remote
def writes():
    while True:
        a.write(bytes(1 << 22), remote)
def asks():
    while True:
        a.write_async(bytes(1 << 16), remote).done()
        b.poll()
started(writes, writes, asks)
""",
    "a function that finds a peer": """
hub = linkspan.Endpoint("hub")
def find(name):
    return None
started(lambda: hub.connect("nobody", find, timeout=60), lambda: hub.connect("slow", lambda name: time.sleep(60), timeout=60))
""",
    "dialling": """
hub, gone = linkspan.Endpoint("hub"), linkspan.Endpoint("gone")
url = gone.url
gone.close()
started(lambda: hub.connect("gone", url, timeout=60), lambda: linkspan.Transport().connect(url, timeout=60))
""",
    "a loop that was stopped": """
import asyncio
a, b = pair()
hub = linkspan.Endpoint("hub")
async def events():
    async for event in hub.events():
        pass
async def main():
    loop.call_soon(loop.stop)
    async with asyncio.TaskGroup() as group:
        for one in (a.wait_for_write_async(), b.recv_async(1, bytearray(8)), events()):
            group.create_task(one)
loop = asyncio.new_event_loop()
# Python itself tells of the tasks that a program leaves behind.
loop.set_exception_handler(lambda loop, context: None)
task = loop.create_task(main())
loop.run_forever()
""",
    "sys.exit in a task": """
import asyncio
a, b = pair()
hub = linkspan.Endpoint("hub")
async def main():
    global tasks
    tasks = [asyncio.create_task(a.wait_for_write_async()), asyncio.create_task(hub.next_event_async())]
    await asyncio.sleep(0)
    sys.exit(0)
asyncio.run(main())
""",
    "the log": """
linkspan.log_to_logging()
a, b = pair()
started(a.wait_for_write, b.wait_for_write)
""",
    "a finalizer that goes on, and what it raises": """
class Late:
    def __init__(self):
        self.a, self.b = pair()
        self.op = self.a.wait_for_write_async()
        self.itself, self.Broken = self, linkspan.Broken
    def __del__(self):
        self.b.write(b"x", self.a.expose(bytearray(8)).remote, notify=3, timeout=30)
        assert self.op.wait() == 3
        self.b.close()
        try:
            self.a.wait_for_write(30)
        except self.Broken as error:
            assert error.code == "LS1104"
        else:
            assert False
# The last modules go when nothing can be imported any more.
sys.modules["late"] = Late()
""",
}


@pytest.mark.parametrize("under_way", UNDER_WAY)
def test_an_interpreter_ends_with_operations_under_way(under_way: str) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", ENDS + UNDER_WAY[under_way]]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
