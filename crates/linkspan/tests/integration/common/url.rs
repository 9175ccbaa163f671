//! What is inside a URL, for tests that stand in for one side or lie between both.

use std::net::SocketAddr;

use linkspan::Url;
use linkspan_proto::handle::{HANDLE_LEN, Handle};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Where the handle lies in a URL's bytes, of which a hash follows.
const HANDLE: std::ops::Range<usize> = 9..121;

fn bytes(url: &Url) -> Vec<u8> {
    let text = url.to_string();
    let (mut bits, mut n, mut bytes) = (0u32, 0, Vec::new());
    for c in text.rsplit('/').next().unwrap().bytes() {
        bits = bits << 6 | ALPHABET.iter().position(|&a| a == c).unwrap() as u32;
        n += 6;
        if n >= 8 {
            n -= 8;
            bytes.push((bits >> n) as u8);
        }
    }
    bytes
}

/// The handle inside a URL.
pub(crate) fn handle_of(url: &Url) -> [u8; HANDLE_LEN] {
    let mut handle = [0; HANDLE_LEN];
    handle[..HANDLE.len()].copy_from_slice(&bytes(url)[HANDLE]);
    handle
}

/// Where a URL leads, and the same URL with another port there, as if from another host.
pub(crate) fn moved(url: &Url, port: u16) -> (SocketAddr, Url) {
    let real = Handle::decode(&handle_of(url)).unwrap();
    let mut addr = real.addrs()[0];
    let to = addr.socket();
    addr.port = port;
    let mut other = Handle::new(real.listen_id, real.token.clone(), real.host ^ 1);
    (other.psk, other.encrypt) = (real.psk, real.encrypt);
    other.push(addr).unwrap();
    let mut bytes = bytes(url);
    bytes[HANDLE].copy_from_slice(&other.encode()[..HANDLE.len()]);
    let hash = bytes[..HANDLE.end].iter().fold(0x811C_9DC5u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    bytes[HANDLE.end..HANDLE.end + 4].copy_from_slice(&hash.to_le_bytes());
    let mut text = String::from("linkspan://1/");
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, &b| bits << 8 | u32::from(b)) << (8 * (3 - three.len()));
        text.extend((0..=three.len()).map(|n| char::from(ALPHABET[(bits >> (18 - 6 * n) & 63) as usize])));
    }
    (to, text.parse().unwrap())
}
