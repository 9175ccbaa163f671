//! An attacker on the cable: forwards streams between two ends, keeps a copy, and changes bytes when told to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linkspan_transport::conformance::Direction;

/// A change to the bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// Flips these bits of the byte at this offset of every stream.
    At { way: Direction, offset: usize, bits: u8 },
    /// Flips one bit in the middle of the next large piece, on whatever stream it comes, once.
    Next { way: Direction, least: usize },
}

#[derive(Default)]
struct Shared {
    seen: Vec<u8>,
    harm: Option<Harm>,
    harmed: usize,
}

impl Shared {
    fn piece(&mut self, way: Direction, done: usize, bytes: &mut [u8]) {
        self.seen.extend_from_slice(bytes);
        let n = bytes.len();
        match self.harm {
            Some(Harm::At { way: w, offset, bits }) if w == way && (done..done + n).contains(&offset) => {
                bytes[offset - done] ^= bits;
                self.harmed += 1;
            }
            Some(Harm::Next { way: w, least }) if w == way && n >= least => {
                bytes[n / 2] ^= 1;
                self.harmed += 1;
                self.harm = None;
            }
            _ => {}
        }
    }
}

/// A proxy that listens in.
pub(crate) struct Proxy {
    shared: Arc<Mutex<Shared>>,
    pub(crate) port: u16,
    _streams: linkspan_transport::conformance::Proxy,
}

impl Proxy {
    pub(crate) fn new(to: SocketAddr) -> Proxy {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let all = shared.clone();
        let streams = linkspan_transport::conformance::Proxy::with_tap(to, move |way, done, bytes| {
            all.lock().unwrap().piece(way, done, bytes);
        });
        Proxy { shared, port: streams.addr().port(), _streams: streams }
    }

    pub(crate) fn harm(&self, harm: Harm) {
        self.shared.lock().unwrap().harm = Some(harm);
    }

    /// Bytes changed so far.
    pub(crate) fn harmed(&self) -> usize {
        self.shared.lock().unwrap().harmed
    }

    /// Whether `what` has been on the wire. It may not lie across two reads; the caller sends it often.
    /// Whether `what` was among the first bytes that passed.
    pub(crate) fn saw(&self, what: &[u8], first: usize) -> bool {
        let seen = &self.shared.lock().unwrap().seen;
        seen[..first.min(seen.len())].windows(what.len()).any(|w| w == what)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().unwrap().seen.len()
    }
}
