//! The URL by which a transport or a listener is reached: `linkspan://1/` and 160 characters.
//!
//! Behind the version stand, in base64url without padding (RFC 4648, 5): one byte of kind, 8 bytes of the transport's number,
//! the first 112 bytes of the fabric's handle (which hold the secret), and 4 bytes of checksum over all of it.

use std::fmt;
use std::str::FromStr;

use linkspan_fabric::{HANDLE_LEN, HANDLE_USED};
use linkspan_proto::handle::{Handle, HandleError};
use linkspan_proto::login::{PublicKey, Secret};

const SCHEME: &str = "linkspan://";
const VERSION: &str = "1";
const RAW: usize = 1 + 8 + HANDLE_USED + 4;
const CHARS: usize = (RAW * 8).div_ceil(6);
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Who answers at a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlKind {
    /// One transport, for one peer.
    Transport,
    /// A listener, for any number of peers.
    Listener,
}

/// What a peer needs to connect. It contains a secret, and every process that has it may connect: give it to peers only.
///
/// `Display` prints the whole of it, `Debug` leaves the secret out; so do all log lines of this library.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) kind: UrlKind,
    /// Number of the transport; 0 for a listener.
    pub(crate) id: u64,
    pub(crate) handle: Secret<HANDLE_LEN>,
    /// The key that has to be proven there, where a paired host was asked for the URL. It is no part of the text.
    pub(crate) key: Option<PublicKey>,
}

/// Why a text is not a URL of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It begins otherwise. The text itself may hold another secret and is not repeated.
    #[error("LS1120 a linkspan URL begins with \"linkspan://\"; this text does not")]
    Scheme,
    /// Another version.
    #[error("LS1121 the URL has version {0:?}, this linkspan reads version 1: install the same release on both sides")]
    Version(String),
    /// Another length.
    #[error(
        "LS1122 the URL has {got} characters after its version in place of {CHARS}: it was cut off or has extra characters"
    )]
    Length {
        /// As found.
        got: usize,
    },
    /// A character that cannot be there.
    #[error("LS1123 character {at} of the URL is {found:?}: only A-Z a-z 0-9 - _ can stand there")]
    Character {
        /// Position in the text, from 1.
        at: usize,
        /// What stands there.
        found: char,
    },
    /// The checksum is another.
    #[error("LS1124 the checksum of the URL does not match: a character was mistyped or swapped")]
    Checksum,
    /// A kind that this version does not know.
    #[error("LS1125 the URL is of kind {0}, version 1 knows 0 (transport) and 1 (listener)")]
    Kind(u8),
    /// The handle inside cannot be used.
    #[error("LS1126 the addresses in the URL cannot be used")]
    Handle(#[from] HandleError),
}

/// FNV-1a, 32 bits (Fowler, Noll, Vo): finds slips of hand, defends against nothing.
fn sum(bytes: &[u8]) -> [u8; 4] {
    let hash = bytes.iter().fold(0x811C_9DC5u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash.to_le_bytes()
}

impl Url {
    pub(crate) fn new(kind: UrlKind, id: u64, handle: [u8; HANDLE_LEN]) -> Url {
        let mut handle = handle;
        handle[HANDLE_USED..].fill(0);
        Url { kind, id, handle: Secret::new(handle), key: None }
    }

    /// The listener whose handle somebody else has brought here, as a rendezvous does.
    ///
    /// # Errors
    /// [`UrlError::Handle`]: these bytes are no handle.
    pub fn of_listener(handle: &[u8; HANDLE_LEN]) -> Result<Url, UrlError> {
        Handle::decode(handle)?;
        Ok(Url::new(UrlKind::Listener, 0, *handle))
    }

    /// The handle in it, for a rendezvous. It contains the secret.
    pub fn handle(&self) -> [u8; HANDLE_LEN] {
        *self.handle.expose()
    }

    /// Whether a transport or a listener has this URL.
    pub fn kind(&self) -> UrlKind {
        self.kind
    }

    /// Number of the transport; 0 for a listener. It is not secret.
    pub fn number(&self) -> u64 {
        self.id
    }

    /// The addresses in it, without the secret; what `Debug` shows.
    pub fn redacted(&self) -> String {
        let addrs: Vec<String> = match Handle::decode(self.handle.expose()) {
            Ok(handle) => handle.addrs().iter().map(|a| a.socket().to_string()).collect(),
            Err(_) => Vec::new(),
        };
        format!("{SCHEME}{VERSION}/<secret>@{}", addrs.join(","))
    }

    fn raw(&self) -> [u8; RAW] {
        let mut raw = [0; RAW];
        raw[0] = u8::from(self.kind == UrlKind::Listener);
        raw[1..9].copy_from_slice(&self.id.to_le_bytes());
        raw[9..9 + HANDLE_USED].copy_from_slice(&self.handle.expose()[..HANDLE_USED]);
        let check = sum(&raw[..RAW - 4]);
        raw[RAW - 4..].copy_from_slice(&check);
        raw
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(SCHEME.len() + 2 + CHARS);
        text.push_str(SCHEME);
        text.push_str(VERSION);
        text.push('/');
        let (mut bits, mut n) = (0u32, 0);
        for byte in self.raw() {
            bits = bits << 8 | u32::from(byte);
            n += 8;
            while n >= 6 {
                n -= 6;
                text.push(ALPHABET[(bits >> n & 63) as usize] as char);
            }
        }
        if n > 0 {
            text.push(ALPHABET[(bits << (6 - n) & 63) as usize] as char);
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Url, UrlError> {
        let text = text.trim();
        let rest = text.strip_prefix(SCHEME).ok_or(UrlError::Scheme)?;
        let (version, body) = rest.split_once('/').ok_or(UrlError::Length { got: 0 })?;
        if version != VERSION {
            return Err(UrlError::Version(version.chars().take(16).collect()));
        }
        let before = text.chars().count() - body.chars().count();
        let mut raw = [0u8; RAW];
        let (mut bits, mut n, mut len) = (0u32, 0, 0);
        for (at, c) in body.chars().enumerate() {
            let value = u8::try_from(c).ok().and_then(|c| ALPHABET.iter().position(|&a| a == c));
            let Some(value) = value else {
                return Err(UrlError::Character { at: before + at + 1, found: c });
            };
            bits = bits << 6 | value as u32;
            n += 6;
            if n >= 8 {
                n -= 8;
                if let Some(byte) = raw.get_mut(len) {
                    *byte = (bits >> n) as u8;
                }
                len += 1;
            }
        }
        if body.len() != CHARS {
            return Err(UrlError::Length { got: body.len() });
        }
        // The bits that fill the last character are zero in the one spelling there is.
        if sum(&raw[..RAW - 4]) != raw[RAW - 4..] || bits & ((1 << n) - 1) != 0 {
            return Err(UrlError::Checksum);
        }
        let kind = match raw[0] {
            0 => UrlKind::Transport,
            1 => UrlKind::Listener,
            other => return Err(UrlError::Kind(other)),
        };
        let mut id = [0; 8];
        id.copy_from_slice(&raw[1..9]);
        let mut handle = [0; HANDLE_LEN];
        handle[..HANDLE_USED].copy_from_slice(&raw[9..9 + HANDLE_USED]);
        Handle::decode(&handle)?;
        Ok(Url { kind, id: u64::from_le_bytes(id), handle: Secret::new(handle), key: None })
    }
}

#[cfg(test)]
mod tests;
