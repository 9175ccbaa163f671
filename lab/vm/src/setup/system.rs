//! Whole systems: Debian as it is installed, with systemd as PID 1, on a disk that guests boot from.

use std::fs;

use crate::cache::{self, Cache, System};
use crate::error::{At, Result};
use crate::proc;
use crate::root;
use crate::setup::{BACKPORTS, RELEASE, apt, debootstrap};

/// What an installation has beside the smallest one: PID 1, the bus, authorization, devices, networks and sessions; what tests
/// ask and break the network with; what a module is built with; RDMA, containers and a batch system.
const PACKAGES: [&str; 27] = [
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
        "{} with the kernel of {}: {}\n{}\n{SIZE}\n{CHANGES}",
        known.suite,
        known.kernels,
        PACKAGES.join(" "),
        KERNEL.join(" ")
    )
}

/// Makes it: a root with its packages, then its disk, kernel and initramfs.
pub(crate) fn make(cache: &Cache, title: &str, known: System) -> Result<()> {
    apt::install(&cache.root(), title, &["e2fsprogs"], RELEASE)?;
    apt::install(&cache.root(), title, &["qemu-utils"], BACKPORTS)?;
    let (dir, tree) = (cache.system_dir(known.name), cache.path(&format!("systems/{}.tree", known.name)));
    fs::create_dir_all(cache.path("systems")).at("systems")?;
    debootstrap(cache, title, known.suite, &tree)?;
    let mut suites = vec![known.suite, known.kernels];
    suites.dedup();
    apt::sources(&tree, &suites)?;
    apt::update(&tree, title)?;
    apt::install(&tree, title, &PACKAGES, known.suite)?;
    apt::install(&tree, title, &KERNEL, known.kernels)?;
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
