//! The one header in front of every message between two linkspan processes.
//!
//! It is 40 bytes, little-endian, and never spans a version: the login fixes the version before the first head is
//! sent. `docs/PROTOCOL.md` gives each kind's use of the fields.

use crate::login::Versions;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of every head; any other value means that the stream is not ours or lost its framing.
pub const MAGIC: u8 = 0xC5;

/// Bytes in a [`Head`].
pub const HEAD_LEN: usize = 40;

/// Bytes of padding behind a head and `len` bytes of body or payload on a byte stream: 1 to 8, up to the next multiple
/// of 8. So the last byte of a stream is never one that a reader needs, and a reader may leave it in the socket.
pub const fn padding(len: usize) -> usize {
    8 - len % 8
}

/// Largest payload of a control message, and so the largest message that travels without a grant (8 KiB: the size
/// up to which one copy is cheaper than a second system call on loopback TCP).
pub const EAGER_MAX: usize = 8 << 10;

/// Largest payload of one chunk (1 GiB). Streams choose 256 to 512 KiB so that control never waits long behind
/// payload; transports whose payload takes a way of its own (cross-memory attach, RDMA) may take a message at once.
pub const CHUNK_MAX: usize = 1 << 30;

/// Most messages behind one [`Kind::BatchHeads`]. Two batches of 30 payloads with their heads are 62 ranges, which one system call takes
/// (batches are sent from lists of 64).
pub const BATCH_MAX: usize = 30;

/// Largest payload of one of these messages (64 KiB: beyond that a system call for each costs little).
pub const ROW_PAYLOAD_MAX: usize = 64 << 10;

/// What a message is. Kinds below [`Kind::Chunk`] are control messages: small, ordered, carried by one rail at a time.
/// [`Kind::Chunk`] and [`Kind::Put`] are payload and may travel on any rail. [`Kind::BatchHeads`] is how a byte stream carries several
/// of these together; it is taken apart there, and nothing above knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A whole message of at most [`EAGER_MAX`] bytes.
    Eager = 1,
    /// A posted receive: the permission to write into it.
    Grant = 2,
    /// Progress of the receiver on one rail.
    Ack = 3,
    /// A one-sided write small enough to travel as control.
    InlinePut = 4,
    /// A notification, optionally with a 64-bit value.
    Notify = 5,
    /// A request that the peer write a range of its memory into ours.
    Read = 6,
    /// The sender refused its side of a message (longer than the receive it matches).
    Truncated = 7,
    /// A rail is no longer read by the side that says so; carries what had landed on it.
    RailDown = 8,
    /// A one-sided operation was refused (key, bounds, rights).
    Refused = 9,
    /// The sender closes the connection in good order.
    GoAway = 10,
    /// An inline put and the notification behind it in one.
    InlinePutNotify = 11,
    /// The head of a chunk whose payload comes on a stream of its own, beside this one. Between two rails of a transport that has
    /// such streams; no engine sees it.
    Beside = 12,
    /// A piece of a two-sided message, into a granted receive.
    Chunk = 32,
    /// A piece of a one-sided write or of the answer to a read, into an exposed region.
    Put = 33,
    /// On byte streams: the heads of several payload messages ([`Kind::Chunk`], [`Kind::Put`]), whose payloads follow, one
    /// behind the other. So a reader knows the places of all of them and fills them with one system call.
    BatchHeads = 34,
}

impl Kind {
    /// The kind with this number, if there is one.
    pub fn from_u8(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::Eager,
            2 => Kind::Grant,
            3 => Kind::Ack,
            4 => Kind::InlinePut,
            5 => Kind::Notify,
            6 => Kind::Read,
            7 => Kind::Truncated,
            8 => Kind::RailDown,
            9 => Kind::Refused,
            10 => Kind::GoAway,
            11 => Kind::InlinePutNotify,
            12 => Kind::Beside,
            32 => Kind::Chunk,
            33 => Kind::Put,
            34 => Kind::BatchHeads,
            _ => return None,
        })
    }

    /// Whether messages of this kind are payload that a transport reads straight into place.
    pub fn is_payload(self) -> bool {
        matches!(self, Kind::Chunk | Kind::Put)
    }

    /// Most payload bytes that may follow a head of this kind.
    pub fn max_len(self) -> usize {
        match self {
            Kind::Chunk | Kind::Put => CHUNK_MAX,
            Kind::Eager | Kind::InlinePut | Kind::InlinePutNotify => EAGER_MAX,
            Kind::BatchHeads => BATCH_MAX * HEAD_LEN,
            Kind::Beside => HEAD_LEN,
            _ => 0,
        }
    }
}

/// The header. Fields are wire order; accessors of the little-endian types convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u8,
    /// A [`Kind`] as its number.
    pub kind: u8,
    /// Zero; a head with anything else is refused.
    pub zero: U16,
    /// Payload bytes that follow this head.
    pub len: U32,
    /// Control messages: position in the sender's control log. Chunks: position on their rail.
    pub seq: U32,
    /// Control messages of the peer that the sender has processed, modulo 2^32.
    pub ack: U32,
    /// Tag of a two-sided message; write number of a one-sided one.
    pub tag: U32,
    /// Slot and generation of a grant, key of a region, or rail number.
    pub id: U32,
    /// Offset of a chunk, value of a notification, see the kind.
    pub offset: U64,
    /// Length of the whole message, capacity of a grant, see the kind.
    pub total: U64,
}

const _: () = assert!(size_of::<Head>() == HEAD_LEN);

/// Why bytes are not a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHead {
    /// The first byte is not [`MAGIC`].
    #[error(
        "LS0001 frame starts with byte {0:#04x}, not {MAGIC:#04x}: the peer does not send linkspan frames here, or the stream lost its framing"
    )]
    Magic(u8),
    /// The reserved bytes are not zero.
    #[error(
        "LS0002 frame header has {0:#06x} where zero belongs: it was damaged in transit, or the peer is not an unmodified linkspan"
    )]
    Reserved(u16),
    /// No such kind.
    #[error("LS0003 frame kind {0} is not known to protocol version {version}", version = Versions::OURS)]
    Kind(u8),
    /// More payload than the kind allows.
    #[error("LS0004 frame of kind {kind:?} announces {len} payload bytes, the limit is {max}")]
    Len {
        /// The kind.
        kind: Kind,
        /// Announced bytes.
        len: u32,
        /// Most that the kind may carry.
        max: usize,
    },
}

impl Head {
    /// A head of this kind with every other field zero.
    #[inline]
    pub fn new(kind: Kind) -> Head {
        Head {
            magic: MAGIC,
            kind: kind as u8,
            zero: U16::ZERO,
            len: U32::ZERO,
            seq: U32::ZERO,
            ack: U32::ZERO,
            tag: U32::ZERO,
            id: U32::ZERO,
            offset: U64::ZERO,
            total: U64::ZERO,
        }
    }

    /// Reads and checks a head from exactly [`HEAD_LEN`] bytes.
    ///
    /// # Errors
    /// As [`Head::view`].
    pub fn decode(bytes: &[u8; HEAD_LEN]) -> Result<(Head, Kind), BadHead> {
        Head::view(bytes).map(|(head, kind)| (*head, kind))
    }

    /// [`Head::decode`] in place, without the copies that wait for the processor's store buffer.
    ///
    /// # Errors
    /// [`BadHead::Magic`], [`BadHead::Reserved`], [`BadHead::Kind`], [`BadHead::Len`].
    #[inline]
    pub fn view(bytes: &[u8; HEAD_LEN]) -> Result<(&Head, Kind), BadHead> {
        let head: &Head = zerocopy::transmute_ref!(bytes);
        if head.magic != MAGIC {
            return Err(BadHead::Magic(head.magic));
        }
        if head.zero != U16::ZERO {
            return Err(BadHead::Reserved(head.zero.get()));
        }
        let kind = Kind::from_u8(head.kind).ok_or(BadHead::Kind(head.kind))?;
        let (len, max) = (head.len.get(), kind.max_len());
        if len as usize > max {
            return Err(BadHead::Len { kind, len, max });
        }
        Ok((head, kind))
    }

    /// The bytes as they travel.
    pub fn as_wire(&self) -> &[u8; HEAD_LEN] {
        zerocopy::transmute_ref!(self)
    }
}

#[cfg(test)]
mod tests;
