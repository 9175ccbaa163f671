//! What stands behind the addresses: contexts, comms and memory handles of one plugin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::arena::Cell;
use crate::burst::Burst;
use crate::requests::{RequestSlots, Requests};
use crate::spin::SpinCell;
use crate::{MemKind, NetPlugin};

/// A communicator's context. Fields drop in this order.
pub(crate) struct CtxBody<P: NetPlugin> {
    pub(crate) pending: Pending<P::Connecting>,
    pub(crate) ctx: P::Ctx,
    pub(crate) plugin: Arc<P>,
    pub(crate) serial: u64,
    pub(crate) traffic_class: Option<u8>,
}

/// How long NCCL may not ask for a connect before it counts as given up: it asks all the time, and says nothing when it ends that.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Connects in progress by the number that stands at the end of the handle, and when each was last asked for.
pub(crate) struct Pending<C>(Mutex<BTreeMap<u64, (C, Instant)>>);

impl<C> Default for Pending<C> {
    fn default() -> Pending<C> {
        Pending(Mutex::default())
    }
}

impl<C> Pending<C> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (C, Instant)>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the one of this number out. Where there is none a new one begins, and those that were given up end.
    pub(crate) fn take(&self, number: u64, now: Instant) -> Option<C> {
        let mut all = self.lock();
        let found = all.remove(&number).map(|(connecting, _)| connecting);
        if found.is_none() {
            all.retain(|_, (_, asked)| now.saturating_duration_since(*asked) < GIVEN_UP);
        }
        found
    }

    pub(crate) fn put(&self, number: u64, connecting: C, now: Instant) {
        self.lock().insert(number, (connecting, now));
    }
}

/// A listen comm.
pub(crate) struct ListenBody<P: NetPlugin> {
    pub(crate) listen: SpinCell<P::Listen>,
    pub(crate) ctx: u64,
}

/// The part of a comm that its data-path thread has.
pub(crate) struct Path<T> {
    pub(crate) path: T,
    pub(crate) requests: Requests,
    /// Of a send comm.
    pub(crate) burst: Burst,
}

/// A send or receive comm: `T` is the plugin's data path.
pub(crate) struct CommBody<P: NetPlugin, T> {
    pub(crate) spin: SpinCell<Path<T>>,
    pub(crate) domain: P::Domain,
    pub(crate) ctx: u64,
}

pub(crate) type CommCell<P, T> = Cell<CommBody<P, T>, RequestSlots>;
pub(crate) type MrCell<P> = Cell<MrBody<P>>;

/// A memory handle.
pub(crate) struct MrBody<P: NetPlugin> {
    pub(crate) mr: P::Mr,
    pub(crate) kind: MemKind,
    /// Address of the comm it was registered on.
    pub(crate) comm: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_that_were_given_up_end_when_a_new_one_begins_and_others_go_on() {
        let (pending, start) = (Pending::default(), Instant::now());
        let [given_up, asked] = [(); 2].map(Arc::new);
        pending.put(1, given_up.clone(), start);
        pending.put(2, asked.clone(), start);
        let later = start + GIVEN_UP;
        let again = pending.take(2, later);
        pending.put(2, again.unwrap(), later);
        assert_eq!(Arc::strong_count(&given_up), 2, "whoever goes on ends no other");
        assert!(pending.take(0, later).is_none());
        assert_eq!((Arc::strong_count(&given_up), Arc::strong_count(&asked)), (1, 2));
        assert!(pending.take(1, later).is_none() && pending.take(2, later).is_some());
    }
}
