//! The first message on every path, both ways: from which transport, to which, and what had arrived on the previous path.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a [`Hello`].
pub const HELLO_LEN: usize = 336;

/// Earlier paths a hello tells of: those that may have ended half made since both sides last agreed, and some more.
pub const PAST: usize = 4;

/// The tag it travels with; no other message may.
pub(crate) const HELLO_TAG: u32 = u32::MAX;

const MAGIC: [u8; 4] = *b"LSHI";
const VERSION: u8 = 2;

/// Of the last 512 notifications of a path those of refused writes: of number `n` bit `n % 64` of word `n / 64 % 8`.
pub(crate) type Refused = [u64; 8];

/// Whether notification `n` was of a refused write.
pub(crate) fn is_refused(refused: &Refused, n: u64) -> bool {
    refused[(n / 64 % 8) as usize] >> (n % 64) & 1 == 1
}

/// A hello, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Number of the sending transport; never 0.
    pub from: u64,
    /// Number of the transport it wants; 0: any that a listener makes.
    pub to: u64,
    /// Number of the path that begins here.
    pub epoch: u32,
    /// Numbers of the last paths the speaker was on, newest first, 0 for none, each with the notifications that had come to
    /// it there, and which of the last 512 were of writes that it refused: of number `n` bit `n % 64` of word `n / 64 % 8`.
    pub past: [(u32, u64, Refused); PAST],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 4],
    version: u8,
    reserved: [u8; 3],
    from: U64,
    to: U64,
    epoch: U32,
    spare: U32,
    past: [U32; PAST],
    seen: [U64; PAST],
    refused: [[U64; 8]; PAST],
}

const _: () = assert!(size_of::<Wire>() == HELLO_LEN);

impl Hello {
    /// The bytes as they travel.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let wire = Wire {
            magic: MAGIC,
            version: VERSION,
            reserved: [0; 3],
            from: U64::new(self.from),
            to: U64::new(self.to),
            epoch: U32::new(self.epoch),
            spare: U32::ZERO,
            past: self.past.map(|p| U32::new(p.0)),
            seen: self.past.map(|p| U64::new(p.1)),
            refused: self.past.map(|p| p.2.map(U64::new)),
        };
        zerocopy::transmute!(wire)
    }

    /// Notifications that the sender had received on path `epoch`, and which of them were of refused writes.
    pub fn seen(&self, epoch: u32) -> (u64, Refused) {
        self.past.iter().find(|p| p.0 == epoch && epoch != 0).map_or_else(Default::default, |p| (p.1, p.2))
    }

    /// Reads a hello; total over any bytes. What a later release writes into the spare bytes is not looked at.
    ///
    /// # Errors
    /// A text that says what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Hello, &'static str> {
        let Ok(bytes) = <&[u8; HELLO_LEN]>::try_from(bytes) else {
            return Err("its hello has another length");
        };
        let wire: &Wire = zerocopy::transmute_ref!(bytes);
        if wire.magic != MAGIC {
            return Err("it is not a linkspan transport (an NCCL plugin perhaps)");
        }
        if wire.version != VERSION {
            return Err("its hello is of another version; install the same release on both sides");
        }
        if wire.from.get() == 0 {
            return Err("its hello does not say who it is");
        }
        Ok(Hello {
            from: wire.from.get(),
            to: wire.to.get(),
            epoch: wire.epoch.get(),
            past: std::array::from_fn(|n| (wire.past[n].get(), wire.seen[n].get(), wire.refused[n].map(U64::get))),
        })
    }
}

#[cfg(test)]
mod tests;
