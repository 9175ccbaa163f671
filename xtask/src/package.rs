//! `cargo xtask package`: what users install, and the proof that it does its work when they have.

mod deb;
mod image;
mod licences;
mod noble;
pub(crate) mod release;
mod rpm;
mod sbom;
mod source;
pub(crate) mod stage;
mod tar;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{self, Outcome};
use licences::Part;

/// Programs and libraries that are installed.
const SHIPPED: [&str; 5] = ["lspan", "linkspand", "linkspan-tray", "linkspan-nccl", "linkspan-capi"];

/// By the words behind `package`.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    match words {
        ["tar"] => tar::run(root, std::env::consts::ARCH),
        ["tar", "--for", machine] => tar::run(root, machine),
        ["wheel"] => wheel::run(root, false),
        ["wheel", "--sdist"] => wheel::run(root, true),
        ["deb", rest @ ..] => deb::run(root, rest),
        ["noble", dir] => noble::check(Path::new(dir)).map_or_else(Outcome::Failed, |()| Outcome::Done),
        ["rpm"] => rpm::rpm(root),
        ["arch"] => rpm::arch(root),
        ["image"] => image::run(root),
        ["source", dir] => match source::make(root, Path::new(dir)) {
            Ok(made) => {
                println!("{}", made.display());
                Outcome::Done
            }
            Err(why) => Outcome::Failed(why),
        },
        _ => Outcome::Failed(
            "package: tar [--for MACHINE], wheel [--sdist], deb [--on RELEASE] [--twice], rpm, arch, image, source DIR, noble DIR"
                .to_owned(),
        ),
    }
}

/// Where packages land.
fn place(root: &Path) -> PathBuf {
    run::target_dir(root).join(if run::is_dev() { "packages-dev" } else { "packages" })
}

/// The parts of the workspace that programs and libraries are made of.
fn shipped(root: &Path) -> Part<'_> {
    Part { workspace: root, packages: &SHIPPED, edges: "normal" }
}

/// Seconds since 1970 that files in packages carry: `SOURCE_DATE_EPOCH`, or the time of the last commit, so that the same commit makes
/// the same archive.
fn epoch(root: &Path) -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let time = run::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    Ok(time.trim().to_owned())
}

/// An archive of `folder`, which lies in `parent`: the same bytes for the same files. `more` are further options of tar.
fn archive(root: &Path, parent: &Path, folder: &str, file: &Path, more: &[&str]) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=u,go-w", "--format=gnu"]);
    tar.arg(format!("--mtime=@{}", epoch(root)?)).args(more);
    tar.args(["-I", "xz -6 -T2", "-cf"]).arg(file).arg("-C").arg(parent).arg(folder);
    run::must(&mut tar)
}

/// Bytes of a file.
fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |m| m.len())
}
