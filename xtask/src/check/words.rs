//! Words that the tree no longer uses: `xtask/retired-words.txt` lists them, each with the word in its place.
//!
//! A line is a word or a quoted phrase, `->`, what stands for it, and where it is refused or not: `in SCOPE...`,
//! `not SCOPE...` (a path, `folder/`, or `*` for any text; without `in` everywhere). A word is found as part of an
//! identifier too, in any of its case forms, a phrase as it stands, whatever the case.

use crate::rename::{covers, parts, words};
use crate::tree::Source;

/// The list, from the root of the tree.
const LIST: &str = "xtask/retired-words.txt";

/// Files whose words stay: what is past, what came from elsewhere, and the lists themselves.
const FREE: [&str; 12] = [
    LIST,
    "CHANGELOG.md",
    "bench/records/",
    "bench/tests-core-base.txt",
    "bench/tests-moved.txt",
    "docs/GLOSSARY.md",
    "xtask/rename/",
    "xtask/src/rename/",
    "xtask/src/rename.rs",
    "xtask/src/check/tests.rs",
    "*.lock",
    "*LICENSE*",
];

/// One line of the list.
struct Retired {
    old: String,
    new: String,
    within: Vec<String>,
    without: Vec<String>,
}

impl Retired {
    fn read(line: &str) -> Result<Option<Retired>, String> {
        let mut words = words(line)?.into_iter();
        let Some(old) = words.next() else { return Ok(None) };
        if words.next().as_deref() != Some("->") {
            return Err("a word, then `->` and what stands for it".to_owned());
        }
        let mut retired = Retired { old: old.to_lowercase(), new: String::new(), within: vec![], without: vec![] };
        let mut place = 0;
        for word in words {
            match word.as_str() {
                "in" => place = 1,
                "not" => place = 2,
                _ if place == 1 => retired.within.push(word),
                _ if place == 2 => retired.without.push(word),
                _ => retired.new = word,
            }
        }
        Ok(Some(retired))
    }

    fn holds(&self, file: &str) -> bool {
        let any = |scopes: &[String]| scopes.iter().any(|scope| covers(scope, file));
        (self.within.is_empty() || any(&self.within)) && !any(&self.without)
    }
}

/// Uses of retired words, and lines of the list that say nothing.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let Some(list) = sources.iter().find(|s| s.path == LIST) else {
        return Vec::new();
    };
    let (mut problems, mut retired) = (Vec::new(), Vec::new());
    for (number, line) in list.text.lines().enumerate() {
        match Retired::read(line) {
            Ok(found) => retired.extend(found),
            Err(why) => problems.push(format!("{LIST}:{}: {why}", number + 1)),
        }
    }
    for source in sources.iter().filter(|s| !FREE.iter().any(|scope| covers(scope, &s.path))) {
        let here: Vec<&Retired> = retired.iter().filter(|r| r.holds(&source.path)).collect();
        let (phrases, single): (Vec<&Retired>, Vec<&Retired>) = here.into_iter().partition(|r| r.old.contains(' '));
        for (number, line) in source.text.lines().enumerate() {
            let mut report = |r: &Retired| {
                problems.push(format!("{}:{}: `{}` is now `{}`", source.path, number + 1, r.old, r.new));
            };
            let tokens = line.split(|c: char| c != '_' && !c.is_alphanumeric());
            for part in tokens.flat_map(parts).map(str::to_lowercase) {
                single.iter().filter(|r| r.old == part).for_each(|r| report(r));
            }
            let lower = line.to_lowercase();
            phrases.iter().filter(|r| lower.contains(&r.old)).for_each(|r| report(r));
        }
    }
    problems
}
