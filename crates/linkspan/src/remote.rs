//! A place in the peer's memory, as it travels from the one who exposes it to the one who uses it.

use linkspan_fabric::{Access, RemoteSlice};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Error;

/// Bytes of an encoded [`RemoteBuffer`].
pub const REMOTE_BUFFER_LEN: usize = 40;

const VERSION: u8 = 1;

/// Bits of a key that name the region; those above are its generation.
pub(crate) const INDEX_BITS: u32 = 12;

/// A range of memory that a peer has exposed, with its length, generation and rights. Plain data: [`RemoteBuffer::encode`] it,
/// send it by any way, and use it on the transport that is connected to the one that gave it out. The key inside is checked at
/// every use, by the owner of the memory or in the table that it shows to a process of this host; what is checked here only makes
/// errors earlier and clearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Number of the transport or endpoint that gave it out.
    pub(crate) domain: u64,
    pub(crate) key: u32,
    pub(crate) access: Access,
    /// Offset in the region.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 4],
    version: u8,
    access: u8,
    check: U16,
    domain: U64,
    key: U32,
    reserved: U32,
    offset: U64,
    len: U64,
}

const MAGIC: [u8; 4] = *b"LSRB";
const _: () = assert!(size_of::<Wire>() == REMOTE_BUFFER_LEN);

impl Wire {
    /// Folded FNV-1a over everything but itself: finds damage, defends against nothing.
    fn sum(&self) -> u16 {
        let bytes = self.as_bytes().iter().enumerate().filter(|(at, _)| !(6..8).contains(at));
        let hash = bytes.fold(0x811C_9DC5u32, |h, (_, &b)| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        (hash ^ hash >> 16) as u16
    }
}

impl RemoteBuffer {
    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The region's key: what the owner checks.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// How often the region's number had been given out before, and once: an older one is refused.
    pub fn generation(&self) -> u32 {
        self.key >> INDEX_BITS
    }

    /// `len` bytes from `offset` of this buffer.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this buffer.
    pub fn slice(&self, offset: u64, len: u64) -> Result<RemoteBuffer, Error> {
        let bad = Error::Bounds { offset, len, of: "a remote buffer", have: self.len };
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(RemoteBuffer { offset: self.offset + offset, len, ..*self }),
            _ => Err(bad),
        }
    }

    /// The bytes to send to the peer.
    pub fn encode(&self) -> [u8; REMOTE_BUFFER_LEN] {
        let access = match self.access {
            Access::Read => 1,
            Access::Write => 2,
            Access::ReadWrite => 3,
        };
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION,
            access,
            check: U16::ZERO,
            domain: U64::new(self.domain),
            key: U32::new(self.key),
            reserved: U32::ZERO,
            offset: U64::new(self.offset),
            len: U64::new(self.len),
        };
        wire.check = U16::new(wire.sum());
        zerocopy::transmute!(wire)
    }

    /// Reads what [`RemoteBuffer::encode`] made; total over any bytes.
    ///
    /// # Errors
    /// [`Error::RemoteBuffer`], whose text says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<RemoteBuffer, Error> {
        let bad = |why| Error::RemoteBuffer { len: bytes.len(), why };
        let Ok(bytes) = <&[u8; REMOTE_BUFFER_LEN]>::try_from(bytes) else {
            return Err(bad("there must be 40"));
        };
        let wire: &Wire = zerocopy::transmute_ref!(bytes);
        if wire.magic != MAGIC {
            return Err(bad("they do not begin with LSRB"));
        }
        if wire.version != VERSION {
            return Err(bad("they are of another version; install the same release on both sides"));
        }
        if wire.check.get() != wire.sum() || wire.reserved.get() != 0 {
            return Err(bad("they were damaged in transit"));
        }
        let access = match wire.access {
            1 => Access::Read,
            2 => Access::Write,
            3 => Access::ReadWrite,
            _ => return Err(bad("their rights are none that exist")),
        };
        let (offset, len) = (wire.offset.get(), wire.len.get());
        if offset.checked_add(len).is_none() {
            return Err(bad("they reach beyond all addresses"));
        }
        Ok(RemoteBuffer { domain: wire.domain.get(), key: wire.key.get(), access, offset, len })
    }

    pub(crate) fn place(&self) -> RemoteSlice {
        RemoteSlice { key: self.key, offset: self.offset }
    }

    /// Checks what is known on this side: the peer, which is a transport and perhaps an endpoint, the right and the length.
    #[inline]
    pub(crate) fn check(&self, peer: (u64, u64), write: bool, len: usize) -> Result<(), Error> {
        if self.domain != peer.0 && self.domain != peer.1 {
            return Err(Error::WrongPeer);
        }
        let allowed = match self.access {
            Access::ReadWrite => true,
            Access::Read => !write,
            Access::Write => write,
        };
        if !allowed {
            let want = if write { "write" } else { "read" };
            return Err(Error::NoRight { access: self.access, want });
        }
        if len as u64 > self.len {
            return Err(Error::Bounds { offset: 0, len: len as u64, of: "a remote buffer", have: self.len });
        }
        Ok(())
    }
}

/// A remote buffer of this many bytes, for tests of what is checked on this side.
#[cfg(test)]
pub(crate) fn sample(len: u64) -> RemoteBuffer {
    RemoteBuffer { domain: 7, key: 9, access: Access::ReadWrite, offset: 0, len }
}

#[cfg(test)]
mod tests;
