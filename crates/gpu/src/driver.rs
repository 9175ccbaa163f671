//! What drivers have in common: tables of handles that calls name by number, and memory that is handed out again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most streams, and most events, that a device hands out at a time: a staged rail has 2 and 127.
pub const MOST: usize = 16 << 10;

/// Handles of a driver by number. Looking one up takes no lock; a number that was never given out finds nothing.
#[derive(Debug)]
pub struct Handles {
    slots: Box<[AtomicUsize]>,
    free: Mutex<(usize, Vec<u32>)>,
}

impl Default for Handles {
    fn default() -> Handles {
        let slots = (0..MOST).map(|_| AtomicUsize::new(0)).collect();
        Handles { slots, free: Mutex::new((0, Vec::new())) }
    }
}

impl Handles {
    /// A number that was taken back, or a new one for what `make` gives (which is not 0). `None`: none left.
    ///
    /// # Errors
    /// What `make` says.
    pub fn take<E>(&self, make: impl FnOnce() -> Result<usize, E>) -> Result<Option<u32>, E> {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(number) = free.1.pop() {
            return Ok(Some(number));
        }
        let Some(slot) = self.slots.get(free.0) else { return Ok(None) };
        slot.store(make()?, Ordering::Release);
        free.0 += 1;
        Ok(Some((free.0 - 1) as u32))
    }

    /// Takes a number back, whose handle is given out again.
    pub fn give(&self, number: u32) {
        self.free.lock().unwrap_or_else(|e| e.into_inner()).1.push(number);
    }

    /// The handle of a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<usize> {
        let handle = self.slots.get(number as usize)?.load(Ordering::Acquire);
        (handle != 0).then_some(handle)
    }
}

/// Device memory that was given back, by size. It is never unmapped, as [`linkspan_transport::HostBuf`] is not.
#[derive(Debug, Default)]
pub struct Pool(Mutex<BTreeMap<usize, Vec<u64>>>);

/// Allocations are rounded to this, so that one serves again: the page of device memory.
const ROUND: usize = 64 << 10;

impl Pool {
    /// Memory of at least `len` bytes that was given back, or what `make` gives for the rounded size.
    ///
    /// # Errors
    /// What `make` says.
    pub fn take<E>(&self, len: usize, make: impl FnOnce(usize) -> Result<u64, E>) -> Result<u64, E> {
        let size = len.max(1).next_multiple_of(ROUND);
        let found = self.0.lock().unwrap_or_else(|e| e.into_inner()).get_mut(&size).and_then(Vec::pop);
        found.map_or_else(|| make(size), Ok)
    }

    /// Takes memory back that [`Pool::take`] gave for `len` bytes.
    pub fn give(&self, len: usize, addr: u64) {
        let size = len.max(1).next_multiple_of(ROUND);
        self.0.lock().unwrap_or_else(|e| e.into_inner()).entry(size).or_default().push(addr);
    }
}
