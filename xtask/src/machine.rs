//! The processor that a build is for, and the tools of that build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run;
use crate::stages::toolchain::{self, Toolchain};

/// Which one.
#[derive(Debug)]
pub(crate) enum Machine {
    /// This one, with its own tools.
    Native,
    /// aarch64, with Debian's cross toolchain.
    Aarch64(Toolchain),
}

impl Machine {
    /// The machine of this name; the error is why nothing can be built for it here.
    pub(crate) fn named(root: &Path, name: &str) -> Result<Machine, String> {
        match name {
            name if name == std::env::consts::ARCH => Ok(Machine::Native),
            "aarch64" => toolchain::ready(root, false).map(Machine::Aarch64),
            _ => Err(format!("nothing is built for {name} here: this machine's own processor and aarch64 are known")),
        }
    }

    /// What `uname -m` says on it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Machine::Native => std::env::consts::ARCH,
            Machine::Aarch64(_) => "aarch64",
        }
    }

    /// A cargo command that builds for it.
    pub(crate) fn cargo(&self, root: &Path) -> Command {
        match self {
            Machine::Native => run::cargo(root),
            Machine::Aarch64(tools) => tools.cargo(root),
        }
    }

    /// The same for what is handed out: no folder of whoever builds is in it. Flags that are set stay, as packages of distributions set them.
    pub(crate) fn released(&self, root: &Path) -> Command {
        let mut cargo = self.cargo(root);
        if ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"].iter().all(|name| std::env::var_os(name).is_none()) {
            let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
            let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
            cargo.env("CARGO_ENCODED_RUSTFLAGS", remapped(root, &home.unwrap_or_else(|| root.join(".cargo"))));
        }
        cargo
    }

    /// Where cargo leaves what is handed out.
    pub(crate) fn built(&self, root: &Path) -> PathBuf {
        match self {
            Machine::Native if run::is_dev() => run::target_dir(root).join("debug"),
            Machine::Native => run::target_dir(root).join("release"),
            Machine::Aarch64(_) => Toolchain::release(root),
        }
    }

    /// What cargo calls it, where it is not this one.
    pub(crate) fn target(&self) -> Option<&'static str> {
        match self {
            Machine::Native => None,
            Machine::Aarch64(_) => Some(toolchain::TARGET),
        }
    }

    /// `cc`, `strip` or `objcopy`.
    pub(crate) fn tool(&self, name: &str) -> Command {
        match (self, name) {
            (Machine::Native, name) => Command::new(name),
            (Machine::Aarch64(tools), "cc") => tools.tool("gcc"),
            (Machine::Aarch64(tools), name) => tools.tool(name),
        }
    }

    /// The program that runs programs of it here; nothing where none is needed.
    pub(crate) fn emulator(&self) -> PathBuf {
        match self {
            Machine::Native => PathBuf::new(),
            Machine::Aarch64(tools) => tools.tool("qemu").get_program().into(),
        }
    }
}

/// Flags for rustc that put other names in the place of the tree and of cargo's folder.
fn remapped(root: &Path, home: &Path) -> String {
    [(root, "/usr/src/linkspan"), (home, "/usr/src/cargo")]
        .map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()))
        .join("\u{1f}")
}

#[cfg(test)]
mod tests {
    use super::remapped;
    use std::path::Path;

    #[test]
    fn the_folders_of_whoever_builds_have_other_names_in_what_is_handed_out() {
        let flags = remapped(Path::new("/home/me/my tree"), Path::new("/home/me/.cargo"));
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(
            flags,
            [
                "--remap-path-prefix=/home/me/my tree=/usr/src/linkspan",
                "--remap-path-prefix=/home/me/.cargo=/usr/src/cargo",
            ]
        );
    }
}
