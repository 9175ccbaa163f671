//! Additions of a `bool` that is also branched on: release builds of Rust 1.95 and its neighbours may drop its value
//! (rust-lang/rust#158206). What the compiler does with several functions inlined into one this rule cannot see; CONTRIBUTING tells
//! how to look for that.

use crate::lex::{Kind, Token, tokens};
use crate::tree::Source;

/// How far around an addition the branch is looked for, tokens: more than a function of ours has.
const REACH: usize = 400;

/// Every `n += usize::from(b)` with an `if b` near it.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources.iter().filter(|s| s.is_rust()) {
        for (line, name) in found(&tokens(&source.text)) {
            problems.push(format!(
                "{}:{line}: `{name}` is added up and branched on, which rust-lang/rust#158206 may miscompile: \
                 write `if {name} {{ n += 1 }}`",
                source.path
            ));
        }
    }
    problems
}

fn found(tokens: &[Token]) -> Vec<(usize, &str)> {
    let kinds: Vec<&Kind> = tokens.iter().map(|t| &t.kind).collect();
    let added = kinds.windows(9).enumerate().filter_map(|(at, window)| Some((at, sum(window)?)));
    let near = |at: usize| &kinds[at.saturating_sub(REACH)..(at + REACH).min(kinds.len())];
    added.filter(|(at, name)| branches(near(*at), name)).map(|(at, name)| (tokens[at].line, name)).collect()
}

/// The name in `+= u32::from(name)`.
fn sum<'a>(window: &[&'a Kind]) -> Option<&'a str> {
    use Kind::{Mark, Word};
    match window {
        [Mark('+'), Mark('='), Word(int), Mark(':'), Mark(':'), Word(from), Mark('('), Word(name), Mark(')')]
            if from == "from" && int.starts_with(['u', 'i']) =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// `if name {`, `&& name {`, `!name`: only what a `bool` can be in.
fn branches(kinds: &[&Kind], name: &str) -> bool {
    let is = |kind: &Kind| matches!(kind, Kind::Word(w) if w == name);
    kinds.windows(3).any(|window| match window {
        [Kind::Word(word), it, Kind::Mark('{')] => word == "if" && is(it),
        [Kind::Mark('&' | '|'), it, Kind::Mark('{')] => is(it),
        [before, Kind::Mark('!'), it] => is(it) && (keyword(before) || !matches!(before, Kind::Word(_))),
        _ => false,
    })
}

/// What stands before a negation, and not before the `!` of a macro.
fn keyword(kind: &Kind) -> bool {
    matches!(kind, Kind::Word(w) if ["if", "while", "return", "match", "in"].contains(&w.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> usize {
        found(&tokens(text)).len()
    }

    #[test]
    fn a_sum_of_what_is_branched_on_is_found() {
        assert_eq!(names("let b = x < y; n += usize::from(b); if b { go() }"), 1);
        assert_eq!(names("if !b { go() } n += u64::from(b);"), 1);
        assert_eq!(names("n += i32::from(b); if a && b { go() }"), 1);
    }

    #[test]
    fn other_sums_are_left_alone() {
        assert_eq!(names("n += usize::from(b); done(n)"), 0);
        assert_eq!(names("n += u64::from(len); if len > 3 { go() }"), 0);
        assert_eq!(names("n += u64::from(x.y); if x.y { go() }"), 0, "not a name alone");
        assert_eq!(names("if b { n += 1 }"), 0);
    }
}
