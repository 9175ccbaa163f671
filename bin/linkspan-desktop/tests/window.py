"""The window with the real services, from a service that comes to one that goes: what a person sees and does, by role and name."""

import os
import re
import subprocess
import time
from pathlib import Path

import harness
from gi.repository import Gio, GLib
from harness import Session, enabled, find, key, page, press, text, until, write

PAGES = ["Overview", "Tests", "Jobs", "Files", "Findings", "Events"]
CONTROLS = {"button", "toggle button", "text", "entry", "combo box", "switch", "check box", "progress bar"}


def gdbus(method, *words, name="org.linkspan.Desktop", path="/org/linkspan/Desktop"):
    words = ["gdbus", "call", "--session", "-d", name, "-o", path, "-m", method, *words]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def pid_of(name):
    said = gdbus("org.freedesktop.DBus.GetConnectionUnixProcessID", name, name="org.freedesktop.DBus", path="/")
    return int(said.split()[1].rstrip(",)"))


def fields(pid, file, *names):
    lines = (line.split(":", 1) for line in Path(f"/proc/{pid}/{file}").read_text().splitlines() if ":" in line)
    return [int(value.split()[0]) for name, value in lines if name in names]


def opened_by_the_bus(at):
    gdbus("org.freedesktop.Application.Activate", "{}")
    until("the window", lambda: find("frame", "linkspan"))


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
    # The cable is cut in the middle; what runs can be given up, and runs again when the cable is back.
    press("button", "Start the test")
    text("of 5 measured")
    subprocess.run(["ip", "link", "set", "cable1", "down"], check=True)
    press("button", "Cancel the test")
    text("cancelled")
    subprocess.run(["ip", "link", "set", "cable1", "up"], check=True)
    press("button", "Start the test")
    text(" before")


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
    text("Files arrived: 1")


def takes_files_that_are_dropped(at):
    file = at.dir / "one/dropped.txt"
    file.write_text("linkspan")
    source = at.start(["python3", "-B", Path(__file__).with_name("source.py"), file])
    xdo = lambda *words: subprocess.run(["xdotool", *map(str, words)], check=True, capture_output=True, text=True).stdout

    def middle(name):
        """Of a window, on the screen."""
        values = dict(line.split("=") for line in xdo("search", "--sync", "--name", name, "getwindowgeometry", "--shell").split())
        return [int(values[at]) + int(values[size]) // 2 for at, size in (("X", "WIDTH"), ("Y", "HEIGHT"))]

    until("the other window", lambda: subprocess.run(["xdotool", "search", "--name", "Files to drag"], capture_output=True).stdout)
    # Beside each other, so that both are seen.
    xdo("search", "--name", "^linkspan$", "windowmove", 0, 0)
    xdo("search", "--name", "Files to drag", "windowmove", 1000, 100)
    until("it is there", lambda: middle("Files to drag")[0] > 1000)
    (from_x, from_y), (to_x, to_y) = middle("Files to drag"), middle("^linkspan$")
    arrived = at.dir / "two/inbox/dropped.txt"

    def dragged(seconds):
        """As a person does it who takes so long."""
        xdo("mousemove", from_x, from_y, "mousedown", 1)
        for n in range(1, 21):
            xdo("mousemove", from_x + (to_x - from_x) * n // 20, from_y + (to_y - from_y) * n // 20)
            time.sleep(seconds / 40)
        time.sleep(seconds / 2)
        xdo("mouseup", 1)
        begun = time.monotonic()
        while not arrived.exists() and time.monotonic() - begun < 5:
            time.sleep(0.05)
        return arrived.exists()

    assert any(dragged(seconds) for seconds in (1, 4, 16)), "nothing was dropped"
    until("the file at the other side", lambda: arrived.read_text() == "linkspan")
    source.kill()
    source.wait()


def shares_and_mirrors_a_folder_that_is_chosen(at):
    page("Files")
    folder = at.dir / "one/shared"
    folder.mkdir()
    (folder / "within").write_text("linkspan")
    press("button", "Share a folder to read")
    chosen(folder)
    text(f"{folder}, peers may read it")
    press("button", "Share shared no more")
    until("the share goes", lambda: find("label", "peers may read it") is None)
    press("button", "Mirror")
    chosen(folder)
    text("The copy is like it")
    copy = at.dir / "two/inbox/shared"
    until("the copy", lambda: (copy / "within").exists())
    (folder / "later").write_text("linkspan")
    until("the copy follows", lambda: (copy / "later").exists())
    press("button", "Stop ")
    until("the mirror ends", lambda: find("label", "The copy is like it") is None)


def chosen(folder):
    """In GTK's dialog, by its path."""
    dialog = until("the dialog", lambda: enabled("button", "Select") and find("dialog", "Folder"))
    # Its field for a path comes up with the first sign of one.
    key("slash")
    field = until("the field", lambda: next((node for node, _ in harness.walk(dialog) if node.get_role_name() == "text"), None))
    assert field.set_text_contents(str(folder))
    press("button", "Select")
    until("the dialog goes", lambda: find("button", "Select") is None)


def asks_which_files_to_send(at):
    gdbus("org.freedesktop.Application.ActivateAction", "send", "[]", "{}")
    press("button", "Cancel")
    until("the dialog goes", lambda: find("button", "Cancel") is None)


def has_a_name_for_every_control(at):
    for name in PAGES:
        page(name)
        nameless = [node.get_role_name() for node, _ in harness.walk(harness.application()) if node.get_role_name() in CONTROLS and not node.get_name()]
        assert not nameless, f"{name}: without a name: {nameless}\n{harness.dump()}"


def rests_when_nothing_happens(at):
    pid, seconds = pid_of("org.linkspan.Desktop"), 30
    page("Overview")

    def wakeups():
        """Of each thread; those of GLib's pools come and go."""
        tasks = os.listdir(f"/proc/{pid}/task")
        return {task: sum(fields(pid, f"task/{task}/status", "voluntary_ctxt_switches")) for task in tasks}

    # What the last press has caused is over then: scroll bars fade away.
    time.sleep(6)
    before = wakeups()
    time.sleep(seconds)
    after = wakeups()
    name = lambda task: Path(f"/proc/{pid}/task/{task}/comm").read_text().strip()
    each = {f"{task} {name(task)}": (now - before.get(task, now)) / seconds for task, now in after.items()}
    print(f"     {sum(each.values()):.1f} wake-ups a second", flush=True)
    assert sum(each.values()) <= 5, f"wake-ups a second of each thread: {each}"


def is_in_the_tray_in_german(at):
    watcher = at.start(["python3", "-B", Path(__file__).with_name("watcher.py")], stdout=subprocess.PIPE, text=True)
    at.tray = at.start(["linkspan-tray"], env=dict(os.environ, LANG="de_DE.UTF-8", LC_ALL="de_DE.UTF-8"))
    item = watcher.stdout.readline().strip()

    def entry(label):
        """Its number."""
        layout = gdbus("com.canonical.dbusmenu.GetLayout", "0", "int32 -1", "[]", name=item, path="/MenuBar")
        found = re.search(rf"\((\d+), {{[^{{}}]*'label': <'{label}'>", layout)
        return found and found[1]

    until("the cable", lambda: entry("strix-b: 40 Gb/s"))
    until("whom to measure", lambda: entry("Bandbreite messen"))
    gdbus("com.canonical.dbusmenu.Event", entry("Dateien senden …"), "clicked", "<0>", "0", name=item, path="/MenuBar")
    press("button", "Cancel")
    until("the dialog goes", lambda: find("button", "Cancel") is None)


def takes_no_memory_for_what_is_past(at):
    pids, devices = [pid_of("org.linkspan.Desktop"), at.tray.pid], at.root / "sys/bus/thunderbolt/devices"
    pss = lambda: [fields(pid, "smaps_rollup", "Pss")[0] for pid in pids]
    # Forty cables to one host, all plugged in and pulled out together.
    cables, host = [devices / f"0-{port:x}" for port in range(1, 41)], os.readlink(devices / "0-1")

    def events(after_us):
        """The times of those since then, as the service has them."""
        words = GLib.Variant("(tb)", (after_us, False))
        said = bus.call_sync("org.linkspan.Link1", "/org/linkspan/Link1", "org.linkspan.Link1.Manager", "GetEvents", words, None, 0, -1, None)
        return [event["time_us"] for event in said.unpack()[0]]

    def plug(most, last_us):
        seen, there = 0, True
        while seen < most or not there:
            for cable in cables:
                cable.unlink(missing_ok=True)
                if not there:
                    cable.symlink_to(host)
            there = not there
            at.system.send_signal(1)
            new = until("it is seen", lambda: events(last_us))
            seen, last_us = seen + len(new), max(new)
        until("it is shown", lambda: find("label", "40 Gb/s"))
        return last_us

    bus = Gio.DBusConnection.new_for_address_sync(os.environ["DBUS_SYSTEM_BUS_ADDRESS"], Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION, None, None)
    page("Overview")
    # More than are kept (256 here, 1024 by the service), until everything that is made once is there.
    last_us = plug(4_000, max(events(0)))
    before = pss()
    plug(10_000, last_us)
    print(f"     window and tray: {before} KiB, {pss()} KiB after 10,000 events", flush=True)
    assert all(now < then + 1024 for then, now in zip(before, pss())), "it grows"
    for cable in cables[1:]:
        cable.unlink()
    at.system.send_signal(1)


def loses_the_services_and_has_them_back(at):
    page("Overview")
    text("40 Gb/s")
    at.system.kill()
    at.system.wait()
    text("The service does not run")
    at.system = at.system_service()
    text("40 Gb/s")
    subprocess.run(["kill", "-9", str(pid_of("org.linkspan.User1"))], check=True)
    page("Tests")
    text("Your service does not run")
    press("button", "Try Again")
    text("Bandwidth to mini2")


def stays_whole_when_a_stranger_has_the_name_of_the_service(at):
    at.system.kill()
    at.system.wait()
    page("Overview")
    text("The service does not run")
    stranger = at.start(["python3", "-B", Path(__file__).with_name("stranger.py"), "5"])
    text("<u>7.0</u>")
    text("are not understood or too many")
    text("<b>bold</b> & <i>more</i>")
    long = max((node.get_name() or "" for node, _ in harness.walk(harness.application())), key=len)
    assert len(long) < 400, f"{len(long)} characters are shown of one text"
    page("Events")
    text("<b>bold</b>")
    page("Tests")
    text("Bandwidth to mini2")
    stranger.kill()
    stranger.wait()
    at.system = at.system_service()
    page("Overview")
    text("40 Gb/s")


def main():
    at = Session()
    at.machine()
    at.system = at.system_service()
    steps = [
        opened_by_the_bus,
        lets_a_host_in,
        trusts_a_peer,
        measures,
        sends,
        takes_files_that_are_dropped,
        shares_and_mirrors_a_folder_that_is_chosen,
        asks_which_files_to_send,
        has_a_name_for_every_control,
        rests_when_nothing_happens,
        is_in_the_tray_in_german,
        takes_no_memory_for_what_is_past,
        loses_the_services_and_has_them_back,
        stays_whole_when_a_stranger_has_the_name_of_the_service,
    ]
    for step in steps:
        step(at)
        print(f"ok   {step.__name__.replace('_', ' ')}", flush=True)


if __name__ == "__main__":
    main()
