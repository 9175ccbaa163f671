//! What each side tells the other inside the login: its abilities, and what the shared-memory room wants to know.
//!
//! The greeting is `[version 1][flags][length of the shm part, 2 bytes little-endian][shm part]`; fields added later go
//! behind, and a reader ignores what it does not know.

const VERSION: u8 = 1;
const FLAG_WANTS_LOCAL: u8 = 1;

/// A greeting, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// The sender would take shared memory for this connection.
    pub(crate) wants_local: bool,
    /// Opaque part of the shared-memory room.
    pub(crate) shm: Vec<u8>,
}

impl Greeting {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.shm.len());
        out.push(VERSION);
        out.push(if self.wants_local { FLAG_WANTS_LOCAL } else { 0 });
        out.extend_from_slice(&(self.shm.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.shm);
        out
    }

    /// Total over any bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Greeting> {
        let [VERSION, flags, a, b, rest @ ..] = bytes else {
            return None;
        };
        let len = usize::from(u16::from_le_bytes([*a, *b]));
        let shm = rest.get(..len)?.to_vec();
        Some(Greeting { wants_local: flags & FLAG_WANTS_LOCAL != 0, shm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_every_truncation() {
        let greeting = Greeting { wants_local: true, shm: vec![7, 8] };
        let wire = greeting.encode();
        assert_eq!(wire, [1, 1, 2, 0, 7, 8]);
        assert_eq!(Greeting::decode(&wire), Some(greeting.clone()));
        assert!((0..wire.len()).all(|n| Greeting::decode(&wire[..n]).is_none()));
        let longer = [wire, vec![9; 5]].concat();
        assert_eq!(Greeting::decode(&longer), Some(greeting), "later fields are ignored");
    }
}
