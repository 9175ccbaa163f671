//! The blobs of the set-up: fixed sizes, little-endian, decoders total over any bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::identity::{IDENTITY_LEN, Identity, NotLocal};

/// Bytes of an encoded [`ShmOffer`].
pub const OFFER_LEN: usize = 40;

const VERSION: u16 = 1;

/// What the listening side tells the connecting one, over a way that is already authenticated: the name of its
/// socket and the secret that proves to the listener who has read this.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ShmOffer {
    magic: [u8; 4],
    version: U16,
    zero: U16,
    name: [u8; 16],
    token: [u8; 16],
}

const _: () = assert!(size_of::<ShmOffer>() == OFFER_LEN);

/// The token is a secret.
impl std::fmt::Debug for ShmOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").finish_non_exhaustive()
    }
}

impl ShmOffer {
    const MAGIC: [u8; 4] = *b"LSof";

    pub(crate) fn new(name: [u8; 16], token: [u8; 16]) -> ShmOffer {
        ShmOffer { magic: ShmOffer::MAGIC, version: U16::new(VERSION), zero: U16::ZERO, name, token }
    }

    /// The bytes as they travel.
    pub fn encode(&self) -> [u8; OFFER_LEN] {
        zerocopy::transmute!(*self)
    }

    /// Reads what [`ShmOffer::encode`] wrote; `None` for anything else.
    pub fn decode(bytes: &[u8; OFFER_LEN]) -> Option<ShmOffer> {
        let offer: ShmOffer = zerocopy::transmute!(*bytes);
        (offer.magic == ShmOffer::MAGIC && offer.version.get() == VERSION && offer.zero.get() == 0).then_some(offer)
    }

    /// Name of the abstract socket: readable in /proc/net/unix.
    pub(crate) fn socket_name(&self) -> [u8; 41] {
        let mut out = *b"linkspan-00000000000000000000000000000000";
        for (i, byte) in self.name.iter().enumerate() {
            let digit = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
            out[9 + 2 * i] = digit(byte >> 4);
            out[10 + 2 * i] = digit(*byte);
        }
        out
    }

    pub(crate) fn token(&self) -> &[u8; 16] {
        &self.token
    }
}

/// First word on the socket, with the memfd and the two event descriptors.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Hello {
    magic: [u8; 4],
    pub(crate) allow_cma: U32,
    pub(crate) token: [u8; 16],
    pub(crate) identity: [u8; IDENTITY_LEN],
    pub(crate) ring: U64,
    pub(crate) guard: U64,
    pub(crate) nonce: [U64; 2],
}

/// The listener's answer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Welcome {
    magic: [u8; 4],
    pub(crate) verdict: U32,
    pub(crate) identity: [u8; IDENTITY_LEN],
    pub(crate) guard: U64,
    pub(crate) nonce: [U64; 2],
}

/// The connecting side's last word.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ready {
    magic: [u8; 4],
    pub(crate) verdict: U32,
}

pub(crate) const HELLO_LEN: usize = size_of::<Hello>();
pub(crate) const WELCOME_LEN: usize = size_of::<Welcome>();
pub(crate) const READY_LEN: usize = size_of::<Ready>();

pub(crate) fn nonce(words: [u64; 2]) -> [U64; 2] {
    words.map(U64::new)
}

impl Hello {
    pub(crate) const MAGIC: [u8; 4] = *b"LSh1";

    pub(crate) fn new(token: [u8; 16], own: &Identity, cma: bool, ring: usize, guard: u64, n: [u64; 2]) -> Hello {
        Hello {
            magic: Hello::MAGIC,
            allow_cma: U32::new(cma.into()),
            token,
            identity: own.encode(),
            ring: U64::new(ring as u64),
            guard: U64::new(guard),
            nonce: nonce(n),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Hello> {
        Hello::read_from_bytes(bytes).ok().filter(|m| m.magic == Hello::MAGIC)
    }

    pub(crate) fn identity(&self) -> Result<Identity, NotLocal> {
        Identity::decode(&self.identity)
    }
}

impl Welcome {
    pub(crate) const MAGIC: [u8; 4] = *b"LSw1";

    pub(crate) fn new(verdict: u32, own: &Identity, guard: u64, n: [u64; 2]) -> Welcome {
        Welcome {
            magic: Welcome::MAGIC,
            verdict: U32::new(verdict),
            identity: own.encode(),
            guard: U64::new(guard),
            nonce: nonce(n),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Welcome> {
        Welcome::read_from_bytes(bytes).ok().filter(|m| m.magic == Welcome::MAGIC)
    }
}

impl Ready {
    pub(crate) const MAGIC: [u8; 4] = *b"LSr1";

    pub(crate) fn new(verdict: u32) -> Ready {
        Ready { magic: Ready::MAGIC, verdict: U32::new(verdict) }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Ready> {
        Ready::read_from_bytes(bytes).ok().filter(|m| m.magic == Ready::MAGIC)
    }
}

#[cfg(test)]
mod tests;
