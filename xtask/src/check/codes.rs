//! Error codes: `LS` and four digits at the start of a message, each defined once. `docs/ERRORS.md` lists them.

use std::collections::BTreeMap;

use crate::lex::{Kind, tokens};
use crate::tree::Source;

/// Where a code is given its message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// File, from the root.
    pub(crate) path: String,
    /// Line, from 1.
    pub(crate) line: usize,
    /// The message as written, without the code.
    pub(crate) message: String,
    /// Doc comment of the variant.
    pub(crate) doc: String,
}

/// Every definition, by code.
pub(crate) fn definitions(sources: &[Source]) -> BTreeMap<String, Vec<Definition>> {
    let mut all: BTreeMap<String, Vec<Definition>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.is_rust() && !s.is_test() && !s.path.starts_with("xtask/")) {
        let mut doc: Vec<String> = Vec::new();
        for token in tokens(&source.text) {
            match token.kind {
                Kind::Doc(line) => doc.push(line),
                Kind::Mark(',' | '{' | '}' | ';') => doc.clear(),
                Kind::Text(text) => {
                    let Some((code, message)) = split(&text) else {
                        continue;
                    };
                    all.entry(code.to_owned()).or_default().push(Definition {
                        path: source.path.clone(),
                        line: token.line,
                        message: message.trim_start_matches(':').trim().replace('\n', " "),
                        doc: doc.join(" ").trim().to_owned(),
                    });
                }
                _ => {}
            }
        }
    }
    all
}

/// The code at the very start of a text, and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let code = text.get(..6)?;
    let rest = text.get(6..)?;
    (is_code(code) && !rest.is_empty() && !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .then_some((code, rest))
}

fn is_code(word: &str) -> bool {
    word.len() == 6 && word.starts_with("LS") && word[2..].bytes().all(|b| b.is_ascii_digit())
}

/// Codes defined twice, and codes mentioned in documents or tests that nothing defines.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let all = definitions(sources);
    let mut problems = Vec::new();
    for (code, places) in all.iter().filter(|(_, places)| places.len() > 1) {
        let places: Vec<String> = places.iter().map(|d| format!("{}:{}", d.path, d.line)).collect();
        problems.push(format!("{code} is defined {} times: {}", places.len(), places.join(", ")));
    }
    for source in sources.iter().filter(|s| !s.path.starts_with("xtask/") && (s.is_rust() || s.path.ends_with(".md"))) {
        for (at, line) in source.text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric());
            for word in words.filter(|w| is_code(w) && !all.contains_key(*w)) {
                problems.push(format!("{}:{}: mentions {word}, which nothing defines", source.path, at + 1));
            }
        }
    }
    problems
}
