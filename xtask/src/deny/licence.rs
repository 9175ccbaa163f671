//! Licences of packages: SPDX expressions, of which one alternative must be allowed in all its parts.

use std::collections::BTreeMap;

/// Packages whose licence is none of these.
pub(super) fn problems(licences: &BTreeMap<String, String>, allowed: &[String]) -> Vec<String> {
    let bad = licences.iter().filter(|(_, licence)| !is_allowed(licence, allowed));
    bad.map(|(package, licence)| format!("{package}: its licence {licence:?} is none of those in deny.toml")).collect()
}

/// OR binds less than AND; older manifests write `/` for OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim().replace('/', " OR ");
    let whole = |part: &str| part.starts_with('(') && closes_last(part);
    if whole(&expression) {
        return is_allowed(&expression[1..expression.len() - 1], allowed);
    }
    for (word, all) in [(" OR ", false), (" AND ", true)] {
        let cuts = outside(&expression, word);
        if cuts.is_empty() {
            continue;
        }
        let mut parts = Vec::new();
        let mut from = 0;
        for cut in cuts {
            parts.push(&expression[from..cut]);
            from = cut + word.len();
        }
        parts.push(&expression[from..]);
        return if all {
            parts.iter().all(|p| is_allowed(p, allowed))
        } else {
            parts.iter().any(|p| is_allowed(p, allowed))
        };
    }
    allowed.iter().any(|one| *one == expression.trim())
}

/// Where a word stands outside of all brackets.
fn outside(text: &str, word: &str) -> Vec<usize> {
    let mut depth = 0;
    let mut found = Vec::new();
    for (at, c) in text.char_indices() {
        if depth == 0 && text[at..].starts_with(word) {
            found.push(at);
        }
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Whether the bracket that is opened first is closed last.
fn closes_last(text: &str) -> bool {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1 == text.len();
        }
    }
    false
}

#[test]
fn an_expression_is_allowed_when_one_of_its_alternatives_is() {
    let allowed: Vec<String> = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).to_vec();
    for (expression, is) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(MIT OR GPL-3.0) AND (BSD-3-Clause OR GPL-2.0)", false),
        ("(MIT)", true),
        ("Apache-2.0 WITH LLVM-exception", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), is, "{expression}");
    }
}
