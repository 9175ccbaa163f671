//! Reading attributes with a note on each that is there but makes no sense.

use std::path::Path;

use crate::sysfs::{self, Roots};

/// Longest attribute: sysfs gives a page at most (`PAGE_SIZE` of `show` methods, Documentation/filesystems/sysfs.rst).
const ATTR_MAX: u64 = 4096;

/// Longest name of a thing that we keep, characters. A peer chooses its own.
const NAME_MAX: usize = 64;

/// Most notes of one look; what is beyond says nothing new.
const NOTES_MAX: usize = 32;

/// One look at the machine.
pub(crate) struct Look<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) notes: Vec<String>,
}

impl<'a> Look<'a> {
    pub(crate) fn new(roots: &'a Roots) -> Look<'a> {
        Look { roots, notes: Vec::new() }
    }

    /// Keeps a sentence on the file.
    pub(crate) fn note(&mut self, path: &Path, what: &str) {
        if self.notes.len() < NOTES_MAX {
            // From the root that the user knows: a fixture's own folder is no news.
            let base = self.roots.sys.parent().unwrap_or(Path::new("/"));
            let shown = path.strip_prefix(base).unwrap_or(path);
            self.notes.push(format!("/{}: {what}", clean(&shown.to_string_lossy(), 200)));
        }
    }

    /// The attribute's text; `None` where there is none, it is empty, or (with a note) longer than any attribute.
    pub(crate) fn text(&mut self, path: &Path) -> Option<String> {
        let bytes = sysfs::bytes(path, ATTR_MAX + 1)?;
        if bytes.len() as u64 > ATTR_MAX {
            self.note(path, "longer than an attribute of sysfs can be, ignored");
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The attribute as text from outside: control characters and overlong text do not reach a terminal.
    pub(crate) fn name(&mut self, path: &Path) -> Option<String> {
        self.text(path).map(|text| clean(&text, NAME_MAX))
    }

    /// The attribute through `parse`, with a note where that fails; `want` says what it should have been.
    pub(crate) fn parsed<T>(&mut self, path: &Path, want: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(path)?;
        let value = parse(&text);
        if value.is_none() {
            self.note(path, &format!("{:?} is not {want}, ignored", clean(&text, 40)));
        }
        value
    }

    /// The attribute as a decimal number.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, path: &Path) -> Option<T> {
        self.parsed(path, "a number", |text| text.parse().ok())
    }

    /// The attribute as a hexadecimal number, with or without `0x`.
    pub(crate) fn hex(&mut self, path: &Path) -> Option<u32> {
        self.parsed(path, "a hexadecimal number", |text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok())
    }

    /// The attribute as 0 or 1 (more counts as 1).
    pub(crate) fn flag(&mut self, path: &Path) -> Option<bool> {
        self.number::<u32>(path).map(|value| value > 0)
    }

    /// Names in a directory, at most `max` of them, with a note where there are more.
    pub(crate) fn names(&mut self, dir: &Path, max: usize) -> Vec<String> {
        let mut names = sysfs::names(dir);
        if names.len() > max {
            self.note(dir, &format!("has {} entries, only the first {max} were looked at", names.len()));
            names.truncate(max);
        }
        names
    }
}

/// At most `max` characters, none of which moves a cursor or turns the direction of writing.
pub(crate) fn clean(text: &str, max: usize) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut kept: String = text.chars().take(max).map(|c| if odd(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(max).is_some() {
        kept.push('…');
    }
    kept
}

/// A decimal with at most three places before a unit that begins with `unit`, in thousandths: `2.5 Gb/sec` is 2500.
pub(crate) fn thousandths(text: &str, unit: &str) -> Option<u32> {
    let (value, rest) = text.split_once(' ')?;
    if !rest.starts_with(unit) {
        return None;
    }
    let (whole, places) = value.split_once('.').unwrap_or((value, ""));
    if places.len() > 3 || !places.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places: u32 = format!("{places:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(places)
}

#[cfg(test)]
mod tests;
