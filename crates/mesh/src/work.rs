//! What a mesh host may have this process do at a time.

use std::sync::Arc;

use linkspan_net::{Quota, Share};

use super::Shared;

/// Most streams relayed at a time: 64 MiB of buffers.
const RELAYS_MAX: u64 = 128;

/// Most measurements at a time, at either end of them. Each is a thread for some seconds, and several over one cable would
/// measure each other.
const MEASUREMENTS_MAX: u64 = 8;

/// Threads of this process that serve other hosts.
pub(super) struct Works {
    relays: Quota,
    measurements: Quota,
}

impl Default for Works {
    fn default() -> Works {
        Works { relays: Quota::new(RELAYS_MAX), measurements: Quota::new(MEASUREMENTS_MAX) }
    }
}

impl Works {
    pub(super) fn relays(&self) -> u64 {
        RELAYS_MAX - self.relays.left()
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
    _share: Share,
}

impl WorkSlot {
    /// Takes one, or says why there is none.
    pub(super) fn take(shared: &Arc<Shared>, work: Work) -> Result<WorkSlot, String> {
        let share = match work {
            Work::Relay => shared
                .works
                .relays
                .take(1)
                .ok_or_else(|| format!("LS1406 {RELAYS_MAX} streams are relayed already, which is the limit")),
            Work::Measure => shared.works.measurements.take(1).ok_or_else(|| {
                format!("LS1425 {MEASUREMENTS_MAX} measurements are under way already, which is the limit")
            }),
        };
        Ok(WorkSlot { shared: shared.clone(), _share: share? })
    }
}

#[cfg(test)]
mod tests;
