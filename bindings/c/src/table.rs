//! Handles: numbers that name objects, for callers that cannot be trusted to keep them apart.
//!
//! A handle is a kind (8 bits), a generation (32) and a slot (24). A look-up takes the lock of its slot, copies a reference
//! count and allocates nothing. Slots are used again with the next generation; one whose generations have run out is
//! retired. The kinds have 10 as their top bits: no user address of a 64-bit machine has, so a handle that is followed faults.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::status::Refusal;

const SLOT_BITS: u32 = 24;
const FIRST_BITS: u32 = 6;
/// Chunk n has 64 << n slots, so that slots never move and 18 chunks hold nearly 2^24.
const CHUNKS: usize = (SLOT_BITS - FIRST_BITS) as usize;

struct Held<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

type Chunk<T> = Box<[Mutex<Held<T>>]>;

struct Slots {
    free: Vec<u32>,
    made: u32,
}

/// All objects of one kind.
pub(crate) struct Table<T> {
    kind: u8,
    word: &'static str,
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    slots: Mutex<Slots>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Chunk of a slot and place in it.
fn place(slot: u32) -> (usize, usize) {
    let chunk = ((slot >> FIRST_BITS) + 1).ilog2();
    (chunk as usize, (slot - (((1 << chunk) - 1) << FIRST_BITS)) as usize)
}

impl<T> Table<T> {
    /// `kind` is different for each table.
    pub(crate) const fn new(kind: u8, word: &'static str) -> Table<T> {
        assert!(kind >> 6 == 0b10);
        let slots = Mutex::new(Slots { free: Vec::new(), made: 0 });
        Table { kind, word, chunks: [const { OnceLock::new() }; CHUNKS], slots }
    }

    fn slot(&self, slot: u32) -> Option<&Mutex<Held<T>>> {
        let (chunk, at) = place(slot);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn stranger(&self, handle: u64) -> Refusal {
        Refusal::Handle { word: self.word, handle }
    }

    /// The locked slot of a living handle.
    fn held(&self, handle: u64) -> Result<MutexGuard<'_, Held<T>>, Refusal> {
        if (handle >> 56) as u8 != self.kind {
            return Err(self.stranger(handle));
        }
        let slot = self.slot(handle as u32 & ((1 << SLOT_BITS) - 1)).ok_or_else(|| self.stranger(handle))?;
        let held = lock(slot);
        if held.generation != (handle >> SLOT_BITS) as u32 {
            return Err(self.stranger(handle));
        }
        Ok(held)
    }

    /// Gives an object a handle.
    pub(crate) fn insert(&self, object: Arc<T>) -> Result<u64, Refusal> {
        let mut slots = lock(&self.slots);
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = slots.made;
                let chunk = place(slot).0;
                let chunk_of = self.chunks.get(chunk).ok_or(Refusal::Full(self.word))?;
                chunk_of.get_or_init(|| {
                    let empty = || Mutex::new(Held { generation: 1, object: None });
                    std::iter::repeat_with(empty).take(1 << (chunk as u32 + FIRST_BITS)).collect()
                });
                slots.made += 1;
                slot
            }
        };
        drop(slots);
        let mut held = lock(self.slot(slot).ok_or(Refusal::Full(self.word))?);
        held.object = Some(object);
        Ok(u64::from(self.kind) << 56 | u64::from(held.generation) << SLOT_BITS | u64::from(slot))
    }

    /// The object of a handle.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Refusal> {
        self.held(handle)?.object.clone().ok_or_else(|| self.stranger(handle))
    }

    /// Takes the object from its handle, which stays taken until [`Table::resume`] or [`Table::retire`].
    pub(crate) fn suspend(&self, handle: u64) -> Result<Arc<T>, Refusal> {
        self.held(handle)?.object.take().ok_or_else(|| self.stranger(handle))
    }

    /// Gives a suspended handle an object again.
    pub(crate) fn resume(&self, handle: u64, object: Arc<T>) -> Result<(), Refusal> {
        self.held(handle)?.object = Some(object);
        Ok(())
    }

    /// Ends a suspended handle permanently.
    pub(crate) fn retire(&self, handle: u64) -> Result<(), Refusal> {
        let mut held = self.held(handle)?;
        let next = held.generation.checked_add(1);
        held.generation = next.unwrap_or(0);
        drop(held);
        if next.is_some() {
            lock(&self.slots).free.push(handle as u32 & ((1 << SLOT_BITS) - 1));
        }
        Ok(())
    }

    /// Takes the object from its handle forever.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Refusal> {
        let object = self.suspend(handle)?;
        self.retire(handle)?;
        Ok(object)
    }
}

#[cfg(test)]
mod tests;
