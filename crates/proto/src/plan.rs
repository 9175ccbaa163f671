//! The plan of a connection: after the logins, the side that connected says on one of the streams which streams form
//! the connection and how; the other side agrees or closes them.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most streams in a plan.
pub const MAX_STREAMS: usize = crate::conn::MAX_RAILS;

/// Bytes of a [`Plan`].
pub const PLAN_LEN: usize = 32;

/// Bytes of the answer.
pub const AGREED_LEN: usize = 4;

/// The answer that accepts a plan; there is no other, a refused plan ends its streams.
pub const AGREED: [u8; AGREED_LEN] = *b"LSOK";

const MAGIC: [u8; 4] = *b"LSPL";
const NO_KEEPALIVE: u16 = u16::MAX;

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The streams are the rails.
    Tcp,
    /// Shared memory; the one stream named stays as its keepalive connection.
    Shm,
    /// What transports offered in the login, as queue pairs or a cable: what was set up beside each stream, in their order, are the rails.
    /// With `acked`, the first stream is a rail on standby behind them.
    Offered,
    /// Device-memory TCP: two streams are a rail, the first for heads and control messages, the second for payload.
    Devmem,
}

/// A plan, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What carries it.
    pub carrier: Carrier,
    /// Operations are acknowledged, see [`crate::conn::Config`].
    pub acked: bool,
    /// Streams in the order of the rails.
    pub streams: Vec<u16>,
    /// The stream that carries nothing and shows that the peer's host is alive.
    pub keepalive: Option<u16>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 4],
    carrier: u8,
    acked: u8,
    count: u8,
    reserved: [u8; 7],
    keepalive: U16,
    streams: [U16; MAX_STREAMS],
}

const _: () = assert!(size_of::<Wire>() == PLAN_LEN);

/// Why bytes are not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS0005 the plan of a connection {0}")]
pub struct BadPlan(pub &'static str);

impl Plan {
    /// The bytes as they travel.
    pub fn encode(&self) -> [u8; PLAN_LEN] {
        let mut streams = [U16::ZERO; MAX_STREAMS];
        for (to, from) in streams.iter_mut().zip(&self.streams) {
            to.set(*from);
        }
        let wire = Wire {
            magic: MAGIC,
            carrier: match self.carrier {
                Carrier::Tcp => 1,
                Carrier::Shm => 2,
                Carrier::Offered => 3,
                Carrier::Devmem => 4,
            },
            acked: u8::from(self.acked),
            count: self.streams.len().min(MAX_STREAMS) as u8,
            reserved: [0; 7],
            keepalive: U16::new(self.keepalive.unwrap_or(NO_KEEPALIVE)),
            streams,
        };
        zerocopy::transmute!(wire)
    }

    /// Reads a plan; total over any bytes.
    ///
    /// # Errors
    /// [`BadPlan`], whose text names the field that is wrong.
    pub fn decode(bytes: &[u8; PLAN_LEN]) -> Result<Plan, BadPlan> {
        let wire: &Wire = zerocopy::transmute_ref!(bytes);
        if wire.magic != MAGIC {
            return Err(BadPlan("begins with other bytes than it should"));
        }
        let carrier = match wire.carrier {
            1 => Carrier::Tcp,
            2 => Carrier::Shm,
            3 => Carrier::Offered,
            4 => Carrier::Devmem,
            _ => return Err(BadPlan("names a carrier that this version does not know")),
        };
        let count = usize::from(wire.count);
        let odd = carrier == Carrier::Devmem && !count.is_multiple_of(2);
        if count == 0 || count > MAX_STREAMS || odd || (carrier == Carrier::Shm && count != 1) {
            return Err(BadPlan("has an impossible number of streams"));
        }
        let one_rail = if carrier == Carrier::Devmem { 2 } else { 1 };
        if wire.acked > 1 || (wire.acked == 0 && count > one_rail) || wire.reserved != [0; 7] {
            return Err(BadPlan("has impossible flags"));
        }
        let streams: Vec<u16> = wire.streams[..count].iter().map(|s| s.get()).collect();
        let keepalive = Some(wire.keepalive.get()).filter(|&s| s != NO_KEEPALIVE);
        let twice = |i: usize| streams[..i].contains(&streams[i]);
        if (0..count).any(twice) || keepalive.is_some_and(|s| streams.contains(&s)) || streams.contains(&NO_KEEPALIVE) {
            return Err(BadPlan("names a stream twice, or one that cannot be"));
        }
        Ok(Plan { carrier, acked: wire.acked == 1, streams, keepalive })
    }
}

#[cfg(test)]
mod tests;
