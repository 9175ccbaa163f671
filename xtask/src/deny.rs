//! `cargo xtask deny`: what the dependencies are allowed to be (`deny.toml`, as cargo-deny reads it), without a network.
//!
//! Advisories come from a snapshot, `xtask/advisories.txt`, which names every package of the lock files: one that it does not name is a
//! problem, so that nothing new goes unlooked at. `cargo xtask deny --snapshot DIR` makes it anew from a checkout of
//! rustsec/advisory-db. What a snapshot cannot know: newer advisories, and versions that were yanked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use semver::{Version, VersionReq};
use serde_json::Value;
use toml::Table;

use crate::run::{self, Outcome};

mod licence;

const RULES: &str = "deny.toml";
const SNAPSHOT: &str = "xtask/advisories.txt";

/// Workspaces, each with a lock file of its own.
fn workspaces() -> impl Iterator<Item = &'static str> {
    std::iter::once(".").chain(crate::check::locks::BESIDE)
}

/// The one registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Cryptography that stands in no other release than the one that was looked at.
const PINNED: [&str; 2] = ["graviola", "snow"];

/// An advisory of a package: its number, and which versions it is not about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Advisory {
    id: String,
    /// A version that matches one of these is not affected.
    safe: Vec<String>,
    /// `unmaintained`, `unsound` or `notice`; empty: a vulnerability.
    kind: String,
}

type Advisories = BTreeMap<String, Vec<Advisory>>;

/// A package of a lock file that is not ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    source: String,
}

/// Checks, or makes the snapshot.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let result = match args {
        [] => check(root),
        ["--snapshot", dir] => snapshot(root, Path::new(dir)).map(|()| Vec::new()),
        other => return Outcome::Failed(format!("deny does not know {other:?}")),
    };
    match result {
        Err(why) => Outcome::Failed(why),
        Ok(problems) => {
            problems.iter().for_each(|problem| println!("{problem}"));
            Outcome::from_problems(&problems)
        }
    }
}

fn read(root: &Path, name: &str) -> Result<String, String> {
    fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"))
}

fn table(root: &Path, name: &str) -> Result<Table, String> {
    read(root, name)?.parse().map_err(|e| format!("{name}: {e}"))
}

/// Strings of an array of a table.
fn strings(table: &Table, section: &str, key: &str) -> Vec<String> {
    let values = table.get(section).and_then(|s| s.get(key)).and_then(|v| v.as_array());
    values.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// Packages of all lock files that come from elsewhere.
fn packages(root: &Path) -> Result<BTreeSet<Package>, String> {
    let mut found = BTreeSet::new();
    for workspace in workspaces() {
        let lock = table(root, &format!("{workspace}/Cargo.lock"))?;
        for package in lock.get("package").and_then(|p| p.as_array()).into_iter().flatten() {
            let word = |key: &str| package.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
            if package.get("source").is_some() {
                found.insert(Package { name: word("name"), version: word("version"), source: word("source") });
            }
        }
    }
    if found.is_empty() { Err("the lock files name no package".into()) } else { Ok(found) }
}

fn check(root: &Path) -> Result<Vec<String>, String> {
    let rules = table(root, RULES)?;
    let all = packages(root)?;
    let text = read(root, SNAPSHOT)?;
    let mut problems = Vec::new();
    problems.extend(advised(&all, &parse(&text)?, &strings(&rules, "advisories", "ignore"))?);
    problems.extend(sources(&all));
    problems.extend(banned(&all, &rules));
    problems.extend(licence::problems(&licences(root)?, &strings(&rules, "licenses", "allow")));
    problems.extend(pins(&table(root, "Cargo.toml")?));
    println!("deny: {} packages; {}", all.len(), text.lines().next().unwrap_or_default().trim_start_matches("# "));
    Ok(problems)
}

/// Packages with an advisory that is about their version, or that the snapshot does not name.
fn advised(all: &BTreeSet<Package>, known: &Advisories, ignored: &[String]) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    for Package { name, version, .. } in all {
        let Some(advisories) = known.get(name) else {
            problems.push(format!(
                "{name} {version}: {SNAPSHOT} does not name it: make it anew, `cargo xtask deny --snapshot DIR`"
            ));
            continue;
        };
        let own = Version::parse(version).map_err(|e| format!("{name} {version}: {e}"))?;
        for Advisory { id, safe, kind } in advisories {
            let matches = |req: &String| VersionReq::parse(req).map(|req| req.matches(&own));
            let safe = safe.iter().map(matches).collect::<Result<Vec<_>, _>>().map_err(|e| format!("{id}: {e}"))?;
            if !safe.contains(&true) && !ignored.contains(id) {
                let kind = if kind.is_empty() { "a vulnerability" } else { kind };
                problems
                    .push(format!("{name} {version}: {id} ({kind}): take another version, or say in {RULES} why not"));
            }
        }
    }
    Ok(problems)
}

fn sources(all: &BTreeSet<Package>) -> Vec<String> {
    let foreign = all.iter().filter(|p| p.source != REGISTRY);
    foreign.map(|p| format!("{} {}: comes from {}", p.name, p.version, p.source)).collect()
}

fn banned(all: &BTreeSet<Package>, rules: &Table) -> Vec<String> {
    let list = rules.get("bans").and_then(|b| b.get("deny")).and_then(|d| d.as_array());
    let names: Vec<&str> = list.into_iter().flatten().filter_map(|one| one.get("crate")?.as_str()).collect();
    let found = all.iter().filter(|p| names.contains(&p.name.as_str()));
    found.map(|p| format!("{} {}: {RULES} bans it", p.name, p.version)).collect()
}

/// Package and licence of everything that is built.
fn licences(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let word = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut found = BTreeMap::new();
    for part in workspaces() {
        let mut cargo = run::cargo(root);
        cargo.args(["metadata", "--format-version", "1", "--locked", "--manifest-path"]);
        let text = run::output(cargo.arg(root.join(part).join("Cargo.toml")))?;
        let whole: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata in {part}: {e}"))?;
        let packages = whole.get("packages").and_then(Value::as_array).ok_or("cargo metadata names no package")?;
        let foreign = packages.iter().filter(|p| p.get("source").is_some_and(|s| !s.is_null()));
        found.extend(foreign.map(|p| (format!("{} {}", word(p, "name"), word(p, "version")), word(p, "license"))));
    }
    Ok(found)
}

/// Cryptography that is not pinned to one release, and requirements that any version meets.
fn pins(manifest: &Table) -> Vec<String> {
    let needs = manifest.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    let needs: Vec<(&String, &str)> = needs
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str().or_else(|| value.get("version")?.as_str())?)))
        .collect();
    let mut problems = Vec::new();
    for name in PINNED {
        match needs.iter().find(|(known, _)| *known == name) {
            Some((_, version)) if version.starts_with('=') => {}
            Some((_, version)) => {
                problems.push(format!("Cargo.toml: {name} = \"{version}\" is not pinned: \"={version}\""))
            }
            None => problems.push(format!(
                "Cargo.toml: no {name} among the dependencies: take it from the list of those that are pinned"
            )),
        }
    }
    problems.extend(
        needs.iter().filter(|(_, v)| v.contains('*')).map(|(name, _)| format!("Cargo.toml: {name} takes any version")),
    );
    problems
}

/// The snapshot: a package a line, its advisories below it, indented: number, kind or `-`, versions that are safe.
fn parse(text: &str) -> Result<Advisories, String> {
    let mut all = Advisories::new();
    let mut last = None;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(rest) = line.strip_prefix(' ') else {
            all.insert(line.to_owned(), Vec::new());
            last = Some(line.to_owned());
            continue;
        };
        let mut words = rest.trim_start().splitn(3, ' ');
        let (Some(id), Some(kind), safe) = (words.next(), words.next(), words.next().unwrap_or_default()) else {
            return Err(format!("{SNAPSHOT}: {line:?}"));
        };
        let safe = safe.split("; ").filter(|req| !req.is_empty()).map(str::to_owned).collect();
        let kind = if kind == "-" { String::new() } else { kind.to_owned() };
        let of = last
            .as_ref()
            .and_then(|name| all.get_mut(name))
            .ok_or_else(|| format!("{SNAPSHOT}: {line:?} is of no package"))?;
        of.push(Advisory { id: id.to_owned(), safe, kind });
    }
    Ok(all)
}

fn snapshot(root: &Path, dir: &Path) -> Result<(), String> {
    let names: BTreeSet<String> = packages(root)?.into_iter().map(|p| p.name).collect();
    let mut all: Advisories = names.into_iter().map(|name| (name, Vec::new())).collect();
    let mut newest = String::new();
    let list = |dir: &Path| fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()));
    // All of them, for the newest says of when the snapshot is.
    for package in list(&dir.join("crates"))?.flatten() {
        for file in list(&package.path())?.flatten() {
            let told = |e: &dyn std::fmt::Display| format!("{}: {e}", file.path().display());
            let text = fs::read_to_string(file.path()).map_err(|e| told(&e))?;
            let found = advisory(&text, &mut newest).map_err(|e| told(&e))?;
            if let Some(of) = all.get_mut(package.file_name().to_string_lossy().as_ref()) {
                of.extend(found);
            }
        }
    }
    all.values_mut().for_each(|advisories| advisories.sort_by(|a, b| a.id.cmp(&b.id)));
    let mut text = format!(
        "# advisories of rustsec/advisory-db for the packages of the lock files, as of {newest}\n\
         # Made by `cargo xtask deny --snapshot`. Number, kind (- is a vulnerability), versions that are safe.\n"
    );
    for (name, advisories) in &all {
        let _ = writeln!(text, "{name}");
        for Advisory { id, safe, kind } in advisories {
            let kind = if kind.is_empty() { "-" } else { kind };
            let _ = writeln!(text, "  {id} {kind} {}", safe.join("; "));
        }
    }
    fs::write(root.join(SNAPSHOT), text).map_err(|e| format!("{SNAPSHOT}: {e}"))
}

/// Of one file: TOML between the first line of three backquotes and the next. None: it was withdrawn.
fn advisory(text: &str, newest: &mut String) -> Result<Option<Advisory>, String> {
    let toml = text.split("```").nth(1).and_then(|t| t.strip_prefix("toml")).ok_or("no TOML in it")?;
    let whole: Table = toml.parse().map_err(|e| format!("{e}"))?;
    let word = |key: &str| whole.get("advisory").and_then(|a| a.get(key)?.as_str()).unwrap_or_default().to_owned();
    if !word("withdrawn").is_empty() {
        return Ok(None);
    }
    if word("date") > *newest {
        *newest = word("date");
    }
    let safe = [strings(&whole, "versions", "patched"), strings(&whole, "versions", "unaffected")].concat();
    Ok(Some(Advisory { id: word("id"), safe, kind: word("informational") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.into(), version: version.into(), source: REGISTRY.into() }
    }

    #[test]
    fn advisories_are_about_the_versions_that_they_name() {
        let known = parse("# x\na\n  RUSTSEC-1 - >=1.2; <1.0\nb\n  RUSTSEC-2 unmaintained \nc\n").unwrap();
        let of = |name: &str, version: &str, ignored: &[String]| {
            advised(&[package(name, version)].into(), &known, ignored).unwrap()
        };
        for (name, version, problems) in [
            ("a", "0.9.1", 0),
            ("a", "1.0.0", 1),
            ("a", "1.2.0", 0),
            ("b", "1.0.0", 1),
            ("c", "1.0.0", 0),
            ("d", "1.0.0", 1),
        ] {
            assert_eq!(of(name, version, &[]).len(), problems, "{name} {version}");
        }
        assert!(of("a", "1.0.0", &[]).concat().contains("RUSTSEC-1 (a vulnerability)"));
        assert!(of("a", "1.0.0", &["RUSTSEC-1".into()]).is_empty());
        assert!(of("d", "1.0.0", &[]).concat().contains("does not name it"));
        assert!(parse("  RUSTSEC-1 - >=1\n").is_err());
    }

    #[test]
    fn an_advisory_is_read_and_a_withdrawn_one_is_none() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2024-0011\"\ndate = \"2024-01-23\"\nWITHDRAWN[versions]\npatched = [\">= 0.9.5\"]\n```\n# Title\n";
        let mut newest = String::new();
        let one = advisory(&text.replace("WITHDRAWN", ""), &mut newest).unwrap().unwrap();
        assert_eq!(
            (one.id.as_str(), one.safe, one.kind.as_str()),
            ("RUSTSEC-2024-0011", vec![">= 0.9.5".to_owned()], "")
        );
        assert_eq!(newest, "2024-01-23");
        assert_eq!(advisory(&text.replace("WITHDRAWN", "withdrawn = \"2024-02-01\"\n"), &mut newest), Ok(None));
    }

    #[test]
    fn what_comes_from_elsewhere_or_is_banned_or_not_pinned_is_told() {
        let git = Package { source: "git+https://example.org/x".into(), ..package("x", "1.0.0") };
        assert_eq!(sources(&[package("a", "1.0.0"), git].into()).len(), 1);
        let rules: Table = "[bans]\ndeny = [{ crate = \"a\" }]".parse().unwrap();
        assert_eq!(banned(&[package("a", "1.0.0"), package("b", "1.0.0")].into(), &rules).len(), 1);
        let pinned =
            |snow: &str| format!("[workspace.dependencies]\ngraviola = \"=0.4.2\"\nsnow = {{ version = \"{snow}\" }}");
        assert!(pins(&pinned("=0.10.0").parse().unwrap()).is_empty());
        assert_eq!(pins(&pinned("0.10").parse().unwrap()).len(), 1);
        assert_eq!(pins(&pinned("*").parse().unwrap()).len(), 2);
    }
}
