#!/bin/sh
# Puts the tray, as it was built, into a folder: install.sh PROGRAM FOLDER. For packages, and for the tests.
set -eu
program=$(realpath "$1") folder=$(realpath -m "$2")
cd "$(dirname "$0")"
install -D "$program" "$folder/usr/bin/linkspan-tray"
for place in etc/xdg/autostart usr/share/applications; do
	install -D -m 644 org.linkspan.Tray.desktop "$folder/$place/org.linkspan.Tray.desktop"
done
sh ../../linkspan-desktop/po/install.sh linkspan-tray "$folder"
