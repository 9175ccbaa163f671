# Debian packages that the stages need, as PROGRAM:PACKAGE or FILE:PACKAGE, and how they are installed. Sourced by .ci/run and .ci/full.

# A C and C++ compiler for the tests that play NCCL's part and for those of the C library, pkg-config and cmake (with make) to find that
# library as its users do, ip and tc for namespaces, debootstrap for the lab's root, mmdebstrap, dpkg-dev and xz for what users install;
# programs that run over `lspan pipe`, and fusermount3 for mounts; a bus, polkit and a client of the bus for the services; clang and the HIP runtime compile the unpack kernel for AMD.
PACKAGES=(
    cc:gcc c++:g++ pkg-config:pkg-config make:make cmake:cmake ip:iproute2 tc:iproute2 git:git debootstrap:debootstrap strace:strace
    mmdebstrap:mmdebstrap dpkg-source:dpkg-dev xz:xz-utils
    fusermount3:fuse3 rsync:rsync /usr/lib/openssh/sftp-server:openssh-sftp-server ssh:openssh-client sshd:openssh-server socat:socat
    sshfs:sshfs unison:unison borg:borgbackup
    dbus-daemon:dbus-daemon dbus-run-session:dbus-daemon /usr/lib/polkit-1/polkitd:polkitd gdbus:libglib2.0-bin setpriv:util-linux
    clang-19:clang-19 /usr/lib/x86_64-linux-gnu/libamdhip64.so.5:libamdhip64-5
)

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export PATH="$PATH:/usr/sbin:/sbin"
# What virtual machines are made of is fetched once for a machine.
export LAB_CACHE=${LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/linkspan-lab}

# need_packages PROGRAM:PACKAGE...: installs the Debian packages of the programs (or files) that are missing. Where that cannot be
# done it says so, and the stages that need them say so again.
need_packages() {
    local pair missing=() as_root=()
    for pair in "$@"; do
        [[ $pair == /* && -e ${pair%%:*} ]] || PATH="$PATH:/usr/sbin:/sbin" type -P "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
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
