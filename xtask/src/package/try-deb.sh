#!/bin/bash
# Installs, uses, changes and removes the packages in the root of a fresh system: try-deb.sh ROOT DEBS TESTS RELEASE.
# What was seen is one line each; what is wrong ends it.
set -eu
root=$1 debs=$2 tests=$3 release=$4
mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs/"
rm -f "$root"/debs/*-dbgsym_*
cp -r "$tests" "$root/debs/tests"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
apt() { in_root apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 "$@"; }
fail() { echo "FAIL $release: $1" >&2; [ ! -e "$root/said" ] || tail -n 40 "$root/said" >&2; exit 1; }
ok() { echo "ok   $release: $1"; }
# What packages leave behind that is not theirs: caches and logs of dpkg, apt and the loader. Ubuntu's libc6 diverts /lib, so that dpkg makes
# /lib.usr-is-merged for any package with files in /lib, as those of Debian 12 are, and keeps it.
state() {
	in_root find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /debs -o -path /var/cache \
		-o -path /var/log -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /said -o -path /lib.usr-is-merged -o -name __pycache__ \) -prune -o -print |
		grep -vxE '/etc/(ld.so.cache|group-|gshadow-|passwd-|shadow-)' | sort
	in_root sh -c 'find /run/linkspan 2>/dev/null; cat /etc/passwd /etc/group'
}
configured() { [ -z "$(in_root dpkg --audit)" ] || fail "dpkg --audit: $(in_root dpkg --audit)"; }
packages='linkspan linkspan-nccl liblinkspan0 liblinkspan-dev python3-linkspan linkspan-tray'
window=no
[ "$release" = bookworm ] || ! ls "$debs"/linkspan-gui_*.deb >/dev/null 2>&1 || { window=yes && packages="$packages linkspan-gui linkspan-desktop"; }
files() { for name in $packages; do ls "$root/debs/$1"/"${name}"_*.deb | sed "s|^$root||"; done; }

apt update
# A system without a service manager, as a container is; its users are made with passwd.
apt install passwd >/dev/null
state >"$root/tmp/before"
! in_root sh -c 'command -v systemctl' >/dev/null || fail "the smallest system has a service manager"
# shellcheck disable=SC2046
apt install $(packages='linkspan linkspan-nccl' && files .) >"$root/said" 2>&1 || fail "installing without a service manager"
in_root LINKSPAN_STATS_DIR=off lspan selftest >"$root/said" 2>&1 || fail "lspan selftest without a service manager"
configured
# As a container that has the host's statistics, and may not unmount them.
mkdir -p "$root/run/linkspan/stats" "$root/tmp/host"
touch "$root/tmp/host/page"
mount --bind "$root/tmp/host" "$root/run/linkspan/stats"
setpriv --bounding-set -sys_admin --inh-caps -sys_admin chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
	dpkg -P --force-depends linkspan >"$root/said" 2>&1 || fail "purging with the statistics of a host"
[ -e "$root/tmp/host/page" ] || fail "purging removed the statistics of the host"
umount "$root/run/linkspan/stats"
rm -r "$root/tmp/host" "$root/run/linkspan"
ok "purged with the statistics of a host mounted, which are still there"
# shellcheck disable=SC2046
apt install $(packages='linkspan linkspan-nccl' && files .) >"$root/said" 2>&1 || fail "installing again"
apt purge --autoremove linkspan linkspan-nccl >"$root/said" 2>&1 || fail "purging without a service manager"
state | diff "$root/tmp/before" - >"$root/said" || fail "purging without a service manager left or took something"
ok "without a service manager: installed, lspan selftest, purged with nothing left"
# What the packages and their tests stand on is there before and after.
apt install g++ pkgconf cmake make python3 dkms passwd udev dbus polkitd systemd >/dev/null
[ $window = no ] || apt install libadwaita-1-0 xvfb xauth x11-utils libglib2.0-bin desktop-file-utils appstream >/dev/null
state >"$root/tmp/before"

# shellcheck disable=SC2046
apt install $(files .) >"$root/said" 2>&1 || fail "installing"
configured
in_root sh /debs/tests/main-job >"$root/said" 2>&1 || fail "the main job"
grep '^ok ' "$root/said" | sed "s/^ok  /ok   $release:/"
in_root sh /debs/tests/service >"$root/said" 2>&1 || fail "the service"
grep '^ok ' "$root/said" | sed "s/^ok  /ok   $release:/"
[ $window = no ] || {
	in_root sh /debs/tests/window >"$root/said" 2>&1 || fail "the window"
	grep '^ok ' "$root/said" | sed "s/^ok  /ok   $release:/"
}
in_root grep -q '^d /run/linkspan/stats 3777 root linkspan$' /usr/lib/tmpfiles.d/linkspan.conf || fail "no folder for statistics"
[ -n "$(in_root getent group linkspan)" ] || fail "no group linkspan"
in_root man -w lspan >/dev/null 2>&1 || [ -e "$root/usr/share/man/man1/lspan.1.gz" ] || fail "no man page"
[ -z "$(in_root apt-get -s autoremove | grep '^Remv.*linkspan' || :)" ] || fail "apt would take something of ours away"

# The next version, which differs in its number alone, over it and back, with a program at work.
mkdir "$root/debs/next"
for file in "$root"/debs/*.deb; do
	rm -rf "$root/tmp/next"
	dpkg-deb -R "$file" "$root/tmp/next"
	version=$(dpkg-deb -f "$file" Version)
	sed -i "s/${version//./\\.}/&.1/g" "$root/tmp/next/DEBIAN/control"
	grep -qxF "Version: $version.1" "$root/tmp/next/DEBIAN/control" || fail "no next version of $file, which is $version"
	dpkg-deb -b --root-owner-group "$root/tmp/next" "$root/debs/next/" >/dev/null
done
rm -rf "$root/tmp/next"
# The root shares the ports of this machine.
in_root lspan perf serve --open --port $((20000 + $$ % 10000)) >"$root/tmp/serve" 2>&1 &
job=$!
for way in next .; do
	# shellcheck disable=SC2046
	apt --allow-downgrades install $(files $way) >"$root/said" 2>&1 || fail "changing versions ($way)"
	configured
	kill -0 $job || fail "changing versions ended a program that ran: $(cat "$root/tmp/serve")"
done
kill $job && wait $job || :
ok "the next version over it and back, with lspan at work"

# shellcheck disable=SC2046,SC2086
apt remove $packages >"$root/said" 2>&1 || fail "removing"
# shellcheck disable=SC2086
in_root dpkg -P $packages >"$root/said" 2>&1 || fail "purging"
state | diff "$root/tmp/before" - >"$root/said" || fail "purging left or took something"
ok "removed and purged: nothing left"

# /usr that may not be written to: dpkg refuses, is consistent, and goes on when it may be.
mount --bind "$root/usr" "$root/usr" && mount -o remount,bind,ro "$root/usr"
if in_root dpkg -i "/debs/$(cd "$root/debs" && ls linkspan-nccl_*.deb)" >"$root/said" 2>&1; then fail "it installs into a /usr that is read-only"; fi
grep -q 'Read-only file system' "$root/said" || fail "no word about /usr"
umount -l "$root/usr"
in_root dpkg -i "/debs/$(cd "$root/debs" && ls linkspan-nccl_*.deb)" >"$root/said" 2>&1 || fail "after /usr was read-only"
configured
apt purge linkspan-nccl >/dev/null
ok "a read-only /usr is refused with its reason; installing goes on when it is not"

# The module. No headers at first.
module=/debs/$(cd "$root/debs" && ls linkspan-dkms_*.deb)
in_root dpkg -i "$module" >"$root/said" 2>&1 || fail "linkspan-dkms without headers"
configured
grep -q 'headers\|^Building for' "$root/said" || fail "no word about kernels or headers"
grep 'headers\|^Building for' "$root/said" | head -n 1 | sed "s/^/     /"
[ -n "$(in_root getent group linkspan)" ] || fail "no group linkspan"
in_root dpkg -P linkspan-dkms >"$root/said" 2>&1 || fail "purging linkspan-dkms"
[ -z "$(in_root getent group linkspan)" ] || fail "the group linkspan is left"
state | diff "$root/tmp/before" - >"$root/said" || fail "purging linkspan-dkms left or took something"
ok "no kernel headers: said, installed, purged with nothing left"

# Headers of all kernels that the release has: one before the module, the others after.
from=
if [ "$release" = noble ]; then
	# Of each of its lines (6.8 and what came since) the newest.
	kernels=$(in_root apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9].*-generic\)$/\1/p' | sort -V |
		awk -F. '{ newest[$1 * 1000 + $2] = $0 } END { for (line in newest) print newest[line] }' | sort -V)
else
	sed "s/ $release main/ $release-backports main/;t;d" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/backports.list"
	apt update
	# headers RELEASE: of the kernel that this release has now.
	headers() { in_root apt-get -s -t "$1" install linux-headers-amd64 | sed -n 's/^Inst linux-headers-\([0-9][^ ]*-amd64\) .*/\1/p' | sort -V | tail -n 1; }
	kernels="$(headers "$release") $(headers "$release-backports")" from="-t $release-backports"
fi
# shellcheck disable=SC2086
set -- $kernels
stock=$1
shift
[ $# -gt 0 ] && [ "$stock" != "$1" ] || fail "the headers of one kernel only: $stock"
apt install "linux-headers-$stock" >/dev/null
state >"$root/tmp/before"
in_root dpkg -i "$module" >"$root/said" 2>&1 || fail "linkspan-dkms with the headers of $stock"
built() { ls "$root/lib/modules/$1/updates/dkms/"linkspan.ko* >/dev/null 2>&1; }
say() { if built "$1"; then ok "DKMS built the module for $1"; else ok "DKMS left out $1: $(in_root dkms status -k "$1" linkspan 2>&1 | head -n 1)"; fi; }
in_root dkms autoinstall -k "$stock" >"$root/said2" 2>&1 || :
case $stock in
	6.1.*) ! built "$stock" || fail "a module for $stock"; grep -h -m 1 -i 'BUILD_EXCLUSIVE\|does not match' "$root/said" "$root/said2" || fail "no word about $stock" ;;
	*) built "$stock" || fail "no module for $stock" ;;
esac
say "$stock"
configured
for newer; do
	# shellcheck disable=SC2086
	apt $from install "linux-headers-$newer" >"$root/said" 2>&1 || fail "the headers of $newer with linkspan-dkms there"
	configured
	built "$newer" || fail "apt's hooks built no module for $newer"
	say "$newer"
	in_root modinfo -F vermagic "$(in_root find "/lib/modules/$newer/updates" -name 'linkspan.ko*')" | grep -q "^$newer " || fail "a module for another kernel"
done

# The module's next version over it and back.
for file in "$root"/debs/next/linkspan-dkms_*.deb "$root/debs"/linkspan-dkms_*.deb; do
	in_root dpkg -i "${file#"$root"}" >"$root/said" 2>&1 || fail "linkspan-dkms: $file"
	built "$newer" || fail "no module for $newer after $file"
done
ok "linkspan-dkms: the next version over it and back"
# One that dpkg refuses, for it has a file of another package.
dpkg-deb -R "$root"/debs/next/linkspan-dkms_*.deb "$root/tmp/next"
mkdir -p "$root/tmp/next/usr/bin" && touch "$root/tmp/next/usr/bin/dpkg"
dpkg-deb -b --root-owner-group "$root/tmp/next" "$root/tmp/refused.deb" >/dev/null
! in_root dpkg -i /tmp/refused.deb >"$root/said" 2>&1 || fail "a package with a file of another one is installed"
rm -rf "$root/tmp/next" "$root/tmp/refused.deb"
configured
built "$newer" || fail "a refused version has taken the module for $newer away"
ok "linkspan-dkms: the next version refused: the module is still there"
in_root dpkg -P linkspan-dkms >"$root/said" 2>&1 || fail "purging linkspan-dkms"
! built "$newer" || fail "the module is left"
[ ! -e "$root/var/lib/dkms/linkspan" ] || fail "/var/lib/dkms/linkspan is left"
[ -z "$(in_root find /usr/src /lib/modules -name '*linkspan*')" ] || fail "files are left"

# A disk that is full when the module is built: half configured, said, and mended by dpkg when there is space.
mount -t tmpfs -o size=64k none "$root/var/lib/dkms"
if in_root dpkg -i "$module" >"$root/said" 2>&1 && built "$newer"; then fail "a module was built on a full disk"; fi
grep -q 'No space left on device' "$root/said" || fail "no word about the full disk"
umount -l "$root/var/lib/dkms"
in_root dpkg --configure -a >"$root/said" 2>&1 || fail "configuring again with space"
built "$newer" || in_root dpkg-reconfigure linkspan-dkms >"$root/said" 2>&1 || fail "dpkg-reconfigure"
built "$newer" || fail "no module after there was space again"
configured
in_root dpkg -P linkspan-dkms >/dev/null 2>&1
[ -z "$(in_root find /usr/src /lib/modules /var/lib/dkms -name '*linkspan*')" ] || fail "files are left"
ok "a full disk while the module is built: said, mended when there is space, purged with nothing left"
