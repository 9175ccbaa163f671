//! The handle: 128 bytes that a listener gives to its peers by way of the job (NCCL's bootstrap, a file, a URL).
//!
//! Every process that has it may connect: it carries the listener's token. Layout and rules: `docs/PROTOCOL.md`, "Handle".

mod addrs;

pub use addrs::{ADDR_BYTES, ADDR_MAX, Addr};

use crate::login::Token;
use sha2::{Digest, Sha256};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a handle: `NCCL_NET_HANDLE_MAXSIZE` of NCCL's `net.h`.
pub const HANDLE_LEN: usize = 128;

/// First four bytes of every handle.
pub const HANDLE_MAGIC: [u8; 4] = *b"LSPN";

/// Version of the layout below.
pub const HANDLE_VERSION: u8 = 1;

/// Bytes at the end that [`Handle::encode`] leaves zero and [`Handle::decode`] does not look at: NCCL hands the same
/// buffer to every poll of one connect, so a binding may keep its place there. They come from the peer at first, so
/// what is found there is a hint to be looked up, never a pointer.
pub const SCRATCH_LEN: usize = 16;

/// Where the scratch begins.
pub const SCRATCH_AT: usize = HANDLE_LEN - SCRATCH_LEN;

const FLAG_PSK: u8 = 1;
const FLAG_ENCRYPT: u8 = 2;
const FLAG_KEYS: u8 = 4;
const FLAGS_KNOWN: u8 = FLAG_PSK | FLAG_ENCRYPT | FLAG_KEYS;

/// The handle as it lies in memory. No `Debug`: it holds the token.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: u8,
    flags: u8,
    count: u8,
    used: u8,
    listen_id: U64,
    host: U64,
    token: [u8; 16],
    addrs: [u8; ADDR_BYTES],
    scratch: [u8; SCRATCH_LEN],
}

const _: () = assert!(size_of::<Raw>() == HANDLE_LEN);

/// A handle, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Random number of the listener.
    pub listen_id: u64,
    /// [`host_hash`] of the listener's host: equal hashes are a hint, never a proof, that both ends share a host.
    pub host: u64,
    /// The listener's secret, fresh for every listener.
    pub token: Token,
    /// The listener has a cluster PSK and refuses peers without it.
    pub psk: bool,
    /// The listener takes logins by key pairs, and refuses others.
    pub keys: bool,
    /// The listener insists on encrypted streams.
    pub encrypt: bool,
    addrs: Vec<Addr>,
}

/// Why bytes are not a handle, or an address does not go into one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// Another magic.
    #[error(
        "LS0201 the handle begins with bytes {0:02x?}, not {HANDLE_MAGIC:02x?} (\"LSPN\"): it was made by another net plugin or is not a handle; set NCCL_NET_PLUGIN=linkspan on every rank"
    )]
    Foreign([u8; 4]),
    /// Another version of the layout.
    #[error(
        "LS0202 the handle has layout version {0}, this linkspan reads and writes version {HANDLE_VERSION}: install the same release on all hosts"
    )]
    Version(u8),
    /// Flags of no known meaning.
    #[error(
        "LS0203 the handle has flags {0:#04x}, version {HANDLE_VERSION} knows {FLAGS_KNOWN:#04x}: it was damaged or forged; make a new one"
    )]
    Flags(u8),
    /// A count of addresses that cannot be.
    #[error(
        "LS0204 the handle announces {count} addresses in {used} bytes, the limits are 1 to {ADDR_MAX} in {ADDR_BYTES}: it was damaged or forged; make a new one"
    )]
    Count {
        /// Announced addresses.
        count: u8,
        /// Announced bytes.
        used: u8,
    },
    /// An address that cannot be.
    #[error("LS0205 address {index} of the handle {why}: it was damaged or forged; make a new one")]
    Addr {
        /// Which, from 0.
        index: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Valid parts in another spelling than the one that [`Handle::encode`] writes.
    #[error(
        "LS0206 the handle is not in the canonical form that linkspan writes: it was damaged or forged; make a new one"
    )]
    Spelling,
    /// An address that cannot be connected to.
    #[error("LS0207 the address {addr} cannot go into a handle: it {why}; listen on the address of one interface")]
    BadAddr {
        /// The address.
        addr: Addr,
        /// What is wrong.
        why: &'static str,
    },
    /// No space for one more.
    #[error(
        "LS0208 no space in the handle for {addr}, it holds {held} already (at most {ADDR_MAX}, or {ADDR_BYTES} compressed bytes): choose interfaces with LINKSPAN_IFNAME"
    )]
    Full {
        /// The address left out.
        addr: Addr,
        /// Addresses in the handle.
        held: usize,
    },
}

impl Handle {
    /// A handle without addresses yet.
    pub fn new(listen_id: u64, token: Token, host: u64) -> Handle {
        Handle { listen_id, host, token, psk: false, keys: false, encrypt: false, addrs: Vec::new() }
    }

    /// The same listener's, without addresses yet.
    #[must_use]
    pub fn without_addrs(&self) -> Handle {
        Handle { addrs: Vec::new(), ..self.clone() }
    }

    /// Adds an address, best first. [`HandleError::Full`] leaves the handle as it was; the caller says so in a WARN
    /// line and goes on.
    pub fn push(&mut self, addr: Addr) -> Result<(), HandleError> {
        if let Some(why) = addr.fault() {
            return Err(HandleError::BadAddr { addr, why });
        }
        self.addrs.push(addr);
        if self.addrs.len() > ADDR_MAX || addrs::pack(&self.addrs).is_none() {
            self.addrs.pop();
            return Err(HandleError::Full { addr, held: self.addrs.len() });
        }
        Ok(())
    }

    /// The addresses at which the listener listens, best first.
    pub fn addrs(&self) -> &[Addr] {
        &self.addrs
    }

    /// The bytes as they travel. They contain the token.
    pub fn encode(&self) -> [u8; HANDLE_LEN] {
        let flag = |on, flag| if on { flag } else { 0 };
        // `push` keeps the addresses within the space, so the fallback is never taken.
        let (addrs, used) = addrs::pack(&self.addrs).unwrap_or(([0; ADDR_BYTES], 0));
        let raw = Raw {
            magic: HANDLE_MAGIC,
            version: HANDLE_VERSION,
            flags: flag(self.psk, FLAG_PSK) | flag(self.keys, FLAG_KEYS) | flag(self.encrypt, FLAG_ENCRYPT),
            count: self.addrs.len() as u8,
            used,
            listen_id: U64::new(self.listen_id),
            host: U64::new(self.host),
            token: *self.token.expose(),
            addrs,
            scratch: [0; SCRATCH_LEN],
        };
        zerocopy::transmute!(raw)
    }

    /// Reads a handle. Total: any 128 bytes give a handle or an error, and one handle has one spelling.
    pub fn decode(bytes: &[u8; HANDLE_LEN]) -> Result<Handle, HandleError> {
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        if raw.magic != HANDLE_MAGIC {
            return Err(HandleError::Foreign(raw.magic));
        }
        if raw.version != HANDLE_VERSION {
            return Err(HandleError::Version(raw.version));
        }
        // One method or none, and encryption with one alone.
        let methods = raw.flags & (FLAG_PSK | FLAG_KEYS);
        if raw.flags & !FLAGS_KNOWN != 0 || methods.count_ones() > 1 || raw.flags == FLAG_ENCRYPT {
            return Err(HandleError::Flags(raw.flags));
        }
        let (count, used) = (usize::from(raw.count), usize::from(raw.used));
        if count == 0 || count > ADDR_MAX || used > ADDR_BYTES {
            return Err(HandleError::Count { count: raw.count, used: raw.used });
        }
        let handle = Handle {
            listen_id: raw.listen_id.get(),
            host: raw.host.get(),
            token: Token::new(raw.token),
            psk: raw.flags & FLAG_PSK != 0,
            keys: raw.flags & FLAG_KEYS != 0,
            encrypt: raw.flags & FLAG_ENCRYPT != 0,
            addrs: addrs::unpack(&raw.addrs[..used], count)?,
        };
        if handle.encode()[..SCRATCH_AT] != bytes[..SCRATCH_AT] {
            return Err(HandleError::Spelling);
        }
        Ok(handle)
    }
}

/// The hint "same host": the first 8 bytes (little-endian) of SHA-256 over a label and the boot id (the text of
/// `/proc/sys/kernel/random/boot_id`, spaces at its ends removed). The boot id itself never leaves the host.
pub fn host_hash(boot_id: &[u8]) -> u64 {
    let digest = Sha256::new().chain_update(b"linkspan host 1\0").chain_update(boot_id.trim_ascii()).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests;
