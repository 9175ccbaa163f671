//! What each side tells the other inside the login: its abilities, and what the shared-memory transport wants to know.
//!
//! The greeting is `[version 2][flags][relays]`, then the shm part behind its length, 2 bytes little-endian, then three texts, each behind its
//! length, 1 byte: the transport whose rails are to come up beside the stream, why there is none, and why not device-memory TCP. Fields
//! added later go behind, and a reader ignores what it does not know.

const VERSION: u8 = 2;
const FLAG_WANTS_LOCAL: u8 = 1;
const FLAG_DEVMEM: u8 = 2;

/// Most bytes of a text; the login takes no greeting of more than it has space for.
pub const REASON_MAX: usize = 200;

/// A greeting, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The sender would take shared memory for this connection.
    pub wants_local: bool,
    /// Hosts over which this stream is relayed.
    pub relays: u8,
    /// Opaque part of the shared-memory transport; of an answer that does not offer it, why: at most [`REASON_MAX`] bytes of UTF-8.
    pub shm: Vec<u8>,
    /// The sender would set rails of this transport up beside the stream; empty: none. An answer names what was asked for, or none.
    pub asks: String,
    /// Why it would not, where the user should be told; at most [`REASON_MAX`] bytes travel.
    pub why_not: String,
    /// The sender's card on this stream's interface puts payload into device memory, and it would use that.
    pub devmem: bool,
    /// Why it would not, where the user should be told; at most [`REASON_MAX`] bytes travel.
    pub no_devmem: String,
}

impl Greeting {
    /// The bytes as they travel. A part beyond 64 KiB - 1 does not fit its length field; that of shared memory has 80.
    pub fn encode(&self) -> Vec<u8> {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(self.wants_local, FLAG_WANTS_LOCAL) | flag(self.devmem, FLAG_DEVMEM);
        let mut out = vec![VERSION, flags, self.relays];
        out.extend_from_slice(&(self.shm.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.shm);
        for text in [&self.asks, &self.why_not, &self.no_devmem].map(|text| cut(text)) {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// Makes an answer that does not offer shared memory.
    pub fn refuse_shm(&mut self, why: &str) {
        (self.wants_local, self.shm) = (false, cut(why).into());
    }

    /// Why an answer does not offer it.
    pub fn shm_refusal(&self) -> String {
        match printable(&self.shm) {
            why if why.is_empty() => "the peer does not offer it; its log says why".into(),
            why => format!("the peer says: {why}"),
        }
    }

    /// Total over any bytes. Of texts only what can be printed is kept.
    pub fn decode(bytes: &[u8]) -> Option<Greeting> {
        let [VERSION, flags, relays, a, b, rest @ ..] = bytes else {
            return None;
        };
        let (shm, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*a, *b])))?;
        let (asks, rest) = text(rest)?;
        let (why_not, rest) = text(rest)?;
        let (no_devmem, _) = text(rest)?;
        let on = |flag: u8| flags & flag != 0;
        let (wants_local, devmem) = (on(FLAG_WANTS_LOCAL), on(FLAG_DEVMEM));
        Some(Greeting { wants_local, relays: *relays, shm: shm.to_vec(), asks, why_not, devmem, no_devmem })
    }
}

/// A text with its length, and what comes behind it.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((printable(text), rest))
}

/// What can be shown of a peer's text.
fn printable(text: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    cut(&text).to_owned()
}

/// As much of a text as travels.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_MAX)]
}

#[cfg(test)]
mod tests;
