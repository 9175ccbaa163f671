//! What packages hold, as it lies below a prefix: program, plugin, C library, man pages, completions.

use std::fs;
use std::path::Path;

use crate::capi::install::replace;
use crate::dist::{self, Built};
use crate::machine::Machine;
use crate::run::Outcome;

/// Completions: the file in docs/completions, and where the shell looks for it.
const COMPLETIONS: [(&str, &str); 3] = [
    ("lspan.bash", "share/bash-completion/completions/lspan"),
    ("_lspan", "share/zsh/site-functions/_lspan"),
    ("lspan.fish", "share/fish/vendor_completions.d/lspan.fish"),
];

/// Builds below `prefix`, with the libraries in `libdir`, and checks what was built.
pub(crate) fn run(root: &Path, prefix: &Path, libdir: &str) -> Outcome {
    match stage(root, &Machine::Native, prefix, libdir, false) {
        Ok(_) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

/// The same for a machine; `everywhere` is as in [`dist::problems`].
pub(crate) fn stage(
    root: &Path,
    machine: &Machine,
    prefix: &Path,
    libdir: &str,
    everywhere: bool,
) -> Result<Built, String> {
    let built = dist::build(root, machine, prefix, "bin", libdir, libdir)?;
    let problems = dist::problems(root, &built, everywhere);
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let man = root.join("docs/man");
    let pages = fs::read_dir(&man).map_err(|e| format!("{}: {e}", man.display()))?;
    for page in pages.flatten() {
        put(&page.path(), &prefix.join("share/man/man1").join(page.file_name()))?;
    }
    for (name, place) in COMPLETIONS {
        put(&root.join("docs/completions").join(name), &prefix.join(place))?;
    }
    Ok(built)
}

/// Copies a file, with the folders that it needs.
pub(super) fn put(from: &Path, to: &Path) -> Result<(), String> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    replace(from, to)
}
