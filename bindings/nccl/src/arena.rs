//! Objects whose addresses NCCL holds.
//!
//! A cell, once made, stays allocated until the library is unloaded and is used again for later objects. So an
//! address that NCCL kept too long leads to a cell that says "dead" or to a later object of the same kind, never to
//! freed memory. Calls off the data path look the address up first and touch nothing that is not ours.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::Misuse;

/// What a cell holds; also says which type its address stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    Ctx = 0x4c53_6374_7800_0001,
    Listen = 0x4c53_6c73_6e00_0002,
    Send = 0x4c53_736e_6400_0003,
    Recv = 0x4c53_7263_7600_0004,
    Mr = 0x4c53_6d72_0000_0005,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Kind::Ctx => "context",
            Kind::Listen => "listen comm",
            Kind::Send => "send comm",
            Kind::Recv => "receive comm",
            Kind::Mr => "memory handle",
        }
    }
}

const DEAD: u64 = 0;

/// One object with a stable address. `X` stays with the cell when the object changes.
#[repr(C)]
pub(crate) struct Cell<T, X = ()> {
    /// The kind while the object is valid; 0 otherwise. First, so that it can be read whatever the type.
    live: AtomicU64,
    pub(crate) extra: X,
    body: UnsafeCell<Option<T>>,
}

impl<T, X> Cell<T, X> {
    /// The object.
    ///
    /// # Safety
    /// The cell is live, and stays so as long as the reference is used: NCCL closes nothing that another of its
    /// threads is using.
    pub(crate) unsafe fn body(&self) -> Option<&T> {
        // SAFETY: only `insert` and `remove` write the body, and by the caller's promise neither runs now.
        unsafe { (*self.body.get()).as_ref() }
    }

    /// The cell behind an address that NCCL passed, without a look-up: for the data path.
    ///
    /// # Safety
    /// `address` came from this plugin at some time in the life of this library, or is null.
    #[inline]
    pub(crate) unsafe fn from_address<'a>(address: *mut c_void, kind: Kind) -> Result<&'a Cell<T, X>, Misuse> {
        let Some(ptr) = NonNull::new(address.cast::<Cell<T, X>>()) else {
            return Err(Misuse::Null(kind.word()));
        };
        if !ptr.is_aligned() {
            return Err(Misuse::Stranger(kind.word(), address as usize));
        }
        // SAFETY: addresses of this plugin are cells, which stay allocated; the first field has the same place and
        // type in every cell and is atomic.
        let live = unsafe { &*ptr.as_ptr().cast::<AtomicU64>() };
        if live.load(Ordering::Acquire) != kind as u64 {
            return Err(Misuse::Stranger(kind.word(), address as usize));
        }
        // SAFETY: the kind names the type, so this is such a cell; it stays allocated until the library is unloaded.
        Ok(unsafe { ptr.as_ref() })
    }
}

/// All cells of one kind.
pub(crate) struct Arena<T, X = ()> {
    kind: Kind,
    cells: Mutex<Cells>,
    make: fn() -> X,
    owns: std::marker::PhantomData<fn() -> T>,
}

struct Cells {
    live: BTreeSet<usize>,
    free: Vec<usize>,
}

impl<T, X> Arena<T, X> {
    pub(crate) const fn new(kind: Kind, make: fn() -> X) -> Arena<T, X> {
        Arena {
            kind,
            cells: Mutex::new(Cells { live: BTreeSet::new(), free: Vec::new() }),
            make,
            owns: std::marker::PhantomData,
        }
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives an object an address.
    pub(crate) fn insert(&self, make: impl FnOnce(&Cell<T, X>) -> T) -> *mut c_void {
        let reused = self.cells().free.pop();
        let address = reused.unwrap_or_else(|| {
            let cell = Cell::<T, X> { live: AtomicU64::new(DEAD), extra: (self.make)(), body: UnsafeCell::new(None) };
            Box::into_raw(Box::new(cell)) as usize
        });
        // SAFETY: the cell is allocated (just now, or before and never freed) and in neither list, so no other code
        // uses it.
        let cell = unsafe { &*(address as *const Cell<T, X>) };
        let body = make(cell);
        // SAFETY: as above; `make` kept no reference to the body, which it cannot reach as the cell is dead.
        unsafe { *cell.body.get() = Some(body) };
        cell.live.store(self.kind as u64, Ordering::Release);
        self.cells().live.insert(address);
        address as *mut c_void
    }

    /// The live cell at an address, looked up: whatever the number, no memory but our own is touched.
    pub(crate) fn find(&self, address: *mut c_void) -> Result<&Cell<T, X>, Misuse> {
        if address.is_null() {
            return Err(Misuse::Null(self.kind.word()));
        }
        if !self.cells().live.contains(&(address as usize)) {
            return Err(Misuse::Stranger(self.kind.word(), address as usize));
        }
        // SAFETY: live cells are allocated and of this arena's type.
        Ok(unsafe { &*(address.cast::<Cell<T, X>>()) })
    }

    /// Takes the object away from its address.
    pub(crate) fn remove(&self, address: *mut c_void) -> Result<Removed<'_, T, X>, Misuse> {
        if address.is_null() {
            return Err(Misuse::Null(self.kind.word()));
        }
        if !self.cells().live.remove(&(address as usize)) {
            return Err(Misuse::Stranger(self.kind.word(), address as usize));
        }
        // SAFETY: it was live until now, so it is allocated and of this arena's type.
        let cell = unsafe { &*(address.cast::<Cell<T, X>>()) };
        cell.live.store(DEAD, Ordering::Release);
        // SAFETY: it is in neither list now; NCCL closes nothing that another of its threads is using.
        let body = unsafe { (*cell.body.get()).take() };
        Ok(Removed { arena: self, address: address as usize, body })
    }

    /// Addresses of all live objects for which `pick` says yes.
    pub(crate) fn list(&self, mut pick: impl FnMut(&T) -> bool) -> Vec<*mut c_void> {
        let cells = self.cells();
        let chosen = cells.live.iter().filter(|&&address| {
            // SAFETY: live cells are allocated, of this arena's type, and cannot be removed while the list is locked.
            unsafe { (*(address as *const Cell<T, X>)).body() }.is_some_and(&mut pick)
        });
        chosen.map(|&address| address as *mut c_void).collect()
    }

    /// Whether nothing lives here.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells().live.is_empty()
    }

    /// Gives the memory of free cells back.
    ///
    /// # Safety
    /// No address of a cell that is not live is used any more: the library is being unloaded.
    pub(crate) unsafe fn release(&self) {
        for address in std::mem::take(&mut self.cells().free) {
            // SAFETY: made by `Box::into_raw`, in no list now, and not used by other code by the caller's promise.
            drop(unsafe { Box::from_raw(address as *mut Cell<T, X>) });
        }
    }
}

/// An object on its way out. Its cell is free for the next one when this is dropped, after the object.
pub(crate) struct Removed<'a, T, X> {
    arena: &'a Arena<T, X>,
    address: usize,
    pub(crate) body: Option<T>,
}

impl<T, X> Drop for Removed<'_, T, X> {
    fn drop(&mut self) {
        drop(self.body.take());
        self.arena.cells().free.push(self.address);
    }
}

#[cfg(test)]
mod tests;
