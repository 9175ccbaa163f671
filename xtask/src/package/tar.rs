//! `package tar`: one archive for hosts where nobody is root, and one with what debuggers want, to be unpacked over the first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::stage::{put, stage};
use super::{archive, licences, place, shipped, size};
use crate::capi::install::version;
use crate::machine::Machine;
use crate::run::{self, Outcome};

/// The script that installs and removes, and how it is tried.
const INSTALL: &str = "xtask/src/package/install.sh";
const TRY: &str = "xtask/src/package/try-tar.sh";

/// What is read before and after installing.
const DOCUMENTS: [&str; 6] =
    ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "docs/ERRORS.md", "docs/PARAMETERS.md"];

/// What is to be adapted, and where it is below the examples.
const EXAMPLES: [(&str, &str); 3] =
    [("bin/lspan/prometheus", "prometheus"), ("packaging/slurm", "slurm"), ("packaging/kubernetes", "kubernetes")];

/// Makes both archives and installs from them.
pub(super) fn run(root: &Path, machine: &str) -> Outcome {
    let machine = match Machine::named(root, machine) {
        Ok(machine) => machine,
        Err(why) => return Outcome::Skipped(why),
    };
    match make(root, &machine).and_then(|file| attempt(root, &machine, &file)) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

/// What both archives hold, as one folder.
fn name(root: &Path, machine: &Machine) -> Result<String, String> {
    Ok(format!("linkspan-{}-{}-linux-gnu", version(root)?, machine.name()))
}

/// Where the archives are: without debug information, and that.
pub(super) fn archives(root: &Path, machine: &Machine) -> Result<[PathBuf; 2], String> {
    let name = name(root, machine)?;
    Ok(["", "-debug"].map(|more| place(root).join(format!("{name}{more}.tar.xz"))))
}

fn make(root: &Path, machine: &Machine) -> Result<PathBuf, String> {
    let name = name(root, machine)?;
    let parent = place(root).join("stage");
    let (main, debug) = (parent.join(&name), parent.join("debug").join(&name));
    for dir in [&main, &debug] {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let built = stage(root, machine, &main, "lib", true)?;
    let mut sizes = Vec::new();
    for file in [&built.lspan, &built.plugin, &built.library.shared] {
        let whole = size(file);
        let aside = split(machine, &main, &debug, file)?;
        sizes.push((file.clone(), whole, size(file), size(&aside)));
    }
    for path in DOCUMENTS {
        put(&root.join(path), &main.join("share/doc/linkspan").join(Path::new(path).file_name().unwrap_or_default()))?;
    }
    let examples = main.join("share/doc/linkspan/examples");
    fs::create_dir_all(&examples).map_err(|e| format!("{}: {e}", examples.display()))?;
    for (from, to) in EXAMPLES {
        run::must(Command::new("cp").arg("-r").arg(root.join(from)).arg(examples.join(to)))?;
    }
    let notices = main.join("share/doc/linkspan/THIRD-PARTY");
    fs::write(&notices, licences::notices(&[shipped(root)])?).map_err(|e| format!("{}: {e}", notices.display()))?;
    put(&root.join(INSTALL), &main.join("install.sh"))?;
    let files = archives(root, machine)?;
    archive(root, &parent, &name, &files[0], &[])?;
    archive(root, &parent.join("debug"), &name, &files[1], &[])?;
    println!("{:<32} {:>10} {:>10} {:>10}", "KiB", "built", "installed", "debug");
    for (file, whole, stripped, aside) in sizes {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name:<32} {:>10} {:>10} {:>10}", whole >> 10, stripped >> 10, aside >> 10);
    }
    for file in &files {
        println!("{}: {} KiB", file.display(), size(file) >> 10);
    }
    let [file, _] = files;
    Ok(file)
}

/// Moves what only debuggers read into `.debug/` beside the file, below `debug`: where they look for it.
fn split(machine: &Machine, main: &Path, debug: &Path, file: &Path) -> Result<PathBuf, String> {
    let name = format!("{}.debug", file.file_name().unwrap_or_default().to_string_lossy());
    let folder = file.parent().and_then(|dir| dir.strip_prefix(main).ok()).unwrap_or(Path::new(""));
    let folder = debug.join(folder).join(".debug");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let aside = folder.join(name);
    run::must(machine.tool("objcopy").arg("--only-keep-debug").arg(file).arg(&aside))?;
    run::must(machine.tool("strip").arg("--strip-unneeded").arg(file))?;
    run::must(machine.tool("objcopy").arg(format!("--add-gnu-debuglink={}", aside.display())).arg(file))?;
    Ok(aside)
}

/// Installs the archive as a user does, has it do its work, and removes it.
fn attempt(root: &Path, machine: &Machine, file: &Path) -> Result<(), String> {
    let place = place(root).join("try-tar");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut script = Command::new("sh");
    script.arg(root.join(TRY)).arg(file).arg(machine.name()).arg(machine.emulator()).current_dir(&place);
    script.env("EXAMPLES", root.join("bindings/c/examples"));
    if !run::is_dev() {
        script.env("TREE", root);
    }
    run::must(&mut script)?;
    fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))
}
