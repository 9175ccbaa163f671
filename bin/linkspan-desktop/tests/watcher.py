"""What a desktop with a tray has: it says the name of each item that registers, a line each."""

from gi.repository import Gio, GLib

XML = """<node><interface name="org.kde.StatusNotifierWatcher">
<method name="RegisterStatusNotifierItem"><arg type="s" direction="in"/></method>
<property name="IsStatusNotifierHostRegistered" type="b" access="read"/>
</interface></node>"""


def called(_connection, sender, _path, _interface, _method, words, invocation):
    print(sender if words[0].startswith("/") else words[0], flush=True)
    invocation.return_value(None)


def main():
    connection = Gio.bus_get_sync(Gio.BusType.SESSION)
    [interface] = Gio.DBusNodeInfo.new_for_xml(XML).interfaces
    connection.register_object("/StatusNotifierWatcher", interface, called, lambda *_: GLib.Variant("b", True), None)
    Gio.bus_own_name_on_connection(connection, "org.kde.StatusNotifierWatcher", Gio.BusNameOwnerFlags.NONE, None, None)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
