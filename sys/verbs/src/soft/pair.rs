//! A queue pair's state.

use std::collections::VecDeque;

use crate::{Access, Address, Mtu, QpCaps, QpState, RecvWr, SendOp, SendWr};

/// A posted send with its place in the sequence.
pub(super) struct Posted {
    pub(super) wr: SendWr,
    /// Bytes that were copied when it was posted.
    pub(super) inline: Option<Vec<u8>>,
    /// First sequence number.
    pub(super) seq: u64,
    /// Packets, at least 1.
    pub(super) packets: u64,
}

impl Posted {
    pub(super) fn end(&self) -> u64 {
        self.seq + self.packets
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. })
    }
}

/// A message that is arriving.
pub(super) struct Inbound {
    pub(super) recv: Option<RecvWr>,
    pub(super) bytes: u64,
}

/// A queue pair. Sequence numbers count from 0 in 64 bits; the wire has 24 of them, from a random first one.
pub(super) struct Pair {
    pub(super) number: u32,
    pub(super) cq: u32,
    pub(super) pd: u32,
    pub(super) caps: QpCaps,
    pub(super) state: QpState,
    /// In the net's list of those that may send.
    pub(super) listed: bool,
    pub(super) pkey: u16,
    pub(super) access: Access,
    pub(super) to: Option<Address>,
    pub(super) peer_qpn: u32,
    pub(super) mtu: Mtu,

    pub(super) sq: VecDeque<Posted>,
    pub(super) first_psn: u32,
    /// For the next request posted.
    pub(super) next: u64,
    /// Oldest not acknowledged.
    pub(super) una: u64,
    /// Next to send.
    pub(super) tx: u64,
    /// One past the last ever sent.
    pub(super) sent: u64,
    pub(super) timeout: u8,
    pub(super) retry: u8,
    pub(super) retries: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnrs: u8,
    pub(super) reads: u8,
    /// When to send again without an acknowledgement.
    pub(super) deadline: Option<u64>,
    /// Silent until then: the receiver was not ready.
    pub(super) quiet: Option<u64>,

    pub(super) rq: VecDeque<RecvWr>,
    pub(super) peer_psn: u32,
    pub(super) expect: u64,
    pub(super) inbound: Option<Inbound>,
    pub(super) complained: bool,
    pub(super) min_rnr: u8,
}

impl Pair {
    pub(super) fn new(number: u32, cq: u32, pd: u32, caps: QpCaps) -> Pair {
        Pair {
            number,
            cq,
            pd,
            caps,
            state: QpState::Reset,
            listed: false,
            pkey: 0,
            access: Access::LOCAL_READ,
            to: None,
            peer_qpn: 0,
            mtu: Mtu::B1024,
            sq: VecDeque::with_capacity(caps.send as usize),
            first_psn: 0,
            next: 0,
            una: 0,
            tx: 0,
            sent: 0,
            timeout: 0,
            retry: 0,
            retries: 0,
            rnr_retry: 0,
            rnrs: 0,
            reads: 1,
            deadline: None,
            quiet: None,
            rq: VecDeque::with_capacity(caps.recv as usize),
            peer_psn: 0,
            expect: 0,
            inbound: None,
            complained: false,
            min_rnr: 0,
        }
    }

    /// The acknowledgement time, nanoseconds: 4.096 us * 2^timeout.
    pub(super) fn patience(&self) -> Option<u64> {
        (self.timeout > 0).then(|| 4096u64 << (self.timeout & 31))
    }

    pub(super) fn reset(&mut self) {
        let listed = self.listed;
        *self = Pair { listed, ..Pair::new(self.number, self.cq, self.pd, self.caps) };
    }
}
