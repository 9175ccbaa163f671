//! Programs of the Debian root: in it by chroot, or out here with its own loader and libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::proc;

/// Folders of libraries in the root.
const LIBRARIES: [&str; 3] = ["usr/lib/x86_64-linux-gnu", "usr/lib", "usr/lib/x86_64-linux-gnu/systemd"];

/// Names that package managers behind a proxy need.
const PASSED_ON: [&str; 6] = ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// A shell script run as root in the Debian root, with a `/proc` of its own that ends with it.
pub(crate) fn script(root: &Path, text: &str) -> Command {
    // Words: $0 the root, $1 the script. Mounts live in a namespace of the process's own.
    const ENTER: &str = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /bin/sh -euc \"$1\"";
    let mut command = proc::guarded("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER]).arg(root).arg(text).env_clear();
    command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// A program of the root as a process of this machine: its own loader and libraries, no chroot, no privilege.
pub(crate) fn program(root: &Path, path: &str) -> Command {
    let mut command = proc::guarded(loader(root));
    command.arg("--library-path").arg(library_path(root)).arg(root.join(path));
    command.env("QEMU_MODULE_DIR", root.join("usr/lib/x86_64-linux-gnu/qemu"));
    command
}

/// Libraries that a program of the root, or of this machine, needs: their names and where the root has them.
pub(crate) fn libraries(root: &Path, program: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut list = Command::new(loader(root));
    list.arg("--library-path").arg(library_path(root)).arg("--list").arg(program);
    let text = proc::output(&mut list)?;
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else { continue };
        let path = rest.split(" (").next().unwrap_or_default();
        if path == "not found" {
            return Err(Error::Check(format!("{}: the root has no {name}", program.display())));
        }
        found.push((name.to_owned(), PathBuf::from(path)));
    }
    Ok(found)
}

/// The dynamic loader of the root.
pub(crate) fn loader(root: &Path) -> PathBuf {
    root.join("usr/lib64/ld-linux-x86-64.so.2")
}

fn library_path(root: &Path) -> String {
    LIBRARIES.map(|dir| root.join(dir).display().to_string()).join(":")
}
