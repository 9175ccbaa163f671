//! What stands behind the addresses: contexts, comms and memory handles of one plugin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::arena::Cell;
use crate::burst::Burst;
use crate::requests::{RequestSlots, Requests};
use crate::spin::SpinCell;
use crate::{MemKind, NetPlugin};

/// A communicator's context. Fields drop in this order.
pub(crate) struct CtxBody<P: NetPlugin> {
    /// Connects in progress by the number that stands at the end of the handle.
    pub(crate) pending: Mutex<BTreeMap<u64, P::Connecting>>,
    pub(crate) ctx: P::Ctx,
    pub(crate) plugin: Arc<P>,
    pub(crate) serial: u64,
    pub(crate) traffic_class: Option<u8>,
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
