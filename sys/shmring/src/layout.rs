//! Where things lie in the map. Both processes run the same version (the set-up compares), so offsets are constants.
//!
//! ```text
//! 0      name, version, ring size; the nonces of the two sides
//! 4096   two side blocks: what this side writes, one purpose a line
//! 8192   two slot tables: transfers sent by A, transfers sent by B
//! 16384  two tables of places: where the pages of a row go, of transfers sent by A, by B
//! 32768  ring A -> B, ring B -> A
//! behind two tables of regions: what A, what B lets the other one copy by itself
//! ```

use std::ops::Range;

use crate::region::{REGIONS, WORDS};
use crate::ring::LINE;
use crate::slot::MAX_SLICES;

/// First word of a map: "lnkspnSM".
pub const MAGIC: u64 = u64::from_le_bytes(*b"lnkspnSM");

/// Version of this layout; other versions are refused.
pub const VERSION: u64 = 5;

/// Transfers of one direction that can be under way. Four keep both processes busy; the rest absorbs a receiver
/// that looks late.
pub const SLOTS: usize = 16;

/// Smallest and largest ring, bytes per direction.
pub const RING_MIN: usize = 64 << 10;
/// See [`RING_MIN`].
pub const RING_MAX: usize = 16 << 20;

/// The two ends of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that made it.
    A,
    /// The one that received it.
    B,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = 8;
pub(crate) const RING_AT: usize = 16;

pub(crate) fn nonce(side: Side) -> usize {
    LINE * (1 + side.index())
}

const SIDES: usize = 4096;
const SIDE_BYTES: usize = 8 * LINE;

fn side(side: Side) -> usize {
    SIDES + SIDE_BYTES * side.index()
}

/// Published position of the ring this side writes.
pub(crate) fn tail(s: Side) -> usize {
    side(s)
}

/// This side has closed the rail: beside its tail, so that the reader gets both in one line.
pub(crate) fn closed(s: Side) -> usize {
    side(s) + 8
}

/// Consumed position of the ring this side reads. Two lines after the tail: processors fetch lines in pairs.
pub(crate) fn head(s: Side) -> usize {
    side(s) + 2 * LINE
}

/// This side sleeps.
pub(crate) fn sleeping(s: Side) -> usize {
    side(s) + 4 * LINE
}

/// Bytes that this side has copied by itself into regions of the other one, and out of them.
pub(crate) fn copied(s: Side) -> [usize; 2] {
    [0, 8].map(|word| side(s) + 5 * LINE + word)
}

/// Thread of this side that may be touching the other's memory, or 0.
pub(crate) fn inside(s: Side) -> usize {
    side(s) + 6 * LINE
}

/// Futex of a loop without a doorbell.
pub(crate) fn nap(s: Side) -> usize {
    side(s) + 7 * LINE
}

const TABLES: usize = 8192;
pub(crate) const SLOT_BYTES: usize = 3 * LINE;

/// Slot `i` of the transfers that this side sends.
pub(crate) fn slot(s: Side, i: usize) -> usize {
    debug_assert!(i < SLOTS);
    TABLES + (s.index() * SLOTS + i) * SLOT_BYTES
}

const PLACES: usize = 16384;

/// Where the receiver says where slice `n` of a row in slot `i` goes.
pub(crate) fn place(s: Side, i: usize, n: usize) -> usize {
    debug_assert!(i < SLOTS && n < MAX_SLICES as usize);
    PLACES + ((s.index() * SLOTS + i) * MAX_SLICES as usize + n) * size_of::<u64>()
}

/// The first ring begins here.
pub const RINGS: usize = 32768;

/// Largest page size that Linux runs on: 64 KiB on some ARM kernels.
const PAGE_MAX: usize = 64 << 10;

/// Bytes of the ring this side writes begin here.
pub(crate) fn ring(s: Side, size: usize) -> usize {
    RINGS + s.index() * size
}

/// Bytes of a ring that light traffic stays in, backed from the beginning. Both processors have them in their caches, which makes
/// a record that comes alone cheap. A stream uses the whole ring: lines that have left the writer's second-level cache cost their
/// reader less than lines that must be taken from there (through rings of 256 KiB, 512 KiB and 4 MiB pages of 16 KiB go at 8, 12 and 14 GB/s).
pub const LIGHT: usize = 128 << 10;

/// The parts of the map that every connection uses; each begins with a page, of whatever size.
pub(crate) fn always(size: usize) -> [Range<usize>; 2] {
    let (light, second) = (size.min(LIGHT), RINGS + size);
    [0..RINGS + light, second / PAGE_MAX * PAGE_MAX..second + light]
}

const REGION_BYTES: usize = WORDS * size_of::<u64>();

/// Entry `n` of the regions that this side exposes. Behind the rings: its pages take memory once they are used.
pub(crate) fn region(s: Side, n: usize, ring: usize) -> usize {
    debug_assert!(n < REGIONS);
    RINGS + 2 * ring + (s.index() * REGIONS + n) * REGION_BYTES
}

/// Bytes of the whole map.
pub fn total(ring: usize) -> usize {
    RINGS + 2 * ring + 2 * REGIONS * REGION_BYTES
}

const _: () = assert!(TABLES + 2 * SLOTS * SLOT_BYTES <= PLACES);
const _: () = assert!(PLACES + 2 * SLOTS * MAX_SLICES as usize * size_of::<u64>() <= RINGS);
const _: () = assert!(SIDES + 2 * SIDE_BYTES <= TABLES);
