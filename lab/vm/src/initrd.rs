//! The file system of a guest: busybox, a few programs of Debian with their libraries, modules, our agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Kernel};
use crate::cpio::Archive;
use crate::error::{At, Error, Result};
use crate::modules::Modules;
use crate::root;

/// Programs of the root.
const PROGRAMS: [&str; 21] = [
    "dmsetup",
    "mke2fs",
    "mkfs.btrfs",
    "mkfs.exfat",
    "mkfs.f2fs",
    "mkfs.vfat",
    "mkfs.xfs",
    "ethtool",
    "ip",
    "iperf3",
    "tc",
    "rdma",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_atomic_lat",
    "ib_send_bw",
    "ib_send_lat",
];

/// Modules of all guests; they load what a test names.
const MODULES: [&str; 29] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "configfs",
    "thunderbolt",
    "thunderbolt_net",
    "thunderbolt_stream",
    "thunderbolt_dma_test",
    "rdma_rxe",
    // What rdma_rxe and f2fs of older kernels (6.12) ask the crypto API for by name.
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "veth",
    "dummy",
    "sch_netem",
    "sch_tbf",
    "bonding",
    "dm_flakey",
    "ext4",
    // What ext4 and btrfs before 6.14 ask the crypto API for by name.
    "crc32c_generic",
    "btrfs",
    "xfs",
    "f2fs",
    "overlay",
    "vfat",
    "exfat",
    // What FAT asks for by name.
    "nls_cp437",
    "nls_ascii",
];

/// What runs first in a guest.
const INIT: &str = include_str!("init.sh");

/// A file to put into guests.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    /// Where it lies here.
    pub(crate) from: PathBuf,
    /// Where it goes.
    pub(crate) to: String,
}

/// Writes the archive for this kernel. `more` are modules given by the user, `puts` programs and files beside the usual ones.
pub(crate) fn make(
    cache: &Cache,
    kernel: &Kernel,
    modules: &Modules,
    more: &[PathBuf],
    puts: &[Put],
    to: &Path,
) -> Result<()> {
    let root = cache.root();
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc", "/lib/modules"] {
        archive.folder(folder);
    }
    archive.file("/init", 0o755, INIT.as_bytes());
    archive.file("/etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n");
    archive.file("/etc/group", 0o644, b"root:x:0:\n");
    archive.file("/etc/hosts", 0o644, b"127.0.0.1 localhost\n");
    let busybox = root.join("usr/bin/busybox");
    archive.file("/bin/busybox", 0o755, &fs::read(&busybox).at(busybox.display())?);

    let mut libraries = BTreeMap::new();
    let own = std::env::current_exe().at("our own program file")?;
    let mut programs = vec![(own, "/usr/bin/agent".to_owned())];
    for name in PROGRAMS {
        let found = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).join(name)).into_iter().find(|p| p.exists());
        let path = found
            .ok_or_else(|| Error::NotSetUp { path: root.join("usr/bin").join(name), words: "setup".to_owned() })?;
        programs.push((path, format!("/usr/bin/{name}")));
    }
    programs.extend(puts.iter().map(|put| (put.from.clone(), put.to.clone())));
    // The provider of soft-RoCE is opened at run time by name.
    let providers = root.join("usr/lib/x86_64-linux-gnu/libibverbs");
    for entry in fs::read_dir(&providers).at(providers.display())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("librxe") {
            programs.push((entry.path(), format!("/usr/lib/x86_64-linux-gnu/libibverbs/{name}")));
        }
    }
    archive.file("/etc/libibverbs.d/rxe.driver", 0o644, b"driver rxe\n");
    for (from, to) in &programs {
        let content = fs::read(from).at(from.display())?;
        if content.starts_with(b"\x7fELF") {
            libraries.extend(root::libraries(&root, from).unwrap_or_default());
        }
        archive.file(to, 0o755, &content);
    }
    // Opened at run time by programs that are put in.
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libgcc_s.so.1"] {
        let path = root.join("usr/lib/x86_64-linux-gnu").join(name);
        if path.exists() {
            libraries.extend(root::libraries(&root, &path)?);
            libraries.insert(name.to_owned(), path);
        }
    }
    for (name, path) in &libraries {
        archive.file(&format!("/usr/lib/x86_64-linux-gnu/{name}"), 0o755, &fs::read(path).at(path.display())?);
    }
    archive.file("/lib64/ld-linux-x86-64.so.2", 0o755, &fs::read(root::loader(&root)).at("the loader of the root")?);
    archive.link("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu");

    let more: Vec<String> = more.iter().map(|file| crate::modules::name_of(file)).collect();
    let names: Vec<&str> = MODULES.into_iter().chain(more.iter().map(String::as_str)).collect();
    modules.pack(cache, kernel, &names, &mut archive)?;
    fs::write(to, archive.finish()).at(to.display())
}
