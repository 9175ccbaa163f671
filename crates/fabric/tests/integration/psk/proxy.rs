//! An attacker on the cable: forwards streams between two ends, keeps a copy, and changes bytes when told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the side that connects.
    There,
    /// To it.
    Back,
}

/// A change to the bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// Flips these bits of the byte at this offset of every stream.
    At { way: Way, offset: usize, bits: u8 },
    /// Flips one bit in the middle of the next large piece, on whatever stream it comes, once.
    Next { way: Way, least: usize },
}

#[derive(Default)]
struct Shared {
    seen: Vec<u8>,
    harm: Option<Harm>,
    harmed: usize,
}

/// A proxy in front of one address. Its threads end with their streams.
pub(crate) struct Proxy {
    shared: Arc<Mutex<Shared>>,
    pub(crate) port: u16,
}

impl Proxy {
    pub(crate) fn new(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let all = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(to) else { continue };
                for (way, from, to) in [(Way::There, &client, &server), (Way::Back, &server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = all.clone();
                    std::thread::spawn(move || forward(way, from, to, &shared));
                }
            }
        });
        Proxy { shared, port }
    }

    pub(crate) fn harm(&self, harm: Harm) {
        self.shared.lock().unwrap().harm = Some(harm);
    }

    /// Bytes changed so far.
    pub(crate) fn harmed(&self) -> usize {
        self.shared.lock().unwrap().harmed
    }

    /// Whether `what` has been on the wire. It may not lie across two reads; the caller sends it often.
    pub(crate) fn saw(&self, what: &[u8]) -> bool {
        self.shared.lock().unwrap().seen.windows(what.len()).any(|w| w == what)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().unwrap().seen.len()
    }
}

fn forward(way: Way, mut from: TcpStream, mut to: TcpStream, shared: &Mutex<Shared>) {
    let mut bytes = vec![0; 64 << 10];
    let mut done = 0;
    while let Ok(n) = from.read(&mut bytes) {
        if n == 0 {
            break;
        }
        let bytes = &mut bytes[..n];
        {
            let mut shared = shared.lock().unwrap();
            shared.seen.extend_from_slice(bytes);
            match shared.harm {
                Some(Harm::At { way: w, offset, bits }) if w == way && (done..done + n).contains(&offset) => {
                    bytes[offset - done] ^= bits;
                    shared.harmed += 1;
                }
                Some(Harm::Next { way: w, least }) if w == way && n >= least => {
                    bytes[n / 2] ^= 1;
                    shared.harmed += 1;
                    shared.harm = None;
                }
                _ => {}
            }
        }
        done += n;
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
