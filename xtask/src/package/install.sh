#!/bin/sh
# Installs linkspan below a folder that you may write to, or removes it from there. No root is needed.
#
#   ./install.sh [--prefix DIR]               into DIR; without it into ~/.local
#   ./install.sh --uninstall [--prefix DIR]   what an earlier install put there, and nothing else
set -eu
# What is installed may be for others too, whatever is made else.
umask 022

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix='' uninstall=no
fail() {
	echo "install.sh: $1" >&2
	exit "${2:-1}"
}
while [ $# -gt 0 ]; do
	case $1 in
		--prefix) [ -n "${2:-}" ] || fail "--prefix takes a folder" 2; prefix=$2; shift ;;
		--prefix=*) prefix=${1#--prefix=}; [ -n "$prefix" ] || fail "--prefix takes a folder" 2 ;;
		--uninstall) uninstall=yes ;;
		-h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
		*) fail "there is no option $1; there are --prefix DIR and --uninstall" 2 ;;
	esac
	shift
done
if [ -z "$prefix" ]; then
	case $here in
		# Itself installed: it removes where it lies.
		*/share/linkspan) prefix=${here%/share/linkspan} ;;
		*) prefix=${HOME:?}/.local ;;
	esac
fi
case $prefix in
	/*) ;;
	*) prefix=$(pwd)/$prefix ;;
esac
# What is there of ours: one path below the prefix a line, folders that were made with a slash at the end, in the order in which they were made.
list=$prefix/share/linkspan/installed
IFS='
'
set -f

# remove PATHS: these, folders only where they are empty.
remove() {
	for path in $(printf '%s\n' "$1" | sed '1!G;h;$!d'); do
		case $path in
			*/) rmdir "$prefix/$path" 2>/dev/null || : ;;
			*) rm -f "$prefix/$path" ;;
		esac
	done
}

if [ $uninstall = yes ]; then
	[ -r "$list" ] || fail "$prefix has no $list: nothing of linkspan was installed there by this script"
	# The list and this script stay until all other files are gone: what is interrupted goes on.
	own=$(printf '%s\n' share/linkspan/installed share/linkspan/install.sh)
	remove "$(grep -v '/$' "$list" | grep -vxF -- "$own")"
	remove "$(grep '/$' "$list" || :; echo "$own")"
	echo "removed from $prefix"
	exit 0
fi

[ -x "$here/bin/lspan" ] || fail "$here has no bin/lspan: run this in the folder that was unpacked"
if ! said=$("$here/bin/lspan" --version 2>&1); then
	echo "$said" >&2
	fail "bin/lspan does not run here: this is $(uname -m) with $(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'no glibc'), \
and it needs glibc 2.34 or newer on the processor that the archive is named for"
fi

old=''
[ ! -r "$list" ] || old=$(cat "$list")
files=$(cd "$here" && find . \( -type f -o -type l \) ! -path ./install.sh | sed 's|^\./||' | LC_ALL=C sort)
files="$files
share/linkspan/install.sh
share/linkspan/installed"
for file in $files; do
	if [ -e "$prefix/$file" ] || [ -L "$prefix/$file" ]; then
		printf '%s\n' "$old" | grep -qxF -- "$file" ||
			fail "$prefix/$file is there and was not put there by this script: move it away, or choose another --prefix"
	fi
done

# Everything is copied beside its place first, then given its name: a process that uses the old files keeps them, and where the
# disk is full or may not be written to, what was there is still whole.
made='' copied=''
undo() {
	for file in $copied; do rm -f "$prefix/$file.new"; done
	remove "$made"
	fail "$1: nothing was changed"
}
missing=''
for file in $files; do
	folder=${file%/*}
	while [ "$folder" != "$file" ] && [ ! -d "$prefix/$folder" ]; do
		missing="$missing
$folder/"
		case $folder in
			*/*) folder=${folder%/*} ;;
			*) break ;;
		esac
	done
done
missing=$(printf '%s\n' "$missing" | sed '/^$/d' | LC_ALL=C sort -u)
mkdir -p "$prefix" || fail "$prefix cannot be made: choose another --prefix"
trap 'undo interrupted' INT TERM HUP
for folder in $missing; do
	made="$made
$folder"
	mkdir "$prefix/$folder" || undo "$prefix/$folder cannot be made"
done
made=$(printf '%s\n' "$made" | sed '/^$/d')
kept=$(printf '%s\n' "$old" | grep '/$' || :)
# Files of an earlier version that this one does not have.
gone=$(printf '%s\n' "$old" | sed '/^$/d' | grep -v '/$' | grep -vxF -- "$files" || :)
for file in $files; do
	copied="$copied
$file"
	case $file in
		share/linkspan/install.sh) cp "$here/install.sh" "$prefix/$file.new" || undo "$prefix/$file cannot be written" ;;
		share/linkspan/installed)
			printf '%s\n' "$kept" "$made" "$gone" "$files" | sed '/^$/d' >"$prefix/$file.new" || undo "$prefix/$file cannot be written" ;;
		*) cp -P "$here/$file" "$prefix/$file.new" || undo "$prefix/$file cannot be written" ;;
	esac
	# As the archive has it, whatever tar made of that.
	[ -L "$prefix/$file.new" ] || chmod go=u,go-w "$prefix/$file.new" || undo "$prefix/$file cannot be written"
done
# The list is the first: from then on this script goes on or removes, wherever it was interrupted.
mv -f "$list.new" "$list"
trap - INT TERM HUP
for file in $files; do
	[ "$prefix/$file" = "$list" ] || mv -f "$prefix/$file.new" "$prefix/$file"
done
if [ -n "$gone" ]; then
	remove "$gone"
	grep -vxF -- "$gone" "$list" >"$list.new" && mv -f "$list.new" "$list"
fi

cat <<END
$said is in $prefix. Programs and NCCL or RCCL find it with

  export PATH="$prefix/bin:\$PATH"
  export LD_LIBRARY_PATH="$prefix/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig\${PKG_CONFIG_PATH:+:\$PKG_CONFIG_PATH}"
  export NCCL_NET_PLUGIN=linkspan NCCL_NET=linkspan

To remove it: sh "$prefix/share/linkspan/install.sh" --uninstall
END
