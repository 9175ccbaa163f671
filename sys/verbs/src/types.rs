//! Plain data of the verbs. Names and numbers are those of the InfiniBand Architecture Specification, volume 1, and of
//! `infiniband/verbs.h` of rdma-core.

use std::net::Ipv4Addr;
use std::ops::BitOr;

/// Scatter or gather entries in one work request here. Every device has at least 4 except iWARP reads.
pub const MAX_SGE: usize = 4;

/// A 128-bit global identifier: for RoCE an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// An IPv4 address mapped (RFC 4291, 2.5.5.2).
    pub fn v4(ip: Ipv4Addr) -> Gid {
        Gid(ip.to_ipv6_mapped().octets())
    }

    /// The IPv4 address, if that is what it is.
    pub fn to_v4(self) -> Option<Ipv4Addr> {
        std::net::Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether it reaches no further than one link: fe80::/10, or 169.254/16 mapped.
    pub fn is_link_local(self) -> bool {
        (self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80) || self.to_v4().is_some_and(|ip| ip.is_link_local())
    }

    /// Whether the table entry is empty.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl std::fmt::Display for Gid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// What a GID names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// RoCE in Ethernet frames; cannot be routed.
    RoceV1,
    /// RoCE in UDP.
    RoceV2,
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// What it names.
    pub kind: GidKind,
    /// Index of the network interface it belongs to (`if_nametoindex(3)`); 0 when there is none or it is unknown.
    pub ifindex: u32,
}

/// What a port is wired to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: LIDs, partitions, a subnet manager.
    InfiniBand,
    /// Ethernet: RoCE.
    Ethernet,
}

/// Path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1,024 bytes.
    B1024 = 3,
    /// 2,048 bytes.
    B2048 = 4,
    /// 4,096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// From the number on the wire and in `enum ibv_mtu`.
    pub fn from_u8(n: u8) -> Option<Mtu> {
        [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096].into_iter().find(|m| *m as u8 == n)
    }

    /// Payload bytes of a packet.
    pub fn bytes(self) -> usize {
        128 << self as u8
    }
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whether it carries traffic (`IBV_PORT_ACTIVE`).
    pub active: bool,
    /// Its wiring.
    pub link: LinkLayer,
    /// MTU in use on the link.
    pub mtu: Mtu,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Largest message, bytes.
    pub max_message: u32,
    /// Expected speed, bytes per second each way, from lanes and rate per lane; 0 when the device names a rate that
    /// is not known here.
    pub speed: u64,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub qp: u32,
    /// Work requests in one queue.
    pub qp_wr: u32,
    /// Scatter or gather entries in one work request.
    pub sge: u32,
    /// Completion queues.
    pub cq: u32,
    /// Entries in one completion queue.
    pub cqe: u32,
    /// Memory regions.
    pub mr: u32,
    /// Bytes in one memory region.
    pub mr_size: u64,
    /// Reads a queue pair answers at a time.
    pub rd_atomic: u8,
    /// Reads a queue pair has under way at a time.
    pub init_rd_atomic: u8,
    /// Ports.
    pub ports: u8,
}

/// What may be done to a region, or through a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub(crate) u32);

impl Access {
    /// The device may read it for its own process.
    pub const LOCAL_READ: Access = Access(0);
    /// The device may write received data.
    pub const LOCAL_WRITE: Access = Access(1);
    /// The peer may write; implies [`Access::LOCAL_WRITE`].
    pub const REMOTE_WRITE: Access = Access(1 | 2);
    /// The peer may read.
    pub const REMOTE_READ: Access = Access(4);
    /// Bytes may become visible in any order before the completion. Ignored where the device cannot.
    pub const RELAXED: Access = Access(1 << 20);

    /// Whether everything in `other` is allowed.
    pub fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Where a registered region lies and under which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Keys {
    /// Address of the first byte, as the device knows it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key that a peer uses.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Whether `len` bytes at address `addr` lie inside.
    pub fn covers(&self, addr: u64, len: u64) -> bool {
        addr.checked_sub(self.addr).and_then(|o| o.checked_add(len)).is_some_and(|end| end <= self.len)
    }

    /// An entry for `len` bytes at address `addr`, if they lie inside.
    pub fn sge(&self, addr: u64, len: u32) -> Option<Sge> {
        self.covers(addr, u64::from(len)).then_some(Sge { addr, len, lkey: self.lkey })
    }
}

/// A range of registered memory in a work request; made by [`Keys::sge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCaps {
    /// Requests in the send queue.
    pub send: u32,
    /// Requests in the receive queue.
    pub recv: u32,
    /// Entries in one request.
    pub sge: u32,
    /// Bytes that may travel inside the request.
    pub inline: u32,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Fresh or reset: nothing runs, nothing can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Broken: everything posted comes back flushed.
    Error,
}

/// For RESET to INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitAttr {
    /// Port, from 1.
    pub port: u8,
    /// Index into the port's partition table.
    pub pkey_index: u16,
    /// What the peer may do through this queue pair.
    pub access: Access,
}

/// How packets find the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// On one InfiniBand subnet.
    Lid {
        /// The peer's.
        lid: u16,
        /// Service level, 0 to 15.
        sl: u8,
    },
    /// Ethernet, and between InfiniBand subnets.
    Gid {
        /// The peer's.
        gid: Gid,
        /// Own entry to send from.
        index: u8,
        /// Routers that may be passed.
        hops: u8,
        /// Traffic class (DSCP in the upper six bits).
        class: u8,
        /// The next hop's, on InfiniBand; 0 on Ethernet.
        lid: u16,
    },
}

/// For INIT to RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtrAttr {
    /// The way to the peer.
    pub to: Address,
    /// The peer's queue pair.
    pub qpn: u32,
    /// The first sequence number the peer sends, 24 bits.
    pub psn: u32,
    /// The smaller of both sides'.
    pub mtu: Mtu,
    /// Port, from 1.
    pub port: u8,
    /// Reads to answer at a time.
    pub rd_atomic: u8,
    /// Time that a sender is asked to wait when no receive is posted: code 0 to 31 (0 is the longest, 655 ms; 12 is
    /// 0.64 ms; specification, 9.7.5.2.8).
    pub min_rnr: u8,
}

/// For RTR to RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtsAttr {
    /// The first sequence number sent, 24 bits.
    pub psn: u32,
    /// Wait for an acknowledgement: 4.096 us * 2^timeout, 0 without limit.
    pub timeout: u8,
    /// Sends again after a timeout, 0 to 7.
    pub retry: u8,
    /// Sends again after receiver-not-ready, 0 to 6; 7 is without limit.
    pub rnr_retry: u8,
    /// Reads under way at a time.
    pub rd_atomic: u8,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Into the next receive of the peer.
    Send,
    /// The same with 32 bits for its completion.
    SendImm(u32),
    /// Into the peer's memory, unnoticed by it.
    Write {
        /// Address there.
        addr: u64,
        /// Its key.
        rkey: u32,
    },
    /// The same, and then a receive of the peer completes with 32 bits.
    WriteImm {
        /// Address there.
        addr: u64,
        /// Its key.
        rkey: u32,
        /// The 32 bits.
        imm: u32,
    },
    /// From the peer's memory.
    Read {
        /// Address there.
        addr: u64,
        /// Its key.
        rkey: u32,
    },
}

/// A send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: SendOp,
    /// Local memory.
    pub sges: [Sge; MAX_SGE],
    /// How many of them.
    pub n: u8,
    /// Report success. Failure is always reported.
    pub signalled: bool,
    /// Copy the bytes into the request now, so that their memory is free at once.
    pub inline: bool,
    /// Wake a peer that asked for solicited completions only.
    pub solicited: bool,
}

impl SendWr {
    /// A request over at most one range, not signalled.
    pub fn new(id: u64, op: SendOp, range: Option<Sge>) -> SendWr {
        let mut sges = [Sge::default(); MAX_SGE];
        if let Some(range) = range {
            sges[0] = range;
        }
        SendWr { id, op, sges, n: u8::from(range.is_some()), signalled: false, inline: false, solicited: false }
    }

    /// Its ranges.
    pub fn ranges(&self) -> &[Sge] {
        &self.sges[..usize::from(self.n).min(MAX_SGE)]
    }

    /// Bytes it moves.
    pub fn len(&self) -> u64 {
        self.ranges().iter().map(|s| u64::from(s.len)).sum()
    }

    /// Whether it moves none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A receive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message goes; none for requests that only take the 32 bits of [`SendOp::WriteImm`].
    pub range: Option<Sge>,
}

/// How a request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Success,
    /// A receive was too small for its message.
    LocalLength,
    /// Local memory was not registered so.
    LocalProtection,
    /// The queue pair had broken before.
    Flushed,
    /// The peer found the request invalid.
    RemoteInvalid,
    /// The peer's key, bounds or rights did not allow it.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// No acknowledgement after all retries: the path or the peer is dead.
    RetryExceeded,
    /// The peer never posted a receive.
    RnrExceeded,
    /// Another one, by its number.
    Other(u32),
}

/// What ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A send or write.
    Sent,
    /// A read.
    Read,
    /// A message came.
    Received,
    /// A write with 32 bits came.
    Written,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// What ended; not to be trusted unless it ended well.
    pub what: What,
    /// Bytes received.
    pub bytes: u32,
    /// The 32 bits, if some came.
    pub imm: Option<u32>,
    /// Own queue pair.
    pub qpn: u32,
}

impl Completion {
    /// Filler for arrays.
    pub const NONE: Completion =
        Completion { id: 0, status: Status::Other(u32::MAX), what: What::Sent, bytes: 0, imm: None, qpn: 0 };
}

/// What a device says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue overflowed: everything on it is lost.
    CqError,
    /// This queue pair broke.
    QpError(u32),
    /// The port carries traffic.
    PortUp(u8),
    /// The port carries none.
    PortDown(u8),
    /// Addresses of the port changed (GID, LID, P_Key, subnet manager).
    Addresses(u8),
    /// The device is gone.
    DeviceGone,
    /// Another one, by its number.
    Other(u32),
}
