//! What can be set.

use std::net::IpAddr;
use std::time::Duration;

/// How a rail is to be. The defaults are what NCCL and others that run on the same cards have settled on.
#[derive(Clone, Debug)]
pub struct Config {
    /// Port of the device, from 1.
    pub port: u8,
    /// GID table entry; `None` chooses, see [`crate::choose_gid`].
    pub gid_index: Option<u8>,
    /// Network interface whose address the GID must have, by index; 0 for any.
    pub ifindex: u32,
    /// Our end of a stream to the peer: the address that the GID has rather than another of that interface.
    pub address: Option<IpAddr>,
    /// The interface's name; empty where it is not known.
    pub interface: String,
    /// Partition table entry.
    pub pkey_index: u16,
    /// Traffic class of our packets.
    pub traffic_class: u8,
    /// Service level, InfiniBand.
    pub service_level: u8,
    /// Routers that may be passed.
    pub hops: u8,
    /// Wait for an acknowledgement: 4.096 us * 2^timeout. 14 is 67 ms; with 7 retries a dead path is found in under a
    /// second, and cards may take up to four times as long (specification, 9.7.6.1.3).
    pub timeout: u8,
    /// Sends again after a timeout, 0 to 7.
    pub retry: u8,
    /// Sends again after receiver-not-ready, 0 to 7, 7 without limit. Credits keep a receiver ready, so this is for the
    /// moment of set-up alone and need not be without limit.
    pub rnr_retry: u8,
    /// Time to wait after receiver-not-ready, as a code; 12 is 0.64 ms.
    pub min_rnr: u8,
    /// Reads under way at a time.
    pub rd_atomic: u8,
    /// Chunk size, bytes.
    pub chunk: usize,
    /// Why this path was taken, for people.
    pub reason: String,
    /// A peer that says nothing for so long is asked with a write of nothing, which its card answers by itself.
    pub ask_after: Duration,
    /// How long a rail that closes waits at most for what it sent last to be acknowledged; `None`: twice what a card may take
    /// until it sends again what was lost, at least 1 s, and at most 2 s, as it may be that nobody is there any more.
    pub close_wait: Option<Duration>,
    /// How long the handshake may take.
    pub deadline: Duration,
}

impl Config {
    pub(crate) fn close_wait(&self) -> Duration {
        let resend = 4 * Duration::from_nanos(4096 << self.timeout.min(31));
        self.close_wait.unwrap_or((2 * resend).clamp(Duration::from_secs(1), Duration::from_secs(2)))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            port: 1,
            gid_index: None,
            ifindex: 0,
            address: None,
            interface: String::new(),
            pkey_index: 0,
            traffic_class: 0,
            service_level: 0,
            hops: 64,
            timeout: 14,
            retry: 7,
            rnr_retry: 6,
            min_rnr: 12,
            rd_atomic: 8,
            chunk: 512 << 10,
            reason: "asked for".into(),
            ask_after: Duration::from_secs(1),
            close_wait: None,
            deadline: Duration::from_secs(20),
        }
    }
}
