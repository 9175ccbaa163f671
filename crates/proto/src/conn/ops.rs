//! Operations in flight: a fixed table with generations, so that a stale ticket is never mistaken for a live one.

use super::planted::{self, Bug};
use super::{MAX_GROUP, MAX_OPS};
use crate::Buf;

/// What has moved without a call of ours: because the peer sent it, asked for it or made space for it. Bytes of host memory and of a device's are counted apart, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of receives and reads that are done, and of writes of the peer that have landed here.
    pub received: [u64; 2],
    /// Receives and reads done.
    pub receives: u64,
    /// Bytes that the peer has read here.
    pub answered: [u64; 2],
    /// Bytes of sends that had to wait and have left since.
    pub left_later: [u64; 2],
    /// How many those are.
    pub departures: u64,
}

impl Traffic {
    #[inline]
    pub(super) fn received<B: Buf>(&mut self, to: B, bytes: u64) {
        self.received[usize::from(!to.is_host())] += bytes;
    }

    pub(super) fn left<B: Buf>(&mut self, from: B) {
        self.left_later[usize::from(!from.is_host())] += from.len() as u64;
        self.departures += 1;
    }
}

/// Names an operation from its post until it has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket as a number that is never 0, for bindings whose callers hold opaque pointers.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The reverse of [`Ticket::to_u64`]; a number that never was a ticket is answered with [`OpError::NoSuchOp`].
    pub fn from_u64(n: u64) -> Ticket {
        Ticket(n)
    }

    fn new(index: usize, generation: u32) -> Ticket {
        Ticket(u64::from(generation) << 32 | index as u64)
    }

    pub(super) fn index(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Why an operation failed. Plain data: the data path makes no texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// A message was longer than the receive it met.
    #[error(
        "LS0010 a message of {sent} bytes with tag {tag} met a receive posted for {posted} bytes: post receives as large as the largest message"
    )]
    Truncated {
        /// Bytes sent.
        sent: u64,
        /// Bytes the receive has space for.
        posted: u64,
        /// The tag.
        tag: u32,
    },
    /// A group had no parts or more than [`MAX_GROUP`].
    #[error("LS0011 a grouped receive of {0} parts: 1 to {MAX_GROUP} are possible")]
    GroupSize(usize),
    /// A ticket that was never given out, or whose operation has reported already.
    #[error("LS0012 this ticket names no operation in flight: each ticket reports once")]
    NoSuchOp,
    /// The peer refused a one-sided operation.
    #[error(
        "LS0013 the peer refused access to region key {key:#010x}: the key is unknown or from an older registration, the range is outside, or the right is missing"
    )]
    RemoteAccess {
        /// The key.
        key: u32,
    },
    /// The connection was closed or lost before the operation was done.
    #[error("LS0014 the connection ended before the operation was done")]
    Ended,
    /// One-sided operation on a connection that was made without them.
    #[error("LS0015 this connection carries no one-sided operations: it was set up without acknowledgements")]
    NotAcked,
    /// The local range does not fit the request.
    #[error(
        "LS0016 a one-sided operation of {len} bytes at offset {offset} does not fit the address space of a region"
    )]
    Range {
        /// Offset in the remote region.
        offset: u64,
        /// Length.
        len: u64,
    },
    /// The local memory did not let itself be copied, as that of a device whose driver reports an error.
    #[error("LS0017 the local memory of the operation could not be copied: its device or driver reports an error")]
    Memory,
}

/// What [`super::Engine::test`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not yet.
    Pending,
    /// Done; bytes moved, summed over the parts of a group.
    Done(u64),
    /// Failed; the local memory is free again.
    Failed(OpError),
}

/// When an operation is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompletionRule {
    /// When the part that works on it reports it.
    Reported,
    /// When this rail has taken this item.
    Taken { rail: usize, pos: u64 },
    /// When the peer has processed control messages up to and with this one.
    Acked { seq: u64 },
    /// When its chunks are back and the notification that follows them has been sent.
    Notify,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    generation: u32,
    live: bool,
    mark: CompletionRule,
    outcome: Outcome,
    bytes: u64,
    parts_left: u8,
    /// Chunks sent and not acknowledged.
    chunks_out: u32,
    /// It is being cut into chunks; its memory is read until all are out.
    segmenting: bool,
    /// No more chunks will be sent for it.
    all_out: bool,
    /// A one-sided write: what the peer may refuse by table index.
    write: bool,
    sizes: [u64; MAX_GROUP],
}

impl Op {
    fn settle(&mut self) {
        if self.all_out
            && self.chunks_out == 0
            && self.outcome == Outcome::Pending
            && matches!(self.mark, CompletionRule::Reported)
        {
            self.outcome = Outcome::Done(self.bytes);
        }
    }
}

#[derive(Debug)]
pub(super) struct Ops {
    table: Box<[Op]>,
    free: Vec<u16>,
    pub(super) traffic: Traffic,
}

impl Ops {
    pub(super) fn new() -> Ops {
        let op = Op {
            generation: 1,
            live: false,
            mark: CompletionRule::Reported,
            outcome: Outcome::Pending,
            bytes: 0,
            parts_left: 0,
            chunks_out: 0,
            segmenting: false,
            all_out: false,
            write: false,
            sizes: [0; MAX_GROUP],
        };
        Ops {
            table: vec![op; MAX_OPS].into_boxed_slice(),
            free: (0..MAX_OPS as u16).rev().collect(),
            traffic: Traffic::default(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn live(&self) -> usize {
        MAX_OPS - self.free.len()
    }

    /// The table index of the operation that is started next.
    pub(super) fn next_index(&self) -> u32 {
        self.free.last().copied().unwrap_or_default().into()
    }

    /// A new operation that moves `bytes`; `None` when the table is full.
    pub(super) fn start(&mut self, bytes: u64, parts: usize, mark: CompletionRule) -> Option<Ticket> {
        let index = usize::from(self.free.pop()?);
        let op = &mut self.table[index];
        op.live = true;
        op.mark = mark;
        op.outcome = Outcome::Pending;
        op.bytes = bytes;
        op.parts_left = parts as u8;
        op.chunks_out = 0;
        op.segmenting = false;
        op.all_out = false;
        op.write = false;
        op.sizes = [0; MAX_GROUP];
        Some(Ticket::new(index, op.generation))
    }

    fn get(&mut self, ticket: Ticket) -> Option<&mut Op> {
        self.table.get_mut(ticket.index()).filter(|op| op.live && op.generation == ticket.generation())
    }

    pub(super) fn set_rule(&mut self, ticket: Ticket, mark: CompletionRule) {
        if let Some(op) = self.get(ticket) {
            op.mark = mark;
        }
    }

    pub(super) fn is_write(&mut self, ticket: Ticket) {
        if let Some(op) = self.get(ticket) {
            op.write = true;
        }
    }

    pub(super) fn segmenting(&mut self, ticket: Ticket) {
        if let Some(op) = self.get(ticket) {
            op.segmenting = true;
        }
    }

    pub(super) fn chunk_out(&mut self, ticket: Ticket) {
        if let Some(op) = self.get(ticket) {
            op.chunks_out += 1;
        }
    }

    pub(super) fn chunk_back(&mut self, ticket: Ticket) {
        if let Some(op) = self.get(ticket) {
            op.chunks_out -= 1;
            op.settle();
        }
    }

    pub(super) fn all_out(&mut self, ticket: Ticket, tracked: bool) {
        if let Some(op) = self.get(ticket) {
            op.segmenting = false;
            op.all_out = true;
            if tracked {
                op.settle();
            }
        }
    }

    /// Whether every chunk has been acknowledged; such an operation waits for a notification to be sent.
    pub(super) fn chunks_are_back(&self, ticket: Ticket) -> bool {
        self.table
            .get(ticket.index())
            .is_none_or(|op| !op.live || op.generation != ticket.generation() || (op.all_out && op.chunks_out == 0))
    }

    /// Fails a write by its table index, as the peer names it. False: there is none. Nothing else can be failed so:
    /// a receive that reported while its grant was out would be written to after.
    pub(super) fn fail_index(&mut self, index: usize, error: OpError) -> bool {
        match self.table.get_mut(index) {
            Some(op) if op.live && op.write => {
                op.outcome = Outcome::Failed(error);
                op.parts_left = 0;
                true
            }
            _ => false,
        }
    }

    pub(super) fn is_failed(&self, ticket: Ticket) -> bool {
        self.table.get(ticket.index()).is_none_or(|op| {
            !op.live || op.generation != ticket.generation() || matches!(op.outcome, Outcome::Failed(_))
        })
    }

    /// Fails an operation of which nothing has left.
    pub(super) fn fail(&mut self, ticket: Ticket, error: OpError) {
        if let Some(op) = self.get(ticket) {
            op.outcome = Outcome::Failed(error);
            op.parts_left = 0;
        }
    }

    /// Takes an operation back of which nothing has left.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        if let Some(op) = self.get(ticket) {
            op.live = false;
            op.generation = op.generation.wrapping_add(1).max(1);
            self.free.push(ticket.index() as u16);
        }
    }

    /// One part of a group is finished; the group reports when all are, so that no part's memory is still in use.
    pub(super) fn part(&mut self, ticket: Ticket, part: usize, result: Result<u64, OpError>) {
        let Some(op) = self.get(ticket) else { return };
        match result {
            Ok(bytes) => {
                op.sizes[part] = bytes;
                op.bytes += bytes;
            }
            Err(error) => op.outcome = Outcome::Failed(error),
        }
        op.parts_left -= 1;
        if planted::is(Bug::TornGroup) {
            op.parts_left = 0;
        }
        if op.parts_left == 0 && op.outcome == Outcome::Pending {
            op.outcome = Outcome::Done(op.bytes);
            self.traffic.receives += 1;
        }
    }

    pub(super) fn sizes(&self, ticket: Ticket) -> &[u64; MAX_GROUP] {
        self.table.get(ticket.index()).map_or(&[0; MAX_GROUP], |op| &op.sizes)
    }

    pub(super) fn test(&mut self, ticket: Ticket, taken: impl Fn(usize, u64) -> bool, acked: u64) -> Outcome {
        let Some(op) = self.get(ticket) else {
            return Outcome::Failed(OpError::NoSuchOp);
        };
        let outcome = match op.outcome {
            Outcome::Pending => match op.mark {
                CompletionRule::Reported | CompletionRule::Notify => return Outcome::Pending,
                CompletionRule::Taken { rail, pos } if taken(rail, pos) || planted::is(Bug::EarlySendDone) => {
                    Outcome::Done(op.bytes)
                }
                CompletionRule::Acked { seq } if acked > seq => Outcome::Done(op.bytes),
                _ => return Outcome::Pending,
            },
            // What failed early still owns its memory until the last byte has left or landed.
            Outcome::Failed(_) if op.parts_left > 0 || op.segmenting || op.chunks_out > 0 => {
                return Outcome::Pending;
            }
            settled => settled,
        };
        op.live = false;
        op.generation = op.generation.wrapping_add(1).max(1);
        self.free.push(ticket.index() as u16);
        outcome
    }
}
