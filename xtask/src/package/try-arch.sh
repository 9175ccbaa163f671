#!/bin/bash
# Runs the functions of a PKGBUILD as makepkg does, without makepkg: try-arch.sh FOLDER SOURCES. What would be packed lies in FOLDER/pkg.
set -euo pipefail
top=$1 sources=$2
fail() { echo "FAIL $1" >&2; exit 1; }
cd "$top"
# shellcheck disable=SC1091
source ./PKGBUILD
# Debian 12 has no GTK that is new enough for the window.
pkg-config --exists 'libadwaita-1 >= 1.5' 2>/dev/null || { echo "     without linkspan-gui: no libadwaita 1.5 here" && pkgname=("${pkgname[@]/linkspan-gui/}"); }
mapfile -t pkgname < <(printf '%s\n' "${pkgname[@]}" | grep .)
srcdir=$top/src
mkdir -p "$srcdir"
# shellcheck disable=SC2154
for at in "${!source[@]}"; do
	echo "${sha256sums[at]}  $sources/${source[at]}" | sha256sum --check --quiet --strict || fail "the sum of ${source[at]}"
	tar -xf "$sources/${source[at]}" -C "$srcdir"
done
for step in prepare build; do (cd "$srcdir" && $step) || fail "$step"; done
# shellcheck disable=SC2154
for name in "${pkgname[@]}"; do
	# shellcheck disable=SC2034
	(cd "$srcdir" && pkgdir=$top/pkg/$name && mkdir -p "$pkgdir" && "package_$name") || fail "package_$name"
	[ -n "$(find "$top/pkg/$name" -type f)" ] || fail "$name is empty"
	echo "     $name: $(find "$top/pkg/$name" -type f | wc -l) files, $(du -sk "$top/pkg/$name" | cut -f1) KiB"
done
twice=$(cd "$top/pkg" && for name in *; do (cd "$name" && find . -type f -o -type l); done | sort | uniq -d)
[ -z "$twice" ] || fail "files of two packages: $twice"
# shellcheck disable=SC2154
for file in linkspan/usr/bin/lspan linkspan/usr/bin/linkspand linkspan-nccl/usr/lib/librccl-net-linkspan.so "linkspan-dkms/usr/src/linkspan-$pkgver/dkms.conf" \
	linkspan/usr/lib/systemd/system/local-fs.target.wants/run-linkspan-stats.mount linkspan/usr/share/licenses/linkspan/THIRD-PARTY \
	linkspan-nccl/usr/share/licenses/linkspan-nccl/THIRD-PARTY linkspan-tray/usr/share/licenses/linkspan-tray/THIRD-PARTY; do
	[ -s "$top/pkg/$file" ] || fail "no $file"
done
grep -q '^ExecStart=/usr/bin/linkspand$' "$top/pkg/linkspan/usr/lib/systemd/system/linkspand.service" || fail "the unit starts another program"
LD_LIBRARY_PATH=$top/pkg/linkspan-nccl/usr/lib:$top/pkg/linkspan/usr/lib "$top/pkg/linkspan/usr/bin/lspan" selftest >"$top/selftest" || { cat "$top/selftest"; fail "lspan selftest"; }
echo "ok   PKGBUILD: laid out by its own functions, without makepkg; lspan selftest"
