//! `cargo xtask package`: what users install, and the proof that it does its work when they have.

mod crates;
mod deb;
mod image;
mod licences;
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

/// The record of runs, to which `.ci/full --record` adds lines while it makes packages: they are made with the one that is committed.
const RECORD: &str = "docs/verified.md";

/// By the words behind `package`. Of which commit the parts of a release were made is noted, for [`release`] takes them as they are.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    if let ["deb", rest @ ..] = words
        && !rest.contains(&"--on")
    {
        let all = deb::RELEASES.iter().map(|release| run(root, &[words, &["--on", release]].concat()));
        return all.into_iter().find(|made| !matches!(made, Outcome::Done)).unwrap_or(Outcome::Done);
    }
    // What was there is overwritten, also where something else is made in its place.
    if let Some(name) = part(words) {
        let _ = std::fs::remove_file(note(root, name));
    }
    let before = commit(root);
    let outcome = make(root, words);
    match (release_part(words), commit(root).filter(|now| before.as_ref() == Some(now))) {
        (Some(name), Some(commit)) if matches!(outcome, Outcome::Done) => {
            let note = note(root, name);
            let noted = std::fs::write(&note, commit).map_err(|error| format!("{}: {error}", note.display()));
            noted.map_or_else(Outcome::Failed, |()| outcome)
        }
        _ => outcome,
    }
}

/// The part of a release whose files these words write.
fn part(words: &[&str]) -> Option<&'static str> {
    let known = |name: &str| release::STEPS.iter().map(|(known, _)| *known).find(|known| *known == name);
    match words {
        [what, "--for", machine] if *machine != std::env::consts::ARCH => known(&format!("{what}-{machine}")),
        // It makes what it compares with what is there.
        ["deb", rest @ ..] if rest.contains(&"--again") => None,
        ["deb", .., release] => known(&format!("deb-{release}")),
        [first, ..] => known(first),
        [] => None,
    }
}

/// The part of a release that these words make as a release does.
fn release_part(words: &[&str]) -> Option<&'static str> {
    release::STEPS.iter().find(|(_, step)| *step == words).map(|(name, _)| *name)
}

/// Whether this part is there, made of the commit that is checked out.
fn is_made(root: &Path, name: &str) -> bool {
    let made = std::fs::read_to_string(note(root, name)).ok();
    made.is_some() && made == commit(root)
}

/// Where it is noted of which commit a part was made.
fn note(root: &Path, name: &str) -> PathBuf {
    place(root).join(format!("{name}.commit"))
}

/// The commit that is checked out, where nothing is changed.
fn commit(root: &Path) -> Option<String> {
    let clean = changes(root).is_ok_and(|changes| changes.is_empty());
    run::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root)).ok().filter(|_| clean)
}

/// What is not as the commit has it, but for [`RECORD`].
fn changes(root: &Path) -> Result<String, String> {
    let words = ["status", "--porcelain", "--", ".", &format!(":!{RECORD}")];
    run::output(Command::new("git").args(words).current_dir(root))
}

fn make(root: &Path, words: &[&str]) -> Outcome {
    match words {
        ["tar"] => tar::run(root, std::env::consts::ARCH),
        ["tar", "--for", machine] => tar::run(root, machine),
        ["wheel"] => wheel::run(root, std::env::consts::ARCH, false),
        ["wheel", "--sdist"] => wheel::run(root, std::env::consts::ARCH, true),
        ["wheel", "--for", machine] => wheel::run(root, machine, false),
        ["deb", rest @ ..] => deb::run(root, rest),
        ["try", debs, on] => deb::tried(root, debs, on),
        ["rpm"] => rpm::rpm(root),
        ["arch"] => rpm::arch(root),
        ["image"] => image::run(root),
        ["crates"] => crates::run(root),
        ["source", dir] => match source::make(root, Path::new(dir)) {
            Ok(made) => {
                println!("{}", made.display());
                Outcome::Done
            }
            Err(why) => Outcome::Failed(why),
        },
        _ => Outcome::Failed(
            "package: tar [--for MACHINE], wheel [--sdist | --for MACHINE], deb [--on RELEASE] [--again], try DIR RELEASE, rpm, arch, image, crates, source DIR"
                .to_owned(),
        ),
    }
}

/// Where packages land.
pub(crate) fn place(root: &Path) -> PathBuf {
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
