//! The handshakes against a second implementation, written for this test after the specification (revision 34, sections 5 and 7 to 9).

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{AeadInOut, KeyInit};
use hmac::{Hmac, Mac};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::super::keys::KeyPair;
use super::super::noise::Noise;
use super::super::secret::{Psk, Secret};

type Key = [u8; 32];

fn hash(parts: &[&[u8]]) -> Key {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn public(private: Key) -> Key {
    x25519_dalek::x25519(private, x25519_dalek::X25519_BASEPOINT_BYTES)
}

/// SymmetricState and the HandshakeState's keys.
struct Second {
    chain: Key,
    hash: Key,
    key: Option<Key>,
    count: u64,
    psk: bool,
    ephemeral: Key,
    fixed: Key,
    their_ephemeral: Key,
    their_fixed: Key,
}

impl Second {
    fn new(name: &str, prologue: &[u8], psk: bool, ephemeral: Key, fixed: Key) -> Second {
        let mut first = [0; 32];
        first[..name.len()].copy_from_slice(name.as_bytes());
        Second {
            chain: first,
            hash: hash(&[&first, prologue]),
            key: None,
            count: 0,
            psk,
            ephemeral,
            fixed,
            their_ephemeral: [0; 32],
            their_fixed: [0; 32],
        }
    }

    /// HKDF with so many outputs.
    fn expand<const N: usize>(&self, input: &[u8]) -> [Key; N] {
        let secret = hmac(&self.chain, &[input]);
        let mut out = [[0; 32]; N];
        for n in 0..N {
            let before: &[u8] = if n == 0 { &[] } else { &out[n - 1] };
            out[n] = hmac(&secret, &[before, &[n as u8 + 1]]);
        }
        out
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = hash(&[&self.hash, data]);
    }

    fn mix_key(&mut self, input: &[u8]) {
        let [chain, key] = self.expand(input);
        (self.chain, self.key, self.count) = (chain, Some(key), 0);
    }

    fn mix_psk(&mut self, psk: &Key) {
        let [chain, mixed, key] = self.expand(psk);
        self.chain = chain;
        self.mix_hash(&mixed);
        (self.key, self.count) = (Some(key), 0);
    }

    fn nonce(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_be_bytes());
        self.count += 1;
        nonce
    }

    fn seal(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let sealed = match self.key {
            None => text.to_vec(),
            Some(key) => {
                let nonce = self.nonce();
                let mut sealed = text.to_vec();
                let cipher = Aes256Gcm::new(&key.into());
                let tag = cipher.encrypt_inout_detached(&nonce.into(), &self.hash, sealed.as_mut_slice().into());
                sealed.extend(tag.unwrap());
                sealed
            }
        };
        self.mix_hash(&sealed);
        out.extend(sealed);
    }

    fn open(&mut self, sealed: &[u8]) -> Vec<u8> {
        let text = match self.key {
            None => sealed.to_vec(),
            Some(key) => {
                let nonce = self.nonce();
                let (mut text, tag) = (sealed[..sealed.len() - 16].to_vec(), sealed[sealed.len() - 16..].try_into());
                let tag: [u8; 16] = tag.unwrap();
                let cipher = Aes256Gcm::new(&key.into());
                let text_now = text.as_mut_slice().into();
                cipher.decrypt_inout_detached(&nonce.into(), &self.hash, text_now, &tag.into()).unwrap();
                text
            }
        };
        self.mix_hash(sealed);
        text
    }

    fn say_ephemeral(&mut self, out: &mut Vec<u8>) {
        let own = public(self.ephemeral);
        out.extend(own);
        self.took_ephemeral(&own);
    }

    fn hear_ephemeral(&mut self, bytes: &[u8]) {
        self.their_ephemeral = bytes.try_into().unwrap();
        self.took_ephemeral(bytes);
    }

    fn took_ephemeral(&mut self, key: &[u8]) {
        self.mix_hash(key);
        // Section 9.2.
        if self.psk {
            self.mix_key(key);
        }
    }

    fn meet(&mut self, own: Key, theirs: Key) {
        self.mix_key(&x25519_dalek::x25519(own, theirs));
    }

    fn split(&self) -> [Key; 2] {
        self.expand(&[])
    }
}

fn exposed((up, down): (Secret<32>, Secret<32>)) -> [Key; 2] {
    [*up.expose(), *down.expose()]
}

const PSK: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const KEYS: &str = "Noise_XX_25519_AESGCM_SHA256";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_second_implementation_of_the_cluster_key_s_handshake_agrees_in_both_roles(
        key: Key, one: Key, two: Key, prologue: Vec<u8>, up: Vec<u8>, down: Vec<u8>,
    ) {
        let (up, down) = (&up[..up.len().min(200)], &down[..down.len().min(200)]);
        let ours = |client| Noise::psk(client, &Psk::new(key), &prologue, Secret::new(one)).unwrap();
        let second = || Second::new(PSK, &prologue, true, two, [0; 32]);
        // We are the client.
        let (mut ours_now, mut theirs) = (ours(true), second());
        let first = ours_now.write(up).unwrap();
        theirs.mix_psk(&key);
        theirs.hear_ephemeral(&first[..32]);
        prop_assert_eq!(theirs.open(&first[32..]), up);
        let mut answer = Vec::new();
        theirs.say_ephemeral(&mut answer);
        theirs.meet(theirs.ephemeral, theirs.their_ephemeral);
        theirs.seal(down, &mut answer);
        prop_assert_eq!(ours_now.read(&answer).unwrap(), down);
        prop_assert_eq!(exposed(ours_now.split()), theirs.split());
        // We are the server.
        let (mut ours_now, mut theirs) = (ours(false), second());
        let mut first = Vec::new();
        theirs.mix_psk(&key);
        theirs.say_ephemeral(&mut first);
        theirs.seal(up, &mut first);
        prop_assert_eq!(ours_now.read(&first).unwrap(), up);
        let answer = ours_now.write(down).unwrap();
        theirs.hear_ephemeral(&answer[..32]);
        theirs.meet(theirs.ephemeral, theirs.their_ephemeral);
        prop_assert_eq!(theirs.open(&answer[32..]), down);
        prop_assert_eq!(exposed(ours_now.split()), theirs.split());
    }

    #[test]
    fn a_second_implementation_of_the_key_pairs_handshake_agrees_in_both_roles(
        one: Key, two: Key, fixed_one: Key, fixed_two: Key, prologue: Vec<u8>, up: Vec<u8>, down: Vec<u8>,
    ) {
        let (up, down) = (&up[..up.len().min(200)], &down[..down.len().min(200)]);
        let pair = KeyPair::new(Secret::new(fixed_one));
        let second = || Second::new(KEYS, &prologue, false, two, fixed_two);
        // We are the server, which begins.
        let (mut ours, first) = Noise::keys_server(&pair, &prologue, Secret::new(one)).unwrap();
        let mut theirs = second();
        theirs.hear_ephemeral(&first);
        theirs.open(&[]);
        let mut confirm = Vec::new();
        theirs.say_ephemeral(&mut confirm);
        theirs.meet(theirs.ephemeral, theirs.their_ephemeral);
        theirs.seal(&public(fixed_two), &mut confirm);
        theirs.meet(theirs.fixed, theirs.their_ephemeral);
        theirs.seal(up, &mut confirm);
        prop_assert_eq!(ours.read(&confirm).unwrap(), up);
        prop_assert_eq!(ours.peer_key().map(|key| *key.bytes()), Some(public(fixed_two)));
        let finish = ours.write(down).unwrap();
        let fixed = theirs.open(&finish[..48]);
        prop_assert_eq!(&fixed[..], &public(fixed_one)[..]);
        theirs.their_fixed = fixed.try_into().unwrap();
        theirs.meet(theirs.ephemeral, theirs.their_fixed);
        prop_assert_eq!(theirs.open(&finish[48..]), down);
        let [to_client, to_server] = theirs.split();
        prop_assert_eq!(exposed(ours.split()), [to_server, to_client]);
        // We are the client.
        let mut theirs = second();
        let mut first = Vec::new();
        theirs.say_ephemeral(&mut first);
        theirs.seal(&[], &mut first);
        let mut ours = Noise::keys_client(&pair, &prologue, &first, Secret::new(one)).unwrap();
        let confirm = ours.write(up).unwrap();
        theirs.hear_ephemeral(&confirm[..32]);
        theirs.meet(theirs.ephemeral, theirs.their_ephemeral);
        let fixed = theirs.open(&confirm[32..80]);
        theirs.their_fixed = fixed.try_into().unwrap();
        theirs.meet(theirs.ephemeral, theirs.their_fixed);
        prop_assert_eq!(theirs.open(&confirm[80..]), up);
        let mut finish = Vec::new();
        theirs.seal(&public(fixed_two), &mut finish);
        theirs.meet(theirs.fixed, theirs.their_ephemeral);
        theirs.seal(down, &mut finish);
        prop_assert_eq!(ours.read(&finish).unwrap(), down);
        let [to_client, to_server] = theirs.split();
        prop_assert_eq!(exposed(ours.split()), [to_server, to_client]);
    }
}
