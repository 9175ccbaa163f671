//! The names of a directory in the order of their bytes. Of a directory with more than a window of them only that many are in memory:
//! it is listed once more for each further window.

use std::collections::BinaryHeap;
use std::io;

use super::Fs;
use crate::name::is_reserved;

/// Names in memory at a time.
const WINDOW: usize = 1 << 16;

/// A listing in order, without the names that linkspan keeps for itself.
pub(crate) struct Sorted {
    /// The largest is the first to go.
    window: std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>,
    last: Option<Vec<u8>>,
    more: bool,
    most: usize,
}

impl Sorted {
    pub(crate) fn of<F: Fs>(fs: &F, dir: &F::Dir) -> io::Result<Sorted> {
        Sorted::windows(fs, dir, WINDOW)
    }

    fn windows<F: Fs>(fs: &F, dir: &F::Dir, most: usize) -> io::Result<Sorted> {
        let mut sorted = Sorted { window: Vec::new().into_iter().peekable(), last: None, more: true, most };
        sorted.fill(fs, dir)?;
        Ok(sorted)
    }

    fn fill<F: Fs>(&mut self, fs: &F, dir: &F::Dir) -> io::Result<()> {
        let mut names = BinaryHeap::new();
        self.more = false;
        for entry in fs.list(dir)? {
            let name = entry?.name;
            if is_reserved(&name) || self.last.as_ref().is_some_and(|last| name <= *last) {
                continue;
            }
            names.push(name);
            if names.len() > self.most {
                names.pop();
                self.more = true;
            }
        }
        self.window = names.into_sorted_vec().into_iter().peekable();
        Ok(())
    }

    /// The next name, which stays the next one.
    pub(crate) fn peek<F: Fs>(&mut self, fs: &F, dir: &F::Dir) -> io::Result<Option<&[u8]>> {
        if self.window.peek().is_none() && self.more {
            self.fill(fs, dir)?;
        }
        Ok(self.window.peek().map(Vec::as_slice))
    }

    /// The next name.
    pub(crate) fn next<F: Fs>(&mut self, fs: &F, dir: &F::Dir) -> io::Result<Option<Vec<u8>>> {
        self.peek(fs, dir)?;
        let name = self.window.next();
        if self.more {
            self.last.clone_from(&name);
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Entry;
    use crate::sim::SimFs;

    #[test]
    fn names_come_in_order_whatever_the_window() {
        let fs = SimFs::new(1, None, false);
        fs.users(|users| {
            for n in [5, 3, 9, 1, 7, 2] {
                users.write(&format!("d/{n}"), b"", false);
            }
            users.write("d/.lspan/mirror", b"", false);
        });
        let dir = fs.open_child(&fs.root(), &crate::name::Name::new(b"d").unwrap()).unwrap();
        assert_eq!(fs.list(&dir).unwrap().map(Result::unwrap).filter(|e: &Entry| e.name == b".lspan").count(), 1);
        for most in [1, 2, 5, 6, 100] {
            let mut sorted = Sorted::windows(&fs, &dir, most).unwrap();
            let names: Vec<Vec<u8>> = std::iter::from_fn(|| sorted.next(&fs, &dir).unwrap()).collect();
            assert_eq!(names.concat(), b"123579", "a window of {most}");
        }
    }
}
