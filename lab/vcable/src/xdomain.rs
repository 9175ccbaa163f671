//! Messages between hosts: the XDomain protocol.

mod message;
pub mod property;

pub use message::{Body, Message, discovery, type_name};

/// A UUID as sixteen bytes in the order in which it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// From the four words of a packet: each word holds four bytes, the first in its low end.
    pub fn from_words(words: [u32; 4]) -> Uuid {
        let mut bytes = [0; 16];
        for (at, word) in words.iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        Uuid(bytes)
    }

    /// The four words of a packet.
    pub fn words(self) -> [u32; 4] {
        let at = |i: usize| u32::from_le_bytes([self.0[i], self.0[i + 1], self.0[i + 2], self.0[i + 3]]);
        [at(0), at(4), at(8), at(12)]
    }

    /// The UUID that Linux makes of a router's UID: the UID in the low words, ones behind it.
    pub fn of_uid(uid: u64) -> Uuid {
        Uuid::from_words([uid as u32, (uid >> 32) as u32, !0, !0])
    }

    /// Reads the usual text form.
    pub fn parse(text: &str) -> Option<Uuid> {
        let digits: Vec<u32> = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
        let mut bytes = [0; 16];
        if digits.len() != 32 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Some(Uuid(bytes))
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
