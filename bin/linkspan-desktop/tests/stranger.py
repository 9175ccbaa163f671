"""A program that has the name of the system's service and is another one: more hosts than there can be, names that are markup, endless or
written from right to left, properties of other types, and what no version has told. stranger.py MINUTES."""

import sys

from gi.repository import Gio, GLib

PATH = "/org/linkspan/Link1"
NAMES = ["<b>bold</b> & <i>more</i>", "x" * 10_000, "\u202eשלום עולם", "line\nline\ttab", "", "{name} %s _underline"]

XML = """<node>
<interface name="org.freedesktop.DBus.ObjectManager"><method name="GetManagedObjects"><arg type="a{oa{sa{sv}}}" direction="out"/></method></interface>
<interface name="org.linkspan.Link1.Manager">
<property name="Version" type="s" access="read"/>
<method name="GetEvents"><arg type="t" direction="in"/><arg type="b" direction="in"/><arg type="aa{sv}" direction="out"/></method>
</interface></node>"""


def objects():
    text = lambda value: GLib.Variant("s", value)
    all_of_them = {}
    for n in range(500):
        peer = {"Uuid": text(f"uuid {n}"), "Name": text(NAMES[n % len(NAMES)]), "Driver": text("waiting"), "Allowed": GLib.Variant("b", False)}
        all_of_them[f"{PATH}/peer/{n}"] = {"org.linkspan.Link1.Peer": peer}
        cable = {"Name": text(NAMES[n % len(NAMES)]), "Peer": GLib.Variant("o", f"{PATH}/peer/{n}"), "Usable": GLib.Variant("b", n % 2 == 0)}
        if n % 3 == 0:
            cable["ReceiveLanes"] = text("many")
        all_of_them[f"{PATH}/cable/{n}"] = {"org.linkspan.Link1.Cable": cable, "org.linkspan.Link1.Oven": {"Heat": text("high")}}
    return GLib.Variant("(a{oa{sa{sv}}})", (all_of_them,))


def events():
    now = GLib.get_real_time()
    event = lambda n: {"time_us": GLib.Variant("t", now + n), "kind": GLib.Variant("s", NAMES[n % len(NAMES)]), "text": GLib.Variant("s", NAMES[0])}
    return GLib.Variant("(aa{sv})", ([event(n) for n in range(1, 1000)] + [{"time_us": GLib.Variant("s", "noon")}],))


def called(_connection, _sender, _path, _interface, method, _words, invocation):
    invocation.return_value(objects() if method == "GetManagedObjects" else events())


def main():
    connection = Gio.bus_get_sync(Gio.BusType.SYSTEM)
    for interface in Gio.DBusNodeInfo.new_for_xml(XML).interfaces:
        connection.register_object(PATH, interface, called, lambda *_: GLib.Variant("s", "<u>7.0</u>"), None)
    Gio.bus_own_name_on_connection(connection, "org.linkspan.Link1", Gio.BusNameOwnerFlags.NONE, None, None)
    GLib.timeout_add_seconds(60 * int(sys.argv[1]), sys.exit)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
