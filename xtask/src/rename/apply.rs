//! One file under the table: what is code and what is prose, and the one pass over both.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{Entry, Kind, Rules};

/// A file after the pass.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) text: String,
    /// How often each entry held.
    pub(super) counts: BTreeMap<usize, usize>,
    /// Identifiers in code by what they are afterwards: what they were, and by which entries.
    pub(super) names: BTreeMap<String, BTreeMap<String, BTreeSet<usize>>>,
}

/// What a character belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Code,
    Prose,
    Text,
}

/// Applies the rules to a text.
pub(super) fn apply(rules: &Rules<'_>, file: &str, text: &str) -> Applied {
    let classes = classes(file, text);
    let rust = file.ends_with(".rs");
    let mut out = Applied::default();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let before = text[..at].chars().next_back();
        if classes[at] == Class::Text && c == '\\' && !rules.links_only {
            // An escape: the letter behind it belongs to no word.
            let len = 1 + text[at + 1..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
            out.text.push_str(&text[at..at + len]);
            at += len;
            continue;
        }
        if rules.links_only && !in_link(&text[..at]) {
            out.text.push(c);
            at += c.len_utf8();
            continue;
        }
        let inside = before.is_some_and(is_word) && is_word(c) && !after_escape(text, at, &classes);
        if !inside && let Some((entry, len, new)) = phrase(rules, text, at, classes[at]) {
            *out.counts.entry(entry).or_default() += 1;
            let prose = classes[at] != Class::Code;
            push(&mut out.text, &new, prose && rules.entries[entry].kind == Kind::Phrase);
            at += len;
        } else if !inside && (c == '_' || c.is_alphabetic()) && !rules.links_only {
            let end = text[at..].find(|c| !is_word(c)).map_or(text.len(), |n| at + n);
            token(rules, &text[at..end], context(text, at, &classes), rust, &mut out);
            at = end;
        } else {
            out.text.push(c);
            at += c.len_utf8();
        }
    }
    out
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Whether `at` follows an escape such as `\n` in a string, which is no part of the word.
fn after_escape(text: &str, at: usize, classes: &[Class]) -> bool {
    let bytes = text.as_bytes();
    at >= 2 && classes[at] == Class::Text && bytes[at - 2] == b'\\' && (at < 3 || bytes[at - 3] != b'\\')
}

/// Whether the text so far ends within the target of a Markdown link.
fn in_link(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.rfind("](").is_some_and(|at| !line[at..].contains(')'))
}

/// A single word inside `{}` of a string is the name of a variable.
fn context(text: &str, at: usize, classes: &[Class]) -> Class {
    if classes[at] == Class::Text && text[..at].ends_with('{') { Class::Code } else { classes[at] }
}

/// The longest phrase or path at `at`: its entry, its length and what comes in its place.
fn phrase(rules: &Rules<'_>, text: &str, at: usize, class: Class) -> Option<(usize, usize, String)> {
    let first = text[at..].chars().next()?;
    let list = rules.texts.get(&first.to_ascii_lowercase())?;
    list.iter().find_map(|index| {
        let entry = &rules.entries[*index];
        if (rules.links_only && entry.kind != Kind::Move) || (entry.kind == Kind::Phrase && class == Class::Code) {
            return None;
        }
        let (len, gaps) = if entry.kind == Kind::Move { path(entry, text, at)? } else { words(entry, text, at)? };
        let new = if entry.kind == Kind::Keep { text[at..at + len].to_owned() } else { filled(&entry.new, &gaps) };
        let lower = entry.kind == Kind::Phrase && entry.old.starts_with(|c: char| c.is_ascii_lowercase());
        Some((*index, len, if lower && first.is_ascii_uppercase() { capital(&new) } else { new }))
    })
}

/// A path: the whole of it and nothing longer to its left; a bare folder name only with its slash.
fn path(entry: &Entry, text: &str, at: usize) -> Option<(usize, Vec<String>)> {
    let rest = text[at..].strip_prefix(&entry.old)?;
    let free = !text[..at].ends_with('-');
    let next = rest.chars().next();
    let ends = if entry.old.contains('/') { !next.is_some_and(|c| is_word(c) || c == '-') } else { next == Some('/') };
    (free && ends).then(|| (entry.old.len(), Vec::new()))
}

/// The words of a phrase, with any blanks, line breaks and comment marks between them.
fn words(entry: &Entry, text: &str, at: usize) -> Option<(usize, Vec<String>)> {
    let (mut rest, mut gaps) = (&text[at..], Vec::new());
    for (number, word) in entry.old.split(' ').enumerate() {
        if number > 0 {
            let gap = gap(rest);
            if gap == 0 {
                return None;
            }
            gaps.push(rest[..gap].to_owned());
            rest = &rest[gap..];
        }
        let same = match number {
            0 if entry.kind == Kind::Phrase && word.starts_with(|c: char| c.is_ascii_lowercase()) => {
                rest.get(..word.len()).is_some_and(|r| r[1..] == word[1..] && r[..1].eq_ignore_ascii_case(&word[..1]))
            }
            _ => rest.starts_with(word),
        };
        if !same {
            return None;
        }
        rest = &rest[word.len()..];
    }
    let ends = entry.old.ends_with(is_word) && rest.starts_with(is_word);
    (!ends).then(|| (text.len() - at - rest.len(), gaps))
}

/// Length of the blanks between two words of a phrase: one line break with the marks of a comment or string around it.
fn gap(text: &str) -> usize {
    let blank = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let mut len = blank(text);
    let rest = text[len..].strip_prefix('\\').unwrap_or(&text[len..]);
    let Some(next) = rest.strip_prefix('\n') else {
        return len;
    };
    len = text.len() - next.len();
    len += blank(next);
    let mark = ["///", "//!", "//", "* ", "# "].into_iter().find(|mark| text[len..].starts_with(mark));
    len += mark.map_or(0, str::len);
    len + blank(&text[len..])
}

/// The new words with the gaps of the old ones; a line break that has no place comes at the end.
fn filled(new: &str, gaps: &[String]) -> String {
    let words: Vec<&str> = new.split(' ').collect();
    let mut out = String::new();
    for (number, word) in words.iter().enumerate() {
        out += word;
        if number + 1 < words.len() {
            out += gaps.get(number).map_or(" ", String::as_str);
        }
    }
    match gaps.iter().skip(words.len() - 1).find(|gap| gap.contains('\n')) {
        Some(broken) => match out.rfind(' ') {
            Some(last) => format!("{}{broken}{}", &out[..last], &out[last + 1..]),
            None => format!("{broken}{out}"),
        },
        None => out,
    }
}

/// One identifier or word.
fn token(rules: &Rules<'_>, old: &str, class: Class, rust: bool, out: &mut Applied) {
    let parts = parts(old);
    let single = parts.len() == 1;
    let prose = single && class != Class::Code;
    let mut held = BTreeSet::new();
    let new = if let Some(entry) = rules.names.get(old).filter(|_| !prose) {
        held.insert(*entry);
        rules.entries[*entry].new.clone()
    } else {
        let upper = !old.contains(|c: char| c.is_lowercase());
        let mut new = String::new();
        for part in &parts {
            let Some(entry) = rules.words.get(part.to_lowercase().as_str()) else {
                new += part;
                continue;
            };
            held.insert(*entry);
            let entry = &rules.entries[*entry];
            new += &formed(
                if prose { &entry.prose } else { &entry.new },
                part,
                upper && !(single && part.len() == 1),
                prose,
            );
        }
        new
    };
    for entry in &held {
        *out.counts.entry(*entry).or_default() += 1;
    }
    if rust && class == Class::Code {
        out.names.entry(new.clone()).or_default().entry(old.to_owned()).or_default().extend(&held);
    }
    let span = class != Class::Code || out.text.ends_with('`');
    push(&mut out.text, &new, !held.is_empty() && span);
}

/// The new word in the case form of the old part.
fn formed(new: &str, part: &str, upper: bool, prose: bool) -> String {
    if upper {
        new.to_uppercase()
    } else if !part.starts_with(|c: char| c.is_uppercase()) {
        new.to_owned()
    } else if prose {
        capital(new)
    } else {
        new.split('_').map(capital).collect()
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Parts of an identifier with their underscores: `HalfOpen2_x` is `Half`, `Open2`, `_`, `x`.
pub(crate) fn parts(name: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = name.char_indices().collect();
    let mut cuts = vec![0];
    for (n, (at, c)) in chars.iter().enumerate().skip(1) {
        let before = chars[n - 1].1;
        let lower_next = chars.get(n + 1).is_some_and(|(_, c)| c.is_lowercase());
        let hump = c.is_uppercase() && (!before.is_uppercase() || lower_next);
        if *c == '_' || before == '_' || hump {
            cuts.push(*at);
        }
    }
    cuts.push(name.len());
    cuts.windows(2).map(|pair| &name[pair[0]..pair[1]]).filter(|part| !part.is_empty()).collect()
}

/// Appends what was renamed; in prose an article before it follows its first letter.
fn push(out: &mut String, new: &str, prose: bool) {
    if prose && let Some(first) = new.trim_start().chars().next().filter(|c| c.is_alphabetic()) {
        let vowel = matches!(first.to_ascii_lowercase(), 'a' | 'e' | 'i' | 'o');
        for (article, wrong) in [("a", vowel), ("A", vowel), ("an", !vowel), ("An", !vowel)] {
            let blanks = out.trim_end_matches([' ', '`', '*']).len();
            let before = out[..blanks].strip_suffix(article);
            if wrong && blanks < out.len() && before.is_some_and(|b| !b.ends_with(is_word)) {
                let right = if vowel { format!("{article}n") } else { article[..1].to_owned() };
                out.replace_range(blanks - article.len()..blanks, &right);
                break;
            }
        }
    }
    *out += new;
}

/// The class of each byte, by the kind of file. Back quotes and fences in prose hold code.
pub(super) fn classes(file: &str, text: &str) -> Vec<Class> {
    let name = file.rsplit('/').next().unwrap_or_default();
    let ends = |list: &[&str]| list.iter().any(|end| name.ends_with(end));
    let mut classes = if ends(&[".md"]) {
        vec![Class::Prose; text.len()]
    } else if ends(&[".rs", ".c", ".h", ".hpp", ".cpp", ".cu"]) {
        code(text, "//", ends(&[".rs"]))
    } else if ends(&[".json"]) {
        vec![Class::Text; text.len()]
    } else if ends(&[".html", ".map", ".1", ".fish", ".ps1", ".elv"]) {
        vec![Class::Code; text.len()]
    } else if ends(&[".txt"]) {
        vec![Class::Prose; text.len()]
    } else {
        code(text, "#", false)
    };
    let (mut at, mut fenced) = (0, false);
    for line in text.split_inclusive('\n') {
        let start = line.trim_start_matches([' ', '/', '!', '*']);
        let fence = start.starts_with("```") && classes[at + line.len() - start.len()] == Class::Prose;
        let mut span = false;
        for (offset, byte) in line.bytes().enumerate() {
            let class = &mut classes[at + offset];
            if *class == Class::Prose {
                span ^= byte == b'`' && line.matches('`').count() > 1;
                if fenced || span {
                    *class = Class::Code;
                }
            }
        }
        fenced ^= fence;
        if !line.trim_start().starts_with(['/', '*']) && !ends(&[".md", ".txt"]) {
            fenced = false;
        }
        at += line.len();
    }
    classes
}

/// Code with comments and strings.
fn code(text: &str, comment: &str, rust: bool) -> Vec<Class> {
    let mut classes = vec![Class::Code; text.len()];
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        let line = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        let starts =
            rest.starts_with(comment.as_bytes()) && (comment == "//" || at == 0 || bytes[at - 1].is_ascii_whitespace());
        let (len, class) = if starts {
            (line, Class::Prose)
        } else if comment == "//" && rest.starts_with(b"/*") {
            (rest.windows(2).position(|w| w == b"*/").map_or(rest.len(), |n| n + 2), Class::Prose)
        } else if rest.starts_with(b"\"\"\"") {
            (rest[3..].windows(3).position(|w| w == b"\"\"\"").map_or(rest.len(), |n| n + 6), Class::Prose)
        } else if rust && let Some((skip, close)) = raw(rest) {
            let end = rest[skip..].windows(close.len()).position(|w| w == close);
            (end.map_or(rest.len(), |n| skip + n + close.len()), Class::Text)
        } else if rest[0] == b'"' {
            (quoted(rest), Class::Text)
        } else if comment == "//" && rest[0] == b'\'' {
            // A character; anything else is a lifetime.
            let end = if rest.get(1) == Some(&b'\\') {
                rest[2..].iter().position(|b| *b == b'\'').map(|n| n + 3)
            } else {
                None
            };
            (end.unwrap_or(if rest.get(2) == Some(&b'\'') { 3 } else { 1 }), Class::Code)
        } else {
            (1, Class::Code)
        };
        let end = (at + len.max(1)).min(bytes.len());
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// Length of a quoted string with its escapes.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of the opening of a raw string, and what closes it.
fn raw(rest: &[u8]) -> Option<(usize, Vec<u8>)> {
    let skip = [b"r".as_slice(), b"br", b"cr"].into_iter().find(|p| rest.starts_with(p))?.len();
    let hashes = rest[skip..].iter().take_while(|b| **b == b'#').count();
    (rest.get(skip + hashes) == Some(&b'"')).then(|| {
        let mut close = vec![b'"'];
        close.resize(1 + hashes, b'#');
        (skip + hashes + 1, close)
    })
}
