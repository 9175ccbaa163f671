"""Pictures of each page, light, dark, narrow, with text of twice the size, and in German: to be looked at. shots.py DIR KIND."""

import os
import subprocess
import sys
from pathlib import Path

import harness
import window
from harness import Session, find, page, press, text, until, write

PAGES = ["Overview", "Tests", "Jobs", "Files", "Findings", "Events"]

# Whatever the window manager knows, the window is as large as the screen.
OPENBOX = """<?xml version="1.0"?><openbox_config><applications>
<application class="*"><decor>no</decor><maximized>yes</maximized></application></applications></openbox_config>"""


def shoot(to):
    # What is drawn is there when the tree has been still for a while.
    before = None
    for _ in range(100):
        now = harness.dump()
        if now == before:
            break
        before = now
    subprocess.run(["import", "-window", "root", to], check=True)
    subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", to, "256", to], check=False)


def opened(at, **variables):
    process = at.start(["linkspan-desktop"], env=dict(os.environ, **variables))
    until("the window", lambda: find("frame", "linkspan") or find("window", "linkspan"))
    return process


def closed(process):
    process.kill()
    process.wait()
    until("the window goes", lambda: harness.application() is None)


def pages(at, to, kind):
    for name in PAGES:
        page(name)
        if name == "Tests":
            write("Peer: its name", "mini2")
        if name == "Files":
            write("Peer, or PEER:SHARE/PATH", "mini2")
            press("button", "Open this place")
            press("button", "Open in")
            text("a <b>file")
        if name == "Findings" and find("button", "Examine"):
            press("button", "Examine")
            until("the doctor has looked", lambda: find("button", "Examine Again"))
        shoot(to / f"{name.lower()}-{kind}.png")


def filled(at):
    """Something on every page."""
    first = opened(at)
    for step in (window.lets_a_host_in, window.trusts_a_peer, window.measures, window.sends):
        step(at)
    closed(first)


def main():
    """One screen for each process: a client of AT-SPI has one bus."""
    to, kind = Path(sys.argv[1]), sys.argv[2]
    to.mkdir(parents=True, exist_ok=True)
    at = Session(size="360x720" if kind == "narrow" else "900x680", openbox=OPENBOX, dpi=192 if kind == "large" else 96)
    at.machine()
    at.system = at.system_service()
    scheme = "prefer-dark" if kind == "dark" else "prefer-light"
    os.environ["ADW_DEBUG_COLOR_SCHEME"] = scheme
    if kind == "light":
        first = opened(at)
        text("40 Gb/s")
        shoot(to / "cards-light.png")
        closed(first)
    filled(at)
    german = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"} if kind == "german" else {}
    process = opened(at, **german)
    if kind == "german":
        text("40 Gb/s")
        shoot(to / "overview-german.png")
    else:
        pages(at, to, kind)
    closed(process)


if __name__ == "__main__":
    main()
