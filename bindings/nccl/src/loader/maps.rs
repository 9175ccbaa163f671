//! What this process has mapped: whether a pointer leads anywhere.

use std::ffi::{CStr, c_char};
use std::io;

/// Longest text that a table may name.
const TEXT_MAX: usize = 256;

struct Area {
    from: usize,
    to: usize,
    read: bool,
    execute: bool,
}

/// The areas of `/proc/self/maps` (proc_pid_maps(5)).
pub(super) struct Maps(Vec<Area>);

impl Maps {
    pub(super) fn read() -> io::Result<Maps> {
        Ok(Maps::parse(&std::fs::read_to_string("/proc/self/maps")?))
    }

    fn parse(text: &str) -> Maps {
        let area = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            let rights = rest.as_bytes();
            Some(Area {
                from: number(from)?,
                to: number(to)?,
                read: rights.first() == Some(&b'r'),
                execute: rights.get(2) == Some(&b'x'),
            })
        };
        Maps(text.lines().filter_map(area).collect())
    }

    fn area(&self, at: usize) -> Option<&Area> {
        self.0.iter().find(|area| (area.from..area.to).contains(&at))
    }

    /// Whether all of it can be read, in one area.
    pub(super) fn readable(&self, at: usize, len: usize) -> bool {
        self.area(at).is_some_and(|area| area.read && area.to - at >= len)
    }

    /// Whether a function may begin there.
    pub(super) fn executable(&self, at: usize) -> bool {
        self.area(at).is_some_and(|area| area.execute)
    }

    /// The text there, if it is one: printable, not empty, and ended within reach.
    pub(super) fn text(&self, at: usize) -> Option<String> {
        let area = self.area(at).filter(|area| area.read)?;
        let len = (area.to - at).min(TEXT_MAX);
        // SAFETY: inside one readable area of this process, for `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, len) };
        let end = bytes.iter().position(|&byte| byte == 0)?;
        // SAFETY: it ends within reach, as just seen.
        let text = unsafe { CStr::from_ptr(at as *const c_char) }.to_string_lossy().into_owned();
        (end > 0 && !text.chars().any(char::is_control)).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_told_from_what_is_not() {
        let text = c"some text";
        let heap = Box::new(0u8);
        let maps = Maps::read().unwrap();
        assert_eq!(maps.text(text.as_ptr() as usize).as_deref(), Some("some text"));
        assert!(maps.executable(Maps::read as *const () as usize));
        // Constants may share a segment with code (aarch64's linker does that), what is on the heap does not.
        assert!(!maps.executable(&raw const *heap as usize));
        for nowhere in [0, 8, usize::MAX - 7] {
            assert!(!maps.readable(nowhere, 1) && !maps.executable(nowhere) && maps.text(nowhere).is_none());
        }
    }

    #[test]
    fn an_area_ends_where_it_ends() {
        let maps = Maps::parse("1000-3000 r-xp 0 0 0\n3000-4000 ---p 0 0 0\nrubbish\n");
        assert!(maps.readable(0x1000, 0x2000) && !maps.readable(0x1000, 0x2001) && !maps.readable(0x3000, 1));
        assert!(maps.executable(0x2fff) && !maps.executable(0x3000));
    }
}
