"""The window on Wayland: the compositor weston, without a screen. What needs a keyboard of the X server is window.py's."""

import os
import subprocess
import sys
from pathlib import Path

from harness import Session, find, text, until
from window import gdbus, lets_a_host_in, opened_by_the_bus


def turns_to_a_page(at):
    gdbus("org.freedesktop.Application.ActivateAction", "page", "[<'events'>]", "{}")
    text("Cable was there")


def is_drawn(at):
    """What a person sees, kept for looking at."""
    shot = Path(os.environ["PLACE"]) / "wayland.png"
    before = set(Path(at.dir).glob("*.png"))
    subprocess.run(["weston-screenshooter"], cwd=at.dir, check=True)
    [taken] = set(Path(at.dir).glob("*.png")) - before
    shot.write_bytes(taken.read_bytes())
    said = subprocess.run(["identify", "-format", "%k", shot], check=True, capture_output=True, text=True).stdout
    assert int(said) > 50, f"{said} colours: nothing is drawn"


def main():
    at = Session(wayland=True)
    at.machine()
    at.system = at.system_service()
    for step in [opened_by_the_bus, lets_a_host_in, turns_to_a_page, is_drawn]:
        step(at)
        print(f"ok   on Wayland: {step.__name__.replace('_', ' ')}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
