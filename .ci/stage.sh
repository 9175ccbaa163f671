# Stages with limits, and the table at the end. Sourced by .ci/run.

# Seconds for the whole run: an hour less the time to stop.
total=${CI_SECONDS:-3400}
began=$SECONDS
table=()
# Names, limits and commands of the stages that failed and have not been run again.
failed=()
# `last` has the last lines of stages that failed, to be read again below the table: who sees only the end of the log sees why.
declare -A limit_of command_of tried last

# stage NAME LIMIT COMMAND...: runs it; exit 77 means that it could not run here and has printed why.
stage() {
    local name=$1 limit=$2 from=$SECONDS left code word
    shift 2
    left=$((total - (SECONDS - began)))
    if ((left <= 0)); then
        echo
        echo "skipped: $name: no time left of $total s"
        record "$name" 0 skipped "no time left of $total s"
        return
    fi
    local cut=
    ((limit < left)) || { limit=$left && cut=yes; }
    printf '\n== %s (at most %d s): %s\n' "$name" "$limit" "$*"
    limit_of[$name]=$limit
    command_of[$name]=$(printf '%q ' "$@")
    local log
    log=$(mktemp)
    # Not a pipeline: it would wait for whatever a stage leaves running.
    timeout --kill-after=10 "$limit" "$@" > >(tee "$log") 2>&1
    code=$?
    sleep 0.2
    case $code in
        0) word=passed ;;
        77) word=skipped ;;
        124 | 137)
            word="failed" && echo "$name: over its limit of $limit s"
            [[ -z $cut ]] || { word=skipped && echo "skipped: the rest of $name: the run has $total s"; }
            ;;
        *) word="failed" && echo "$name: exit code $code" ;;
    esac
    [[ $word != failed ]] || (($(free_gib) > 0)) || echo "$name: less than 1 GiB free where the tree lies: that may be why"
    [[ $word != failed ]] || last[$name]=$(tail -n 60 "$log" | cut -c1-400)
    rm -f "$log"
    record "$name" $((SECONDS - from)) "$word" ""
}

# free_gib: what may still be written where the tree lies, in GiB.
free_gib() { df --output=avail -B1M . | awk 'END { print int($1 / 1024) }'; }

# room GIB FOLDER...: where less than that is free, gives up what these folders hold: stages that are through built it, or
# a later one builds it again.
room() {
    local need=$1 free folder given=()
    shift
    free=$(free_gib)
    ((free < need)) || return 0
    for folder in "$@"; do
        [[ ! -e $folder ]] || { rm -rf "$folder" && given+=("$folder"); }
    done
    echo
    echo "disk: $free GiB free, and $need GiB are wanted from here on: given up: ${given[*]:-nothing, for nothing of it is there}; now $(free_gib) GiB"
}

# early COMMAND...: runs it beside the stages, with what they leave of the machine. It fails without consequences: the
# stage that misses something gets it, or says why not.
early() {
    early_log=$(mktemp)
    setsid nice -n 19 "$@" >"$early_log" 2>&1 &
    early_pid=$!
}

# early_done: waits until that command is through, for 300 s at most; what is not there by then is not waited for.
early_done() {
    local from=$SECONDS
    while kill -0 "$early_pid" 2>/dev/null; do
        ((SECONDS - from < 300)) || { kill -- "-$early_pid" 2>/dev/null; break; }
        sleep 1
    done
    printf '\n== early, waited for %d s\n' $((SECONDS - from))
    cat "$early_log"
    rm -f "$early_log"
}

# again: runs every stage that failed so far once more. One that passes then was a matter of luck: the run passes, and says
# so in capitals, for luck is a defect too.
again() {
    local names=("${failed[@]}") name before
    for name in "${names[@]}"; do
        [[ -z ${tried[$name]:-} ]] || continue
        tried[$name]=yes
        echo
        echo "once more, for it failed: $name"
        before=${#failed[@]}
        eval "stage $name ${limit_of[$name]} ${command_of[$name]}"
        if ((${#failed[@]} == before)) && [[ ${table[-1]} == *passed* ]]; then
            echo "FLAKY: $name failed and passed at the second try, nothing changed between"
            table[-1]+="FLAKY: the second try"
            for before in "${!failed[@]}"; do
                [[ ${failed[$before]} != "$name" ]] || unset "failed[$before]"
            done
        fi
    done
}

# skip NAME REASON: a stage that this tree does not have.
skip() {
    echo
    echo "skipped: $1: $2"
    record "$1" 0 skipped "$2"
}

# record NAME SECONDS RESULT REMARK
record() {
    table+=("$(printf '%-12s %5d s  %-8s %s' "$1" "$2" "$3" "$4")")
    [[ $3 != failed ]] || failed+=("$1")
}

# share_of TOTAL COUNT LEAST MOST: seconds for each of COUNT equal parts.
share_of() {
    local each=$(($1 / ($2 > 0 ? $2 : 1)))
    ((each >= $3)) || each=$3
    ((each <= $4)) || each=$4
    echo "$each"
}

# finish: the table, and the exit code of the run.
finish() {
    local name
    again
    printf '\n== %d s in all, of %d\n' $((SECONDS - began)) "$total"
    printf '%s\n' "${table[@]}"
    for name in "${!last[@]}"; do
        printf '\n== the end of %s, which failed\n%s\n' "$name" "${last[$name]}"
    done
    if ((${#failed[@]})); then
        echo "failed: $(printf '%s\n' "${failed[@]}" | sort -u | paste -sd' ')"
        exit 1
    fi
    exit 0
}
