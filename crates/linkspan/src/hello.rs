//! The first message on every path, both ways: from which transport, to which, and what had arrived on the previous path.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a [`Hello`].
pub const HELLO_LEN: usize = 420;

/// Earlier paths a hello tells of: those that may have ended half made since both sides last agreed, and some more.
pub const PAST: usize = 4;

/// The tag it travels with; no other message may.
pub(crate) const HELLO_TAG: u32 = u32::MAX;

const MAGIC: [u8; 4] = *b"LSHI";
const VERSION: u8 = 4;

/// Longest name of an endpoint, in bytes: what a host's name has on Linux (HOST_NAME_MAX).
pub const NAME_LEN: usize = 64;

/// Of the last 512 notifications of a path those of refused writes: of number `n` bit `n % 64` of word `n / 64 % 8`.
pub(crate) type Refused = [u64; 8];

/// Whether notification `n` was of a refused write.
pub(crate) fn is_refused(refused: &Refused, n: u64) -> bool {
    refused[(n / 64 % 8) as usize] >> (n % 64) & 1 == 1
}

/// Name of an endpoint: 1 to 64 visible characters of ASCII. The empty one is no name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EndpointName([u8; NAME_LEN]);

impl Default for EndpointName {
    fn default() -> EndpointName {
        EndpointName([0; NAME_LEN])
    }
}

impl EndpointName {
    /// The name, where it can be one.
    pub fn new(text: &str) -> Option<EndpointName> {
        let mut name = [0; NAME_LEN];
        name.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then_some(EndpointName(name))
    }

    fn of_wire(bytes: [u8; NAME_LEN]) -> Option<EndpointName> {
        let len = bytes.iter().position(|&b| b == 0).unwrap_or(NAME_LEN);
        let (text, rest) = bytes.split_at(len);
        let fits = text.iter().all(u8::is_ascii_graphic) && rest.iter().all(|&b| b == 0);
        fits.then_some(EndpointName(bytes))
    }

    /// Its text; empty for no name.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&b| b == 0).unwrap_or(NAME_LEN);
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl std::fmt::Debug for EndpointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Why an endpoint or a transport does not take a peer, as it says in its hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// It takes it.
    #[default]
    None,
    /// Another process that is connected has the peer's name.
    Name,
    /// It has as many peers as it can.
    Full,
    /// The transport has another peer, for good.
    Taken,
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
    /// Of the sender's control messages on each of them, how many it knew to have come; the low half of their number.
    pub acked: [u32; PAST],
    /// The sender is not taken.
    pub refusal: Refusal,
    /// Number of the endpoint that the sending transport belongs to; 0 without one.
    pub endpoint: u64,
    /// Name of that endpoint; none without one.
    pub name: EndpointName,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 4],
    version: u8,
    refusal: u8,
    reserved: [u8; 2],
    from: U64,
    to: U64,
    epoch: U32,
    past: [U32; PAST],
    acked: [U32; PAST],
    seen: [U64; PAST],
    refused: [[U64; 8]; PAST],
    endpoint: U64,
    name: [u8; NAME_LEN],
}

const _: () = assert!(size_of::<Wire>() == HELLO_LEN);

impl Hello {
    /// The bytes as they travel.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let wire = Wire {
            magic: MAGIC,
            version: VERSION,
            refusal: self.refusal as u8,
            reserved: [0; 2],
            from: U64::new(self.from),
            to: U64::new(self.to),
            epoch: U32::new(self.epoch),
            past: self.past.map(|p| U32::new(p.0)),
            acked: self.acked.map(U32::new),
            seen: self.past.map(|p| U64::new(p.1)),
            refused: self.past.map(|p| p.2.map(U64::new)),
            endpoint: U64::new(self.endpoint),
            name: self.name.0,
        };
        zerocopy::transmute!(wire)
    }

    /// Notifications that the sender had received on path `epoch`, and which of them were of refused writes.
    pub fn seen(&self, epoch: u32) -> (u64, Refused) {
        self.past.iter().find(|p| p.0 == epoch && epoch != 0).map_or_else(Default::default, |p| (p.1, p.2))
    }

    /// How many of the `heard` control messages that had come on path `epoch` the sender knew to have come; 0 where it does not tell.
    pub(crate) fn known(&self, epoch: u32, heard: u64) -> u64 {
        let at = self.past.iter().position(|p| p.0 == epoch && epoch != 0);
        at.map_or(0, |at| heard.saturating_sub(u64::from((heard as u32).wrapping_sub(self.acked[at]))))
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
        let refusal = match wire.refusal {
            0 => Refusal::None,
            1 => Refusal::Name,
            2 => Refusal::Full,
            3 => Refusal::Taken,
            _ => return Err("its hello refuses for a reason that this version does not know"),
        };
        let name = EndpointName::of_wire(wire.name).ok_or("the name in its hello is none that can be")?;
        if (wire.endpoint.get() == 0) != name.as_str().is_empty() {
            return Err("its hello has an endpoint without a name, or a name without an endpoint");
        }
        Ok(Hello {
            from: wire.from.get(),
            to: wire.to.get(),
            epoch: wire.epoch.get(),
            acked: wire.acked.map(U32::get),
            past: std::array::from_fn(|n| (wire.past[n].get(), wire.seen[n].get(), wire.refused[n].map(U64::get))),
            refusal,
            endpoint: wire.endpoint.get(),
            name,
        })
    }
}

#[cfg(test)]
mod tests;
