//! The inventory of tests: each test of the commit in `bench/core-base` is still there, or its successor is named.
//!
//! A test is a line `CRATE MODULE::NAME`. Integration tests stand under `tests::FILE`, wherever the file lies below `tests/`.
//! An instance of the conformance suite is one line, `CRATE MODULE::SUITE (suite)`; its behaviours are lines of the crate that has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::check::links;
use crate::lex::{Kind, Token, tokens};
use crate::run::Outcome;
use crate::tree::{self, Source};

/// The tests at `bench/core-base`: made once, by `cargo xtask tests` in that tree.
pub(crate) const BASE: &str = "bench/tests-core-base.txt";

/// What became of those that are no longer called so.
pub(crate) const MOVED: &str = "bench/tests-moved.txt";

/// Macros of ours whose every entry ends with the name of the test that it makes.
const MAKERS: [&str; 2] = ["behaviours", "planted"];

/// The macro that makes one test of each behaviour; its first argument ends with the name of the suite.
const SUITE: &str = "conformance_suite";

/// `cargo xtask tests [DIR]`: the tests of the tree in `root`.
pub(crate) fn run(root: &Path) -> Outcome {
    let found = tests(&tree::sources(root));
    found.iter().for_each(|test| println!("{test}"));
    Outcome::Done
}

/// Tests of the base that are gone without a line, and lines that say nothing.
pub(crate) fn problems(root: &Path, sources: &[Source]) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
    match (read(BASE), read(MOVED)) {
        (Ok(base), Ok(moved)) => compared(&base, &moved, &tests(sources)),
        (base, moved) => [base, moved].into_iter().filter_map(Result::err).collect(),
    }
}

/// Tests that a document names and nobody finds. `` `fabric strangers::silent_*` `` is a test of the crate `linkspan-fabric` or `fabric`, in a
/// module `strangers` at any depth, with or without modules `tests`; a `*` at the end stands for any rest of the name.
pub(crate) fn unknown(sources: &[Source]) -> Vec<String> {
    let all = tests(sources);
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("docs/") && source.path.ends_with(".md")) {
        for (line, item) in links::items(&source.text) {
            let links::Item::Code(code) = item else { continue };
            let Some((krate, test)) = code.split_once(' ') else { continue };
            let word = |text: &str| {
                !text.is_empty()
                    && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
            };
            let (name, open) = test.strip_suffix('*').map_or((test, false), |name| (name, true));
            let mut parts = name.split("::");
            if !test.contains("::") || !word(krate) || !parts.all(|part| word(part) || open && part.is_empty()) {
                continue;
            }
            // A module `tests` need not be named.
            let name = &name.replace("tests::", "");
            let is_it = |found: &String| {
                let (its, path) = found.split_once(' ').unwrap_or_default();
                let path = &path.replace("tests::", "");
                let at_a_module = |(at, _): (usize, &str)| at == 0 || path[..at].ends_with("::");
                let ends = |(at, _): &(usize, &str)| open || at + name.len() == path.len();
                its.strip_prefix("linkspan-").unwrap_or(its) == krate.strip_prefix("linkspan-").unwrap_or(krate)
                    && path.match_indices(name.as_str()).filter(ends).any(at_a_module)
            };
            if !all.iter().any(is_it) {
                problems.push(format!("{}:{line}: no test is called `{code}`", source.path));
            }
        }
    }
    problems
}

/// One line of `bench/tests-moved.txt`.
enum Rule<'a> {
    /// What begins so begins otherwise now.
    Prefix(&'a str, &'a str),
    /// One test has another name, or another one has taken its place.
    Renamed(&'a str, &'a str),
    /// It is gone, for a reason.
    Removed(&'a str),
}

impl<'a> Rule<'a> {
    fn read(line: &'a str) -> Result<Rule<'a>, String> {
        let (old, new) = line.split_once(" -> ").ok_or_else(|| format!("{MOVED}: '{line}' is not 'old -> new'"))?;
        let (old, new) = (old.trim(), new.trim());
        match (old.strip_suffix('*'), new.strip_suffix('*'), new.strip_prefix('-')) {
            (Some(old), Some(new), _) => Ok(Rule::Prefix(old, new)),
            (None, _, Some(why)) if why.starts_with(' ') && !why.trim().is_empty() => Ok(Rule::Removed(old)),
            (_, _, Some(_)) => Err(format!("{MOVED}: '{line}' removes one test without a reason, or more than one")),
            (None, None, None) => Ok(Rule::Renamed(old, new)),
            _ => Err(format!("{MOVED}: '{line}' has a * on one side only")),
        }
    }
}

fn compared(base: &str, moved: &str, today: &BTreeSet<String>) -> Vec<String> {
    let lines = |text: &'_ str| {
        text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty() && !l.starts_with('#')).collect::<Vec<_>>()
    };
    let moved = lines(moved);
    let (mut problems, mut rules) = (Vec::new(), Vec::new());
    for line in &moved {
        match Rule::read(line) {
            Ok(rule) => rules.push((line, rule, false)),
            Err(why) => problems.push(why),
        }
    }
    for old in lines(base) {
        let mut name = old.clone();
        // One after the other, so that a test may be renamed more than once.
        let mut gone = false;
        for (_, rule, used) in &mut rules {
            match rule {
                Rule::Prefix(from, to) => {
                    if let Some(rest) = name.strip_prefix(*from) {
                        name = format!("{to}{rest}");
                        *used = true;
                    }
                }
                Rule::Renamed(from, to) if name == *from => {
                    name = (*to).to_owned();
                    *used = true;
                }
                Rule::Removed(from) if name == *from => {
                    gone = true;
                    *used = true;
                }
                Rule::Renamed(..) | Rule::Removed(_) => {}
            }
        }
        if gone && today.contains(&name) {
            problems.push(format!("{name} is said to be removed in {MOVED}, but is there"));
        }
        if !gone && !today.contains(&name) {
            let then = if name == old { String::new() } else { format!(" (then {old})") };
            problems.push(format!("test {name}{then} is gone: {MOVED} must say 'old -> new' or 'old -> - reason'"));
        }
    }
    let unused = rules.iter().filter(|(_, _, used)| !used);
    problems.extend(unused.map(|(line, ..)| format!("{MOVED}: '{line}' fits no test of the base")));
    problems
}

/// Every test of the tree.
pub(crate) fn tests(sources: &[Source]) -> BTreeSet<String> {
    let manifests: BTreeMap<&str, &str> = sources.iter().filter_map(package).collect();
    let mut found = BTreeSet::new();
    for source in sources {
        let folders = source.path.match_indices('/').rev().map(|(at, _)| &source.path[..at]);
        let Some((folder, krate)) = folders.into_iter().find_map(|f| Some((f, *manifests.get(f)?))) else {
            continue;
        };
        let rest = &source.path[folder.len() + 1..];
        let mut add = |name: String| found.insert(format!("{krate} {name}"));
        if source.is_rust() {
            let module = module(rest);
            in_text(&tokens(&source.text)).into_iter().for_each(|name| {
                let parts = [module.as_str(), name.as_str()].into_iter().filter(|part| !part.is_empty());
                add(parts.collect::<Vec<_>>().join("::"));
            });
        } else if rest.starts_with("tests/") && rest.ends_with(".py") {
            let names = source.text.lines().filter_map(|l| {
                let line = l.trim_start();
                line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ")
            });
            let names = names.filter(|name| name.starts_with("test_")).filter_map(|name| name.split('(').next());
            names.for_each(|name| {
                add(format!("{}::{name}", rest.trim_end_matches(".py").replace('/', "::")));
            });
        }
    }
    found
}

/// Folder and package name, of a manifest that has one.
fn package(source: &Source) -> Option<(&str, &str)> {
    let folder = source.path.strip_suffix("/Cargo.toml")?;
    let name = source.text.lines().find_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"'))?;
    Some((folder, name))
}

/// The module that a file is, by its place in its crate. How a crate's integration tests are spread over programs does not count.
fn module(file: &str) -> String {
    let file = file.strip_prefix("src/").unwrap_or(file);
    let file = file.replacen("tests/integration/", "tests/", 1);
    let name = file.trim_end_matches(".rs");
    let name = ["/mod", "/main"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if matches!(name, "lib" | "main") { String::new() } else { name.replace('/', "::") }
}

/// The tests in one file, with the modules inside it that they stand in.
fn in_text(all: &[Token]) -> Vec<String> {
    let code: Vec<&Kind> = all.iter().map(|t| &t.kind).filter(|k| !matches!(k, Kind::Doc(_) | Kind::Note(_))).collect();
    let word = |at: usize| match code.get(at) {
        Some(Kind::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let mark = |at: usize, mark: char| matches!(code.get(at), Some(Kind::Mark(m)) if *m == mark);
    let (mut found, mut depth, mut inside, mut is_test) = (Vec::new(), 0usize, Vec::<(usize, &str)>::new(), false);
    let named = |inside: &[(usize, &str)], name: &str| {
        inside.iter().map(|(_, module)| *module).chain([name]).collect::<Vec<_>>().join("::")
    };
    for at in 0..code.len() {
        match code[at] {
            Kind::Mark('{') => depth += 1,
            Kind::Mark('}') => {
                depth = depth.saturating_sub(1);
                inside.retain(|(from, _)| *from < depth + 1);
            }
            Kind::Mark('#') if mark(at + 1, '[') && word(at + 2) == Some("test") && mark(at + 3, ']') => is_test = true,
            Kind::Word(w) if w == "mod" && mark(at + 2, '{') => {
                inside.extend(word(at + 1).map(|name| (depth + 1, name)))
            }
            // In a macro's definition there is a `$` and no name.
            Kind::Word(w) if w == "fn" && std::mem::take(&mut is_test) => {
                found.extend(word(at + 1).map(|name| named(&inside, name)));
            }
            Kind::Word(w)
                if mark(at + 1, '!') && mark(at + 2, '(') && word(at.wrapping_sub(1)) != Some("macro_rules") =>
            {
                let (maker, suite) = (MAKERS.contains(&w.as_str()), w == SUITE);
                if maker || suite {
                    // A dollar sign alone is for the macro that the maker makes.
                    let list = at + 3 + usize::from(maker && mark(at + 3, '$'));
                    for name in last_words(&code[list..]).into_iter().take(if suite { 1 } else { usize::MAX }) {
                        found.push(named(&inside, name) + if suite { " (suite)" } else { "" });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The last word of each entry in a list that ends with `)`.
fn last_words<'a>(code: &[&'a Kind]) -> Vec<&'a str> {
    let (mut found, mut depth, mut last) = (Vec::new(), 0usize, None);
    for kind in code {
        match kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') if depth > 0 => depth -= 1,
            Kind::Mark(')') => {
                found.extend(last.take());
                return found;
            }
            Kind::Mark(',') if depth == 0 => found.extend(last.take()),
            Kind::Mark('$') if depth == 0 => return Vec::new(),
            Kind::Word(word) if depth == 0 => last = Some(word.as_str()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
