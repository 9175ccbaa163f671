//! Handles on the simulated device's memory.
#![allow(unsafe_code)]

use linkspan_transport::{MemSlice, MemoryDomain};

/// The handle of a simulated allocation.
pub(super) fn of(place: MemoryDomain, addr: u64, len: usize) -> MemSlice {
    // SAFETY: the simulated device looks every address up in its own table before it touches a byte, and refuses those
    // of allocations that are gone.
    unsafe { MemSlice::on_device(place, addr, len) }
}
