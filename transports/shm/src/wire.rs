//! What both sides say over the socket of the set-up: three messages of one layout, little-endian.

use subtle::ConstantTimeEq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 3] = *b"LSm";

/// Bytes of a [`Message`].
pub(crate) const MESSAGE_LEN: usize = size_of::<Message>();

/// Which of the three it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The connecting side's first; the memory comes with it.
    Hello = 1,
    /// The listening side's answer.
    Welcome = 2,
    /// The connecting side's last.
    Ready = 3,
}

/// A message.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Message {
    magic: [u8; 3],
    kind: u8,
    /// Of a hello: whether its sender's memory may be read; of the others how reading the receiver's went.
    pub(crate) verdict: U32,
    token: [u8; 16],
    /// Of a hello: bytes of a ring.
    pub(crate) ring: U64,
    /// Where the sender's guard page is, and what both it and the shared memory hold. Not of the last.
    pub(crate) guard: U64,
    pub(crate) nonce: [U64; 2],
}

impl Message {
    pub(crate) fn new(kind: Kind, token: &[u8; 16], verdict: u32) -> Message {
        let (ring, guard, nonce) = Default::default();
        Message { magic: MAGIC, kind: kind as u8, verdict: verdict.into(), token: *token, ring, guard, nonce }
    }

    /// With the bytes of a ring.
    pub(crate) fn with_ring(self, bytes: usize) -> Message {
        Message { ring: U64::new(bytes as u64), ..self }
    }

    /// With a guard page and what it holds.
    pub(crate) fn guarded(self, guard: u64, nonce: [u64; 2]) -> Message {
        Message { guard: guard.into(), nonce: nonce.map(U64::new), ..self }
    }

    /// The message of this kind from whoever knows the token; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8], kind: Kind, token: &[u8; 16]) -> Option<Message> {
        let message = Message::read_from_bytes(bytes).ok()?;
        let known = message.magic == MAGIC && message.kind == kind as u8;
        (known && bool::from(message.token.ct_eq(token))).then_some(message)
    }

    /// What the guard page of its sender holds.
    pub(crate) fn nonce(&self) -> [u64; 2] {
        self.nonce.map(U64::get)
    }
}

#[cfg(test)]
mod tests;
