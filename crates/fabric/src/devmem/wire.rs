//! What a process and `lspan devmem up` say to each other: one datagram a question, one an answer, over a local socket of
//! sequenced packets. Everything that was bound or steered ends with the connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a question.
pub const QUESTION_LEN: usize = 56;

/// Most bytes of an answer.
pub const ANSWER_MAX: usize = 16 + 240;

const MAGIC: [u8; 4] = *b"LSDM";
const VERSION: u8 = 1;

/// What a process asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerRequest {
    /// Bind the dma-buf whose descriptor comes with this, of so many bytes, to queues for this process.
    Bind {
        /// Its bytes.
        len: u64,
    },
    /// Steer a stream, whose socket comes with this, to those queues.
    Steer {
        /// Where it goes: an address of this host.
        local: SocketAddr,
        /// Where it comes from.
        peer: SocketAddr,
    },
    /// Steer it no longer.
    Release {
        /// What the answer to [`BrokerRequest::Steer`] said.
        rule: u32,
    },
}

/// What it is told: a number (of the binding, of the rule), or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerReply(pub Result<u32, String>);

fn put(out: &mut [u8], addr: SocketAddr) {
    let ip = match addr.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out[..16].copy_from_slice(&ip.octets());
    out[16..18].copy_from_slice(&addr.port().to_le_bytes());
}

fn get(bytes: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = *bytes.first_chunk()?;
    let port = u16::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
    Some(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
}

impl BrokerRequest {
    /// The bytes as they travel: magic, version, kind, two of zero, a number (8), two addresses (18 each), zeros.
    pub fn encode(&self) -> [u8; QUESTION_LEN] {
        let mut out = [0; QUESTION_LEN];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        let (kind, number) = match *self {
            BrokerRequest::Bind { len } => (1, len),
            BrokerRequest::Steer { local, peer } => {
                put(&mut out[16..34], local);
                put(&mut out[34..52], peer);
                (2, 0)
            }
            BrokerRequest::Release { rule } => (3, u64::from(rule)),
        };
        out[5] = kind;
        out[8..16].copy_from_slice(&number.to_le_bytes());
        out
    }

    /// Decodes one. Any input is accepted or refused; none panics.
    pub fn decode(bytes: &[u8]) -> Option<BrokerRequest> {
        if bytes.len() != QUESTION_LEN || bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let number = u64::from_le_bytes(*bytes[8..].first_chunk()?);
        match bytes[5] {
            1 => Some(BrokerRequest::Bind { len: number }),
            2 => Some(BrokerRequest::Steer { local: get(&bytes[16..34])?, peer: get(&bytes[34..52])? }),
            3 => Some(BrokerRequest::Release { rule: u32::try_from(number).ok()? }),
            _ => None,
        }
    }
}

impl BrokerReply {
    /// The bytes as they travel: magic, version, 1 for no, length of the text (2), number (4), zeros (4), text.
    pub fn encode(&self) -> Vec<u8> {
        let (no, number, text) = match &self.0 {
            Ok(number) => (0, *number, ""),
            Err(why) => (1, 0, why.as_str()),
        };
        let end = text.floor_char_boundary(ANSWER_MAX - 16);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[VERSION, no]);
        out.extend_from_slice(&(end as u16).to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&text.as_bytes()[..end]);
        out
    }

    /// Decodes one. Any input is accepted or refused; none panics.
    pub fn decode(bytes: &[u8]) -> Option<BrokerReply> {
        let (head, text) = bytes.split_first_chunk::<16>()?;
        let [a, b, c, d, VERSION, no, l, m, number @ ..] = *head else { return None };
        let len = usize::from(u16::from_le_bytes([l, m]));
        if [a, b, c, d] != MAGIC || text.len() != len {
            return None;
        }
        match no {
            0 => Some(BrokerReply(Ok(u32::from_le_bytes(*number.first_chunk()?)))),
            1 => {
                let text = String::from_utf8_lossy(text);
                Some(BrokerReply(Err(text.chars().filter(|c| !c.is_control()).collect())))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
