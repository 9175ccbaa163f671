//! The table of a renaming, and what of it holds for a file.

use std::collections::HashMap;

/// What an entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Move,
    Text,
    Phrase,
    Name,
    Word,
    Keep,
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) old: String,
    pub(super) new: String,
    /// What a `word` becomes in prose.
    pub(super) prose: String,
    within: Vec<String>,
    without: Vec<String>,
    pub(super) maybe: bool,
    pub(super) merge: bool,
}

impl Entry {
    /// The new path of `file`, where this entry moves it.
    pub(super) fn moves(&self, file: &str) -> Option<String> {
        let rest = (self.kind == Kind::Move).then(|| file.strip_prefix(&self.old))??;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{}{rest}", self.new))
    }

    /// The entry, short.
    pub(super) fn shown(&self) -> String {
        let scope = if self.within.is_empty() { String::new() } else { format!(" in {}", self.within.join(" ")) };
        format!("{} {:?} {:?}{scope}", format!("{:?}", self.kind).to_lowercase(), self.old, self.new)
    }

    /// Length of the longest scope that covers the file (0 where the entry has none); `None`: it does not hold there.
    fn holds(&self, file: &str) -> Option<usize> {
        let longest = |scopes: &[String]| scopes.iter().filter(|s| covers(s, file)).map(String::len).max();
        if longest(&self.without).is_some() {
            return None;
        }
        if self.within.is_empty() { Some(0) } else { longest(&self.within) }
    }
}

/// Whether a scope covers a file: `folder/`, a path, or `*` for any text.
pub(crate) fn covers(scope: &str, file: &str) -> bool {
    if scope.ends_with('/') && !scope.contains('*') {
        return file.starts_with(scope);
    }
    let mut parts = scope.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = file.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// All entries.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    skip: Vec<String>,
    links: Vec<String>,
}

/// The entries that hold for one file, by what they look for.
pub(super) struct Rules<'t> {
    pub(super) entries: &'t [Entry],
    /// Phrases and paths by their first character (in lower case), longest first.
    pub(super) texts: HashMap<char, Vec<usize>>,
    pub(super) names: HashMap<&'t str, usize>,
    pub(super) words: HashMap<&'t str, usize>,
    /// Only the targets of Markdown links change.
    pub(super) links_only: bool,
}

impl Table {
    /// Reads a table; an error begins with its line.
    pub(super) fn parse(text: &str) -> Result<Table, String> {
        let mut table = Table::default();
        for (number, line) in text.lines().enumerate() {
            let words = words(line).map_err(|why| format!("{}: {why}", number + 1))?;
            if !words.is_empty() {
                table.add(number + 1, &words).map_err(|why| format!("{}: {why}", number + 1))?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, line: usize, words: &[String]) -> Result<(), String> {
        let (kind, wanted) = match words[0].as_str() {
            "skip" => {
                self.skip.extend_from_slice(&words[1..]);
                return Ok(());
            }
            "links" => {
                self.links.extend_from_slice(&words[1..]);
                return Ok(());
            }
            "move" => (Kind::Move, 2),
            "text" => (Kind::Text, 2),
            "phrase" => (Kind::Phrase, 2),
            "name" => (Kind::Name, 2),
            "word" => (Kind::Word, 2),
            "keep" => (Kind::Keep, 1),
            other => return Err(format!("{other} is not an entry")),
        };
        let (mut values, mut within, mut without) = (Vec::new(), Vec::new(), Vec::new());
        let (mut maybe, mut merge, mut place) = (false, false, 0);
        for word in &words[1..] {
            match (word.as_str(), values.len() >= wanted) {
                ("in", true) => place = 1,
                ("not", true) => place = 2,
                ("maybe", true) => maybe = true,
                ("merge", true) => merge = true,
                _ => [&mut values, &mut within, &mut without][place].push(word.clone()),
            }
        }
        let most = if kind == Kind::Word { 3 } else { wanted };
        if values.len() < wanted || values.len() > most || values.iter().any(String::is_empty) {
            return Err(format!("{} takes {wanted} values", words[0]));
        }
        let old = values[0].clone();
        let new = values.get(1).unwrap_or(&old).clone();
        let prose = values.get(2).cloned().unwrap_or_else(|| new.replace('_', " "));
        if kind != Kind::Keep && old == new && prose == new {
            return Err(format!("{old} stays as it is"));
        }
        self.entries.push(Entry { line, kind, old, new, prose, within, without, maybe, merge });
        Ok(())
    }

    /// Whether a file stays as it is.
    pub(super) fn skips(&self, file: &str) -> bool {
        self.skip.iter().any(|scope| covers(scope, file))
    }

    /// What holds for a file. Of two entries for one thing the one with the longer scope holds; equal ones are refused.
    pub(super) fn rules(&self, file: &str) -> Result<Rules<'_>, String> {
        let links_only = self.links.iter().any(|scope| covers(scope, file));
        let mut chosen: HashMap<(u8, &str), (usize, usize)> = HashMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(scope) = entry.holds(file) else {
                continue;
            };
            let group = match entry.kind {
                Kind::Move | Kind::Text | Kind::Phrase | Kind::Keep => 0,
                Kind::Name => 1,
                Kind::Word => 2,
            };
            match chosen.get(&(group, entry.old.as_str())) {
                Some((other, _)) if *other > scope => {}
                Some((other, before)) if *other == scope => {
                    return Err(format!("lines {} and {} both hold", self.entries[*before].line, entry.line));
                }
                _ => {
                    chosen.insert((group, &entry.old), (scope, at));
                }
            }
        }
        let mut rules = Rules {
            entries: &self.entries,
            texts: HashMap::new(),
            names: HashMap::new(),
            words: HashMap::new(),
            links_only,
        };
        for ((group, old), (_, at)) in chosen {
            match group {
                0 => {
                    let first = old.chars().next().map(|c| c.to_ascii_lowercase()).unwrap_or_default();
                    rules.texts.entry(first).or_default().push(at);
                }
                1 => _ = rules.names.insert(old, at),
                _ => _ = rules.words.insert(old, at),
            }
        }
        for list in rules.texts.values_mut() {
            list.sort_by_key(|at| std::cmp::Reverse(self.entries[*at].old.len()));
        }
        Ok(rules)
    }
}

/// The words of a line: blanks part them, quotes hold them together, `#` ends the line.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find("\" ").or_else(|| quoted.trim_end().strip_suffix('"').map(str::len));
                let end = end.ok_or("a quote is not closed")?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}
