//! The source package of Debian: the tree, and in a second archive the crates that it is built from, so that building needs no network.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::licences::{self, Part, chosen, holders};
use super::stage::put;
use super::{RECORD, SHIPPED, archive, shipped};
use crate::capi::install::version;
use crate::run;

/// What `debian/rules` builds beside [`SHIPPED`].
const TOOL: &str = "xtask";

/// Where the paragraphs of crates go in `debian/copyright`.
const VENDOR: &str = "@VENDOR@\n";

/// Makes the source package in `dir` anew; the path of its `.dsc`.
pub(super) fn make(root: &Path, dir: &Path) -> Result<PathBuf, String> {
    let _ = fs::remove_dir_all(dir);
    let version = version(root)?;
    let name = format!("linkspan-{version}");
    let tree = dir.join(&name);
    let vendor = dir.join("vendor");
    tracked(root, &tree)?;
    let (python, window) = (root.join("bindings/python"), root.join("bin/linkspan-desktop"));
    let linked = [&python, &window].map(|workspace| Part { workspace, packages: &[], edges: "normal" });
    // For what others build of it.
    let file = tree.join("THIRD-PARTY");
    let text = licences::notices(&[shipped(root), linked[0], linked[1]])?;
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    archive(root, dir, &name, &dir.join(format!("linkspan_{version}.orig.tar.xz")), &["--exclude=debian"])?;

    let mut cargo = run::cargo(root);
    cargo
        .args(["vendor", "--quiet", "--locked", "--versioned-dirs", "--sync", "bindings/python/Cargo.toml"])
        .args(["--sync", "bin/linkspan-desktop/Cargo.toml"])
        .arg(&vendor);
    run::output(&mut cargo)?;
    let packages: Vec<&str> = SHIPPED.into_iter().chain([TOOL]).collect();
    let parts = [
        Part { workspace: root, packages: &packages, edges: "normal,build" },
        Part { workspace: &python, packages: &[], edges: "normal,build" },
        Part { workspace: &window, packages: &[], edges: "normal,build" },
    ];
    let crates = licences::crates(&parts)?;
    let wanted: BTreeSet<String> = crates.iter().map(|one| format!("{}-{}", one.name, one.version)).collect();
    empty(&vendor, &wanted)?;
    archive(root, dir, "vendor", &dir.join(format!("linkspan_{version}.orig-vendor.tar.xz")), &[])?;

    let copyright = tree.join("debian/copyright");
    let text = fs::read_to_string(&copyright).map_err(|e| format!("{}: {e}", copyright.display()))?;
    let paragraphs = paragraphs(&crates)?;
    fs::write(&copyright, text.replace(VENDOR, &paragraphs)).map_err(|e| format!("{}: {e}", copyright.display()))?;
    let moved = tree.join("vendor");
    fs::rename(&vendor, &moved).map_err(|e| format!("{}: {e}", moved.display()))?;
    run::output(Command::new("dpkg-source").args(["-b", &name]).current_dir(dir))?;
    fs::remove_dir_all(&tree).map_err(|e| format!("{}: {e}", tree.display()))?;
    let made = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let dsc = made.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "dsc"));
    dsc.ok_or_else(|| "dpkg-source made no .dsc".to_owned())
}

/// Copies every file that git knows, or would take.
pub(super) fn tracked(root: &Path, to: &Path) -> Result<(), String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    for path in run::output(&mut git)?.split('\0').filter(|path| !path.is_empty()) {
        if path == RECORD {
            let text = run::output(Command::new("git").args(["show", &format!("HEAD:{path}")]).current_dir(root))?;
            fs::create_dir_all(to.join("docs"))
                .and_then(|()| fs::write(to.join(path), text))
                .map_err(|e| format!("{path}: {e}"))?;
        // One that was removed and not yet committed is still in the list.
        } else if root.join(path).is_file() {
            put(&root.join(path), &to.join(path))?;
        }
    }
    Ok(())
}

/// Leaves of crates that Linux does not need (and of those that only tests do) no more than what cargo asks of every crate in
/// `Cargo.lock`: that it is there.
fn empty(vendor: &Path, wanted: &BTreeSet<String>) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    for entry in fs::read_dir(vendor).map_err(|e| failed(vendor, e))?.flatten() {
        let (folder, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if wanted.contains(&name) {
            continue;
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).map_err(|e| failed(&folder.join(name), e));
        let (manifest, sums) = (read("Cargo.toml")?, read(".cargo-checksum.json")?);
        let sums: serde_json::Value = serde_json::from_str(&sums).map_err(|e| format!("{name}: {e}"))?;
        let sums = serde_json::json!({ "files": {}, "package": sums["package"] });
        fs::remove_dir_all(&folder).map_err(|e| failed(&folder, e))?;
        let files =
            [("Cargo.toml", manifest), (".cargo-checksum.json", sums.to_string()), ("src/lib.rs", String::new())];
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(|e| failed(&file, e))?;
            fs::write(&file, text).map_err(|e| failed(&file, e))?;
        }
    }
    Ok(())
}

/// What `debian/copyright` says of each crate.
fn paragraphs(crates: &BTreeSet<licences::Crate>) -> Result<String, String> {
    let mut text = String::from(
        "Files: vendor/*\nCopyright: the authors that each Cargo.toml names\nLicense: MIT\nComment: Crates without any source of \
         theirs; those with sources follow.\n\n",
    );
    for one in crates {
        let licences = chosen(&one.expression).map_err(|why| format!("{} {}: {why}", one.name, one.version))?;
        let _ = write!(
            text,
            "Files: vendor/{}-{}/*\nCopyright: {}\nLicense: {}\n\n",
            one.name,
            one.version,
            holders(one).join("\n           "),
            licences.join(" and ")
        );
    }
    Ok(text)
}
