//! The list of what users of one-sided transports rely on: each test that it names is there.

use crate::tree::Source;

/// The list.
const LIST: &str = "crates/linkspan/tests/behaviours.txt";

/// Where the tests of each column lie, and how one begins.
struct Column {
    folder: &'static str,
    ends: &'static [&'static str],
    begins: &'static [&'static str],
}

const COLUMNS: [Column; 3] = [
    Column { folder: "crates/linkspan/", ends: &[".rs"], begins: &["#[test]\nfn "] },
    Column { folder: "bindings/c/tests/", ends: &[".c", ".cpp"], begins: &["\nstatic void ", "\nvoid "] },
    Column { folder: "bindings/python/tests/", ends: &[".py"], begins: &["\ndef ", "\nasync def "] },
];

/// Fewest lines: a list that was cut off is found too.
const LEAST: usize = 60;

/// Lines that are none, and tests that are not there.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let Some(list) = sources.iter().find(|s| s.path == LIST) else {
        return vec![format!("{LIST} is not in the tree")];
    };
    let mut problems = Vec::new();
    let mut count = 0;
    for (number, line) in (1..).zip(list.text.lines()).filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        count += 1;
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() != 1 + COLUMNS.len() || cells[1..].iter().all(|cell| *cell == "-") {
            problems.push(format!("{LIST}:{number}: not a behaviour and its tests in three languages"));
            continue;
        }
        for (column, cell) in COLUMNS.iter().zip(&cells[1..]).filter(|(_, cell)| **cell != "-") {
            for name in cell.split(',').map(str::trim).filter(|name| !column.has(name, sources)) {
                problems.push(format!("{LIST}:{number}: no test {name} below {}", column.folder));
            }
        }
    }
    if count < LEAST {
        problems.push(format!("{LIST}: {count} behaviours, there were {LEAST} and more"));
    }
    problems
}

impl Column {
    fn has(&self, name: &str, sources: &[Source]) -> bool {
        let here = |s: &&Source| s.path.starts_with(self.folder) && self.ends.iter().any(|end| s.path.ends_with(end));
        let begins: Vec<String> = self.begins.iter().map(|begin| format!("{begin}{name}(")).collect();
        sources.iter().filter(here).any(|source| begins.iter().any(|begin| source.text.contains(begin)))
    }
}
