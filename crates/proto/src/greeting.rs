//! What each side tells the other inside the login: its abilities, and what the shared-memory room wants to know.
//!
//! The greeting is `[version 1][flags][length of the shm part, 2 bytes little-endian][shm part][relays]`, the last byte left
//! out where it is 0; fields added later go behind, and a reader ignores what it does not know.

const VERSION: u8 = 1;
const FLAG_WANTS_LOCAL: u8 = 1;

/// A greeting, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The sender would take shared memory for this connection.
    pub wants_local: bool,
    /// Opaque part of the shared-memory room.
    pub shm: Vec<u8>,
    /// Hosts over which this stream is relayed.
    pub relays: u8,
}

impl Greeting {
    /// The bytes as they travel. A part beyond 64 KiB - 1 does not fit its length field; the room's has 104 bytes at most.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.shm.len());
        out.push(VERSION);
        out.push(if self.wants_local { FLAG_WANTS_LOCAL } else { 0 });
        out.extend_from_slice(&(self.shm.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.shm);
        if self.relays > 0 {
            out.push(self.relays);
        }
        out
    }

    /// Total over any bytes.
    pub fn decode(bytes: &[u8]) -> Option<Greeting> {
        let [VERSION, flags, a, b, rest @ ..] = bytes else {
            return None;
        };
        let len = usize::from(u16::from_le_bytes([*a, *b]));
        let shm = rest.get(..len)?.to_vec();
        let relays = rest.get(len).copied().unwrap_or(0);
        Some(Greeting { wants_local: flags & FLAG_WANTS_LOCAL != 0, shm, relays })
    }
}

#[cfg(test)]
mod tests;
