//! What both engines share: the geometry of a transfer, what they tell the user, and the clocks of the stages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::fs::{Kind, Time};
use crate::hash::{CHUNK, Value};
use crate::name::RelPath;
use crate::wire::{Extra, Fault, Key, LeftOut, Note, Stages};

/// Sizes that both sides of a transfer have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Chunks in a slot.
    pub per_slot: u64,
    /// Slots.
    pub slots: u16,
}

impl Geometry {
    /// That of every transfer: 8 slots of 4 MiB, which is all that is moved twice after a connection was lost.
    pub const REAL: Geometry = Geometry { chunk: CHUNK, per_slot: 4, slots: 8 };

    /// Bytes of a slot.
    pub fn slot(&self) -> u64 {
        self.chunk * self.per_slot
    }

    /// Chunks of a file of `size` bytes.
    pub fn chunks(&self, size: u64) -> u64 {
        size.div_ceil(self.chunk)
    }

    /// Whether a file of this size goes in one piece, without a partial file to resume.
    pub fn is_small(&self, size: u64) -> bool {
        size <= self.chunk
    }

    /// Bytes of chunk `index`.
    pub fn chunk_len(&self, size: u64, index: u64) -> usize {
        size.saturating_sub(index * self.chunk).min(self.chunk) as usize
    }
}

/// Units (slots, holes, kept ranges) under way at a time.
pub(crate) const UNITS_MAX: usize = 32;

/// Something that the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Path of the entry, from the place of the transfer.
    pub path: RelPath,
    /// What happened to it.
    pub what: Happened,
}

/// What happened to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The receiver has it already.
    Same,
    /// A directory or link that the receiver has made, or would make.
    Made(Kind),
    /// The receiver has it and the sender has not: it is in the receiver's trash now, or would be.
    Extra(Extra),
    /// It has arrived: size and hash.
    Done(u64, Value),
    /// It would be sent: its size and time.
    Would(u64, Time),
    /// It has not arrived.
    Failed(Fault),
    /// Something of it does not travel.
    LeftOut(LeftOut),
    /// It changed while it was read and is sent again.
    Again,
}

impl Happened {
    pub(crate) fn noted(note: Note) -> Happened {
        match note {
            Note::Failed(fault) => Happened::Failed(fault),
            Note::LeftOut(why) => Happened::LeftOut(why),
            Note::Extra(extra) => Happened::Extra(extra),
        }
    }
}

/// The peer does not follow the protocol; the connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS1806 the peer does not keep to the protocol: {0}")]
pub struct Violation(pub &'static str);

/// The link is gone; what it was is known to whoever owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLost;

/// Where the sender's jobs put bytes: into a slot of the receiver.
pub trait Outlet {
    /// Memory of our own for what goes into a slot: as many bytes as a slot has.
    fn staging(&mut self) -> &mut [u8];
    /// Writes the first `len` staged bytes into a slot of the receiver; they have landed when this returns.
    ///
    /// # Errors
    /// [`LinkLost`].
    fn write(&mut self, slot: u16, len: usize) -> Result<(), LinkLost>;
}

/// Where the receiver's jobs take bytes from: a slot that the peer can write at any time, so that everything is copied first.
pub trait SlotReader {
    /// Copies bytes out of a slot.
    fn read(&self, slot: u16, at: usize, out: &mut [u8]);
}

/// Thread time of the stages, summed over threads.
#[derive(Debug, Default)]
pub struct Clock {
    read: AtomicU64,
    hash: AtomicU64,
    link: AtomicU64,
    check: AtomicU64,
    write: AtomicU64,
    /// Bytes of content that crossed the link, and that did not have to.
    moved: AtomicU64,
    kept: AtomicU64,
}

/// One of the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    Read,
    Hash,
    Link,
    Check,
    Write,
}

impl Clock {
    pub(crate) fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let of = match stage {
            Stage::Read => &self.read,
            Stage::Hash => &self.hash,
            Stage::Link => &self.link,
            Stage::Check => &self.check,
            Stage::Write => &self.write,
        };
        of.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    pub(crate) fn count_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_kept(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of content that crossed the link.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Bytes of content that the receiver had, or that are holes.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// What this side's stages have taken.
    pub fn stages(&self) -> Stages {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Stages {
            read: get(&self.read),
            hash: get(&self.hash),
            link: get(&self.link),
            check: get(&self.check),
            write: get(&self.write),
        }
    }
}

impl Stages {
    /// Both sides' together.
    pub fn plus(self, other: Stages) -> Stages {
        Stages {
            read: self.read.saturating_add(other.read),
            hash: self.hash.saturating_add(other.hash),
            link: self.link.saturating_add(other.link),
            check: self.check.saturating_add(other.check),
            write: self.write.saturating_add(other.write),
        }
    }

    /// The slowest stage and its share of the work of all; `None` where nothing was done.
    pub fn slowest(&self) -> Option<(&'static str, f64)> {
        let all = [
            ("reading the source", self.read),
            ("hashing at the sender", self.hash),
            ("the link", self.link),
            ("hashing at the receiver", self.check),
            ("writing at the receiver", self.write),
        ];
        let sum: f64 = all.iter().map(|stage| stage.1 as f64).sum();
        let slowest = all.into_iter().max_by_key(|stage| stage.1)?;
        (sum > 0.0).then(|| (slowest.0, slowest.1 as f64 / sum))
    }
}

/// What an engine is given and asked by whoever drives it: messages and finished jobs in, messages and jobs out.
pub trait Engine {
    /// Work that may take long, for any thread.
    type Job: Send;
    /// What came of a job.
    type Done: Send;

    /// A message of the peer.
    ///
    /// # Errors
    /// [`Violation`].
    fn on(&mut self, message: crate::wire::Message) -> Result<(), Violation>;
    /// A job is done.
    ///
    /// # Errors
    /// [`LinkLost`]: the job could not reach the peer.
    fn done(&mut self, done: Self::Done) -> Result<(), LinkLost>;
    /// Goes on as far as possible.
    fn pump(&mut self);
    /// The next message for the peer.
    fn message(&mut self) -> Option<crate::wire::Message>;
    /// The next job.
    fn job(&mut self) -> Option<Self::Job>;
    /// The next thing to tell the user.
    fn event(&mut self) -> Option<Event>;
    /// Whether both sides have finished: no job is under way, and no message of the peer belongs to this transfer any more.
    fn is_over(&self) -> bool;
}

/// Keys in the order of their files.
pub(crate) fn key(batch: u32, index: usize) -> Key {
    Key { batch, index: index as u16 }
}
