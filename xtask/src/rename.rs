//! `cargo xtask rename [--dry-run] TABLE`: renames files and words of the whole tree by a table.
//!
//! One entry per line; `#` begins a comment, `"` quotes hold what has blanks:
//!
//! | entry | effect |
//! |---|---|
//! | `move OLD NEW` | a file or folder, and every mention of its path |
//! | `text OLD NEW` | a text as it stands, wherever it is |
//! | `phrase OLD NEW` | words of a comment, string or document, also across lines; the first letter keeps its case |
//! | `name OLD NEW` | an identifier, whole, in code and code spans |
//! | `word OLD NEW [PROSE]` | one part of identifiers in each case form, and the word in prose (as PROSE where given) |
//! | `keep TEXT` | a phrase or identifier that no other entry changes |
//! | `skip SCOPE...` | files that are not changed; `links SCOPE...`: only the targets of their Markdown links are |
//!
//! An entry can end in `in SCOPE...` and `not SCOPE...`: paths before the moves, `folder/`, or with `*` for any text.
//! The longest scope wins. `maybe` says that it may match nothing, `merge` that two names may become one. The text is read once from start to
//! end: the longest `text` or `phrase` wins, then `name`, then `word`, and what was written is not read again.

mod apply;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use self::apply::Applied;
pub(crate) use self::apply::parts;
use self::table::{Kind, Table};
pub(crate) use self::table::{covers, words};
use crate::run::{self, Outcome};

/// Applies the table at `path` to the tracked files, or prints what it would do.
pub(crate) fn run(root: &Path, path: &str, dry: bool) -> Outcome {
    match rename(root, path, dry) {
        Ok(problems) => Outcome::from_problems(&problems),
        Err(why) => Outcome::Failed(why),
    }
}

fn rename(root: &Path, path: &str, dry: bool) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))?;
    let table = Table::parse(&text).map_err(|why| format!("{path}:{why}"))?;
    let listed = run::output(Command::new("git").current_dir(root).args(["ls-files", "-z"]))?;
    let files: Vec<&str> = listed.split('\0').filter(|f| !f.is_empty()).collect();
    let moves = moves(&table, &files)?;

    let mut counts = vec![0usize; table.entries.len()];
    let (mut problems, mut notes, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for file in files.iter().filter(|f| **f != path && !table.skips(f)) {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue; // not text
        };
        let rules = table.rules(file).map_err(|why| format!("{path}: {file}: {why}"))?;
        let applied = apply::apply(&rules, file, &text);
        for (entry, count) in &applied.counts {
            counts[*entry] += count;
        }
        let (refused, seen) = collisions(&table, file, &applied);
        problems.extend(refused);
        notes.extend(seen);
        if applied.text != text {
            changed.push((*file, applied.text));
        }
    }
    for (entry, count) in table.entries.iter().zip(counts.iter_mut()) {
        if entry.kind == Kind::Move {
            *count += moves.iter().filter(|(from, _)| entry.moves(from).is_some()).count();
        }
        if dry {
            println!("{count:6}  {}: {}", entry.line, entry.shown());
        }
    }
    if dry {
        notes.iter().for_each(|note| println!("note: {note}"));
    }
    let unused = table.entries.iter().zip(&counts).filter(|(entry, count)| **count == 0 && !entry.maybe);
    let unused: Vec<String> =
        unused.map(|(e, _)| format!("{path}:{}: matches nothing: {}", e.line, e.shown())).collect();
    println!("{} files change, {} move", changed.len(), moves.len());
    if !problems.is_empty() || dry {
        problems.extend(unused);
        problems.iter().for_each(|p| eprintln!("{p}"));
        return Ok(problems);
    }
    unused.iter().for_each(|p| eprintln!("{p}"));
    for (file, text) in changed {
        std::fs::write(root.join(file), text).map_err(|e| format!("{file}: {e}"))?;
    }
    for (from, to) in &moves {
        let folder = root.join(to).parent().map(Path::to_path_buf).unwrap_or_default();
        std::fs::create_dir_all(&folder).map_err(|e| format!("{to}: {e}"))?;
        run::must(Command::new("git").current_dir(root).args(["mv", from, to]))?;
    }
    Ok(Vec::new())
}

/// Where each tracked file goes; refused where two would become one.
fn moves<'a>(table: &Table, files: &[&'a str]) -> Result<Vec<(&'a str, String)>, String> {
    let target = |file: &'a str| {
        let best = table
            .entries
            .iter()
            .filter(|e| e.kind == Kind::Move)
            .max_by_key(|e| if e.moves(file).is_some() { e.old.len() } else { 0 })?;
        best.moves(file)
    };
    let moves: Vec<(&str, String)> = files.iter().filter_map(|file| Some((*file, target(file)?))).collect();
    let leaving: BTreeSet<&str> = moves.iter().map(|(from, _)| *from).collect();
    let mut taken: BTreeMap<&str, &str> =
        files.iter().filter(|f| !leaving.contains(**f)).map(|file| (*file, *file)).collect();
    for (from, to) in &moves {
        if let Some(other) = taken.insert(to, from) {
            return Err(format!("{from} and {other} would both be {to}"));
        }
    }
    Ok(moves)
}

/// Different identifiers of a file that would become one: types are refused, the rest noted (the compiler sees most).
fn collisions(table: &Table, file: &str, applied: &Applied) -> (Vec<String>, Vec<String>) {
    let (mut refused, mut noted) = (Vec::new(), Vec::new());
    for (new, olds) in &applied.names {
        let names: Vec<&str> = olds.keys().map(String::as_str).collect();
        let merged = olds.values().flatten().any(|entry| table.entries[*entry].merge);
        if names.len() < 2 || merged {
            continue;
        }
        let line = format!("{file}: {} would all be {new}", names.join(", "));
        if new.starts_with(|c: char| c.is_uppercase()) { refused.push(line) } else { noted.push(line) }
    }
    (refused, noted)
}

#[cfg(test)]
mod tests;
