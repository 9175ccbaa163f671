//! What can go wrong, each with a stable code.

use std::sync::Arc;

use linkspan_fabric::keys::KeyError;
use linkspan_service::rendezvous::RendezvousError;

use crate::url::UrlError;
use crate::{Access, OpError};

/// Why a call or an operation failed.
///
/// After [`Error::Broken`] every call fails with it at once; after every other error the transport stays usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation was not done in time. If it was under way its path was revoked and is made again; a wait for a notification
    /// never is. No byte of it lands any more, no notification of it comes, its local memory is free, and the transport stays usable.
    #[error("LS1101 the operation was not done within its timeout and has ended; the transport stays usable")]
    Timeout,
    /// As [`Error::Timeout`], but the peer has not confirmed in time that it reads the old path no longer (it is stopped
    /// or dead, or its host does not answer): bytes of the operation may still land in the peer's memory, none in ours.
    #[error(
        "LS1102 the operation was not done within its timeout and the peer has not confirmed the revocation: what it was to write or send may still land in the peer's memory, and nothing of it lands here any more"
    )]
    TimedOutUnrevoked,
    /// Ended by `abort` or because its transport was dropped.
    #[error("LS1103 the operation was ended by abort() or because its transport was dropped")]
    Aborted,
    /// The transport cannot be used any more; make a new one.
    #[error("LS1104 the transport is permanently broken: {0}; make a new one")]
    Broken(Arc<str>),
    /// A two-sided message was under way when its path was lost, or another operation timed out or was aborted; whether it arrived is unknown.
    #[error(
        "LS1105 the path was lost, or revoked for another operation, while the message was under way; whether it arrived is unknown"
    )]
    Interrupted,
    /// The peer refused the operation, or it is at fault itself.
    #[error(transparent)]
    Op(#[from] OpError),
    /// There is no peer yet.
    #[error(
        "LS1106 the transport has no peer yet: call connect, or wait_connected on the side whose URL was given out"
    )]
    NotConnected,
    /// The transport has a peer already, another one.
    #[error("LS1107 the transport has a peer already: one transport serves one peer, make another one")]
    HasPeer,
    /// No connection came about.
    #[error("LS1108 no connection: {0}")]
    Connect(Arc<str>),
    /// A range outside of its memory or remote buffer.
    #[error("LS1109 {len} bytes at offset {offset} do not lie inside {of} of {have} bytes")]
    Bounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Of what.
        of: &'static str,
        /// Its size.
        have: u64,
    },
    /// An address range outside of its memory.
    #[error("LS1110 {len} bytes at address {address:#x} do not lie inside this memory, {have} bytes at {base:#x}")]
    NotInside {
        /// First byte asked for.
        address: usize,
        /// Bytes asked for.
        len: usize,
        /// Where the memory begins.
        base: usize,
        /// Its size.
        have: usize,
    },
    /// The remote buffer does not give this right.
    #[error("LS1111 this remote buffer does not give the right to {want}: the peer must expose it with that right")]
    NoRight {
        /// What it gives.
        access: Access,
        /// What was wanted.
        want: &'static str,
    },
    /// The remote buffer belongs to another transport of the peer, or to one that has ended.
    #[error(
        "LS1112 this remote buffer was given out by another transport (or by an earlier process of the peer): ask the peer for one from the transport that is connected to this one"
    )]
    WrongPeer,
    /// Memory that must not be written to.
    #[error("LS1113 this memory is read-only here: it cannot be the destination of a read, nor be exposed for writing")]
    ReadOnly,
    /// Too many regions.
    #[error("LS1114 {0} regions are exposed on this transport already: unexpose some, or expose larger ones")]
    TooManyRegions(usize),
    /// A region that is not exposed.
    #[error(
        "LS1115 region key {0:#010x} is not exposed on this transport: it was unexposed already, or another transport or endpoint exposed it"
    )]
    NotExposed(u32),
    /// Text that is not a URL of ours.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Bytes that are not a remote buffer.
    #[error("LS1116 these {len} bytes are not a remote buffer: {why}")]
    RemoteBuffer {
        /// How many.
        len: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A context that logs in without keys, where a peer is to be known by them.
    #[error(
        "LS1138 this context logs in without keys, so that peers cannot be authenticated: make a paired one (Context::paired)"
    )]
    NotPaired,
    /// A host was not found by its name, serves nothing, or a port to serve at cannot be had.
    #[error("{0}")]
    Rendezvous(RendezvousError),
    /// The keys of this user cannot be used, or there are none yet.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The fabric beneath refused to be made or to listen.
    #[error(transparent)]
    Fabric(#[from] linkspan_fabric::Error),
    /// A system call failed.
    #[error("LS1117 {call} failed")]
    System {
        /// The call.
        call: &'static str,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// A batch without parts that is to notify.
    #[error("LS1119 a batch without parts cannot notify: add at least one part, which may be empty")]
    EmptyBatch,
    /// Memory of a device that the transport does not carry.
    #[error(
        "LS1127 the memory is on {memory}, and this transport carries {carries}: make it with Transport::for_gpu, or attach the GPU before its memory is used"
    )]
    Device {
        /// Where the memory is.
        memory: String,
        /// What the transport carries.
        carries: String,
    },
    /// The GPU refused or failed.
    #[error(transparent)]
    Gpu(#[from] linkspan_fabric::GpuError),
    /// A copy of a device's memory that did not come about.
    #[error("LS1128 {0} did not copy {1} bytes: it has failed, or the memory is gone")]
    DeviceCopy(String, usize),
    /// A list of pages that names one which is not there.
    #[error("LS1129 index {index}, at position {at} of the list, is outside of {have} {of}")]
    PageIndex {
        /// The index.
        index: u64,
        /// Where it stands in its list.
        at: usize,
        /// Of which pages.
        of: &'static str,
        /// How many there are.
        have: u64,
    },
    /// Pages that cannot lie in their memory.
    #[error(
        "LS1130 {} pages of {} x {} bytes, {} apart, pieces {} apart, do not lie in {have} bytes: {why}",
        shape.count, shape.pieces, shape.len, shape.stride, shape.piece_stride
    )]
    PageShape {
        /// How they should lie.
        shape: crate::PageShape,
        /// Bytes of the memory.
        have: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// Pages here and at the peer that are not alike.
    #[error(
        "LS1131 a page has {} pieces of {} bytes here and {} of {} at the peer: both must be alike",
        here.0, here.1, there.0, there.1
    )]
    PageMismatch {
        /// Pieces of a page and bytes of a piece, here.
        here: (u64, u64),
        /// The same at the peer.
        there: (u64, u64),
    },
    /// Lists of different lengths.
    #[error("LS1132 {here} pages here and {there} at the peer: both lists name as many")]
    PageLists {
        /// Pages named here.
        here: usize,
        /// Pages named at the peer.
        there: usize,
    },
    /// An endpoint has no peer of this name.
    #[error(
        "LS1133 endpoint {endpoint:?} has no peer {peer:?} (it has {connected}): it has not connected, or its end was reported"
    )]
    UnknownPeer {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The name that was asked for.
        peer: String,
        /// Those that it has, the first of them.
        connected: String,
    },
    /// A name that no endpoint and no peer can have.
    #[error("LS1134 {name:?} cannot be the name of a peer: {why}")]
    PeerName {
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A name twice.
    #[error(
        "LS1135 endpoint {endpoint:?} has a peer {peer:?} already, by another URL: remove it, or give each endpoint a name of its own"
    )]
    PeerNameTaken {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The name.
        peer: String,
    },
    /// Too many peers.
    #[error("LS1136 endpoint {0:?} has {1} peers already: remove some, or take the events of those that were lost")]
    TooManyPeers(Arc<str>, usize),
    /// The endpoint was closed.
    #[error("LS1137 endpoint {0:?} is closed: make another one")]
    EndpointClosed(Arc<str>),
    /// A tag that is kept for the transport itself.
    #[error("LS1118 tag {0:#x} is kept for the transport itself: use a smaller one")]
    Tag(u32),
}

impl Error {
    /// The stable code, as in `LS1101`.
    pub fn code(&self) -> String {
        let text = self.to_string();
        text.get(..6).unwrap_or_default().to_owned()
    }

    /// Whether the transport can never be used again.
    pub fn is_broken(&self) -> bool {
        matches!(self, Error::Broken(_))
    }

    /// Whether the time was up, revoked or not.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Timeout | Error::TimedOutUnrevoked)
    }

    /// Whether no connection came about because one side does not admit the other's key or version.
    pub fn is_refused(&self) -> bool {
        // The code of the fabric's `Refused`, with which its causes begin.
        matches!(self, Error::Connect(why) if why.split(' ').any(|word| word == "LS0516"))
    }

    pub(crate) fn system(call: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::System { call, source }
    }
}
