//! What travels in a send: a small header, and behind it what its kind has.

use linkspan_proto::head::{EAGER_MAX, HEAD_LEN};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a [`Frame`].
pub(crate) const FRAME_LEN: usize = 32;

/// Bytes of a slot of the ring: the longest frame, to the next multiple of a cache line.
pub(crate) const SLOT: usize = (FRAME_LEN + HEAD_LEN + EAGER_MAX).next_multiple_of(64);

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Say {
    /// A control message: a head and its body follow. `id`, `addr`, `rkey`, `len` as in [`Say::Granted`] where the
    /// message is a grant, else `len` is 0.
    Ctrl = 1,
    /// Chunk `id` wants a place: its head follows.
    Ask = 2,
    /// Chunk `id` goes to `addr` with `rkey`, `len` bytes.
    Place = 3,
    /// Chunk `id` goes nowhere any more.
    Nowhere = 4,
    /// Chunk `id`, which had asked, has been written.
    Landed = 5,
    /// A chunk has been written to the place of its grant: its head follows.
    Written = 6,
    /// Receive `id` has its place at `addr` with `rkey`, `len` bytes.
    Granted = 7,
    /// Nothing but credits.
    Credit = 8,
    /// The rail is closed.
    Close = 9,
}

impl Say {
    fn from_u8(n: u8) -> Option<Say> {
        use Say::*;
        [Ctrl, Ask, Place, Nowhere, Landed, Written, Granted, Credit, Close].into_iter().find(|s| *s as u8 == n)
    }

    /// Whether a head follows.
    pub(crate) fn has_head(self) -> bool {
        matches!(self, Say::Ctrl | Say::Ask | Say::Written)
    }
}

/// The header, little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) say: u8,
    pub(crate) zero: u8,
    /// Receives posted again since the last frame.
    pub(crate) credits: U16,
    pub(crate) id: U32,
    pub(crate) addr: U64,
    pub(crate) rkey: U32,
    pub(crate) zero2: U32,
    pub(crate) len: U64,
}

const _: () = assert!(size_of::<Frame>() == FRAME_LEN);

impl Frame {
    pub(crate) fn new(say: Say, id: u32) -> Frame {
        Frame { say: say as u8, id: U32::new(id), ..Frame::default() }
    }

    /// With the place of memory.
    pub(crate) fn at(mut self, addr: u64, rkey: u32, len: u64) -> Frame {
        self.addr.set(addr);
        self.rkey.set(rkey);
        self.len.set(len);
        self
    }

    /// The frame at the beginning of a message, what it says, and what follows it. Total over arbitrary bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Frame, Say, &[u8]), String> {
        let Some((frame, rest)) = bytes.split_first_chunk::<FRAME_LEN>() else {
            return Err(format!("a frame of {} bytes", bytes.len()));
        };
        let frame: Frame = zerocopy::transmute!(*frame);
        let say = Say::from_u8(frame.say).ok_or_else(|| format!("a frame of kind {}", frame.say))?;
        let head = if say.has_head() { HEAD_LEN } else { 0 };
        if rest.len() < head || (say != Say::Ctrl && rest.len() > head) {
            return Err(format!("{say:?} with {} bytes behind it", rest.len()));
        }
        Ok((frame, say, rest))
    }

    pub(crate) fn as_wire(&self) -> &[u8; FRAME_LEN] {
        zerocopy::transmute_ref!(self)
    }
}

/// Decodes any bytes as a frame; for the fuzz target. Whether they are one.
#[doc(hidden)]
pub fn is_frame(bytes: &[u8]) -> bool {
    match Frame::decode(bytes) {
        Ok((frame, say, rest)) => {
            assert_eq!(frame.say, say as u8, "one kind, two names");
            assert_eq!(bytes, [&frame.as_wire()[..], rest].concat(), "one frame, two forms");
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
