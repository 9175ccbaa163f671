//! The control channel: packets on ring 0, big-endian words with a CRC at the end.

use crate::crc::crc32c;
use crate::router::Space;

/// Most bytes of a control packet, the CRC included.
pub const MAX_PACKET: usize = 256;
/// Most words that one read or write carries.
pub const MAX_WORDS: usize = 60;

/// Kinds of packets: the PDF of the frame.
pub mod pdf {
    /// Read of configuration words, and its reply.
    pub const READ: u8 = 1;
    /// Write of configuration words, and its reply.
    pub const WRITE: u8 = 2;
    /// Error reply, and the driver's answer to a hot plug event.
    pub const ERROR: u8 = 3;
    /// Answer to a notification.
    pub const NOTIFY_ACK: u8 = 4;
    /// Hot plug event.
    pub const EVENT: u8 = 5;
    /// Message to the other host.
    pub const XDOMAIN_REQUEST: u8 = 6;
    /// Answer to the other host.
    pub const XDOMAIN_RESPONSE: u8 = 7;
}

/// Error codes of the configuration layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Nothing is connected to the port that the route names.
    NotConnected,
    /// The address lies outside the space.
    InvalidSpace,
    /// No adapter has this number.
    NoSuchAdapter,
    /// Answer to a hot plug event.
    AckPlugEvent,
    /// The route leads into another domain.
    Loop,
}

impl ConfigError {
    /// Code on the wire.
    pub fn code(self) -> u32 {
        match self {
            ConfigError::NotConnected => 0,
            ConfigError::InvalidSpace => 2,
            ConfigError::NoSuchAdapter => 4,
            ConfigError::AckPlugEvent => 7,
            ConfigError::Loop => 8,
        }
    }
}

/// Why bytes are not a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Too short, too long, or not whole words.
    #[error("{0} bytes; whole words with the CRC are wanted, 12 to 256 bytes")]
    Length(usize),
    /// The CRC is wrong.
    #[error("the CRC is {found:#010x}, the bytes have {right:#010x}")]
    Crc {
        /// At the end of the packet.
        found: u32,
        /// Computed.
        right: u32,
    },
    /// A read or write of no words, too many, or other than the packet carries.
    #[error("asks for {asked} words and carries {carried}")]
    Words {
        /// Length field.
        asked: usize,
        /// Words behind the address.
        carried: usize,
    },
}

/// Address of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// First word.
    pub offset: usize,
    /// Number of words, 0 to 63.
    pub len: usize,
    /// Adapter.
    pub adapter: usize,
    /// Which space.
    pub space: Space,
    /// Sequence number, 2 bits.
    pub seq: u8,
}

impl Address {
    /// From the word.
    pub fn decode(word: u32) -> Address {
        Address {
            offset: (word & 0x1fff) as usize,
            len: (word >> 13 & 0x3f) as usize,
            adapter: (word >> 19 & 0x3f) as usize,
            space: Space::from_bits(word >> 25),
            seq: (word >> 27 & 3) as u8,
        }
    }
}

/// Words of a packet whose length and CRC are right, without the CRC.
///
/// # Errors
/// [`PacketError::Length`], [`PacketError::Crc`].
pub fn unseal(bytes: &[u8]) -> Result<Vec<u32>, PacketError> {
    // Route, and one word of CRC: the least that any packet has.
    if bytes.len() < 12 || bytes.len() > MAX_PACKET || !bytes.len().is_multiple_of(4) {
        return Err(PacketError::Length(bytes.len()));
    }
    let mut words: Vec<u32> = bytes.chunks_exact(4).map(|w| w.iter().fold(0, |v, b| v << 8 | u32::from(*b))).collect();
    let found = words.pop().unwrap_or(0);
    let right = crc32c(&bytes[..bytes.len() - 4]);
    if found != right {
        return Err(PacketError::Crc { found, right });
    }
    Ok(words)
}

/// Bytes of a packet, CRC included.
pub fn seal(words: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

/// Route of a packet: the first two words without the reply bit and its neighbours.
pub fn route(words: &[u32]) -> u64 {
    let at = |i: usize| u64::from(words.get(i).copied().unwrap_or(0));
    (at(0) & 0x3f_ffff) << 32 | at(1)
}

/// A request to the configuration layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Read words.
    Read(Address),
    /// Write words.
    Write(Address, &'a [u32]),
}

impl Request<'_> {
    /// From the words of a READ or WRITE packet.
    ///
    /// # Errors
    /// [`PacketError::Words`]: the number of words does not fit.
    pub fn decode(kind: u8, words: &[u32]) -> Result<Request<'_>, PacketError> {
        let [_, _, address, data @ ..] = words else {
            return Err(PacketError::Words { asked: 0, carried: 0 });
        };
        let address = Address::decode(*address);
        let carried = if kind == pdf::READ { 0 } else { address.len };
        if address.len == 0 || address.len > MAX_WORDS || data.len() != carried {
            return Err(PacketError::Words { asked: address.len, carried: data.len() });
        }
        Ok(if kind == pdf::READ { Request::Read(address) } else { Request::Write(address, data) })
    }
}

#[cfg(test)]
mod tests;
