//! Whole systems: Debian as it is installed, with systemd as PID 1, on a disk that guests boot from.

use std::fs;

use crate::cache::{self, Cache, System};
use crate::error::{At, Result};
use crate::proc;
use crate::root;
use crate::setup::{BACKPORTS, RELEASE, apt, debootstrap};

/// What an installation has beside the smallest one: PID 1, the bus, authorization, devices, networks and sessions; what tests
/// ask and break the network with; what a module and a program in C++ are built with; RDMA, containers and a batch system.
const PACKAGES: [&str; 30] = [
    "systemd-sysv",
    "dbus",
    "dbus-user-session",
    "libpam-systemd",
    "polkitd",
    "udev",
    "e2fsprogs",
    "network-manager",
    "firewalld",
    "nftables",
    "iproute2",
    "iputils-ping",
    "ethtool",
    "kmod",
    "procps",
    "cpio",
    "initramfs-tools",
    "zstd",
    "dkms",
    "g++",
    "cmake",
    "pkgconf",
    "sudo",
    "ibverbs-providers",
    "podman",
    "crun",
    "munge",
    "slurmctld",
    "slurmd",
    "slurm-client",
];

/// The kernel and its headers.
const KERNEL: [&str; 2] = ["linux-image-amd64", "linux-headers-amd64"];

/// Of what the headers of another kernel bring, without what they would only upgrade. Those of 7.3 have their configuration and the name of
/// their compiler in packages of their own.
const KEPT: [&str; 6] = [
    "linux-headers-[0-9]*",
    "linux-kbuild-*",
    "linux-compiler-*",
    "linux-base-[0-9]*",
    "gcc-*-for-host*",
    "cpp-*-for-host*",
];

/// Folder with the headers of the other kernel that the release has, as packages; installing them is up to a test.
pub(crate) const HEADERS: &str = "/srv/headers";

/// What is changed in the root, and why.
const CHANGES: &str = include_str!("system.sh");

/// Most that a system can hold; the file has as much as is in use.
const SIZE: &str = "6G";

/// Its step of setup.
pub(crate) fn step(known: System) -> String {
    format!("system-{}", known.name)
}

/// All that it is made of.
pub(crate) fn words(known: System) -> String {
    format!(
        "{} with the kernel of {}: {}\n{}\n{HEADERS} of {}: {}\n{SIZE}\n{CHANGES}",
        known.suite,
        known.kernels,
        PACKAGES.join(" "),
        KERNEL.join(" "),
        other(known),
        KEPT.join(" ")
    )
}

/// Where the release has its other kernel.
pub(crate) fn other(known: System) -> String {
    if known.kernels == known.suite { format!("{}-backports", known.suite) } else { known.suite.to_owned() }
}

/// Makes it: a root with its packages, then its disk, kernel and initramfs.
pub(crate) fn make(cache: &Cache, title: &str, known: System) -> Result<()> {
    apt::install(&cache.root(), title, &["e2fsprogs"], RELEASE)?;
    apt::install(&cache.root(), title, &["qemu-utils"], BACKPORTS)?;
    let (dir, tree) = (cache.system_dir(known.name), cache.path(&format!("systems/{}.tree", known.name)));
    fs::create_dir_all(cache.path("systems")).at("systems")?;
    debootstrap(cache, title, known.suite, &tree)?;
    let other = other(known);
    apt::sources(&tree, &[known.kernels, &other])?;
    apt::update(&tree, title)?;
    apt::install(&tree, title, &PACKAGES, known.suite)?;
    apt::install(&tree, title, &KERNEL, known.kernels)?;
    // The package without a number names the newest of its suite, which may be older than what is installed: `-t` alone downgrades nothing.
    let fetch = format!(
        "mkdir -p {HEADERS}/partial\n\
         apt-get -q -y -t {other} --allow-downgrades -o Dir::Cache::archives={HEADERS} --download-only install {}/{other}\n\
         find {HEADERS} -mindepth 1 {} -delete\n\
         ls {HEADERS}/*.deb",
        KERNEL[1],
        KEPT.map(|name| format!("! -name '{name}'")).join(" ")
    );
    proc::watched(title, &mut root::script(&tree, &fetch))?;
    proc::watched(title, &mut root::script(&tree, CHANGES))?;

    let partial = cache.path(&format!("systems/{}.partial", known.name));
    if partial.exists() {
        fs::remove_dir_all(&partial).at(partial.display())?;
    }
    fs::create_dir_all(&partial).at(partial.display())?;
    for name in ["vmlinuz", "initrd", "release"] {
        let (from, to) = (tree.join("boot/lab").join(name), partial.join(name));
        fs::rename(&from, &to).at(from.display())?;
    }
    let mut disk = root::program(&cache.root(), "usr/sbin/mke2fs");
    disk.args(["-q", "-t", "ext4", "-L", "root", "-E", "lazy_itable_init=1", "-d"]);
    proc::watched(title, disk.arg(&tree).arg(partial.join("disk")).arg(SIZE))?;
    fs::remove_dir_all(&tree).at(tree.display())?;
    cache::put(&partial, &dir)
}
