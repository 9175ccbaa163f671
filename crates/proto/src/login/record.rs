//! AES-256-GCM records: what the bytes of a stream travel in after a login with `encrypt`.
//!
//! A record is 4 bytes of length (little-endian, of the text), the text, 16 bytes of tag. The nonce is never sent:
//! four zero bytes and the record's number in its epoch (64 bits, little-endian). The record with which the records of an
//! epoch would be more than 2^38 bytes, lengths and tags included, is the first of the next one, which has a key of its own:
//! both sides step there by themselves.

use super::secret::{Secret, derive};
use std::fmt;

/// Bytes in front of a record: the length of its text.
pub const RECORD_HEAD: usize = 4;

/// Bytes behind it: the tag.
pub const RECORD_TAG: usize = 16;

/// Largest text of one record. Transports use 64 to 512 KiB for payload: smaller ones pay more for the fixed part.
pub const RECORD_MAX: usize = 512 << 10;

/// Most bytes of records under one key. RFC 8446, 5.5 allows 2^38.5 under AES-GCM; counted with lengths and tags, so that small
/// records, which are more blocks than their text fills, are no way around it.
const EPOCH: u64 = 1 << 38;

const LABEL_KEY: &str = "linkspan record 2 key";
const LABEL_NEXT: &str = "linkspan record 2 next";

/// Why a record cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A length of zero or over the limit.
    #[error(
        "LS0251 an encrypted record of {0} bytes, the limits are 1 and {RECORD_MAX}: the stream is damaged or the peer is not an unmodified linkspan"
    )]
    Len(usize),
    /// A wrong tag.
    #[error(
        "LS0252 encrypted record {0} does not authenticate: it was changed, dropped, repeated or reordered in transit; the stream is closed"
    )]
    Tag(u64),
    /// An earlier record failed.
    #[error("LS0253 this encrypted stream failed before and carries nothing any more: make a new connection")]
    Broken,
}

/// AES-256-GCM by the CPU's wide instructions where it has them, else by portable code. Same bytes either way.
enum Engine {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Wide(Box<graviola::aead::AesGcm>),
    Portable(Box<aes_gcm::Aes256Gcm>),
}

#[cfg(target_arch = "x86_64")]
fn cpu_is_wide() -> bool {
    // What graviola 0.4 asks for at run time; it ends the process on a lesser CPU.
    is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("adx")
        && is_x86_feature_detected!("avx")
        && is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "aarch64")]
fn cpu_is_wide() -> bool {
    use std::arch::is_aarch64_feature_detected;
    is_aarch64_feature_detected!("neon")
        && is_aarch64_feature_detected!("aes")
        && is_aarch64_feature_detected!("pmull")
        && is_aarch64_feature_detected!("sha2")
}

impl Engine {
    fn new(key: &Secret<32>) -> Engine {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if cpu_is_wide() {
            return Engine::Wide(Box::new(graviola::aead::AesGcm::new(key.expose())));
        }
        Engine::portable(key)
    }

    fn portable(key: &Secret<32>) -> Engine {
        use aes_gcm::KeyInit;
        Engine::Portable(Box::new(aes_gcm::Aes256Gcm::new(key.expose().into())))
    }

    fn seal(&self, nonce: [u8; 12], head: &[u8], text: &mut [u8]) -> Option<[u8; RECORD_TAG]> {
        match self {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Engine::Wide(cipher) => {
                let mut tag = [0; RECORD_TAG];
                cipher.encrypt(&nonce, head, text, &mut tag);
                Some(tag)
            }
            Engine::Portable(cipher) => {
                use aes_gcm::aead::AeadInOut;
                cipher.encrypt_inout_detached(&nonce.into(), head, text.into()).ok().map(Into::into)
            }
        }
    }

    fn open(&self, nonce: [u8; 12], head: &[u8], text: &mut [u8], tag: [u8; RECORD_TAG]) -> bool {
        match self {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Engine::Wide(cipher) => cipher.decrypt(&nonce, head, text, &tag).is_ok(),
            Engine::Portable(cipher) => {
                use aes_gcm::aead::AeadInOut;
                cipher.decrypt_inout_detached(&nonce.into(), head, text.into(), &tag.into()).is_ok()
            }
        }
    }
}

/// One direction of a stream: key, number of the next record, and the way to the next key.
struct Line {
    key: Secret<32>,
    engine: Engine,
    /// Records under this key so far, and their bytes.
    count: u64,
    bytes: u64,
    /// Records in earlier epochs, for messages.
    past: u64,
    epoch: u64,
    broken: bool,
}

impl Line {
    fn new(split: &Secret<32>, epoch: u64) -> Line {
        let key = derive(split.expose(), LABEL_KEY, &[]);
        Line { engine: Engine::new(&key), key, count: 0, bytes: 0, past: 0, epoch, broken: false }
    }

    /// The nonce of the next record, which has a text of this length, under the key that it wants.
    fn step(&mut self, text: usize) -> [u8; 12] {
        let bytes = (RECORD_HEAD + text + RECORD_TAG) as u64;
        if self.bytes + bytes > self.epoch {
            self.key = derive(self.key.expose(), LABEL_NEXT, &[]);
            self.engine = Engine::new(&self.key);
            self.past += self.count;
            (self.count, self.bytes) = (0, 0);
        }
        self.bytes += bytes;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        nonce
    }

    fn number(&self) -> u64 {
        self.past + self.count
    }
}

fn check(len: usize) -> Result<(), RecordError> {
    if len == 0 || len > RECORD_MAX { Err(RecordError::Len(len)) } else { Ok(()) }
}

/// The sending half.
pub struct Sealer(Line);

/// The receiving half. Records open in the order in which they were sealed.
pub struct Opener(Line);

impl Sealer {
    pub(super) fn new(split: &Secret<32>) -> Sealer {
        Sealer(Line::new(split, EPOCH))
    }

    /// Encrypts `text` in place and gives what goes in front of it and behind it.
    pub fn seal(&mut self, text: &mut [u8]) -> Result<([u8; RECORD_HEAD], [u8; RECORD_TAG]), RecordError> {
        check(text.len())?;
        if self.0.broken {
            return Err(RecordError::Broken);
        }
        let head = (text.len() as u32).to_le_bytes();
        let nonce = self.0.step(text.len());
        match self.0.engine.seal(nonce, &head, text) {
            Some(tag) => Ok((head, tag)),
            None => {
                self.0.broken = true;
                Err(RecordError::Broken)
            }
        }
    }
}

impl Opener {
    pub(super) fn new(split: &Secret<32>) -> Opener {
        Opener(Line::new(split, EPOCH))
    }

    /// Bytes of text after this head; the tag follows them.
    pub fn text_len(head: [u8; RECORD_HEAD]) -> Result<usize, RecordError> {
        let len = u32::from_le_bytes(head) as usize;
        check(len).map(|()| len)
    }

    /// Decrypts `text` in place. On any failure the text is not to be used and the stream is over.
    pub fn open(&mut self, text: &mut [u8], tag: [u8; RECORD_TAG]) -> Result<(), RecordError> {
        if self.0.broken {
            return Err(RecordError::Broken);
        }
        let head = (text.len() as u32).to_le_bytes();
        let sound = check(text.len()).and_then(|()| {
            let nonce = self.0.step(text.len());
            if self.0.engine.open(nonce, &head, text, tag) { Ok(()) } else { Err(RecordError::Tag(self.0.number())) }
        });
        self.0.broken = sound.is_err();
        sound
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer {{ records: {} }}", self.0.number())
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener {{ records: {} }}", self.0.number())
    }
}

#[cfg(test)]
#[path = "tests/record.rs"]
mod tests;
