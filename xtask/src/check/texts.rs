//! The catalogues of the window and the tray have each text of theirs, and no other.

use std::collections::BTreeSet;

use crate::tree::Source;

/// Where texts are, each in a call of `tr`.
const SHOWN: [&str; 3] = ["crates/view/src/", "bin/linkspan-desktop/src/", "bin/linkspan-tray/src/"];

/// Where catalogues are, one for each language.
const CATALOGUES: &str = "bin/linkspan-desktop/po/";

/// Texts without a translation, translations without a text, and those that lose a `{name}`.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let shown = |s: &&Source| s.is_rust() && !s.is_test() && SHOWN.iter().any(|at| s.path.starts_with(at));
    let texts: BTreeSet<&str> = sources.iter().filter(shown).flat_map(|s| texts(&s.text)).collect();
    let mut problems = Vec::new();
    for catalogue in sources.iter().filter(|s| s.path.starts_with(CATALOGUES) && s.path.ends_with(".po")) {
        let translated = entries(&catalogue.text);
        let mut say = |what: &str, text: &str| problems.push(format!("{}: {what}: \"{text}\"", catalogue.path));
        let known: BTreeSet<&str> = translated.iter().map(|(text, _)| *text).collect();
        texts.difference(&known).for_each(|text| say("has no", text));
        known.difference(&texts).for_each(|text| say("nobody shows", text));
        for (text, translation) in &translated {
            if names(text) != names(translation) {
                say("the translation has other names in braces than", text);
            }
        }
    }
    problems
}

/// The literals in calls of `tr`, as they are written.
fn texts(source: &str) -> Vec<&str> {
    let calls = source
        .match_indices("tr(")
        .filter(|(at, _)| !source[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    calls.filter_map(|(at, call)| literal(source[at + call.len()..].trim_start())).collect()
}

/// What is between the quotation marks that a text begins with.
fn literal(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = inner.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some(&inner[..end])
}

/// Each text with its translation; the head, whose text is empty, is left out.
fn entries(catalogue: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::new();
    let mut text = "";
    for line in catalogue.lines() {
        if let Some(rest) = line.strip_prefix("msgid ") {
            text = literal(rest).unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("msgstr ").filter(|_| !text.is_empty()) {
            entries.push((text, literal(rest).unwrap_or_default()));
        }
    }
    entries
}

/// `{name}`s.
fn names(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_missing_left_over_or_loses_a_name_is_said() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let code =
            || source("crates/view/src/a.rs", "fill(&tr(\"{n} of\\n \\\"x\\\"\")); attr(\"no\"); tr(\n  \"Open\",\n)");
        let with = |text: &str| problems(&[code(), source("bin/linkspan-desktop/po/de.po", text)]);
        let head = "msgid \"\"\nmsgstr \"\"\n\"Language: de\\n\"\n";
        let both = format!("{head}msgid \"{{n}} of\\n \\\"x\\\"\"\nmsgstr \"{{n}}\"\nmsgid \"Open\"\nmsgstr \"Auf\"\n");
        assert_eq!(with(&both), [""; 0]);
        assert_eq!(with(&both.replace("\"{n}\"", "\"n\"")).len(), 1);
        assert_eq!(with(head).len(), 2);
        assert_eq!(with(&format!("{both}msgid \"no\"\nmsgstr \"nein\"\n")).len(), 1);
    }
}
