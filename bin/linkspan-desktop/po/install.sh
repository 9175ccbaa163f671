#!/bin/sh
# Puts the catalogues below usr of a folder, under the name by which a program asks for them: install.sh NAME FOLDER.
set -eu
umask 022
name=$1 usr=$(realpath -m "$2")/usr
cd "$(dirname "$0")"
for po in *.po; do
	catalogue=$usr/share/locale/$(basename "$po" .po)/LC_MESSAGES/$name.mo
	mkdir -p "$(dirname "$catalogue")"
	msgfmt --check --check-accelerators=_ -o "$catalogue" "$po"
done
