#!/bin/bash
# Installs, uses and removes RPM packages in the root of a fresh Debian, whose shell and tools run their scripts: try-rpm.sh ROOT RPMS.
set -eu
root=$1 rpms=$2
fail() { echo "FAIL $1" >&2; exit 1; }
ok() { echo "ok   $1"; }
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 LD_LIBRARY_PATH=/usr/lib64 "$@"; }
rpm() { command rpm --root "$root" --dbpath /tmp/rpmdb "$@"; }
# Folders that many packages share are those of Fedora's `filesystem`.
state() { in_root find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \) -prune -o \( ! -type d -o -name '*linkspan*' \) -print | grep -vxE '/etc/(ld.so.cache|group-?|gshadow-?)' | sort; }
mapfile -t files < <(find "$rpms" -name '*.rpm' ! -name '*-dkms-*' | sort)
((${#files[@]} == 5)) || fail "${#files[@]} packages, not 5"
rpm --initdb
# Fedora has these two; of Debian only the shell and its tools are there.
mkdir -p "$root/usr/lib64" "$root/usr/share/doc"
state >"$root/tmp/before"
rpm -i --nodeps "${files[@]}" >"$root/tmp/said" 2>&1 || { cat "$root/tmp/said"; fail "installing"; }
rpm -qa | sort | sed 's/^/     /'
[ -n "$(in_root getent group linkspan)" ] || fail "no group linkspan"
rpm -V --nodeps linkspan linkspan-libs linkspan-devel linkspan-nccl linkspan-tray || fail "rpm -V"
for file in /usr/lib/systemd/system/local-fs.target.wants/run-linkspan-stats.mount '/usr/share/doc/linkspan*/slurm/prolog'; do
	in_root sh -c "test -s $file" || fail "no $file"
done
for file in "${files[@]}"; do rpm -qLp "$file" | grep -q '/THIRD-PARTY$' || fail "$file has no notices of the crates in it"; done
in_root lspan selftest >"$root/tmp/said" || { cat "$root/tmp/said"; fail "lspan selftest"; }
for part in 'NCCL plugin' 'RCCL plugin' 'path tcp' 'path shm'; do
	grep -q "^pass  $part" "$root/tmp/said" || { cat "$root/tmp/said"; fail "$part"; }
done
ok "RPM: installed into the root of a Debian; lspan selftest with the plugin in /usr/lib64"
rpm -e --nodeps linkspan linkspan-libs linkspan-devel linkspan-nccl linkspan-tray || fail "removing"
state | diff "$root/tmp/before" - || fail "removing left or took something"
ok "RPM: removed with nothing left but the group"
# Its scripts need DKMS: what is in it is looked at.
dkms=$(find "$rpms" -name '*-dkms-*.rpm')
rpm -qlp "$dkms" >"$root/tmp/said"
for file in dkms.conf main.c uapi/linkspan.h; do grep -q "/usr/src/linkspan-[0-9.]*/$file\$" "$root/tmp/said" || fail "no $file in linkspan-dkms"; done
ok "RPM: linkspan-dkms has the sources of the module (DKMS itself was not run)"
