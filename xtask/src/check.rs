//! `cargo xtask check`: rules that no compiler enforces.

pub(crate) mod behaviours;
pub(crate) mod codes;
pub(crate) mod findings;
pub(crate) mod hosts;
pub(crate) mod layers;
pub(crate) mod links;
pub(crate) mod locks;
pub(crate) mod params;
pub(crate) mod paths;
pub(crate) mod sums;
pub(crate) mod texts;
pub(crate) mod unsafety;
pub(crate) mod words;

use std::path::Path;

use crate::capi::abi;
use crate::counts;
use crate::generate;
use crate::inventory;
use crate::run::Outcome;
use crate::tree::{self, Source};

/// Longest source file that is not a test (DESIGN: median under 200, ceiling 800).
const CEILING: usize = 800;

/// Runs every rule; with `fix`, first rewrites the generated files and lowers the counts.
pub(crate) fn run(root: &Path, fix: bool) -> Outcome {
    if fix && let Outcome::Failed(why) = generate::run(root) {
        return Outcome::Failed(why);
    }
    let sources = tree::sources(root);
    if fix && let Err(why) = counts::lower(root, &sources) {
        return Outcome::Failed(why);
    }
    let rules: [(&str, Vec<String>); 19] = [
        ("unsafe", unsafety::problems(&sources)),
        ("links", links::problems(&sources)),
        ("lengths", lengths(&sources)),
        ("hosts", hosts::problems(root, &sources)),
        ("codes", codes::problems(&sources)),
        ("findings", findings::problems(&sources)),
        ("params", params::problems(&sources)),
        ("paths", paths::problems(&sources)),
        ("exports", abi::problems(&sources)),
        ("behaviours", behaviours::problems(&sources)),
        ("sums", sums::problems(&sources)),
        ("layers", layers::problems(root, &sources)),
        ("locks", locks::problems(root)),
        ("texts", texts::problems(&sources)),
        ("words", words::problems(&sources)),
        ("counts", counts::problems(root, &sources)),
        ("tests", inventory::problems(root, &sources)),
        ("named tests", inventory::unknown(&sources)),
        ("generated", generate::stale(root, &sources)),
    ];
    let mut all = Vec::new();
    for (rule, problems) in rules {
        println!(
            "check {rule}: {}",
            if problems.is_empty() { "ok".to_owned() } else { format!("{} wrong", problems.len()) }
        );
        all.extend(problems.into_iter().map(|p| format!("{rule}: {p}")));
    }
    if !root.join("Cargo.lock").is_file() {
        all.push("Cargo.lock is missing: it belongs to the tree, so that every build is the same build".to_owned());
    }
    for problem in &all {
        eprintln!("{problem}");
    }
    println!("{}", statistics(&sources));
    Outcome::from_problems(&all)
}

fn lengths(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|s| s.is_rust() && !s.is_test())
        .map(|s| (s, s.text.lines().count()))
        .filter(|(_, lines)| *lines > CEILING)
        .map(|(s, lines)| {
            format!("{}: {lines} lines, the ceiling is {CEILING}: split it by idea, tests into their own file", s.path)
        })
        .collect()
}

fn statistics(sources: &[Source]) -> String {
    let mut lines: Vec<usize> =
        sources.iter().filter(|s| s.is_rust() && !s.is_test()).map(|s| s.text.lines().count()).collect();
    lines.sort_unstable();
    let tests: usize = sources.iter().filter(|s| s.is_rust() && s.is_test()).map(|s| s.text.lines().count()).sum();
    format!(
        "{} Rust files, {} lines, median {}, longest {}; {tests} lines of tests in their own files",
        lines.len(),
        lines.iter().sum::<usize>(),
        lines.get(lines.len() / 2).unwrap_or(&0),
        lines.last().unwrap_or(&0),
    )
}

#[cfg(test)]
mod tests;
