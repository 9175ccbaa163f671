//! Parameters: one table in the sources (`params!`), from which `docs/PARAMETERS.md` is generated; a name that the
//! documents or the code mention is in it.

use std::collections::BTreeSet;

use crate::lex::{Kind, Token, tokens};
use crate::tree::Source;

/// What every name begins with.
const PREFIX: &str = "LINKSPAN_";

/// Names that only tests read.
const OF_TESTS: [&str; 2] = ["LINKSPAN_CONFORMANCE", "LINKSPAN_CONFORMANCE_PEER"];

/// What [`Param::takes`] holds where the range is no pair of plain numbers.
const NO_RANGE: &str = "?";

/// One entry of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Param {
    /// Environment name.
    pub(crate) name: String,
    /// What it takes, in words.
    pub(crate) takes: String,
    /// Value when unset.
    pub(crate) default: String,
    /// What it does.
    pub(crate) text: String,
}

/// The entries, in the order of the table: `ID = "NAME", Takes::KIND..., "default", "text";`.
pub(crate) fn table(sources: &[Source]) -> Vec<Param> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|s| s.path.starts_with("crates/") && s.is_rust() && !s.is_test()) {
        if !source.text.contains("params! {") {
            continue;
        }
        let all = tokens(&source.text);
        found.extend((0..all.len()).filter_map(|at| entry(&all[at..])));
    }
    found
}

fn entry(tokens: &[Token]) -> Option<Param> {
    let [equals, name, rest @ ..] = tokens else {
        return None;
    };
    let Kind::Text(name) = &name.kind else {
        return None;
    };
    if equals.kind != Kind::Mark('=') || !name.starts_with(PREFIX) {
        return None;
    }
    let end = rest.iter().position(|t| t.kind == Kind::Mark(';'))?;
    let rest = &rest[..end];
    let texts: Vec<&str> = rest.iter().filter_map(text).collect();
    let [words @ .., default, what] = texts.as_slice() else {
        return None;
    };
    let list: Vec<&str> = rest.iter().filter_map(word).collect();
    let takes = match *list.get(1)? {
        "Switch" => "`0` or `1`".to_owned(),
        "Number" => range(rest).unwrap_or_else(|| NO_RANGE.to_owned()),
        "Word" => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
        "Path" => "`auto` or a transport".to_owned(),
        _ => "text".to_owned(),
    };
    Some(Param { name: name.clone(), takes, default: (*default).to_owned(), text: (*what).to_owned() })
}

/// The range of `Number(LOW, HIGH)`; `None` for ends that are expressions, which this does not compute.
fn range(rest: &[Token]) -> Option<String> {
    let open = rest.iter().position(|t| t.kind == Kind::Mark('('))?;
    match rest.get(open + 1..open + 5)? {
        [low, comma, high, close] if comma.kind == Kind::Mark(',') && close.kind == Kind::Mark(')') => {
            Some(format!("{} to {}", plain(word(low)?), plain(word(high)?)))
        }
        _ => None,
    }
}

fn plain(number: &str) -> String {
    number.replace('_', "")
}

fn text(token: &Token) -> Option<&str> {
    if let Kind::Text(text) = &token.kind { Some(text) } else { None }
}

fn word(token: &Token) -> Option<&str> {
    if let Kind::Word(word) = &token.kind { Some(word) } else { None }
}

/// Where the C interface defines its constants: this file and those of the folder.
const C_TYPES: &str = "bindings/c/src/types";

/// Names that documents or code mention and the table does not have.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let table = table(sources);
    // The constants of the C interface begin alike.
    let types = sources.iter().filter(|s| s.path.starts_with(C_TYPES)).flat_map(|s| s.text.lines());
    let constants = types.filter_map(|l| l.strip_prefix("pub const ")?.split_once(':')).map(|(name, _)| name);
    let known: BTreeSet<&str> = table.iter().map(|p| p.name.as_str()).chain(constants).collect();
    let mut problems: Vec<String> = table
        .iter()
        .filter(|p| p.takes == NO_RANGE)
        .map(|p| format!("{}: write its range as two numbers, not as expressions", p.name))
        .collect();
    for source in sources
        .iter()
        .filter(|s| (s.is_rust() && !s.is_test() || s.path.ends_with(".md")) && !s.path.starts_with("xtask/"))
    {
        for (at, line) in source.text.lines().enumerate() {
            let names = line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            for name in names.filter(|n| {
                n.len() > PREFIX.len()
                    && n.starts_with(PREFIX)
                    && !n.ends_with('_')
                    && !OF_TESTS.contains(n)
                    && !known.contains(n)
            }) {
                problems.push(format!(
                    "{}:{}: mentions {name}, which the table of parameters does not have",
                    source.path,
                    at + 1
                ));
            }
        }
    }
    problems
}
