//! What stands before each piece of the stream.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a [`Segment`].
pub(crate) const SEGMENT_LEN: usize = 16;

/// First byte of a segment.
const MAGIC: u8 = 0xe5;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// `len` bytes of heads, bodies and payloads.
    Bytes = 1,
    /// Nothing: an acknowledgement alone.
    Ack = 2,
    /// Nothing ever: the rail is closed.
    End = 3,
}

/// The header, little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Segment {
    magic: u8,
    kind: u8,
    len: U16,
    zero: U32,
    /// Bytes of the other direction that its reader has taken from its device, segments included.
    acked: U64,
}

const _: () = assert!(size_of::<Segment>() == SEGMENT_LEN);

impl Segment {
    pub(crate) fn new(kind: Kind, len: u16, acked: u64) -> Segment {
        Segment { magic: MAGIC, kind: kind as u8, len: U16::new(len), zero: U32::new(0), acked: U64::new(acked) }
    }

    /// Kind, length, acknowledged position. Total over arbitrary bytes.
    pub(crate) fn decode(bytes: &[u8; SEGMENT_LEN]) -> Result<(Kind, usize, u64), String> {
        let segment: Segment = zerocopy::transmute!(*bytes);
        let kind = match segment.kind {
            1 => Kind::Bytes,
            2 => Kind::Ack,
            3 => Kind::End,
            other => return Err(format!("a segment of kind {other}")),
        };
        let len = usize::from(segment.len.get());
        if segment.magic != MAGIC || segment.zero.get() != 0 || (len > 0) != (kind == Kind::Bytes) {
            return Err(format!("{bytes:02x?} where a segment was due"));
        }
        Ok((kind, len, segment.acked.get()))
    }

    pub(crate) fn as_wire(&self) -> &[u8; SEGMENT_LEN] {
        zerocopy::transmute_ref!(self)
    }
}

/// Decodes any bytes as a segment; for the fuzz target. Whether they are one.
#[doc(hidden)]
pub fn is_segment(bytes: &[u8; SEGMENT_LEN]) -> bool {
    match Segment::decode(bytes) {
        Ok((kind, len, acked)) => {
            assert_eq!(Segment::new(kind, len as u16, acked).as_wire(), bytes, "one segment, two forms");
            true
        }
        Err(_) => false,
    }
}
