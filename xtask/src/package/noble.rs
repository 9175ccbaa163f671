//! Whether Ubuntu 24.04 has what our packages depend on. Nothing is run there: names and versions are compared with a list of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::run;

/// Name and version of its packages that ours may name.
const LIST: &str = include_str!("noble.txt");

/// Fields that bring packages along, or offer them.
const FIELDS: [&str; 4] = ["Pre-Depends", "Depends", "Recommends", "Suggests"];

/// Packages by name, with their version.
type Versions = BTreeMap<String, String>;

/// Checks every package in a folder.
pub(super) fn check(debs: &Path) -> Result<(), String> {
    let field = |file: &Path, name: &str| run::output(Command::new("dpkg-deb").arg("-f").arg(file).arg(name));
    let mut there: Versions = listed().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    let mut files = Vec::new();
    for entry in fs::read_dir(debs).map_err(|e| format!("{}: {e}", debs.display()))?.flatten() {
        let file = entry.path();
        let is_ours = file.extension().is_some_and(|e| e == "deb") && !file.to_string_lossy().contains("-dbgsym_");
        if is_ours {
            there.insert(field(&file, "Package")?.trim().to_owned(), field(&file, "Version")?.trim().to_owned());
            files.push(file);
        }
    }
    let mut missing = Vec::new();
    for file in &files {
        for name in FIELDS {
            for one in clauses(&field(file, name)?) {
                let mut met = false;
                for alternative in one.split('|') {
                    met |= is_met(&there, alternative.trim())?;
                }
                if !met {
                    let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    missing.push(format!("{file}: {name}: {one}"));
                }
            }
        }
    }
    if files.is_empty() || !missing.is_empty() {
        return Err(format!("Ubuntu 24.04 (xtask/src/package/noble.txt) has not: {}", missing.join("; ")));
    }
    println!("ok   Ubuntu 24.04 has what {} packages depend on: dependencies checked, not run", files.len());
    Ok(())
}

fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '))
}

/// What a field lists.
fn clauses(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').map(str::trim).filter(|one| !one.is_empty())
}

/// Whether a package is there in the version wanted, as in `libc6 (>= 2.34)`.
fn is_met(there: &Versions, wanted: &str) -> Result<bool, String> {
    let (name, bound) = wanted.split_once('(').unwrap_or((wanted, ""));
    let name = name.trim();
    let Some(have) = there.get(name.split_once(':').map_or(name, |(name, _)| name)) else { return Ok(false) };
    let bound = bound.trim_end_matches(')').trim();
    if bound.is_empty() {
        return Ok(true);
    }
    let (relation, version) = bound.split_once(' ').ok_or_else(|| format!("{wanted}: no version"))?;
    let compared = Command::new("dpkg").args(["--compare-versions", have, relation, version.trim()]).status();
    compared.map(|status| status.success()).map_err(|e| format!("dpkg: {e}"))
}

#[cfg(test)]
mod tests {
    use super::{Versions, clauses, is_met, listed};

    #[test]
    fn dependencies_are_met_by_name_and_version() {
        if crate::run::which("dpkg").is_none() {
            println!("skipped: no dpkg");
            return;
        }
        let there: Versions = listed().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
        let met = |wanted| is_met(&there, wanted).unwrap();
        assert!(met("libc6 (>= 2.34)") && met("python3:any (>= 3.11~)") && met("passwd"));
        assert!(!met("libc6 (>= 2.40)") && !met("python3 (<< 3.12)") && !met("libibverbs1t64"));
        assert_eq!(clauses("a, b (>= 1) | c,\n d\n").collect::<Vec<_>>(), ["a", "b (>= 1) | c", "d"]);
    }
}
