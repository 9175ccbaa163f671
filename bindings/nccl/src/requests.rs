//! Requests in flight on one comm, and the addresses that NCCL knows them by.
//!
//! `test` gets nothing but a request's address, so each comm has a fixed row of [`RequestSlot`]s which lead back to it. The
//! address carries a generation in its low bits: a request that was reported done is told from its successor.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::arena::Kind;
use crate::{MAX_RECVS, Misuse};

/// Requests one comm can have in flight: NCCL's 32 times 8 grouped buffers, as its sender has one per buffer.
pub const REQUESTS: usize = crate::abi::MAX_REQUESTS * MAX_RECVS;

/// Low bits of a request slot's address that hold the generation, 1 to 63; so null and NCCL's flags 1 and 2 are no requests.
const GENERATION: usize = 63;
const SLOT_MARK: u64 = 0x4c53_646f_6f72_5eed;

/// The fixed place of one request. Written when its comm's cell is made, only read after that, but for the generation.
#[repr(C, align(64))]
pub(crate) struct RequestSlot {
    mark: AtomicU64,
    cell: AtomicUsize,
    kind: AtomicU64,
    index: AtomicU64,
    /// Of the request that was here last, of whichever comm.
    generation: AtomicU8,
}

/// Where a request's address leads.
pub(crate) struct Through {
    /// Address of the comm's cell.
    pub(crate) cell: *mut c_void,
    pub(crate) is_send: bool,
    index: u16,
    generation: u8,
    request: usize,
}

/// A comm's row of request slots; belongs to its cell.
pub(crate) struct RequestSlots(Arc<[RequestSlot]>);

impl RequestSlots {
    pub(crate) fn new() -> RequestSlots {
        let slot = |index| RequestSlot {
            mark: AtomicU64::new(0),
            cell: AtomicUsize::new(0),
            kind: AtomicU64::new(0),
            index: AtomicU64::new(index as u64),
            generation: AtomicU8::new(0),
        };
        RequestSlots((0..REQUESTS).map(slot).collect())
    }

    /// Lets all request slots lead to the comm at `cell`.
    pub(crate) fn hang(&self, cell: usize, kind: Kind) {
        for slot in &*self.0 {
            slot.cell.store(cell, Ordering::Relaxed);
            slot.kind.store(kind as u64, Ordering::Relaxed);
            slot.mark.store(SLOT_MARK ^ std::ptr::from_ref(slot) as u64, Ordering::Release);
        }
    }
}

/// Reads a request's address.
///
/// # Safety
/// `request` came from this plugin at some time in the life of this library, or is below 64.
#[inline]
pub(crate) unsafe fn through(request: *mut c_void) -> Result<Through, Misuse> {
    let number = request as usize;
    if number <= GENERATION {
        return Err(if number == 0 { Misuse::Null("request") } else { Misuse::Request(number) });
    }
    let slot = request.map_addr(|a| a & !GENERATION).cast::<RequestSlot>();
    // SAFETY: requests of this plugin are request slots, which stay allocated until the library is unloaded; all fields are
    // atomic. The address is aligned by the mask.
    let slot = unsafe { &*slot };
    if slot.mark.load(Ordering::Acquire) != SLOT_MARK ^ std::ptr::from_ref(slot) as u64 {
        return Err(Misuse::Request(number));
    }
    Ok(Through {
        cell: slot.cell.load(Ordering::Relaxed) as *mut c_void,
        is_send: slot.kind.load(Ordering::Relaxed) == Kind::Send as u64,
        index: slot.index.load(Ordering::Relaxed) as u16,
        generation: (number & GENERATION) as u8,
        request: number,
    })
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// The plugin's ticket.
    pub(crate) ticket: u64,
    /// Buffers.
    pub(crate) parts: u8,
    generation: u8,
    in_flight: bool,
    /// Reported done; NCCL's kernel has it.
    with_kernel: bool,
    /// Addresses of the memory handles.
    mrs: [usize; MAX_RECVS],
}

/// The requests of one comm; part of its data path.
pub(crate) struct Requests {
    entries: Box<[Entry]>,
    free: Vec<u16>,
    slots: Arc<[RequestSlot]>,
}

impl Requests {
    /// For the comm that owns `slots`. Comms that they lead to one after the other go on with the generations.
    pub(crate) fn new(slots: &RequestSlots) -> Requests {
        let entry =
            Entry { ticket: 0, parts: 0, generation: 0, in_flight: false, with_kernel: false, mrs: [0; MAX_RECVS] };
        Requests {
            entries: vec![entry; REQUESTS].into(),
            free: (0..REQUESTS as u16).rev().collect(),
            slots: slots.0.clone(),
        }
    }

    /// Whether a request can start.
    #[inline]
    pub(crate) fn has_space(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether none is in flight.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Starts a request and returns its address, or null without space.
    #[inline]
    pub(crate) fn start(&mut self, ticket: u64, mrs: impl ExactSizeIterator<Item = usize>) -> *mut c_void {
        let Some(index) = self.free.pop() else {
            return std::ptr::null_mut();
        };
        let entry = &mut self.entries[usize::from(index)];
        entry.ticket = ticket;
        entry.parts = mrs.len() as u8;
        let slot = &self.slots[usize::from(index)];
        entry.generation = slot.generation.load(Ordering::Relaxed) % GENERATION as u8 + 1;
        slot.generation.store(entry.generation, Ordering::Relaxed);
        entry.in_flight = true;
        for (place, mr) in entry.mrs.iter_mut().zip(mrs) {
            *place = mr;
        }
        (std::ptr::from_ref(slot) as usize | usize::from(entry.generation)) as *mut c_void
    }

    /// The request that `through` names.
    #[inline]
    pub(crate) fn get(&self, through: &Through) -> Result<&Entry, Misuse> {
        let entry = self.entries.get(usize::from(through.index)).filter(|e| e.in_flight && !e.with_kernel);
        let entry = entry.filter(|e| e.generation == through.generation);
        entry.ok_or(Misuse::Request(through.request))
    }

    /// The request is done, and waits for NCCL's kernel.
    pub(crate) fn hand_over(&mut self, through: &Through) {
        if let Some(entry) = self.entries.get_mut(usize::from(through.index)) {
            entry.with_kernel = true;
        }
    }

    /// The ticket of the request that `through` names, if it waits for NCCL's kernel.
    #[inline]
    pub(crate) fn with_kernel(&self, through: &Through) -> Option<u64> {
        let entry = self.entries.get(usize::from(through.index)).filter(|e| e.in_flight && e.with_kernel);
        entry.filter(|e| e.generation == through.generation).map(|e| e.ticket)
    }

    /// The request is done.
    #[inline]
    pub(crate) fn finish(&mut self, through: &Through) {
        if let Some(entry) = self.entries.get_mut(usize::from(through.index))
            && entry.in_flight
        {
            (entry.in_flight, entry.with_kernel) = (false, false);
            self.free.push(through.index);
        }
    }

    /// Whether a request in flight uses the memory handle at this address.
    pub(crate) fn uses(&self, mr: usize) -> bool {
        self.free.len() < REQUESTS
            && self.entries.iter().any(|e| e.in_flight && !e.with_kernel && e.mrs[..usize::from(e.parts)].contains(&mr))
    }
}

#[cfg(test)]
mod tests;
