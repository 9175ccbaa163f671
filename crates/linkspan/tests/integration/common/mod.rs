//! Two transports in one process, over each path a machine has.

pub(crate) mod url;

use std::time::{Duration, Instant};

use linkspan::{Config, Context, Log, Memory, Transport};

pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Paths under test: their name as `path()` begins with it, and the settings.
pub(crate) const PATHS: [(&str, &[(&str, &str)]); 3] = [
    ("tcp", &[("LINKSPAN_PATH", "tcp")]),
    ("shm", &[("LINKSPAN_PATH", "shm")]),
    ("shm", &[("LINKSPAN_PATH", "shm"), ("LINKSPAN_CMA", "0")]),
];

/// Time for a peer to confirm a revocation on a machine where others have the processors.
const PATIENT: (&str, &str) = ("LINKSPAN_REVOKE_MS", "20000");

/// Near what it is without settings, and not the same, for tests without confirmation.
pub(crate) const BRIEF: (&str, &str) = ("LINKSPAN_REVOKE_MS", "1500");

pub(crate) fn context(extra: &[(&str, &str)]) -> Context {
    let log = if std::env::var_os("LINKSPAN_LOG").is_some() { Log::stderr() } else { Log::off() };
    context_with(extra, log)
}

pub(crate) fn context_with(extra: &[(&str, &str)], log: Log) -> Context {
    let get = |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off"), PATIENT];
        base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())
    };
    Context::new(Config::read(&get).unwrap(), log).unwrap()
}

/// Two connected transports in contexts of their own, as two processes have them.
pub(crate) fn pair(extra: &[(&str, &str)]) -> (Transport, Transport) {
    let (a, b) = (context(extra).transport().unwrap(), context(extra).transport().unwrap());
    a.connect_blocking(&b.bind().unwrap(), LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    (a, b)
}

pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = vec![0; len.next_multiple_of(8)];
    // By index: iterators are slow in a build without optimisation, and this makes most of the bytes of all tests.
    let mut at = 0;
    while at < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[at..at + 8].copy_from_slice(&x.to_le_bytes());
        at += 8;
    }
    bytes.truncate(len);
    bytes
}

pub(crate) fn filled(len: usize, seed: u64) -> Memory {
    Memory::copy_of(&pattern(len, seed))
}

#[track_caller]
pub(crate) fn check(memory: &Memory, at: usize, len: usize, seed: u64) {
    let mut got = vec![0; len];
    memory.read(at, &mut got).unwrap();
    assert!(got == pattern(len, seed), "{len} bytes at {at} differ");
}

/// Waits for something another thread brings about.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
