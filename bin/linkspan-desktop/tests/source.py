"""A window from which a file can be dragged, in place of a file manager's: source.py FILE."""

import sys

import gi

gi.require_version("Gtk", "4.0")
gi.require_version("Gdk", "4.0")
from gi.repository import Gdk, Gio, Gtk


def activated(app):
    file = Gio.File.new_for_path(sys.argv[1])
    label = Gtk.Label(label="Drag me")
    source = Gtk.DragSource(actions=Gdk.DragAction.COPY)
    source.set_content(Gdk.ContentProvider.new_for_value(Gdk.FileList.new_from_list([file])))
    label.add_controller(source)
    window = Gtk.ApplicationWindow(application=app, title="Files to drag", child=label, default_width=200, default_height=200)
    window.present()


app = Gtk.Application(application_id="org.linkspan.Drag")
app.connect("activate", activated)
app.run()
