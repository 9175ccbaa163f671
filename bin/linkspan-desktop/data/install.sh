#!/bin/sh
# Puts the window, as it was built, below usr of a folder: install.sh PROGRAM FOLDER. For packages, and for the tests.
set -eu
program=$(realpath "$1") usr=$(realpath -m "$2")/usr
cd "$(dirname "$0")"
install -D "$program" "$usr/bin/linkspan-desktop"
put() { install -D -m 644 "$1" "$usr/share/$2/$(basename "$1")"; }
put org.linkspan.Desktop.desktop applications
put org.linkspan.Desktop.metainfo.xml metainfo
put org.linkspan.Desktop.service dbus-1/services
put icons/org.linkspan.Desktop.svg icons/hicolor/scalable/apps
put icons/org.linkspan.Desktop-symbolic.svg icons/hicolor/symbolic/apps
sh ../po/install.sh linkspan-desktop "${usr%/usr}"
