//! The lock files of the workspaces beside the main one are current.
//!
//! `cargo build` mends the main lock file in passing, but a new dependency of a library crate leaves those of the
//! workspaces that use it by path behind, and their stages build with `--locked`.

use std::path::Path;
use std::process::{Command, Stdio};

/// Workspaces beside the main one, from the root.
pub(crate) const BESIDE: [&str; 4] = ["bin/linkspan-desktop", "bindings/python", "fuzz", "tests/foreign"];

pub(crate) fn problems(root: &Path) -> Vec<String> {
    BESIDE.iter().filter_map(|part| problem(&root.join(part), part)).collect()
}

/// What is wrong with the lock file of the workspace in `folder`, called `part` in the message.
pub(crate) fn problem(folder: &Path, part: &str) -> Option<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--locked", "--format-version", "1"]).current_dir(folder).stdout(Stdio::null());
    match cargo.stderr(Stdio::piped()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "{part}/Cargo.lock does not fit its Cargo.toml (run `cargo metadata` in {part} and commit the file): {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(e) => Some(format!("{part}: cargo metadata does not run: {e}")),
    }
}
