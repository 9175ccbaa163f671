# Stages with limits, and the table at the end. Sourced by .ci/run and .ci/full.

# Seconds for the whole run.
total=${CI_SECONDS:-5100}
began=$SECONDS
table=() failed=() flaky=() skipped=()
# The panics and the last lines of stages that failed, printed again below the table, for readers who see only the end of the log.
declare -A last

# free_gib: what may still be written where the tree lies, in GiB.
free_gib() { df --output=avail -B1M . | awk 'END { print int($1 / 1024) }'; }

# disk GIB: ends the run at once where less is free.
disk() {
    local free
    free=$(free_gib)
    echo "disk: $free GiB free; a run with nothing built yet needs $1"
    ((free >= $1)) && return
    echo "failed: the disk is too full: free $(($1 - free)) GiB more, or remove target/"
    exit 1
}

# stage NAME LIMIT COMMAND...: runs a command with a limit in seconds. Exit code 77 means that it cannot run on this machine and
# has printed why. A command that fails is run once more, of `cargo test --no-fail-fast` the programs that failed; if it passes then
# it is called FLAKY, which is a defect to mend.
stage() {
    local name=$1 limit=$2 from=$SECONDS left code log again
    shift 2
    left=$((total - (SECONDS - began)))
    if ((left < limit && left < 10)); then
        row "$name" 0 FAILED "not reached: the run has $total s"
        return
    fi
    ((limit < left)) || limit=$left
    log=$(mktemp)
    attempt "$name" "$limit" "$log" "$@"
    code=$?
    if ((code != 0 && code != 77)); then
        last[$name]=$({ grep -A6 ' panicked at ' "$log" | head -n 60; tail -n 60 "$log"; } | cut -c1-400)
        left=$((total - (SECONDS - began)))
        ((limit < left)) || limit=$left
        # One that hung is not given its whole limit twice.
        if ((code != 124 && code != 137 && limit >= 10)); then
            echo "$name: once more, because it failed"
            again=()
            [[ "$1 $2" != "cargo test" ]] || mapfile -t again < <(sed -n 's/^    `\(-p .*\)`$/cargo test \1/p' "$log")
            ((${#again[@]} == 0)) || set -- bash -c "set -e; $(printf '%s; ' "${again[@]}")"
            attempt "$name" "$limit" "$log" "$@"
            code=$?
            ((code != 0)) || flaky+=("$name")
        fi
    fi
    # Namespaces and virtual machines repeat a single test by themselves, and say so.
    if ((code == 0)) && grep -q 'PASSED ON THE SECOND TRY' "$log" && [[ " ${flaky[*]} " != *" $name "* ]]; then
        flaky+=("$name") last[$name]=$(grep -A3 'PASSED ON THE SECOND TRY' "$log" | cut -c1-400)
    fi
    case $code in
        0)
            # What single tests of it said.
            mapfile -t again < <(grep '^skipped: ' "$log" | sort -u | cut -c1-160)
            row "$name" $((SECONDS - from)) passed "$([[ " ${flaky[*]} " != *" $name "* ]] || echo "FLAKY: at the second try ")$(((${#again[@]} == 0)) || printf '%s; ' "${again[@]}")"
            ((${#again[@]} == 0)) || skipped+=("${#again[@]} in $name")
            ;;
        77) row "$name" $((SECONDS - from)) skipped "$(grep '^skipped: ' "$log" | tail -n 1 | cut -c1-160)" ;;
        124 | 137) row "$name" $((SECONDS - from)) FAILED "over its limit of $limit s" ;;
        *) row "$name" $((SECONDS - from)) FAILED "exit code $code" ;;
    esac
    rm -f "$log"
}

# attempt NAME LIMIT LOG COMMAND...: one run of a command; its exit code, 124 or 137 where it ran over its limit.
attempt() {
    local name=$1 limit=$2 log=$3 code
    shift 3
    printf '\n== %s (at most %d s): %s\n' "$name" "$limit" "$*"
    # Not a pipeline: it would wait for whatever a command leaves running.
    timeout --kill-after=10 "$limit" "$@" > >(tee "$log") 2>&1
    code=$?
    # tee may still be writing.
    sleep 0.2
    ((code == 0 || code == 77)) || echo "$name: exit code $code, $(free_gib) GiB free"
    return $code
}

# row NAME SECONDS RESULT REMARK
row() {
    table+=("$(printf '%-14s %5d s  %-8s %s' "$1" "$2" "$3" "$4")")
    case $3 in
        FAILED) failed+=("$1") ;;
        skipped) skipped+=("$1") ;;
    esac
}

# finish: the table, one summary line, and the exit code of the run.
finish() {
    local name
    for name in "${failed[@]}"; do
        [[ -z ${last[$name]:-} ]] || printf '\n== the end of %s, which failed\n%s\n' "$name" "${last[$name]}"
    done
    for name in "${flaky[@]}"; do
        printf '\n== the first try of %s, which passed at the second\n%s\n' "$name" "${last[$name]}"
    done
    printf '\n== %d s in all, of %d\n' $((SECONDS - began)) "$total"
    printf '%s\n' "${table[@]}"
    printf 'summary: %d stages, failed: %s, FLAKY: %s, skipped: %s\n' \
        "${#table[@]}" "${failed[*]:-none}" "${flaky[*]:-none}" "${skipped[*]:-none}"
    ((${#failed[@]} == 0))
}
