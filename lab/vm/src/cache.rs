//! Where everything lies that setup fetched.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};

/// Kernels that setup knows: the name used everywhere, and the Debian suite that has it.
pub(crate) const KERNELS: [Known; 2] =
    [Known { name: "7.3", suite: "trixie-backports" }, Known { name: "6.12", suite: "trixie" }];

/// Whole systems that setup knows, by the number of their Debian release, and by the kernel where one is there with two.
pub(crate) const SYSTEMS: [System; 4] = [
    System { name: "13", suite: "trixie", kernels: "trixie" },
    System { name: "13-backports", suite: "trixie", kernels: "trixie-backports" },
    System { name: "12", suite: "bookworm", kernels: "bookworm-backports" },
    System { name: "12-stock", suite: "bookworm", kernels: "bookworm" },
];

/// Names of the kernels that [`crate::setup::checked`] builds: with KASAN and lockdep, and with KCSAN.
pub(crate) const CHECKED: [&str; 2] = ["debug", "kcsan"];

/// One of [`KERNELS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Version without its last number.
    pub(crate) name: &'static str,
    /// Suite that carries it.
    pub(crate) suite: &'static str,
}

/// One of [`SYSTEMS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct System {
    /// Number of the release, and what sets its kernel apart.
    pub(crate) name: &'static str,
    /// Its suite.
    pub(crate) suite: &'static str,
    /// The suite that its kernel comes from.
    pub(crate) kernels: &'static str,
}

/// The cache folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// A kernel that is ready to boot.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Its name: one of [`KERNELS`], or of [`CHECKED`].
    pub(crate) name: String,
    /// What `uname -r` says in it.
    pub(crate) release: String,
    /// Folder with `vmlinuz` and `modules/`.
    pub(crate) dir: PathBuf,
}

impl Kernel {
    /// Whether it is one of [`CHECKED`].
    pub(crate) fn checked(&self) -> bool {
        CHECKED.contains(&self.name.as_str())
    }
}

impl Cache {
    /// The folder of `LAB_CACHE`, else `lab` below the build folder.
    pub(crate) fn open() -> Result<Cache> {
        let dir = match std::env::var_os("LAB_CACHE") {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir),
            _ => std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from).join("lab"),
        };
        fs::create_dir_all(&dir).at(dir.display())?;
        let dir = dir.canonicalize().at(dir.display())?;
        Ok(Cache { dir })
    }

    /// A path in it.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.join(below)
    }

    /// The Debian root.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Folder of a kernel.
    pub(crate) fn kernel_dir(&self, name: &str) -> PathBuf {
        self.dir.join("kernels").join(name)
    }

    /// A kernel that setup has fetched.
    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel> {
        let dir = self.kernel_dir(name);
        let release = dir.join("release");
        if let Ok(text) = fs::read_to_string(&release) {
            return Ok(Kernel { name: name.to_owned(), release: text.trim().to_owned(), dir });
        }
        if CHECKED.contains(&name) {
            return Err(Error::NotSetUp { path: release, words: format!("checked-kernel {name}") });
        }
        if !KERNELS.iter().any(|known| known.name == name) {
            let known: Vec<&str> = KERNELS.iter().map(|k| k.name).chain(CHECKED).collect();
            return Err(Error::Unknown { kind: "kernel", name: name.to_owned(), known: known.join(", ") });
        }
        Err(Error::NotSetUp { path: release, words: format!("setup --kernel {name}") })
    }

    /// Folder of a system: its disk, kernel and initramfs.
    pub(crate) fn system_dir(&self, name: &str) -> PathBuf {
        self.dir.join("systems").join(name)
    }

    /// A system that setup has made, as the kernel that it boots.
    pub(crate) fn system(&self, name: &str) -> Result<Kernel> {
        if !SYSTEMS.iter().any(|known| known.name == name) {
            let known = SYSTEMS.map(|system| system.name).join(", ");
            return Err(Error::Unknown { kind: "system", name: name.to_owned(), known });
        }
        let dir = self.system_dir(name);
        let release = dir.join("release");
        let text = fs::read_to_string(&release)
            .map_err(|_| Error::NotSetUp { path: release, words: format!("setup --sys {name}") })?;
        Ok(Kernel { name: format!("debian{name}"), release: text.trim().to_owned(), dir })
    }

    /// Whether a step of setup has been done with exactly these words.
    pub(crate) fn done(&self, step: &str, words: &str) -> bool {
        fs::read_to_string(self.stamp(step)).is_ok_and(|text| text == words)
    }

    /// Notes that a step is done.
    pub(crate) fn note(&self, step: &str, words: &str) -> Result<()> {
        let stamp = self.stamp(step);
        fs::create_dir_all(self.dir.join("steps")).at(self.dir.display())?;
        fs::write(&stamp, words).at(stamp.display())
    }

    fn stamp(&self, step: &str) -> PathBuf {
        self.dir.join("steps").join(step)
    }
}

impl Kernel {
    /// `uname -r` as numbers, to compare.
    pub(crate) fn version(&self) -> (u32, u32) {
        let mut parts = self.release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// The image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Folder with `modules.dep`.
    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("modules/lib/modules").join(&self.release)
    }
}

/// Replaces a folder by a finished one.
pub(crate) fn put(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).at(to.display())?;
    }
    fs::rename(from, to).at(to.display())
}
