//! Links in the documents lead somewhere: files exist, headings exist, named symbols are in the named file.
//!
//! Links into code name the file and, as the text of the link, the symbol: ``[`Head::decode`](crates/proto/src/head.rs)``.
//! Line numbers (`#L12`) go stale in silence and are refused. In running text `` `path.rs:symbol` `` is checked too.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tree::Source;

/// One link or code span of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `[text](target)`.
    Link {
        /// The code spans in what is shown.
        codes: Vec<String>,
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
                Item::Link { codes, target } => follow(&by_path, source, codes, target),
                Item::Code(code) => mention(&by_path, source, code),
            };
            problems.extend(wrong.map(|why| format!("{}:{line}: {why}", source.path)));
        }
    }
    problems
}

fn follow(by_path: &BTreeMap<&str, &Source>, from: &Source, codes: &[String], target: &str) -> Option<String> {
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
        for code in codes {
            if !code.contains(['/', '.']) && !holds(source, code) {
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
    let (mut anchors, mut title) = (BTreeSet::new(), String::new());
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => title.clear(),
            Event::Text(part) | Event::Code(part) => title.push_str(&part),
            Event::End(TagEnd::Heading(_)) => {
                let slug = title.to_lowercase().replace(' ', "-");
                let slug: String = slug.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
                let times = seen.entry(slug.clone()).or_insert(0);
                anchors.insert(if *times == 0 { slug } else { format!("{slug}-{times}") });
                *times += 1;
            }
            _ => {}
        }
    }
    anchors
}

/// Links and code spans, with the lines that they begin on.
pub(crate) fn items(text: &str) -> Vec<(usize, Item)> {
    let (mut found, mut inside) = (Vec::new(), false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = || text[..range.start].matches('\n').count() + 1;
        match (event, found.last_mut()) {
            (Event::Code(code), Some((_, Item::Link { codes, .. }))) if inside => codes.push(code.into_string()),
            (Event::Code(code), _) => found.push((line(), Item::Code(code.into_string()))),
            (Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }), _) => {
                inside = true;
                found.push((line(), Item::Link { codes: Vec::new(), target: dest_url.into_string() }));
            }
            (Event::End(TagEnd::Link | TagEnd::Image), _) => inside = false,
            _ => {}
        }
    }
    found
}
