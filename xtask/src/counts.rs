//! Counts that rise only with a reason: `bench/counts.txt` has the number that each may reach at most.
//!
//! What is counted lies in the crates that users load: those that the plugin, the C library, the Python package or `lspan`
//! links, found through their manifests. Test files and items under `#[cfg(test)]` are left out.

mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::lex::{Kind, Token, tokens};
use crate::run::Outcome;
use crate::tree::{self, Source};
use load::Crate;

/// Where the allowed numbers stand.
pub(crate) const FILE: &str = "bench/counts.txt";

/// Crates that were begun after the counts, for what people do with connections: they are not what is to get smaller.
const LATER: [&str; 6] = ["crates/bus", "crates/doctor", "crates/files", "crates/mount", "crates/user", "crates/view"];

/// One count: its name, what it counts, and where each thing it counts stands.
#[derive(Debug)]
pub(crate) struct Count {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) what: &'static str,
    /// Its value.
    pub(crate) value: usize,
    /// What it is made of, a line each.
    pub(crate) places: Vec<String>,
}

/// `cargo xtask counts`: the counts, or what one of them is made of.
pub(crate) fn run(root: &Path, list: Option<&str>) -> Outcome {
    let counts = match all(root, &tree::sources(root)) {
        Ok(counts) => counts,
        Err(why) => return Outcome::Failed(why),
    };
    match list {
        None => {
            for count in &counts {
                println!("{:<18}{:>7}  {}", count.name, count.value, count.what);
            }
            Outcome::Done
        }
        Some(name) => match counts.iter().find(|c| c.name == name) {
            Some(count) => {
                count.places.iter().for_each(|place| println!("{place}"));
                Outcome::Done
            }
            None => {
                let names: Vec<&str> = counts.iter().map(|c| c.name).collect();
                Outcome::Failed(format!("there is no count {name}; there are {}", names.join(", ")))
            }
        },
    }
}

/// Counts above their number. One below it is no problem, but said, so that its number follows.
pub(crate) fn problems(root: &Path, sources: &[Source]) -> Vec<String> {
    let (counts, allowed) = match all(root, sources).and_then(|counts| Ok((counts, allowed(root)?))) {
        Ok(both) => both,
        Err(why) => return vec![why],
    };
    let (problems, notes) = compared(&counts, &allowed);
    notes.iter().for_each(|note| println!("{note}"));
    problems
}

/// Problems, and what is only to be said.
fn compared(counts: &[Count], allowed: &BTreeMap<String, usize>) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    for Count { name, what, value, .. } in counts {
        match allowed.get(*name) {
            None => problems.push(format!("{FILE} has no line for {name}, which is {value}")),
            Some(most) if value > most => problems.push(format!(
                "{name} is {value}, over the {most} of {FILE} ({what}): `cargo xtask counts --list {name}` has the places; \
                 a number is raised by hand, with its reason in the commit"
            )),
            Some(most) if value < most => {
                notes.push(format!("{name} has fallen to {value}: lower its {most} in {FILE} (`cargo xtask check --fix` does)"));
            }
            Some(_) => {}
        }
    }
    for name in allowed.keys().filter(|name| counts.iter().all(|c| c.name != name.as_str())) {
        problems.push(format!("{FILE} has a line for {name}, which nothing counts"));
    }
    (problems, notes)
}

/// Lowers the numbers of `bench/counts.txt` to what is counted; none is raised.
pub(crate) fn lower(root: &Path, sources: &[Source]) -> Result<(), String> {
    let counts = all(root, sources)?;
    let allowed = allowed(root)?;
    let mut text = String::from(HEADER);
    for count in &counts {
        let most = allowed.get(count.name).map_or(count.value, |most| count.value.min(*most));
        let _ = writeln!(text, "{} {most}", count.name);
    }
    let file = root.join(FILE);
    if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
        std::fs::write(&file, text).map_err(|e| format!("{FILE}: {e}"))?;
        println!("wrote {FILE}");
    }
    Ok(())
}

const HEADER: &str = "\
# The most that each count may reach. `cargo xtask counts` counts, `cargo xtask check` compares, `cargo xtask check --fix`
# lowers what has fallen. A number is raised by hand, in the commit that needs it, which says why.
";

fn allowed(root: &Path) -> Result<BTreeMap<String, usize>, String> {
    let text = std::fs::read_to_string(root.join(FILE)).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(read).collect()
}

fn read(line: &str) -> Result<(String, usize), String> {
    let (name, number) = line.split_once(' ').ok_or_else(|| format!("{FILE}: '{line}' is not a name and a number"))?;
    let number = number.trim().parse().map_err(|_| format!("{FILE}: '{number}' is not a number"))?;
    Ok((name.to_owned(), number))
}

/// Every count of the tree.
fn all(root: &Path, sources: &[Source]) -> Result<Vec<Count>, String> {
    let crates = load::crates(root)?;
    let mut files: Vec<(&Crate, Code<'_>)> = shipped(sources, &crates);
    files.retain(|(krate, _)| !LATER.contains(&krate.folder.as_str()));
    Ok(vec![
        lines(&files),
        places(&files, "wire-formats", "functions that decode bytes: one per private format", decoders),
        places(&files, "public-types", "pub struct, enum, union, trait and type", public_types),
        places(&files, "rail-impls", "implementations of the trait Rail", rails),
        mentions(&files),
    ])
}

/// A shipped file without its tests and comments.
struct Code<'a> {
    path: &'a str,
    tokens: Vec<Token>,
}

/// The files that belong to `crates`, except tests by place or by `#[cfg(test)] mod`.
fn shipped<'a, 'c>(sources: &'a [Source], crates: &'c [Crate]) -> Vec<(&'c Crate, Code<'a>)> {
    let (mut files, mut tests) = (Vec::new(), BTreeSet::new());
    for source in sources.iter().filter(|s| s.is_rust() && !s.is_test()) {
        let own = |krate: &&Crate| {
            let inside = source.path.strip_prefix(&krate.folder).and_then(|rest| rest.strip_prefix('/'));
            inside.is_some_and(|rest| rest.starts_with("src/") || rest == "build.rs")
        };
        if let Some(krate) = crates.iter().find(own) {
            let (tokens, modules) = without_tests(tokens(&source.text));
            let dir = match source.path.rsplit_once('/') {
                Some((dir, "lib.rs" | "main.rs" | "mod.rs")) => dir,
                _ => source.path.trim_end_matches(".rs"),
            };
            tests.extend(modules.iter().map(|module| format!("{dir}/{module}")));
            files.push((krate, Code { path: &source.path, tokens }));
        }
    }
    let is_test = |path: &str| {
        let own = path.trim_end_matches(".rs");
        let folders = own.match_indices('/').map(|(at, _)| &own[..at]);
        folders.chain([own]).any(|part| tests.contains(part))
    };
    files.retain(|(_, code)| !is_test(code.path));
    files
}

/// Features that no build for users turns on.
const TEST_FEATURES: [&str; 3] = ["conformance", "planted", "sim"];

/// Tokens without comments and without items under `#[cfg(test)]` or one of [`TEST_FEATURES`]; the names of modules in files of their own that
/// were among those.
fn without_tests(all: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let code: Vec<Token> = all.into_iter().filter(|t| !matches!(t.kind, Kind::Doc(_) | Kind::Note(_))).collect();
    let (mut kept, mut modules, mut at) = (Vec::with_capacity(code.len()), Vec::new(), 0);
    while at < code.len() {
        if !is_cfg_test(&code[at..]) {
            kept.push(code[at].clone());
            at += 1;
            continue;
        }
        // Its attributes, then the item up to its comma or semicolon, or the end of its braces.
        let (mut depth, mut in_item, mut words) = (0usize, false, Vec::<String>::new());
        while let Some(token) = code.get(at) {
            let closes = matches!(token.kind, Kind::Mark(')' | ']' | '}'));
            if closes && depth == 0 {
                // The end of what the item stands in.
                break;
            }
            at += 1;
            match &token.kind {
                Kind::Mark('(' | '[' | '{') => depth += 1,
                Kind::Mark(mark) if closes => {
                    depth -= 1;
                    in_item |= depth == 0 && *mark == ']' && !is_mark(&code, at, '#');
                    if depth == 0 && *mark == '}' {
                        at += usize::from(is_mark(&code, at, ';') || is_mark(&code, at, ','));
                        break;
                    }
                }
                Kind::Mark(';') if depth == 0 => break,
                // Of a field or a variant; in an item it parts its parameters.
                Kind::Mark(',') if depth == 0 && !words.iter().any(|w| ITEMS.contains(&w.as_str())) => break,
                Kind::Word(word) if depth == 0 && in_item => words.push(word.clone()),
                _ => {}
            }
        }
        if let Some(n) = words.iter().position(|w| w == "mod")
            && let Some(name) = words.get(n + 1)
        {
            modules.push(name.clone());
        }
    }
    (kept, modules)
}

/// Words that begin an item.
const ITEMS: [&str; 10] = ["const", "enum", "fn", "impl", "mod", "static", "struct", "trait", "type", "use"];

/// Whether `#[cfg(test)]`, `#[cfg(all(test, ...))]` or `#[cfg(any(test, feature = "fixture"))]` begins here.
fn is_cfg_test(code: &[Token]) -> bool {
    let want = |words: &[&str]| {
        words.iter().zip(code).all(|(want, token)| match &token.kind {
            Kind::Word(word) => word == want,
            Kind::Mark(mark) => want.len() == 1 && want.starts_with(*mark),
            Kind::Text(text) => text == want,
            _ => false,
        }) && code.len() >= words.len()
    };
    want(&["#", "[", "cfg", "(", "test", ")", "]"])
        || want(&["#", "[", "cfg", "(", "all", "(", "test"])
        || want(&["#", "[", "cfg", "(", "any", "(", "test", ",", "feature", "=", "fixture", ")"])
        || TEST_FEATURES.iter().any(|name| want(&["#", "[", "cfg", "(", "feature", "=", name, ")", "]"]))
}

fn lines(files: &[(&Crate, Code<'_>)]) -> Count {
    let mut each: BTreeMap<&str, usize> = BTreeMap::new();
    for (krate, code) in files {
        let lines: BTreeSet<usize> = code.tokens.iter().flat_map(|t| t.line..=t.last).collect();
        *each.entry(&krate.folder).or_default() += lines.len();
    }
    let what = "lines without blanks, comments and tests of the crates that users load";
    let places = each.iter().map(|(folder, lines)| format!("{lines:>7} {folder}")).collect();
    Count { name: "code-lines", what, value: each.values().sum(), places }
}

fn places(
    files: &[(&Crate, Code<'_>)],
    name: &'static str,
    what: &'static str,
    find: fn(&[Token]) -> Vec<(usize, String)>,
) -> Count {
    let found = files.iter().flat_map(|(_, code)| {
        find(&code.tokens).into_iter().map(|(line, text)| format!("{}:{line}: {text}", code.path))
    });
    let places: Vec<String> = found.collect();
    Count { name, what, value: places.len(), places }
}

fn word(code: &[Token], at: usize) -> Option<&str> {
    match &code.get(at)?.kind {
        Kind::Word(word) => Some(word),
        _ => None,
    }
}

fn is_mark(code: &[Token], at: usize, mark: char) -> bool {
    code.get(at).is_some_and(|t| t.kind == Kind::Mark(mark))
}

/// A function called `decode`, `parse`, `decode_*`, `parse_*`, `from_bytes` or `from_wire` whose first argument is a
/// slice or an array of bytes. Messages that are taken apart by other names (those of the login) are not found.
fn decoders(code: &[Token]) -> Vec<(usize, String)> {
    let is_name = |name: &str| {
        matches!(name, "decode" | "parse" | "from_bytes" | "from_wire")
            || name.starts_with("decode_")
            || name.starts_with("parse_")
    };
    let mut found = Vec::new();
    let mut owner = None;
    for at in 0..code.len() {
        if word(code, at) == Some("impl") {
            let words = (at + 1..code.len()).take_while(|&n| !is_mark(code, n, '{') && !is_mark(code, n, ';'));
            owner = words.filter_map(|n| word(code, n)).last();
        }
        let (Some("fn"), Some(name)) = (word(code, at), word(code, at + 1)) else { continue };
        let first: Vec<&Token> =
            code[at + 2..].iter().take_while(|t| !matches!(t.kind, Kind::Mark(')' | ','))).collect();
        let bytes = first
            .windows(2)
            .any(|pair| pair[0].kind == Kind::Mark('[') && matches!(&pair[1].kind, Kind::Word(word) if word == "u8"));
        if is_name(name) && bytes {
            let own = owner.map_or_else(|| name.to_owned(), |owner| format!("{owner}: {name}"));
            found.push((code[at].line, own));
        }
    }
    found
}

fn public_types(code: &[Token]) -> Vec<(usize, String)> {
    let public = (0..code.len()).filter(|&at| word(code, at) == Some("pub"));
    let kinds = public.filter_map(|at| {
        let at = if word(code, at + 1) == Some("unsafe") { at + 1 } else { at };
        let kind = word(code, at + 1).filter(|k| matches!(*k, "struct" | "enum" | "union" | "trait" | "type"))?;
        Some((code[at].line, format!("{kind} {}", word(code, at + 2)?)))
    });
    kinds.collect()
}

/// `impl<...> path::Rail for Type`.
fn rails(code: &[Token]) -> Vec<(usize, String)> {
    let impls = (0..code.len()).filter(|&at| word(code, at) == Some("impl"));
    let found = impls.filter_map(|at| {
        let head: Vec<usize> =
            (at..code.len()).take_while(|&n| !is_mark(code, n, '{') && !is_mark(code, n, ';')).collect();
        let is_rail = |&n: &usize| word(code, n) == Some("for") && word(code, n - 1) == Some("Rail");
        let split = head.iter().position(is_rail)?;
        let name = head[split + 1..].iter().find_map(|&n| word(code, n))?;
        Some((code[at].line, format!("Rail for {name}")))
    });
    found.collect()
}

/// Files that name a transport's crate, outside that crate: they cannot do without it.
fn mentions(files: &[(&Crate, Code<'_>)]) -> Count {
    let name = |krate: &Crate| krate.name.replace('-', "_");
    let of = |krate: &&Crate| krate.folder.starts_with("transports/") && krate.folder != "transports/all";
    let transports: BTreeSet<String> = files.iter().map(|(krate, _)| *krate).filter(of).map(name).collect();
    let mut found = Vec::new();
    for (krate, code) in files {
        let own = name(krate);
        let words = code.tokens.iter().filter_map(|t| match &t.kind {
            Kind::Word(word) => Some(word.as_str()),
            _ => None,
        });
        let named: BTreeSet<&str> = words.filter(|w| transports.contains(*w) && *w != own).collect();
        if !named.is_empty() {
            found.push(format!("{}: {}", code.path, named.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    let what = "files that name the crate of a transport, outside it";
    Count { name: "transport-mentions", what, value: found.len(), places: found }
}

#[cfg(test)]
mod tests;
