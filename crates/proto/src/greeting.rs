//! What each side tells the other inside the login: its abilities, and what the shared-memory transport wants to know.
//!
//! The greeting is `[version 1][flags][length of the shm part, 2 bytes little-endian][shm part]`, then `[length, 1 byte][text]`:
//! why the sender takes no RDMA although it has a device, then `[relays]`, then another `[length, 1 byte][text]`: why it does not
//! take device-memory TCP. Fields added later go behind, a reader ignores what it does not know, and one that ends behind the
//! shm part, a text or the relays has nothing of what is missing.

const VERSION: u8 = 1;
const FLAG_WANTS_LOCAL: u8 = 1;
const FLAG_RDMA: u8 = 2;
const FLAG_CABLE: u8 = 4;
const FLAG_DEVMEM: u8 = 8;

/// Most bytes of [`Greeting::no_rdma`]; the login takes no greeting of more than it has space for.
pub const REASON_MAX: usize = 200;

/// A greeting, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The sender would take shared memory for this connection.
    pub wants_local: bool,
    /// The sender has an RDMA device on the interface of this stream and would use it for this connection.
    pub rdma: bool,
    /// The sender has a Thunderbolt or USB4 cable that may lead to the receiver and would use it for this connection.
    pub cable: bool,
    /// Opaque part of the shared-memory transport.
    pub shm: Vec<u8>,
    /// Why it would not, where it has one; at most [`REASON_MAX`] bytes travel.
    pub no_rdma: String,
    /// Hosts over which this stream is relayed.
    pub relays: u8,
    /// The sender's card on this stream's interface puts payload into device memory, and it would use that.
    pub devmem: bool,
    /// Why it would not, where the user should be told; at most [`REASON_MAX`] bytes travel.
    pub no_devmem: String,
}

impl Greeting {
    /// The bytes as they travel. A part beyond 64 KiB - 1 does not fit its length field; the transport's has 104 bytes at most.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(7 + self.shm.len() + self.no_rdma.len() + self.no_devmem.len());
        out.push(VERSION);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let (cable, devmem) = (flag(self.cable, FLAG_CABLE), flag(self.devmem, FLAG_DEVMEM));
        out.push(flag(self.wants_local, FLAG_WANTS_LOCAL) | flag(self.rdma, FLAG_RDMA) | cable | devmem);
        out.extend_from_slice(&(self.shm.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.shm);
        let text = cut(&self.no_rdma);
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
        out.push(self.relays);
        let text = cut(&self.no_devmem);
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
        out
    }

    /// Total over any bytes. Of the text only what can be printed is kept.
    pub fn decode(bytes: &[u8]) -> Option<Greeting> {
        let [VERSION, flags, a, b, rest @ ..] = bytes else {
            return None;
        };
        let (shm, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*a, *b])))?;
        let (no_rdma, rest) = text(rest)?;
        let (relays, rest) = rest.split_first().map_or((0, rest), |(relays, rest)| (*relays, rest));
        let (no_devmem, _) = text(rest)?;
        let on = |flag: u8| flags & flag != 0;
        let (wants_local, rdma, cable, devmem) = (on(FLAG_WANTS_LOCAL), on(FLAG_RDMA), on(FLAG_CABLE), on(FLAG_DEVMEM));
        Some(Greeting { wants_local, rdma, cable, shm: shm.to_vec(), no_rdma, relays, devmem, no_devmem })
    }
}

/// A text with its length, and what comes behind it; of nothing, the empty text.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let Some((len, rest)) = bytes.split_first() else { return Some((String::new(), bytes)) };
    let (text, rest) = rest.split_at_checked(usize::from(*len))?;
    let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    Some((cut(&text).to_owned(), rest))
}

/// As much of a text as travels.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
