#!/bin/bash
# Runs in the Debian 13 root, in a network of its own: desktop.sh WORD, with the tree, the toolchain and the folder of builds at the places
# that they have outside.
#   build   the window, its lints and its unit tests, and all of it as it is installed, below $PLACE/stage/usr
#   test    the window on buses of its own, driven through AT-SPI (bin/linkspan-desktop/tests/window.py), and once more on Wayland
#   shots   screenshots of each page, into $PLACE/shots
set -euo pipefail
cd "$TREE/bin/linkspan-desktop"
export CARGO_TARGET_DIR=$PLACE/build HOME=/tmp/home LC_ALL=C.UTF-8
mkdir -p "$HOME"
stage=$PLACE/stage/usr

build() {
	cargo fmt --check
	cargo clippy --offline --locked --all-targets -- -D warnings
	cargo test --offline --locked
	cargo build --offline --locked
	rm -rf "$PLACE/stage"
	sh data/install.sh "$CARGO_TARGET_DIR/debug/linkspan-desktop" "$PLACE/stage"
	sh ../linkspan-tray/data/install.sh "$SERVICES/linkspan-tray" "$PLACE/stage"
	desktop-file-validate "$stage"/share/applications/*.desktop
	appstreamcli validate --no-net data/org.linkspan.Desktop.metainfo.xml
	# Started by the bus from where they lie.
	sed -i "s|/usr/bin/|$stage/bin/|" "$stage/share/dbus-1/services/org.linkspan.Desktop.service"
	sed "s|/usr/sbin/|$SERVICES/|" ../linkspand/data/org.linkspan.User1.service >"$stage/share/dbus-1/services/org.linkspan.User1.service"
	# Ubuntu 24.04 has glibc 2.39.
	newest=$(objdump -T "$stage/bin/linkspan-desktop" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
	echo "ok   newest symbol of the C library: $newest"
	[ "$(printf 'GLIBC_2.39\n%s\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.39 ]
}

drive() {
	ip link set lo up
	[ -e /usr/lib/locale/de_DE.utf8 ] || localedef -i de_DE -f UTF-8 /usr/lib/locale/de_DE.utf8
	# Programs of ours before others of their names.
	export PATH=$stage/bin:$SERVICES:$PATH XDG_DATA_DIRS=$stage/share:/usr/share
	export GTK_A11Y=atspi GSK_RENDERER=cairo NO_AT_BRIDGE=0 GSETTINGS_BACKEND=memory
	python3 -B "tests/$1" "${@:2}"
}

case $1 in
build) build ;;
test)
	drive window.py
	drive wayland.py
	;;
shots) for kind in light dark large narrow german; do drive shots.py "$PLACE/shots" $kind; done ;;
esac
