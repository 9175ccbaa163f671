//! Who a process is and where: enough to tell whether two share a host, before any memory is shared.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an encoded [`Identity`].
pub const IDENTITY_LEN: usize = 80;

const MAGIC: [u8; 4] = *b"LSid";
const VERSION: u16 = 2;

/// A process as it describes itself to a peer, over a way that is already authenticated; travels as 80 bytes, little-endian. A claim,
/// not a proof: the set-up proves it. The listening side's also has the name of its socket, and the secret by which each proves to the
/// other that it has been told.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Identity {
    magic: [u8; 4],
    version: U16,
    zero: U16,
    boot: [u8; 16],
    pid_ns: U64,
    net_ns: U64,
    uid: U32,
    pid: U32,
    name: [u8; 16],
    token: [u8; 16],
}

const _: () = assert!(size_of::<Identity>() == IDENTITY_LEN);

/// The token is a secret.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("uid", &self.uid.get()).field("pid", &self.pid.get()).finish_non_exhaustive()
    }
}

/// Why two processes do not use the shared-memory transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLocal {
    /// The blob is not an identity.
    #[error(
        "LS0401 the peer's identity is not one of version 2: it is of another version of linkspan, or it was damaged"
    )]
    Blob,
    /// This system did not tell who we are.
    #[error("LS0402 {what} cannot be read ({why}): same-host peers are not recognised")]
    Unknown {
        /// The file.
        what: &'static str,
        /// The OS error.
        why: String,
    },
    /// Another host, or another boot of it.
    #[error("LS0403 the peer runs on another host")]
    OtherHost,
    /// Another user.
    #[error("LS0404 the peer runs as user {theirs}, this process as {ours}: shared memory is for one user only")]
    OtherUser {
        /// Our effective user.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// Another network namespace, across which abstract sockets do not reach.
    #[error("LS0405 the peer is in another network namespace of this host: run both in one to use shared memory")]
    OtherNetwork,
}

/// The identity of this process, with a fresh name and token.
///
/// # Errors
/// [`NotLocal::Unknown`]: `/proc` cannot be read, or the OS gives no random numbers.
pub fn identity() -> Result<Identity, NotLocal> {
    let mut fresh = [[0; 16]; 2];
    getrandom::fill(fresh.as_flattened_mut())
        .map_err(|e| NotLocal::Unknown { what: "the random source", why: e.to_string() })?;
    Ok(Identity {
        magic: MAGIC,
        version: U16::new(VERSION),
        zero: U16::ZERO,
        boot: boot()?,
        pid_ns: U64::new(namespace("/proc/self/ns/pid")?),
        net_ns: U64::new(namespace("/proc/self/ns/net")?),
        uid: U32::new(rustix::process::geteuid().as_raw()),
        pid: U32::new(std::process::id()),
        name: fresh[0],
        token: fresh[1],
    })
}

impl Identity {
    /// The bytes as they travel.
    pub fn encode(&self) -> [u8; IDENTITY_LEN] {
        zerocopy::transmute!(*self)
    }

    /// Reads what [`Identity::encode`] wrote.
    ///
    /// # Errors
    /// [`NotLocal::Blob`]: another version, or no identity at all.
    pub fn decode(bytes: &[u8]) -> Result<Identity, NotLocal> {
        let id = Identity::read_from_bytes(bytes).map_err(|_| NotLocal::Blob)?;
        if id.magic != MAGIC || id.version.get() != VERSION || id.zero.get() != 0 {
            return Err(NotLocal::Blob);
        }
        Ok(id)
    }

    /// Process number, in its own pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Name of the abstract socket where it listens: readable in /proc/net/unix.
    pub(crate) fn socket_name(&self) -> String {
        format!("linkspan-{:032x}", u128::from_be_bytes(self.name))
    }

    pub(crate) fn token(&self) -> &[u8; 16] {
        &self.token
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid.get()
    }

    /// Whether process numbers mean the same to both.
    pub(crate) fn same_pids(&self, other: &Identity) -> bool {
        self.pid_ns == other.pid_ns
    }
}

/// Whether two processes can share memory by this transport.
///
/// # Errors
/// [`NotLocal`]: the variant says why they cannot share memory.
pub fn same_host(ours: &Identity, theirs: &Identity) -> Result<(), NotLocal> {
    if ours.boot != theirs.boot {
        return Err(NotLocal::OtherHost);
    }
    if ours.uid != theirs.uid {
        return Err(NotLocal::OtherUser { ours: ours.uid.get(), theirs: theirs.uid.get() });
    }
    if ours.net_ns != theirs.net_ns {
        return Err(NotLocal::OtherNetwork);
    }
    Ok(())
}

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The boot id: a UUID drawn at boot, the same for everything under one kernel (random(4)).
fn boot() -> Result<[u8; 16], NotLocal> {
    let unknown = |why: String| NotLocal::Unknown { what: BOOT, why };
    let text = std::fs::read_to_string(BOOT).map_err(|e| unknown(e.to_string()))?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(n) if digits.len() == 32 => Ok(n.to_be_bytes()),
        _ => Err(unknown("not a UUID".into())),
    }
}

fn namespace(path: &'static str) -> Result<u64, NotLocal> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).map_err(|e| NotLocal::Unknown { what: path, why: e.to_string() })?;
    Ok(meta.ino())
}

#[cfg(test)]
mod tests;
