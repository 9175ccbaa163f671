//! Queue pairs are destroyed by a thread of their own. A device whose cable is dead may keep the call for a minute: rdma_rxe
//! waits up to 50 s for packets that the network card does not give back. The thread that carries connections, some of them
//! over other cables, does not wait with it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::ProtectionDomain;
use super::cq::RawCq;
use crate::abi;

/// A queue pair that takes and sends nothing any more.
pub(super) struct Remains {
    pd: Arc<ProtectionDomain>,
    /// Kept alive: it belongs to the queue pair until that is destroyed.
    _cq: Arc<RawCq>,
    raw: *mut abi::IbvQp,
}

// SAFETY: see `Context`.
unsafe impl Send for Remains {}

impl Remains {
    /// What is left of a queue pair, which is destroyed with this value and used no more.
    pub(super) fn new(pd: Arc<ProtectionDomain>, cq: Arc<RawCq>, raw: *mut abi::IbvQp) -> Remains {
        Remains { pd, _cq: cq, raw }
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once.
        unsafe { (self.pd.context.library.destroy_qp)(self.raw) };
    }
}

/// The thread of a device that does it, from the first queue pair on. The last holder waits for it, for the code may be
/// unloaded afterwards.
pub(super) struct Reaper<T = Remains>(Mutex<Option<(Sender<T>, JoinHandle<()>)>>);

impl<T: Send + 'static> Reaper<T> {
    pub(super) fn new() -> Reaper<T> {
        Reaper(Mutex::new(None))
    }

    /// Has it destroyed. Here and now where no thread can be had.
    pub(super) fn take(&self, remains: T) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (give, taken) = channel();
            let run = move || {
                linkspan_thread::block_signals();
                taken.into_iter().for_each(drop);
            };
            *thread = Builder::new().name("linkspan reaper".into()).spawn(run).ok().map(|handle| (give, handle));
        }
        match thread.as_ref() {
            // Given back and dropped here, if it has ended.
            Some((give, _)) => drop(give.send(remains)),
            None => drop(remains),
        }
    }
}

impl<T> Drop for Reaper<T> {
    fn drop(&mut self) {
        if let Some((give, handle)) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            drop(give);
            // It has nothing that could panic; what is destroyed is.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests;
