"""The window with the real services, from a service that comes to one that goes: what a person sees and does, by role and name."""

import subprocess
import sys
from pathlib import Path

import harness
from harness import UUID, Session, enabled, find, page, press, text, until, write


def opened_by_the_bus(at):
    subprocess.run(
        ["gdbus", "call", "--session", "-d", "org.linkspan.Desktop", "-o", "/org/linkspan/Desktop", "-m", "org.freedesktop.Application.Activate", "{}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    until("the window", lambda: find("frame", "linkspan") or find("window", "linkspan"))


def lets_a_host_in(at):
    text("40 Gb/s")
    press("button", "Let strix-b in")
    allowed = at.root / "sys/class/linkspan/linkspan0/allowed"
    until("the host is let in", lambda: allowed.read_text().strip() == "1")
    until("the card goes", lambda: find("button", "Let strix-b in") is None)


def trusts_a_peer(at):
    pair = at.two("lspan", "pair", "--name", "mini2", stdout=subprocess.PIPE, text=True)
    line = next(words.split()[-1] for words in pair.stdout if "lspan pair LSPA" in words)
    write("Join line of the other machine", line)
    press("button", "Join with this line")
    shown = text("Fingerprint ").get_name().removeprefix("Fingerprint ")
    said = pair.stdout.read()
    assert shown in said, f"the window shows {shown}, the peer says {said!r}"
    press("button", "The fingerprints of mini2 are the same")
    until("the card goes", lambda: find("button", "The fingerprints of mini2") is None)
    text("mini2")


def measures(at):
    at.two("lspan", "perf", "serve")
    page("Tests")
    write("Peer: its name", "mini2")
    press("button", "Start the test")
    enabled("button", "Cancel the test")
    text("Bandwidth to mini2")
    until("the result", lambda: find("label", "tcp") or find("label", "shm"))
    press("button", "Start the test")
    press("button", "Cancel the test")
    text("cancelled")


def sends(at):
    inbox = at.dir / "two/inbox"
    inbox.mkdir()
    file = at.dir / "one/a <b>file & more.txt"
    file.write_bytes(b"linkspan\n" * 100_000)
    at.two("lspan", "files", "serve", f"in={inbox}:rw", "--as-root")
    # As "Open With" and the launcher do it; the window that is there takes it.
    subprocess.run(["linkspan-desktop", file], check=True)
    text("a <b>file & more.txt")
    write("Peer, or PEER:SHARE/PATH", "mini2")
    press("button", "Open this place")
    press("button", "Open in")
    press("button", "Send the files")
    arrived = inbox / file.name
    until("the file at the other side", lambda: arrived.exists() and arrived.read_bytes() == file.read_bytes())
    text("1 files arrived")


def loses_the_services_and_has_them_back(at):
    page("Overview")
    text("40 Gb/s")
    at.system.kill()
    at.system.wait()
    text("The service does not run")
    at.system = at.system_service()
    text("40 Gb/s")
    answer = subprocess.run(
        ["gdbus", "call", "--session", "-d", "org.freedesktop.DBus", "-o", "/", "-m", "org.freedesktop.DBus.GetConnectionUnixProcessID", "org.linkspan.User1"],
        check=True, capture_output=True, text=True,
    )
    subprocess.run(["kill", "-9", answer.stdout.split()[1].rstrip(",)")], check=True)
    page("Tests")
    text("Your service does not run")
    press("button", "Try Again")
    text("Bandwidth to mini2")


def main():
    at = Session()
    at.machine()
    at.system = at.system_service()
    steps = [opened_by_the_bus, lets_a_host_in, trusts_a_peer, measures, sends, loses_the_services_and_has_them_back]
    for step in steps:
        step(at)
        print(f"ok   {step.__name__.replace('_', ' ')}", flush=True)


if __name__ == "__main__":
    main()
