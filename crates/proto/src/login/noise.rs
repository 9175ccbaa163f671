//! Noise (specification, revision 34) over primitives of the same generation as the rest of the workspace.
//!
//! With a cluster key `Noise_NNpsk0_25519_AESGCM_SHA256`: the messages ride in confirm and finish; hello and reply are
//! the prologue. With key pairs `Noise_XX_25519_AESGCM_SHA256`, begun by the server: its three messages are the reply's nonce (an
//! ephemeral key and nothing else), confirm and finish; the prologue is the hello and the reply up to the nonce.

use super::error::LoginError;
use super::keys::{KeyPair, PublicKey};
use super::secret::{Psk, Secret};
use super::wire::BLOB_MAX;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Tag};
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use std::sync::Mutex;
use zeroize::Zeroize;

const PSK: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const KEYS: &str = "Noise_XX_25519_AESGCM_SHA256";
const TAG: usize = 16;
const KEY: usize = 32;

/// One side of the exchange.
pub(super) struct Noise {
    state: Box<HandshakeState>,
    /// What our message and the peer's add to their blobs, bytes.
    ours: usize,
    theirs: usize,
    /// By key pairs, so begun by the server.
    keys: bool,
}

fn own(error: Error) -> LoginError {
    LoginError::Noise(error.to_string())
}

fn builder<'a>(pattern: &str, prologue: &'a [u8], ephemeral: Secret<32>) -> Result<Builder<'a>, LoginError> {
    let resolver = Box::new(Primitives { ephemeral: Mutex::new(Some(ephemeral)) });
    Builder::with_resolver(pattern.parse().map_err(own)?, resolver).prologue(prologue).map_err(own)
}

impl Noise {
    /// With the cluster key.
    pub(super) fn psk(client: bool, psk: &Psk, prologue: &[u8], ephemeral: Secret<32>) -> Result<Noise, LoginError> {
        let builder = builder(PSK, prologue, ephemeral)?.psk(0, psk.expose()).map_err(own)?;
        let state = if client { builder.build_initiator() } else { builder.build_responder() };
        Ok(Noise { state: Box::new(state.map_err(own)?), ours: KEY + TAG, theirs: KEY + TAG, keys: false })
    }

    /// With key pairs, and the first message.
    pub(super) fn keys_server(
        pair: &KeyPair,
        prologue: &[u8],
        ephemeral: Secret<32>,
    ) -> Result<(Noise, [u8; KEY]), LoginError> {
        let builder = builder(KEYS, prologue, ephemeral)?.local_private_key(pair.private().expose()).map_err(own)?;
        let mut state = builder.build_initiator().map_err(own)?;
        // snow wants space for a tag, also where nothing is encrypted yet.
        let mut message = [0; KEY + TAG];
        state.write_message(&[], &mut message).map_err(own)?;
        let mut first = [0; KEY];
        first.copy_from_slice(&message[..KEY]);
        // s and se; e, s and es (an encrypted key has a tag, and so has the blob).
        Ok((Noise { state: Box::new(state), ours: KEY + 2 * TAG, theirs: 2 * KEY + 2 * TAG, keys: true }, first))
    }

    /// With key pairs, after the first message.
    pub(super) fn keys_client(
        pair: &KeyPair,
        prologue: &[u8],
        first: &[u8],
        ephemeral: Secret<32>,
    ) -> Result<Noise, LoginError> {
        let builder = builder(KEYS, prologue, ephemeral)?.local_private_key(pair.private().expose()).map_err(own)?;
        let mut state = builder.build_responder().map_err(own)?;
        state.read_message(first, &mut []).map_err(|_| LoginError::KeyProof)?;
        Ok(Noise { state: Box::new(state), ours: 2 * KEY + 2 * TAG, theirs: KEY + 2 * TAG, keys: true })
    }

    /// What the peer's message adds to its blob, bytes.
    pub(super) fn extra(&self) -> usize {
        self.theirs
    }

    pub(super) fn write(&mut self, blob: &[u8]) -> Result<Vec<u8>, LoginError> {
        let mut message = vec![0; blob.len() + self.ours];
        // With key pairs it multiplies by the peer's key, which may be none.
        let len = self.state.write_message(blob, &mut message).map_err(|error| match error {
            Error::Dh => LoginError::KeyProof,
            error => own(error),
        })?;
        message.truncate(len);
        Ok(message)
    }

    /// The peer's blob; any failure means another key, for the outer code has excluded damage.
    pub(super) fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
        let mut blob = vec![0; BLOB_MAX + self.theirs];
        let wrong = if self.keys { LoginError::KeyProof } else { LoginError::PskDiffers };
        let len = self.state.read_message(message, &mut blob).map_err(|_| wrong)?;
        blob.truncate(len);
        Ok(blob)
    }

    /// The key that the peer has proven, once its message was read.
    pub(super) fn peer_key(&self) -> Option<PublicKey> {
        self.state.get_remote_static()?.first_chunk().map(|key| PublicKey::new(*key))
    }

    /// The two keys after all messages: client to server, server to client.
    pub(super) fn split(mut self) -> (Secret<32>, Secret<32>) {
        let (mut first, mut second) = self.state.dangerously_get_raw_split();
        let (a, b) = (Secret::new(first), Secret::new(second));
        first.zeroize();
        second.zeroize();
        if self.keys { (b, a) } else { (a, b) }
    }
}

struct Primitives {
    ephemeral: Mutex<Option<Secret<32>>>,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        let ephemeral = self.ephemeral.lock().ok()?.take();
        Some(Box::new(Once(ephemeral)))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519>::default() as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::<Sha>::default() as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::<Gcm>::default() as _)
    }
}

/// Gives out the one ephemeral key that a side needs.
struct Once(Option<Secret<32>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let key = self.0.take().ok_or(Error::Rng)?;
        if dest.len() != key.expose().len() {
            return Err(Error::Rng);
        }
        dest.copy_from_slice(key.expose());
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct X25519 {
    private: [u8; 32],
    public: [u8; 32],
}

impl Drop for X25519 {
    fn drop(&mut self) {
        self.private.zeroize();
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = x25519_dalek::x25519(self.private, x25519_dalek::X25519_BASEPOINT_BYTES);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut private = [0; 32];
        rng.try_fill_bytes(&mut private)?;
        self.set(&private);
        private.zeroize();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk::<32>().ok_or(Error::Dh)?;
        let mut shared = x25519_dalek::x25519(self.private, *public);
        // RFC 7748, 6.1: all zeros come of a point of low order.
        if shared == [0; 32] {
            return Err(Error::Dh);
        }
        out.get_mut(..32).ok_or(Error::Dh)?.copy_from_slice(&shared);
        shared.zeroize();
        Ok(())
    }
}

#[derive(Default)]
struct Sha(Sha256);

impl Hash for Sha {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

#[derive(Default)]
struct Gcm([u8; 32]);

impl Drop for Gcm {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Gcm {
    /// Noise, 12.4: four zero bytes and the counter, big-endian.
    fn nonce(n: u64) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&n.to_be_bytes());
        nonce
    }
}

impl Cipher for Gcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = *key;
    }

    fn encrypt(&self, nonce: u64, ad: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out.split_at_mut(plain.len());
        text.copy_from_slice(plain);
        // AES-GCM refuses only texts over 64 GiB; ours are at most one blob.
        let code = Aes256Gcm::new(&self.0.into())
            .encrypt_inout_detached(&Self::nonce(nonce).into(), ad, text.into())
            .unwrap_or_default();
        tag[..TAG].copy_from_slice(&code);
        plain.len() + TAG
    }

    fn decrypt(&self, nonce: u64, ad: &[u8], cipher: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let (text, code) = cipher.split_last_chunk::<TAG>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(text);
        Aes256Gcm::new(&self.0.into())
            .decrypt_inout_detached(&Self::nonce(nonce).into(), ad, out.into(), &Tag::from(*code))
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}
