//! Links in the documents lead somewhere: files exist, headings exist, named symbols are in the named file.
//!
//! Links into code name the file and, as the text of the link, the symbol: ``[`Head::decode`](crates/proto/src/head.rs)``.
//! Line numbers (`#L12`) go stale in silence and are refused. In running text `` `path.rs:symbol` `` is checked too.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::Source;

/// One link or code span of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `[text](target)`.
    Link {
        /// What is shown.
        text: String,
        /// Where it leads.
        target: String,
    },
    /// `` `code` `` outside a link.
    Code(String),
}

/// Links that lead nowhere.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let by_path: BTreeMap<&str, &Source> = sources.iter().map(|s| (s.path.as_str(), s)).collect();
    let mut problems = Vec::new();
    for source in sources.iter().filter(|s| s.path.ends_with(".md")) {
        for (line, item) in items(&source.text) {
            let wrong = match &item {
                Item::Link { text, target } => follow(&by_path, source, text, target),
                Item::Code(code) => mention(&by_path, source, code),
            };
            problems.extend(wrong.map(|why| format!("{}:{line}: {why}", source.path)));
        }
    }
    problems
}

fn follow(by_path: &BTreeMap<&str, &Source>, from: &Source, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
    let path = if file.is_empty() { Some(from.path.clone()) } else { resolve(&from.path, file) };
    let Some(path) = path else {
        return Some(format!("{target} leaves the tree"));
    };
    let Some(source) = by_path.get(path.as_str()) else {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let is_folder = by_path.keys().any(|p| p.starts_with(&folder));
        return (!is_folder).then(|| format!("{target} leads to {path}, which does not exist"));
    };
    if let Some(anchor) = anchor {
        if !path.ends_with(".md") {
            return Some(format!(
                "{target}: link to the file and put the symbol into the link text, line numbers go stale"
            ));
        }
        if !anchors(&source.text).contains(anchor) {
            return Some(format!("{target}: {path} has no heading #{anchor}"));
        }
    }
    if path.ends_with(".rs") {
        for code in code_spans(text) {
            if !code.contains(['/', '.']) && !holds(source, &code) {
                return Some(format!("{path} has no symbol `{code}`"));
            }
        }
    }
    None
}

/// `` `crates/x/src/y.rs:symbol` `` and `` `crates/x/src/y.rs` `` in running text; a document inside a crate may also
/// name the crate's files from its own folder or from `src/`. Names in capitals stand for any name.
fn mention(by_path: &BTreeMap<&str, &Source>, from: &Source, code: &str) -> Option<String> {
    let (path, symbol) = code.split_once(':').map_or((code, None), |(p, s)| (p, Some(s)));
    let name = path.rsplit('/').next()?.strip_suffix(".rs")?;
    let stands_for_any = name == name.to_uppercase() || path.contains(['*', ' ', '{', '<']);
    if !path.contains('/') || stands_for_any {
        return None;
    }
    let folder = from.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let candidates = [path.to_owned(), format!("{folder}/{path}"), format!("{folder}/src/{path}")];
    let Some(source) = candidates.iter().find_map(|p| by_path.get(p.as_str())) else {
        return Some(format!("`{code}`: there is no file {path}"));
    };
    let symbol = symbol.map(|s| s.trim_start_matches(':'))?;
    (!holds(source, symbol)).then(|| format!("`{code}`: {path} has no symbol {symbol}"))
}

/// Whether every part of `A::b` (without arguments) occurs in the file as a word.
fn holds(source: &Source, symbol: &str) -> bool {
    let symbol = symbol.split(['(', '<', '!']).next().unwrap_or_default();
    let words: BTreeSet<&str> = source.text.split(|c: char| c != '_' && !c.is_alphanumeric()).collect();
    symbol.split("::").map(str::trim).filter(|part| !part.is_empty()).all(|part| words.contains(part))
}

/// A path relative to the folder of `from`, normalised; `None` where it leaves the tree.
fn resolve(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that a renderer of GitHub's kind makes of the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(title) = line.trim_start().strip_prefix('#') else {
            continue;
        };
        let title = title.trim_start_matches('#').trim();
        let slug: String = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let times = seen.entry(slug.clone()).or_insert(0);
        anchors.insert(if *times == 0 { slug } else { format!("{slug}-{times}") });
        *times += 1;
    }
    anchors
}

/// Lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

/// Links and code spans, line by line.
pub(crate) fn items(text: &str) -> Vec<(usize, Item)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line;
        while let Some(at) = rest.find(['[', '`']) {
            let start = &rest[at..];
            if let Some((item, len)) = link(start) {
                found.push((number, item));
                rest = &start[len..];
            } else if let Some(code) = start.strip_prefix('`').and_then(|s| s.split_once('`')).map(|(code, _)| code) {
                found.push((number, Item::Code(code.to_owned())));
                rest = &start[code.len() + 2..];
            } else {
                rest = &start[1..];
            }
        }
    }
    found
}

/// A link at the very start of `text`, and its length.
fn link(text: &str) -> Option<(Item, usize)> {
    let inner = text.strip_prefix('[')?;
    let (shown, rest) = inner.split_once("](")?;
    if shown.contains(['[', ']']) {
        return None;
    }
    let (target, _) = rest.split_once(')')?;
    let item =
        Item::Link { text: shown.to_owned(), target: target.split_whitespace().next().unwrap_or_default().to_owned() };
    Some((item, shown.len() + target.len() + 4))
}

fn code_spans(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
