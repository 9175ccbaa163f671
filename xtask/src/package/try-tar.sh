#!/bin/sh
# Installs an archive as its users do and has it do its work: try-tar.sh ARCHIVE MACHINE EMULATOR, in an empty folder.
# EXAMPLES is where the C++ examples lie, TREE the folder that it was built in, where nothing may name that.
set -eu
archive=$1 machine=$2 emulator=$3
case $archive in /*) ;; *) echo "try-tar.sh: $archive is not a whole path" >&2; exit 2 ;; esac
fail() { echo "FAIL $1" >&2; exit 1; }
ok() { echo "ok   $1"; }
run() { env -i HOME="$PWD" PATH=/usr/bin:/bin "$@"; }

tar -xf "$archive"
for folder in linkspan-*-linux-gnu; do from=$PWD/$folder; done
prefix=$PWD/prefix
[ -z "${TREE:-}" ] || ! grep -rlF "$TREE/" "$from" >out || { cat out; fail "these name the folder that they were built in"; }
case $machine in
	"$(uname -m)") ;;
	*)
		# Not its processor: it says so and installs nothing; what it would install runs under an emulator.
		if run sh "$from/install.sh" --prefix "$prefix" >out 2>&1; then fail "it installs programs of $machine on $(uname -m)"; fi
		grep -q "needs glibc 2.34 or newer on the processor" out || { cat out; fail "no word about the processor"; }
		[ ! -e "$prefix" ] || fail "it left something of $machine"
		ok "install.sh refuses $machine on $(uname -m)"
		run "$emulator" "$from/bin/lspan" --version
		run LINKSPAN_IFNAME==lo "$emulator" "$from/bin/lspan" status --json | grep -q '"schema"' || fail "lspan status under the emulator"
		ok "lspan of $machine runs under an emulator"
		exit 0
		;;
esac

mkdir "$prefix" && echo mine >"$prefix/mine"
find "$prefix" | sort >before
run "$from/install.sh" --prefix "$prefix" >out || { cat out; fail "install.sh"; }
find "$prefix" | sort >first
grep -q 'export LD_LIBRARY_PATH=' out || fail "it does not say what to export"
run "$prefix/bin/lspan" --version
run "$prefix/bin/lspan" selftest >selftest || { cat selftest; fail "lspan selftest"; }
for part in 'NCCL plugin' 'RCCL plugin' 'path tcp' 'path shm'; do
	grep -q "^pass  $part" selftest || { cat selftest; fail "$part"; }
done
ok "installed: the plugin loads under both names, data moves over TCP and shared memory"
for file in share/man/man1/lspan.1 share/bash-completion/completions/lspan share/doc/linkspan/THIRD-PARTY share/doc/linkspan/LICENSE-MIT; do
	[ -s "$prefix/$file" ] || fail "no $file"
done
if command -v c++ >/dev/null && command -v pkg-config >/dev/null; then
	export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
	# shellcheck disable=SC2046
	c++ -std=c++17 "$EXAMPLES/ping_pong.cpp" $(pkg-config --cflags --libs linkspan) -pthread -o ping_pong
	run LD_LIBRARY_PATH="$prefix/lib" ./ping_pong 100
	ok "a C++ program, through pkg-config, over the shared library"
fi

# Who has the old files open keeps them.
exec 3<"$prefix/lib/libnccl-net-linkspan.so"
cp "$prefix/lib/libnccl-net-linkspan.so" was
printf extra >>"$from/lib/libnccl-net-linkspan.so"
run sh "$from/install.sh" --prefix "$prefix" >/dev/null
cmp -s was - <&3 || fail "installing again changed a file that is in use"
exec 3<&-
find "$prefix" | sort | cmp - first || fail "installing again left something"
ok "installed again over itself, with the plugin in use"

# A file of someone else, and a disk that takes no more: nothing changes.
mkdir -p other/bin && echo mine >other/bin/lspan
if run sh "$from/install.sh" --prefix "$PWD/other" >out 2>&1; then fail "it overwrites a file of someone else"; fi
grep -q 'was not put there by this script' out || { cat out; fail "no word about the file of someone else"; }
[ "$(find other -type f)" = other/bin/lspan ] || fail "it left something beside a file of someone else"
find "$prefix" -type f -exec cksum {} + | sort >sums
printf more >>"$from/bin/lspan"
# The longest file that may be written stands for a disk that is full.
if run sh -c "trap '' XFSZ; ulimit -f 1000; exec sh '$from/install.sh' --prefix '$prefix'" >out 2>&1; then fail "it says nothing of a full disk"; fi
grep -q 'cannot be written: nothing was changed' out || { cat out; fail "no word about the full disk"; }
find "$prefix" -type f -exec cksum {} + | sort | cmp - sums || fail "a full disk changed something"
ok "a file of someone else and a full disk: refused, nothing changed"

# An empty word for the prefix, as of a variable that is not set, is not the home.
for word in --prefix --prefix=; do
	if run sh "$from/install.sh" --uninstall $word '' >out 2>&1; then fail "$word takes nothing"; fi
	grep -q 'takes a folder' out || { cat out; fail "no word about an empty prefix"; }
done
# As it is typed, where cd searches folders; the command that it prints holds with a blank.
run CDPATH=.:/tmp "${from##*/}/install.sh" --prefix "$PWD/a b" >out 2>&1 || { cat out; fail "with CDPATH"; }
run sh -ec "$(sed -n 's/^To remove it: //p' out)" >out 2>&1 || { cat out; fail "the printed command for a prefix with a blank"; }
[ -z "$(find 'a b' -type f)" ] || fail "the printed command left something"
ok "an empty prefix is refused; CDPATH, and a prefix with a blank"

# Interrupted while it gives names, the first time and over another version: it goes on, and removes all.
# stop PROGRAM SIGNAL: install.sh gets the signal when the program has done its work six times, and then nothing is under way.
stop() {
	rm -rf stop names && mkdir stop
	printf '#!/bin/sh\n/bin/%s "$@" || exit\necho >>"%s/names"\n[ $(wc -l <"%s/names") -le 5 ] || kill -%s $PPID\n' "$1" "$PWD" "$PWD" "$2" >"stop/$1"
	chmod 755 "stop/$1"
}
stop mv KILL
for other in '' bin/of-another-version; do
	rm -f names
	if run PATH="$PWD/stop:/usr/bin:/bin" sh "$from/install.sh" --prefix "$PWD/third" >out 2>&1; then fail "it was not interrupted"; fi
	cp -r third cut
	run sh cut/share/linkspan/install.sh --uninstall >out 2>&1 || run sh "$from/install.sh" --uninstall --prefix "$PWD/cut" >out || fail "it does not remove what is half there"
	[ -z "$(find cut -type f ! -name '*.new')" ] || fail "removing what is half there left $(find cut -type f ! -name '*.new')"
	rm -r cut
	run sh "$from/install.sh" --prefix "$PWD/third" >out 2>&1 || { cat out; fail "it does not go on"; }
	[ -z "$(find third -name '*.new')" ] && [ ! -e third/bin/of-another-version ] || fail "going on left something"
	[ -n "$other" ] || { echo old >third/bin/of-another-version && echo bin/of-another-version >>third/share/linkspan/installed; }
done
run sh third/share/linkspan/install.sh --uninstall >out
[ -z "$(find third -type f)" ] || fail "removing left something of what was interrupted"
ok "interrupted while it gives names: goes on, and removes all"

for program in mkdir cp; do
	mkdir fourth && stop $program TERM
	if run PATH="$PWD/stop:/usr/bin:/bin" sh "$from/install.sh" --prefix "$PWD/fourth" >out 2>&1; then fail "it was not interrupted at $program"; fi
	grep -q 'interrupted: nothing was changed' out || { cat out; fail "no word about the interruption at $program"; }
	rmdir fourth || fail "interrupted at $program it left $(find fourth)"
done
stop rm KILL
run sh "$from/install.sh" --prefix "$PWD/fifth" >out
if run PATH="$PWD/stop:/usr/bin:/bin" sh fifth/share/linkspan/install.sh --uninstall >out 2>&1; then fail "it was not interrupted while it removes"; fi
cp -r fifth again
run sh "$from/install.sh" --prefix "$PWD/again" >out 2>&1 || { cat out; fail "what is half removed is not installed again"; }
run sh fifth/share/linkspan/install.sh --uninstall >out 2>&1 || { cat out; fail "what is half removed is not removed"; }
[ -z "$(find fifth -mindepth 1)" ] || fail "removing again left $(find fifth)"
ok "interrupted while it copies: nothing is left; while it removes: goes on"

# Unpacked by a user whose files are for nobody else: what is installed is for all.
(umask 077 && mkdir private && tar --no-same-permissions -xf "$archive" -C private && run sh private/linkspan-*/install.sh --prefix "$PWD/shared" >out) || fail "umask 077"
[ -z "$(find shared ! -type l ! -perm -a+r)" ] && [ -x shared/bin/lspan ] || fail "under umask 077 not for all: $(find shared ! -type l ! -perm -a+r)"
ok "under umask 077: what is installed is readable for all"

run sh "$prefix/share/linkspan/install.sh" --uninstall
find "$prefix" | sort | cmp - before || fail "removing left something"
if run sh "$from/install.sh" --uninstall --prefix "$prefix" >out 2>&1; then fail "it removes what is not there"; fi
ok "removed: nothing left"
