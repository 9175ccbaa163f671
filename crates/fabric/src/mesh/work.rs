//! What a mesh host may have this process do at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Shared;

/// Most streams relayed at a time: 64 MiB of buffers.
const RELAYS_MAX: usize = 128;

/// Most measurements at a time, at either end of them. Each is a thread for some seconds, and several over one cable would
/// measure each other.
const MEASUREMENTS_MAX: usize = 8;

/// Threads of this process that serve other hosts.
#[derive(Default)]
pub(super) struct Works {
    relays: AtomicUsize,
    measurements: AtomicUsize,
}

impl Works {
    pub(super) fn relays(&self) -> usize {
        self.relays.load(Ordering::Relaxed)
    }

    fn of(&self, work: Work) -> &AtomicUsize {
        match work {
            Work::Relay => &self.relays,
            Work::Measure => &self.measurements,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Work {
    Relay,
    Measure,
}

/// The right to do one of them. Given back when it is dropped.
pub(super) struct WorkSlot {
    pub(super) shared: Arc<Shared>,
    work: Work,
}

impl WorkSlot {
    /// Takes one, or says why there is none.
    pub(super) fn take(shared: &Arc<Shared>, work: Work) -> Result<WorkSlot, String> {
        let most = match work {
            Work::Relay => RELAYS_MAX,
            Work::Measure => MEASUREMENTS_MAX,
        };
        let next = |n: usize| (n < most).then_some(n + 1);
        match shared.works.of(work).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(WorkSlot { shared: shared.clone(), work }),
            Err(_) => Err(match work {
                Work::Relay => format!("LS1406 {most} streams are relayed already, which is the limit"),
                Work::Measure => format!("LS1425 {most} measurements are under way already, which is the limit"),
            }),
        }
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        self.shared.works.of(self.work).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
