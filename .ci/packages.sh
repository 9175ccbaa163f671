# Installing what the stages need. Sourced by .ci/run.

# need_packages PROGRAM:PACKAGE...: installs the Debian packages of the programs (or files) that are missing. Where that cannot be
# done it says so, and the stages that need them say so again.
need_packages() {
    local pair missing=() as_root=()
    for pair in "$@"; do
        [[ $pair == /* && -e ${pair%%:*} ]] || PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    ((${#missing[@]})) || return 0
    if ! command -v apt-get >/dev/null; then
        echo "packages missing: ${missing[*]} (no apt-get here to install them)"
        return 0
    fi
    if [[ $(id -u) != 0 ]]; then
        if ! sudo -n true 2>/dev/null; then
            echo "packages missing: ${missing[*]} (installing them needs root)"
            return 0
        fi
        as_root=(sudo -n)
    fi
    echo "installing: ${missing[*]}"
    if ! { "${as_root[@]}" timeout 120 apt-get -qq update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null; }; then
        echo "packages missing: ${missing[*]} (apt-get failed)"
    fi
}
