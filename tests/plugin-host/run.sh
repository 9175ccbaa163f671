#!/bin/sh
# Builds the host, proves its checkers on its own reference plugin (planted faults must be caught), then runs
# everything against PLUGIN.so for versions 6 to 12. Exit: 0 all as it should be, 1 not, 2 usage.
#   run.sh PLUGIN.so     everything
#   run.sh --self        the host's self-test alone
# With LSPAN=FILE, the host is run by `lspan run` too: it is given the plugin, and what it used is said.
# With SIM_PLUGIN=FILE.so, the same plugin on network cards in software (tests/sim-plugin), NCCL's kernels are played too.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: run.sh PLUGIN.so | --self" >&2; exit 2; }
plugin=$1
[ "$plugin" = --self ] || [ -r "$plugin" ] || { echo "run.sh: cannot read the plugin '$plugin'" >&2; exit 2; }
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
trap 'exit 1' INT TERM
CC=${CC:-gcc}
flags="-std=c11 -O2 -Wall -Wextra -Werror -pthread"

cd "$here" || exit 1
# shellcheck disable=SC2086
$CC $flags main.c util.c net.c gpu.c unpack.c plant.c group.c hosts.c flow.c bare.c bench.c t_setup.c t_data.c t_coll.c t_lines.c t_life.c \
	-ldl -o "$out/plugin-host" || exit 1
# shellcheck disable=SC2086
$CC $flags -fPIC -shared reference.c -o "$out/reference.so" || exit 1
mkdir "$out/cuda" || exit 1
# shellcheck disable=SC2086
$CC $flags -fPIC -shared ../../sys/cuda/tests/fake.c -o "$out/cuda/libcuda.so.1" || exit 1
cd "$OLDPWD" || exit 1
host="$out/plugin-host"
bad=0

# caught PLUGIN FAULT TEST WORDS: the test must fail, and for the reason that was planted.
caught() {
	# shellcheck disable=SC2086
	timeout 60 "$host" --plugin "$1" --quick --ranks 2 --plant $2 --test $3 >"$out/log" 2>&1
	rc=$?
	if [ $rc -eq 1 ] && grep -q "FAIL.*$4" "$out/log"; then
		echo "ok   planted $2 is caught by $3"
	else
		echo "FAIL planted $2 is not caught by $3 (exit code $rc)"
		cat "$out/log"
		bad=1
	fi
}

faults() {
	caught "$1" torn-flag ll "torn:"
	# Where the plugin's tuner forbids LL128 there is nothing to tear.
	if timeout 60 "$host" --plugin "$1" --test ll128 --quick 2>&1 | grep -q "not asked for"; then
		echo "skip planted torn-flag for ll128: the plugin's tuner forbids LL128"
	else
		caught "$1" torn-flag ll128 "torn:"
	fi
	caught "$1" swapped-tags grouped "group"
	caught "$1" short-size data "received"
	caught "$1" dup window "message"
	caught "$1" corrupt allreduce "AllReduce"
	caught "$1" overrun data "was written"
	caught "$1" lost-error kill-idle "nothing was said"
	caught "$1" leak reload "descriptors"
}

run() {
	if ! timeout "$3" "$host" --plugin "$1" --version all $2 2>"$out/log"; then
		bad=1
		grep FAIL "$out/log"
	fi
	# What was skipped or measured, once.
	grep -E "^v12 .*(skipped|not asked for|device |LL128|seen after|rounds:|listening)" "$out/log"
}

echo "== the host's self-test"
faults "$out/reference.so"
if [ "$plugin" = --self ]; then
	run "$out/reference.so" "" 300
else
	run "$out/reference.so" --quick 120
	echo "== $(basename "$plugin")"
	faults "$plugin"
	run "$plugin" "" 300
	echo "== $(basename "$plugin"), device memory (a stand-in for libcuda), over shared memory and over TCP"
	export LD_LIBRARY_PATH="$out/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	export LINKSPAN_GPU=staged
	if timeout 60 "$host" --plugin "$out/reference.so" --test data --mem cuda 2>&1 | grep -q "device memory is not taken"; then
		echo "ok   a plugin that takes host memory alone is told apart"
	else
		echo "FAIL the reference plugin passes for one that takes device memory"
		bad=1
	fi
	run "$plugin" "--version 12 --quick --ranks 2 --mem cuda" 120
	for test in data grouped abort; do
		LINKSPAN_PATH=tcp run "$plugin" "--quick --ranks 2 --mem cuda --test $test" 120
	done
	if [ -n "${LSPAN:-}" ]; then
		echo "== lspan run"
		mkdir "$out/lib" && ln -s "$(realpath "$plugin")" "$out/lib/libnccl-net-linkspan.so" || exit 1
		LINKSPAN_GPU=off LINKSPAN_STATS_DIR="$out/stats" LD_LIBRARY_PATH="$out/lib" timeout 60 "$LSPAN" run -- \
			"$host" --plugin "$out/lib/libnccl-net-linkspan.so" --version 12 --test allreduce --ranks 4 --quick 2>"$out/log"
		rc=$?
		if [ $rc -eq 0 ] && grep -q "used by 4 processes" "$out/log" && grep -Eq "shm .* 8 " "$out/log" && [ -z "$(ls -A "$out/stats")" ]; then
			echo "ok   lspan run tells 8 connections of 4 ranks over shared memory"
		else
			echo "FAIL lspan run (exit code $rc)"
			cat "$out/log"
			bad=1
		fi
	fi
	if [ -n "${SIM_PLUGIN:-}" ]; then
		echo "== $(basename "$SIM_PLUGIN"), NCCL's kernels unpack"
		export LINKSPAN_PATH=devmem
		# Unless it is asked for, NCCL is told host memory, with cards that could and a GPU too.
		if LINKSPAN_GPU=auto timeout 60 "$host" --plugin "$SIM_PLUGIN" --version 12 --test data --mem cuda 2>&1 | grep -q "device memory is not taken"; then
			echo "ok   device memory is taken only where it is asked for"
		else
			echo "FAIL device memory is taken unasked"
			bad=1
		fi
		for version in 9 10 11 12; do
			run "$SIM_PLUGIN" "--version $version --quick --ranks 2 --offload --test data" 120
		done
		for test in props setup leave oversend allreduce allgather sendrecv one-aborts abort kill-busy; do
			run "$SIM_PLUGIN" "--version 12 --quick --ranks 2 --offload --test $test" 120
		done
		# Before version 9 nobody tells LL's receives apart.
		run "$SIM_PLUGIN" "--version 8 --quick --mem cuda --test props" 60
		export NCCL_PROTO=Simple
		for version in 7 8; do
			run "$SIM_PLUGIN" "--version $version --quick --ranks 2 --offload --test data" 120
		done
	fi
fi
[ $bad -eq 0 ] && echo "plugin-host: all as it should be" || echo "plugin-host: FAILED"
exit $bad
