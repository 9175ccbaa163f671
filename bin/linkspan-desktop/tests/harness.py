"""A session of our own, and the real services on it: an X server nobody sees (or a Wayland compositor), a session bus, a system bus, a machine of files for the
system's service, and a second user who is the peer. The window is found and driven through AT-SPI, by role and name."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
SERVICES = Path(os.environ["SERVICES"])
UUID = "d2040000-0080-7518-b3c8-e1ac3a6b0201"
# What must come may take this long on a slow machine, seconds.
PATIENCE = int(os.environ.get('PATIENCE_S', 60))

SYSTEM_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><deny own="*"/><deny send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/>
<allow send_destination="org.freedesktop.DBus"/></policy>
<include>{rules}</include></busconfig>"""


def until(what, is_so, patience=PATIENCE):
    """Waits for what must come, and answers it."""
    begun = time.monotonic()
    while True:
        found = is_so()
        if found:
            return found
        if time.monotonic() - begun > patience:
            print(dump(), file=sys.stderr)
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.05)


def or_none(look):
    """Nothing, where what was looked at went meanwhile."""

    @functools.wraps(look)
    def looked(*words):
        from gi.repository import GLib

        try:
            return look(*words)
        except GLib.Error:
            return None

    return looked


class Session:
    def __init__(self, size="1280x960", language="C.UTF-8", openbox=None, dpi=96, wayland=False):
        self.dir = Path(tempfile.mkdtemp(prefix="linkspan-session-"))
        self.running = []
        atexit.register(self.end)
        for user in ("one", "two"):
            (self.dir / user).mkdir()
        os.environ["HOME"] = str(self.dir / "one")
        os.environ["XDG_RUNTIME_DIR"] = str(self.dir / "run")
        (self.dir / "run").mkdir(mode=0o700)
        self.cable()
        os.environ.update({"LINKSPAN_IFNAME": "=cable1", "LINKSPAN_LOG": "warn", "LANG": language, "LC_ALL": language})
        self.stats = self.dir / "stats"
        self.stats.mkdir(mode=0o1777)
        os.environ["LINKSPAN_STATS_DIR"] = str(self.stats)
        if wayland:
            self.wayland()
            self.buses()
        else:
            self.x11(size)
            self.buses()
            self.manager(openbox, dpi)

    def wayland(self):
        os.environ.update({"GDK_BACKEND": "wayland", "WAYLAND_DISPLAY": "wayland-9"})
        os.environ.pop("DISPLAY", None)
        self.start(["weston", "--backend=headless", "--renderer=pixman", "--socket=wayland-9", "--idle-time=0", "--debug"], stderr=subprocess.DEVNULL)
        until("the compositor", lambda: (self.dir / "run/wayland-9").exists())

    def x11(self, size):
        os.environ.update({"GDK_BACKEND": "x11", "DISPLAY": ":99"})
        self.start(["Xvfb", ":99", "-screen", "0", f"{size}x24", "-nolisten", "tcp"])
        until("the X server", lambda: Path("/tmp/.X11-unix/X99").exists())

    def manager(self, openbox, dpi):
        settings = self.dir / "xsettings"
        settings.write_text(f'Xft/DPI {dpi * 1024}\nGtk/FontName "Cantarell 11"\n')
        self.start(["xsettingsd", "--config", settings])
        manager = ["openbox", "--sm-disable"]
        if openbox is not None:
            (self.dir / "rc.xml").write_text(openbox)
            manager += ["--config-file", self.dir / "rc.xml"]
        self.start(manager)

    def start(self, words, **options):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)
        self.running.append(process)
        return process

    def cable(self):
        """Between this network and that of the other user."""
        ip = lambda words: subprocess.run(["ip", *words.split()], check=True)
        if not Path("/run/netns/two").exists():
            ip("netns add two")
            ip("link add cable1 type veth peer name cable2 netns two")
            ip("address add 10.77.0.1/24 dev cable1")
            ip("-n two address add 10.77.0.2/24 dev cable2")
            ip("-n two link set lo up")
            ip("-n two link set cable2 up")
            ip("link set cable1 up")

    def buses(self):
        rules = TREE / "bin/linkspand/data/org.linkspan.Link1.conf"
        config = self.dir / "system.conf"
        config.write_text(SYSTEM_BUS.format(socket=self.dir / "system", rules=rules))
        for words, variable in (
            ([f"--config-file={config}"], "DBUS_SYSTEM_BUS_ADDRESS"),
            (["--session"], "DBUS_SESSION_BUS_ADDRESS"),
        ):
            daemon = self.start(["dbus-daemon", *words, "--nofork", "--nopidfile", "--print-address"], stdout=subprocess.PIPE, text=True)
            os.environ[variable] = daemon.stdout.readline().strip()

    def machine(self, name="strix-halo"):
        """A machine of files, which has a host at its cable that waits to be let in."""
        fixture = subprocess.Popen(
            [SERVICES / "examples/fixture", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.running.append(fixture)
        self.root = Path(fixture.stdout.readline().strip())
        assert self.root.is_absolute(), "there is no machine of files"
        for file, text in (("peer", UUID), ("state", "waiting"), ("allowed", "0")):
            at = self.root / "sys/class/linkspan/linkspan0" / file
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(f"{text}\n")
        (self.root / "etc").mkdir(exist_ok=True)
        (self.root / "etc/linkspand.toml").write_text(f'statistics = "{self.stats}"\n')

    def system_service(self):
        at = self.root
        places = ["--root", at, "--config", at / "etc", "--state", at / "state", "--runtime", at / "run"]
        return self.start([SERVICES / "linkspand", "-f", *places])

    def two(self, *words, **options):
        """A program of the other user."""
        home = self.dir / "two"
        environment = dict(os.environ, HOME=str(home), XDG_STATE_HOME=str(home / "state"), XDG_CONFIG_HOME=str(home / "config"))
        environment.update({"LINKSPAN_STATS_DIR": "off", "LINKSPAN_IFNAME": "=cable2"})
        inside = ["ip", "netns", "exec", "two"]
        return self.start([*inside, SERVICES / words[0], *words[1:]], env=environment, **options)

    def end(self):
        for process in reversed(self.running):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = []
        shutil.rmtree(self.dir, ignore_errors=True)


def atspi():
    import gi

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi

    return Atspi


def handle_events():
    from gi.repository import GLib

    context = GLib.MainContext.default()
    while context.pending():
        context.iteration(False)


@or_none
def application():
    desktop = atspi().get_desktop(0)
    desktop.clear_cache()
    apps = [desktop.get_child_at_index(n) for n in range(desktop.get_child_count())]
    return next((app for app in apps if app is not None and app.get_name() == "linkspan-desktop"), None)


def walk(node, depth=0):
    """Everything that a person can get at: what is not showing is left out."""
    from gi.repository import GLib

    try:
        node.clear_cache()
        yield node, depth
        for n in range(min(node.get_child_count(), 600)):
            child = node.get_child_at_index(n)
            if child is not None and (depth < 1 or child.get_state_set().contains(atspi().StateType.VISIBLE)):
                yield from walk(child, depth + 1)
    except GLib.Error:
        return  # It has gone meanwhile.


def actions(node):
    """Names of its actions. An object of another kind may have the interface, and none."""
    from gi.repository import GLib

    try:
        return [node.get_action_name(n) for n in range(node.get_n_actions())] if node.get_action_iface() else []
    except GLib.Error:
        return []


def dump():
    app = application()
    if app is None:
        return "no application"
    lines = []
    for node, depth in walk(app):
        lines.append(f"{'  ' * depth}{node.get_role_name()} {node.get_name()!r} {node.get_description()!r} {actions(node)}")
    return "\n".join(lines)


@or_none
def find(role, name):
    """The first that shows, has this role, and a name in which the text is."""
    handle_events()
    app = application()
    showing = atspi().StateType.SHOWING
    for node, _ in walk(app) if app is not None else ():
        if node.get_role_name() == role and name in (node.get_name() or "") and node.get_state_set().contains(showing):
            return node
    return None


def text(part):
    """Whether such a text is shown."""
    return until(f"the text {part!r}", lambda: find("label", part))


def enabled(role, name):
    @or_none
    def is_so():
        node = find(role, name)
        return node if node is not None and node.get_state_set().contains(atspi().StateType.SENSITIVE) else None

    return until(f"{role} {name!r}, which can be used", is_so)


def press(role, name):
    """By the action for it, else by the keyboard."""
    node = enabled(role, name)
    names = actions(node)
    for n, action in enumerate(names):
        if action in ("click", "press", "activate"):
            assert node.do_action(n), f"{role} {name!r}: {action}"
            return
    focus(role, name)
    key("Return")


@or_none
def focused():
    handle_events()
    app = application()
    state = atspi().StateType.FOCUSED
    return next((node for node, _ in walk(app) if node.get_state_set().contains(state)), None)


def focus(role, name):
    """By the keyboard: Tab until it has the focus, or something beside it, from where the arrow keys lead to it."""
    is_it = lambda node: node is not None and node.get_role_name() == role and name in (node.get_name() or "")
    for _ in range(60):
        at, wanted = focused(), find(role, name)
        if at is not None and wanted is not None and at.get_parent() == wanted.get_parent():
            for step in ("Home", *["Down"] * wanted.get_index_in_parent()):
                key(step)
        if is_it(focused()):
            return
        key("Tab")
    raise AssertionError(f"no key leads to {role} {name!r}")


def key(name):
    import gi

    gi.require_version("Gdk", "4.0")
    from gi.repository import Gdk

    Atspi = atspi()
    before = focused()
    Atspi.generate_keyboard_event(Gdk.keyval_from_name(name), None, Atspi.KeySynthType.SYM)
    # The key goes by way of the X server.
    begun = time.monotonic()
    while time.monotonic() - begun < 0.3 and focused() == before:
        time.sleep(0.02)


def write(name, content):
    """Into the field of this name."""
    node = until(f"the field {name!r}", lambda: find("text", name) or find("entry", name))
    assert node.get_editable_text_iface() is not None, f"{name!r} cannot be written to"
    assert node.set_text_contents(content)


def page(name):
    """Where it is narrow, the list is one step back."""
    if find("list item", name) is None and find("button", "Back"):
        press("button", "Back")
    press("list item", name)
