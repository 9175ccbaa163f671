//! The crates that are linked into what users get, and under which licences: of several alternatives the first of [`ORDER`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run;

/// Licences that what we ship may stand under, the ones that ask for least first. Each has its text in `debian/copyright`, so a
/// crate with any other is noticed before it is shipped. A dedication to the public domain is the last, for not every country knows one.
const ORDER: [&str; 8] = ["MIT-0", "MIT", "Zlib", "BSD-3-Clause", "Unicode-3.0", "Apache-2.0", "MPL-2.0", "Unlicense"];

/// What is built, for whom its crates are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Folder of the workspace.
    pub(crate) workspace: &'a Path,
    /// Packages in it; none for all.
    pub(crate) packages: &'a [&'a str],
    /// Edges that `cargo tree` follows.
    pub(crate) edges: &'a str,
}

/// One crate from a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// As it says.
    pub(crate) expression: String,
    /// Where its sources lie.
    pub(crate) folder: PathBuf,
}

/// The crates behind some parts, for both processors.
pub(crate) fn crates(parts: &[Part<'_>]) -> Result<BTreeSet<Crate>, String> {
    let mut found = BTreeSet::new();
    for part in parts {
        let mut metadata = run::cargo(part.workspace);
        let text = run::output(metadata.args(["metadata", "--locked", "--format-version", "1"]))?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
        let mut known = BTreeMap::new();
        for package in json["packages"].as_array().into_iter().flatten() {
            let word = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            let folder = PathBuf::from(word("manifest_path")).parent().map(Path::to_path_buf).unwrap_or_default();
            if !package["source"].is_null() {
                known.insert((word("name"), word("version")), (word("license"), folder));
            }
        }
        for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
            let mut tree = run::cargo(part.workspace);
            tree.args(["tree", "--locked", "--prefix", "none", "-f", "{p}", "-e", part.edges, "--target", target]);
            tree.args(part.packages.iter().flat_map(|name| ["-p", name]));
            for line in run::output(&mut tree)?.lines() {
                let mut words = line.split(' ');
                let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
                let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
                if let Some((expression, folder)) = known.get(&key) {
                    let (expression, folder) = (expression.clone(), folder.clone());
                    found.insert(Crate { name: key.0, version: key.1, expression, folder });
                }
            }
        }
    }
    Ok(found)
}

/// The licences that are taken of an expression, in the words of SPDX.
pub(crate) fn chosen(expression: &str) -> Result<Vec<&'static str>, String> {
    let words = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // Enough for what crates say: alternatives within parts that all hold.
    words
        .split(" AND ")
        .map(|part| {
            // An exception allows more than we need.
            let alternatives = part.split(" OR ").map(str::trim);
            let offered: Vec<&str> = alternatives.map(|one| one.trim_end_matches(" WITH LLVM-exception")).collect();
            ORDER
                .into_iter()
                .find(|licence| offered.contains(licence))
                .ok_or_else(|| format!("{expression}: none of {} (xtask/src/package/licences.rs)", ORDER.join(", ")))
        })
        .collect()
}

/// Lines with a copyright in the texts of a crate, or its authors.
pub(crate) fn holders(one: &Crate) -> Vec<String> {
    let texts = texts(one, |_| true);
    let lines = texts.iter().flat_map(|(_, text)| text.lines()).map(str::trim);
    let is_one = |line: &&str| {
        let lower = line.to_lowercase();
        (lower.starts_with("copyright (c)") || lower.starts_with("copyright ©") || lower.starts_with("copyright 2"))
            && !line.contains(['<', '[', '{'])
    };
    let held: BTreeSet<String> = lines
        .filter(is_one)
        .map(|line| {
            line[9..].trim_start_matches("(c)").trim_start_matches("(C)").trim().trim_matches(['©', ' ']).to_owned()
        })
        .map(|line| line.trim_start_matches("(c)").trim_start_matches("(C)").trim().to_owned())
        .collect();
    if held.is_empty() { vec![format!("the authors of {}", one.name)] } else { held.into_iter().collect() }
}

/// All texts that go with binaries, each once, below the names of the crates that it is of.
pub(crate) fn notices(parts: &[Part<'_>]) -> Result<String, String> {
    let mut text = String::from(
        "Crates that are linked into the programs and libraries of linkspan, and the licences that apply.\n\
         The standard library of Rust is among them (MIT OR Apache-2.0, The Rust Project Contributors).\n\n",
    );
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in crates(parts)? {
        let licences = chosen(&one.expression).map_err(|why| format!("{} {}: {why}", one.name, one.version))?;
        let _ = writeln!(text, "{} {}: {}", one.name, one.version, licences.join(" and "));
        let plain = texts(&one, |name| !name.contains("APACHE") || licences.contains(&"Apache-2.0"));
        if plain.is_empty() {
            by_text
                .entry(format!("{} (the crate has no file with the text)", licences.join(" and ")))
                .or_default()
                .push(one.name.clone());
        }
        for (_, text) in plain {
            by_text.entry(text.trim_end().to_owned()).or_default().push(one.name.clone());
        }
    }
    for (licence, names) in by_text {
        let _ = write!(text, "\n{}\n{}\n\n{licence}\n", "-".repeat(100), names.join(", "));
    }
    Ok(text)
}

/// Files with licences in the folder of a crate whose names, in capitals, are wanted.
fn texts(one: &Crate, wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(&one.folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_one = ["LICEN", "UNLICEN", "COPY", "NOTICE"].iter().any(|start| name.starts_with(start));
        if is_one
            && wanted(&name)
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            found.push((name, text));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::{ORDER, chosen};

    #[test]
    fn of_alternatives_the_one_that_asks_for_least_is_taken() {
        assert_eq!(chosen("Apache-2.0 OR MIT"), Ok(vec!["MIT"]));
        assert_eq!(chosen("MIT/Apache-2.0"), Ok(vec!["MIT"]));
        assert_eq!(chosen("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(vec!["MIT", "Unicode-3.0"]));
        assert_eq!(chosen("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"), Ok(vec!["MIT"]));
    }

    #[test]
    fn every_licence_that_may_be_taken_has_its_text() {
        let copyright = include_str!("../../../debian/copyright");
        for licence in ORDER {
            assert!(copyright.contains(&format!("\nLicense: {licence}\n ")), "{licence}");
        }
    }

    #[test]
    fn a_licence_without_a_text_of_ours_is_refused() {
        assert!(chosen("GPL-3.0-only").is_err());
        assert!(chosen("MIT AND AGPL-3.0").is_err());
        assert!(chosen("").is_err());
    }
}
