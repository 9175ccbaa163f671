//! One transfer that both processes copy together.
//!
//! The sender *offers* a chunk of its memory; the receiver *opens* it with the address where it goes; both *claim*
//! slices from one cursor and copy them, the receiver by reading the sender's memory, the sender by writing the
//! receiver's; each publishes which slices it has settled; the receiver *finishes*. Either may *stop* it at any
//! time: then nothing more is claimed, and it never finishes.
//!
//! The cursor word decides everything: offered, opened, finished and stopped are bits beside the next slice number
//! and the generation of the offer, so each step is one atomic read-modify-write, and of finish and stop exactly one
//! is first.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// Most slices of one transfer: one bit each in a word.
pub const MAX_SLICES: u32 = 64;

const NEXT: u64 = 0xFFFF;
const OPEN: u64 = 1 << 16;
const STOP: u64 = 1 << 17;
const DONE: u64 = 1 << 18;
const GEN: u32 = 32;

/// Attempts at a contended cursor before the call returns; with a correct peer one or two are lost.
const TRIES: u32 = 16;

/// The words of a slot. Each is written by one side only, except the cursor.
pub trait Words {
    /// Generation, flags and next slice; both sides.
    fn cursor(&self) -> &AtomicU64;
    /// Address in the receiver; the receiver's.
    fn dest(&self) -> &AtomicU64;
    /// Slices that the sender has copied; the sender's.
    fn sent(&self) -> &AtomicU64;
    /// Slices that the sender claimed and cannot write into place; the sender's.
    fn unsent(&self) -> &AtomicU64;
    /// Slices that the receiver claimed and cannot read; the receiver's.
    fn unread(&self) -> &AtomicU64;
}

/// What the cursor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// The receiver has given an address and slices may be claimed.
    pub open: bool,
    /// A side ended the transfer.
    pub stopped: bool,
    /// The receiver has everything.
    pub done: bool,
    /// Slices claimed so far by both.
    pub next: u32,
}

impl SlotState {
    fn of(word: u64) -> SlotState {
        SlotState {
            open: word & OPEN != 0,
            stopped: word & STOP != 0,
            done: word & DONE != 0,
            next: (word & NEXT) as u32,
        }
    }
}

/// The cursor does not carry the generation that both agreed on: the peer overwrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptSlot;

fn check(word: u64, generation: u32) -> Result<SlotState, CorruptSlot> {
    if (word >> GEN) as u32 == generation { Ok(SlotState::of(word)) } else { Err(CorruptSlot) }
}

/// Sender: makes the slot ready before its descriptor is published.
pub fn offer(w: &impl Words, generation: u32) {
    w.sent().store(0, Ordering::Relaxed);
    w.unsent().store(0, Ordering::Relaxed);
    w.cursor().store(u64::from(generation) << GEN, Ordering::Release);
}

/// The state now.
///
/// # Errors
/// [`CorruptSlot`]: the slot holds another generation.
pub fn state(w: &impl Words, generation: u32) -> Result<SlotState, CorruptSlot> {
    check(w.cursor().load(Ordering::Acquire), generation)
}

/// Receiver: gives the destination and opens the slot; `taken` slices count as claimed by the receiver from the
/// start. False where the sender has stopped it.
///
/// # Errors
/// [`CorruptSlot`]: the slot is not as it was offered.
pub fn open(w: &impl Words, generation: u32, dest: u64, taken: u32) -> Result<bool, CorruptSlot> {
    w.dest().store(dest, Ordering::Relaxed);
    w.unread().store(0, Ordering::Relaxed);
    let offered = u64::from(generation) << GEN;
    let opened = offered | OPEN | u64::from(taken);
    match w.cursor().compare_exchange(offered, opened, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(true),
        Err(word) if check(word, generation)?.stopped => Ok(false),
        Err(_) => Err(CorruptSlot),
    }
}

/// As [`claim_some`], one.
#[cfg(test)]
pub(crate) fn claim(w: &impl Words, generation: u32, slices: u32) -> Result<Option<u32>, CorruptSlot> {
    Ok(claim_some(w, generation, slices, 1)?.map(|slices| slices.start))
}

/// Claims up to `most` of the next of `slices` slices, where the transfer is open and one is left.
///
/// # Errors
/// [`CorruptSlot`]: the slot holds another generation.
pub fn claim_some(w: &impl Words, generation: u32, slices: u32, most: u32) -> Result<Option<Range<u32>>, CorruptSlot> {
    let slices = slices.min(MAX_SLICES);
    let mut word = w.cursor().load(Ordering::Acquire);
    for _ in 0..TRIES {
        let s = check(word, generation)?;
        if !s.open || s.stopped || s.done || s.next >= slices {
            return Ok(None);
        }
        let count = most.min(slices - s.next);
        match w.cursor().compare_exchange_weak(word, word + u64::from(count), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(Some(s.next..s.next + count)),
            Err(now) => word = now,
        }
    }
    Ok(None)
}

/// Receiver: everything is in place. False where the transfer was stopped first: then what lies there may be
/// torn and must not be reported.
///
/// # Errors
/// [`CorruptSlot`]: the slot holds another generation.
pub fn finish(w: &impl Words, generation: u32) -> Result<bool, CorruptSlot> {
    let s = check(w.cursor().fetch_or(DONE, Ordering::AcqRel), generation)?;
    Ok(!s.stopped)
}

/// Either side: nothing more is claimed from here on. True where the transfer had already finished.
pub fn stop(w: &impl Words) -> bool {
    SlotState::of(w.cursor().fetch_or(STOP, Ordering::AcqRel)).done
}

/// Whether the transfer goes on.
#[must_use]
pub fn runs(w: &impl Words, generation: u32) -> bool {
    let word = w.cursor().load(Ordering::Acquire);
    (word >> GEN) as u32 == generation && word & STOP == 0
}
