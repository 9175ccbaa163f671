//! Memory that knows who may touch it. A byte written or read where that is not allowed panics on the spot.

use std::cell::RefCell;

use linkspan_proto::Buf;

/// Bytes of an arena.
const SIZE: usize = 4 << 20;

/// Bytes between two buffers that belong to neither.
const FENCE: usize = 64;

#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    used: usize,
    /// Where the engine and its rails may write, and from where they may read.
    writable: Vec<Mem>,
    readable: Vec<Mem>,
}

thread_local! {
    static ARENA: RefCell<Arena> = RefCell::default();
}

/// A range of this thread's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    at: usize,
    len: usize,
}

/// Forgets every buffer.
pub fn reset() {
    ARENA.with_borrow_mut(|a| {
        a.bytes.resize(SIZE, 0);
        a.used = 0;
        a.writable.clear();
        a.readable.clear();
    });
}

impl Mem {
    /// A new buffer without access rights yet. `None`: the arena is full.
    pub fn new(len: usize) -> Option<Mem> {
        ARENA.with_borrow_mut(|a| {
            let at = a.used + FENCE;
            (at + len + FENCE <= SIZE).then(|| {
                a.used = at + len;
                Mem { at, len }
            })
        })
    }

    fn end(self) -> usize {
        self.at + self.len
    }

    fn inside(self, of: &[Mem]) -> bool {
        self.len == 0 || of.iter().any(|m| m.at <= self.at && self.end() <= m.end())
    }

    /// Whether both have a byte in common.
    pub fn overlaps(self, other: Mem) -> bool {
        self.len > 0 && other.len > 0 && self.at < other.end() && other.at < self.end()
    }

    /// Lets the engine write here.
    pub fn allow_writes(self) {
        ARENA.with_borrow_mut(|a| a.writable.push(self));
    }

    /// Lets the engine read here.
    pub fn allow_reads(self) {
        ARENA.with_borrow_mut(|a| a.readable.push(self));
    }

    /// Takes both back.
    pub fn forbid(self) {
        ARENA.with_borrow_mut(|a| {
            a.writable.retain(|m| *m != self);
            a.readable.retain(|m| *m != self);
        });
    }

    pub fn is_writable(self) -> bool {
        ARENA.with_borrow(|a| self.inside(&a.writable))
    }

    pub fn is_readable(self) -> bool {
        ARENA.with_borrow(|a| self.inside(&a.readable))
    }
}

impl Buf for Mem {
    const EMPTY: Mem = Mem { at: 0, len: 0 };

    fn len(&self) -> usize {
        self.len
    }

    fn sub(&self, offset: u64, len: u64) -> Option<Mem> {
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then(|| Mem { at: self.at + offset as usize, len: len as usize })
    }

    fn fill(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(part) = self.sub(offset, bytes.len() as u64) else { return false };
        assert!(part.is_writable(), "{part:?} was written to and must not be written");
        ARENA.with_borrow_mut(|a| a.bytes[part.at..part.end()].copy_from_slice(bytes));
        true
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(part) = self.sub(offset, out.len() as u64) else { return false };
        assert!(part.is_readable(), "{part:?} was read and must not be read");
        ARENA.with_borrow(|a| out.copy_from_slice(&a.bytes[part.at..part.end()]));
        true
    }
}
