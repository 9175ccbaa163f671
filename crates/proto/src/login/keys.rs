//! Key pairs of users, and whom a listener or a client lets in by them.

use super::error::LoginError;
use super::secret::Secret;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// A user's public key: a point of Curve25519 (RFC 7748, 32 bytes). Shown as its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Takes the 32 bytes; that they are somebody's key shows when a login with it succeeds.
    pub fn new(bytes: [u8; 32]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What people compare: 80 bits of a hash, as in `ABCD-EFGH-IJKL-MNOP`.
    pub fn fingerprint(&self) -> String {
        fingerprint("linkspan key 1", &[&self.0])
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}

/// The fingerprint that both sides of a pairing show: the same whichever of the two keys comes first.
pub fn pair_fingerprint(a: &PublicKey, b: &PublicKey) -> String {
    fingerprint("linkspan pair 1", &[&a.min(b).0, &a.max(b).0])
}

/// The first 80 bits of SHA-256 over the label, a zero byte and the parts, as four groups of four letters and digits
/// (base 32, RFC 4648): short enough to compare by eye, and 2^80 keys away from an equal one for a given key.
fn fingerprint(label: &str, parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    hash.update(label.as_bytes());
    hash.update([0]);
    parts.iter().for_each(|part| hash.update(part));
    let hash = hash.finalize();
    let bits = hash[..10].iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let mut text = String::with_capacity(19);
    for n in 0..16 {
        if n > 0 && n % 4 == 0 {
            text.push('-');
        }
        let digit = (bits >> (75 - 5 * n) & 31) as usize;
        text.push(char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[digit]));
    }
    text
}

/// A user's key pair on Curve25519.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    private: Secret<32>,
    public: PublicKey,
}

impl KeyPair {
    /// The pair of this private key; any 32 bytes are one (RFC 7748, 5).
    pub fn new(private: Secret<32>) -> KeyPair {
        let public = x25519_dalek::x25519(*private.expose(), x25519_dalek::X25519_BASEPOINT_BYTES);
        KeyPair { private, public: PublicKey(public) }
    }

    /// A new one, by the operating system's randomness.
    ///
    /// # Errors
    /// [`LoginError::Random`] where that gives none.
    pub fn random() -> Result<KeyPair, LoginError> {
        Ok(KeyPair::new(Secret::random().map_err(|_| LoginError::Random)?))
    }

    /// The half that others may know.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The half that nobody else may know.
    pub fn private(&self) -> &Secret<32> {
        &self.private
    }
}

/// Whose key a side accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Everybody's: the token alone decides, as in a pairing.
    Anyone,
    /// These alone.
    Only(Arc<[PublicKey]>),
}

impl Admit {
    /// Whether `key` is accepted.
    pub fn admits(&self, key: &PublicKey) -> bool {
        match self {
            Admit::Anyone => true,
            Admit::Only(keys) => keys.contains(key),
        }
    }
}
