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

/// By the words behind `package`. What is made of a commit is noted, for [`release`] takes it as it is.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    if let ["deb", rest @ ..] = words
        && !rest.contains(&"--on")
    {
        let all = deb::RELEASES.iter().map(|release| run(root, &[words, &["--on", release]].concat()));
        return all.into_iter().find(|made| !matches!(made, Outcome::Done)).unwrap_or(Outcome::Done);
    }
    let note = note(root, words);
    if let Some(note) = &note {
        let _ = std::fs::remove_file(note);
    }
    let before = commit(root);
    let outcome = make(root, words);
    match (note, commit(root).filter(|now| before.as_ref() == Some(now))) {
        (Some(note), Some(commit)) if matches!(outcome, Outcome::Done) => match std::fs::write(&note, commit) {
            Ok(()) => outcome,
            Err(error) => Outcome::Failed(format!("{}: {error}", note.display())),
        },
        _ => outcome,
    }
}

/// Whether what these words make is there, made of the commit that is checked out.
fn is_made(root: &Path, words: &[&str]) -> bool {
    let made = note(root, words).and_then(|note| std::fs::read_to_string(note).ok());
    made.is_some() && made == commit(root)
}

/// Where it is noted of which commit something was made that a release consists of.
fn note(root: &Path, words: &[&str]) -> Option<PathBuf> {
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--twice").collect();
    let (name, _) = release::STEPS.iter().find(|(_, step)| *step == words)?;
    Some(place(root).join(format!("{name}.commit")))
}

/// The commit that is checked out, where nothing is changed.
fn commit(root: &Path) -> Option<String> {
    let clean = changes(root).is_ok_and(|changes| changes.is_empty());
    run::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root)).ok().filter(|_| clean)
}

/// What is not as the commit has it, but for the record to which every run adds a line.
fn changes(root: &Path) -> Result<String, String> {
    let words = ["status", "--porcelain", "--", ".", ":!docs/verified.md"];
    run::output(Command::new("git").args(words).current_dir(root))
}

fn make(root: &Path, words: &[&str]) -> Outcome {
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
