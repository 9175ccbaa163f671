//! What goes into a login beside the names, and what comes out.

use super::error::LoginError;
use super::keys::{Admit, KeyPair, PublicKey};
use super::noise::Noise;
use super::record::{Opener, Sealer};
use super::secret::{Psk, Secret};
use super::wire::{FLAG_ENCRYPT, FLAG_KEYS, FLAG_PSK};
use std::fmt;

/// What guards a stream beside the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The token alone: confidentiality is trust in the fabric.
    Token,
    /// The cluster key as well, by Noise NNpsk0.
    Psk {
        /// The key.
        psk: Psk,
        /// Require encrypted records after the login. It is enough that either side does.
        encrypt: bool,
    },
    /// A key pair on each side, by Noise XX. Each must be one that the other admits.
    Keys {
        /// Ours.
        own: KeyPair,
        /// Whose is accepted.
        admit: Admit,
        /// As in [`Guard::Psk`].
        encrypt: bool,
    },
}

impl Guard {
    pub(super) fn flags(&self) -> u8 {
        match self {
            Guard::Token => 0,
            Guard::Psk { encrypt, .. } => FLAG_PSK | if *encrypt { FLAG_ENCRYPT } else { 0 },
            Guard::Keys { encrypt, .. } => FLAG_KEYS | if *encrypt { FLAG_ENCRYPT } else { 0 },
        }
    }

    /// The key that the peer has proven in a login by key pairs, if it is one that is admitted.
    pub(super) fn judge(&self, noise: Option<&Noise>) -> Result<Option<PublicKey>, LoginError> {
        let Guard::Keys { admit, .. } = self else { return Ok(None) };
        let key = noise.and_then(Noise::peer_key).ok_or(LoginError::KeyProof)?;
        if admit.admits(&key) { Ok(Some(key)) } else { Err(LoginError::KeyNotAdmittedHere { key }) }
    }
}

/// The randomness of one side of one login: a nonce and an ephemeral key. Never use one twice.
#[derive(Debug)]
pub struct Seed {
    pub(super) nonce: Secret<32>,
    pub(super) ephemeral: Secret<32>,
}

impl Seed {
    /// A random one from the operating system.
    pub fn random() -> Result<Seed, LoginError> {
        let fresh = || Secret::random().map_err(|_| LoginError::Random);
        Ok(Seed { nonce: fresh()?, ephemeral: fresh()? })
    }

    /// From a generator of the caller's: for simulations and tests that must come out the same each time.
    pub fn from_fn(mut fill: impl FnMut(&mut [u8])) -> Seed {
        let mut fresh = || {
            let mut secret = Secret::new([0; 32]);
            fill(secret.expose_mut());
            secret
        };
        Seed { nonce: fresh(), ephemeral: fresh() }
    }
}

/// What both sides hold after a login.
pub struct Session {
    /// Protocol version of both sides from here on.
    pub version: u16,
    /// The connection, as the client named it.
    pub conn_id: u64,
    /// The stream of that connection.
    pub stream: u16,
    /// The peer's capabilities, authenticated, at most [`super::BLOB_MAX`] bytes. Their content is not verified.
    pub peer_blob: Vec<u8>,
    /// Key of this stream, known to both ends only.
    pub session_key: Secret<32>,
    /// The peer proved the cluster key.
    pub psk: bool,
    /// The key that the peer proved to have, in a login by key pairs; one that our side admits.
    pub peer_key: Option<PublicKey>,
    /// Present where the stream must be encrypted from here on.
    pub ciphers: Option<(Sealer, Opener)>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("version", &self.version)
            .field("conn_id", &format_args!("{:016x}", self.conn_id))
            .field("stream", &self.stream)
            .field("peer_blob", &format_args!("{} bytes", self.peer_blob.len()))
            .field("psk", &self.psk)
            .field("peer_key", &self.peer_key)
            .field("encrypted", &self.ciphers.is_some())
            .finish_non_exhaustive()
    }
}
