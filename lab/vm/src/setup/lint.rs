//! `lint`: what the kernel's own tools say of a module's sources: sparse and the compiler with `W=1`, then checkpatch.

use std::path::Path;

use crate::cache::{Cache, Kernel};
use crate::error::{Error, Result};
use crate::proc;
use crate::root;
use crate::setup::{self, apt, module};

/// What the checks are made of; checkpatch itself comes out of a kernel's sources.
const PACKAGES: [&str; 2] = ["sparse", "perl"];

/// Both checks over the module in `folder`, with what a kernel brings for them. What checkpatch is to let pass stands in
/// the folder's `.checkpatch.conf`, which it reads by itself.
pub(crate) fn run(cache: &Cache, kernel: &Kernel, folder: &Path) -> Result<()> {
    tools(cache)?;
    let (root, tree) = (cache.root(), module::tree(kernel));
    let checkpatch = match kernel.checked() {
        true => format!("{tree}/scripts/checkpatch.pl"),
        false => format!("/{}/checkpatch.pl", module::scripts(&kernel.name)),
    };
    let there = root.join(&checkpatch[1..]);
    if !there.exists() {
        return Err(Error::NotSetUp { path: there, words: format!("setup --kernel {}", kernel.name) });
    }
    let copy = module::copied(cache, kernel, folder, "lint")?;
    // C=2 has sparse look at every source. Nothing ends with an error for a warning, so what is said is read.
    let build = format!("make -s -j\"$(nproc)\" -C {tree} M={} C=2 W=1 modules 2>&1", copy.inside);
    let (mut found, sparse) = read(&proc::output(&mut root::script(&root, &build))?);
    if !sparse {
        println!("skipped: sparse: that of Debian does not understand the headers of Linux {}", kernel.release);
    }
    // It ends with 1 where it has found something, and with anything else where it has not looked.
    let check = format!(
        "export HOME=.\ncd {}\nfiles=$(find . -name '*.[ch]' ! -name '*.mod.c' | sort)\ntest -n \"$files\"\n\
         perl {checkpatch} --no-tree --terse --show-types --no-summary -f $files 2>&1 || test $? = 1",
        copy.inside
    );
    found.extend(lines(&proc::output(&mut root::script(&root, &check))?));
    let tools = if sparse { "sparse, the compiler with W=1, checkpatch" } else { "the compiler with W=1, checkpatch" };
    if found.is_empty() {
        println!("{}: Linux {}: {tools}: nothing to say", folder.display(), kernel.release);
        return Ok(());
    }
    let text = found.join("\n");
    Err(Error::Check(format!("{}: Linux {}: {tools} say:\n{text}", folder.display(), kernel.release)))
}

/// Installs what is missing of [`PACKAGES`] in the root.
fn tools(cache: &Cache) -> Result<()> {
    let words = PACKAGES.join(" ");
    if cache.done("lint", &words) {
        return Ok(());
    }
    let (root, _lock) = (cache.root(), setup::lock(cache)?);
    let had = apt::update(&root, "lint").and_then(|()| apt::install(&root, "lint", &PACKAGES, setup::RELEASE));
    had.map_err(|error| Error::Unfit(format!("{words} cannot be had: {error}")))?;
    cache.note("lint", &words)
}

/// What a build said, and whether sparse was part of it: Linux 7.3 tries it first (`scripts/checker-valid.sh`, which Debian's
/// headers leave off) and goes on without one that does not know `__typeof_unqual__`.
fn read(said: &str) -> (Vec<String>, bool) {
    let refused = |line: &str| line.ends_with("C=2 specified, but sparse is not available or not up to date");
    let sparse = !said.lines().any(refused);
    let about_sparse = |line: &String| !sparse && (refused(line) || line.contains("checker-valid.sh"));
    (lines(said).into_iter().filter(|line| !about_sparse(line)).collect(), sparse)
}

/// Lines with something in them.
fn lines(said: &str) -> Vec<String> {
    said.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
