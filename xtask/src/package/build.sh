#!/bin/sh
# Builds the source package in the root of a fresh system, without a network, and has lintian look at what comes out:
# build.sh ROOT SOURCE OUT NTH. Builds of another number differ in all that must make no difference. The folder does make one: cargo has the path of
# crates outside of their workspace, as for the window and the Python module, in names of symbols. So it is the same, and .buildinfo names it.
set -eu
root=$1 source=$2 out=$3 nth=$4
mkdir -p "$root/build" "$out"
cp "$source"/* "$root/build/"
# Debian 12 has no GTK that is new enough for the window.
profiles=$(grep -q '^VERSION_CODENAME=bookworm$' "$root/etc/os-release" && echo pkg.linkspan.nogui || :)
in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 DEB_BUILD_PROFILES="$profiles" "$@"; }
in_root apt-get -qq update
in_root sh -c "apt-get -qq -y --no-install-recommends build-dep /build/*.dsc >/dev/null"
# Debian 13 has it no longer among what every system has.
in_root apt-get -qq -y --no-install-recommends install passwd >/dev/null
in_root useradd --create-home "builder$nth"
in_root chown -R "builder$nth:" /build
case $nth in 1) zone=UTC mask=022 ;; *) zone=Pacific/Kiritimati mask=002 ;; esac
unshare --net --uts sh -c "hostname host$nth && exec chroot '$root' setpriv --reuid builder$nth --regid builder$nth --clear-groups \
	env -i HOME=/home/builder$nth PATH=/usr/bin:/bin TZ=$zone LC_ALL=C.UTF-8 DEB_BUILD_PROFILES=$profiles sh -ec \
	'umask $mask; cd /build; dpkg-source --no-check -x *.dsc tree >/dev/null; cd tree; dpkg-buildpackage -us -uc -b'"
cp "$root/build"/*.deb "$root/build"/*.buildinfo "$root/build"/*.changes "$out/"
[ "$nth" = 1 ] || exit 0
in_root apt-get -qq -y --no-install-recommends install lintian >/dev/null
# There is no bug of Debian that a first version could close.
in_root setpriv --reuid "builder$nth" --regid "builder$nth" --clear-groups sh -c \
	"cd /build && lintian --info --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs *.dsc *.changes"
echo "ok   lintian"
