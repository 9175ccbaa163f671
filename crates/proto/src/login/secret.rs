//! Bytes that never show and do not outlive their use, and the one keyed hash of the login.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes: compared in constant time, shown as `(secret)`, overwritten with zeros on drop. Boxed, so that
/// moving one leaves no copy behind.
#[derive(Clone)]
pub struct Secret<const N: usize>(Box<[u8; N]>);

/// The secret in a [`crate::handle::Handle`].
pub type Token = Secret<16>;

/// The key that every process of a cluster shares (`LINKSPAN_PSK_FILE`).
pub type Psk = Secret<32>;

impl<const N: usize> Secret<N> {
    /// Takes the bytes over. The caller's own copy stays the caller's business.
    pub fn new(bytes: [u8; N]) -> Secret<N> {
        Secret(Box::new(bytes))
    }

    /// Random bytes from the operating system.
    pub fn random() -> Result<Secret<N>, getrandom::Error> {
        let mut secret = Secret::new([0; N]);
        getrandom::fill(&mut secret.0[..])?;
        Ok(secret)
    }

    /// The bytes themselves, for hashing and encoding.
    pub fn expose(&self) -> &[u8; N] {
        &self.0
    }

    pub(super) fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> PartialEq for Secret<N> {
    fn eq(&self, other: &Secret<N>) -> bool {
        self.0[..].ct_eq(&other.0[..]).into()
    }
}

impl<const N: usize> Eq for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<const N: usize> ZeroizeOnDrop for Secret<N> {}

/// Bytes of an authentication code.
pub(crate) const MAC_LEN: usize = 32;

fn hmac(key: &[u8], label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of every length (RFC 2104), so the error arm is not reached.
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
    hmac.update(label.as_bytes());
    hmac.update(&[0]);
    for part in parts {
        hmac.update(part);
    }
    hmac
}

/// HMAC-SHA256 (RFC 2104) over the label, a zero byte and the parts.
pub(crate) fn mac(key: &[u8], label: &str, parts: &[&[u8]]) -> [u8; MAC_LEN] {
    hmac(key, label, parts).finalize().into_bytes().into()
}

/// Whether `code` is [`mac`] of the same, compared in constant time.
pub(crate) fn mac_is(key: &[u8], label: &str, parts: &[&[u8]], code: &[u8]) -> bool {
    hmac(key, label, parts).verify_slice(code).is_ok()
}

/// A key derived from another.
pub(crate) fn derive(key: &[u8], label: &str, parts: &[&[u8]]) -> Secret<32> {
    let mut code = mac(key, label, parts);
    let secret = Secret::new(code);
    code.zeroize();
    secret
}
