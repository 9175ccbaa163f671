//! The four messages of a login, byte by byte.
//!
//! [`Hello`] and [`Reply`] are the same in every version of linkspan, forever: they are how two versions find out
//! that they are two. Senders write zeros where a field is reserved; receivers do not look at reserved fields nor at
//! flags they do not know, yet the code covers them. What follows a welcome belongs to the chosen version.

use super::secret::MAC_LEN;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const HELLO_MAGIC: [u8; 4] = *b"LSh\xC6";
pub(super) const REPLY_MAGIC: [u8; 4] = *b"LSr\xC6";
pub(super) const CONFIRM_MAGIC: [u8; 4] = *b"LSc\xC6";
pub(super) const FINISH_MAGIC: [u8; 4] = *b"LSf\xC6";
pub(super) const REFUSAL_MAGIC: [u8; 4] = *b"LSn\xC6";

pub(super) const LABEL_HELLO: &str = "linkspan login hello";
pub(super) const LABEL_REPLY: &str = "linkspan login reply";
pub(super) const LABEL_CONFIRM: &str = "linkspan login 2 confirm";
pub(super) const LABEL_FINISH: &str = "linkspan login 2 finish";
pub(super) const LABEL_REFUSAL: &str = "linkspan login 2 refusal";
pub(super) const LABEL_SESSION: &str = "linkspan login 2 session";

pub(super) const ROLE_CLIENT: u8 = 1;

pub(super) const FLAG_PSK: u8 = 1;
pub(super) const FLAG_ENCRYPT: u8 = 2;
pub(super) const FLAG_KEYS: u8 = 4;

/// What a login may rest on beside the token: one of these, or none.
pub(super) const FLAGS_METHOD: u8 = FLAG_PSK | FLAG_KEYS;

pub(super) const KIND_WELCOME: u8 = 1;
pub(super) const KIND_REFUSAL: u8 = 2;

/// Most bytes of a capabilities blob.
pub const BLOB_MAX: usize = 1024;

/// Bytes of the reply before its nonce.
pub(super) const REPLY_FIXED: usize = 16;

/// First message, client to server.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    pub magic: [u8; 4],
    pub version_min: U16,
    pub version_max: U16,
    pub role: u8,
    pub flags: u8,
    pub stream: U16,
    pub reserved: [u8; 4],
    pub listen_id: U64,
    pub conn_id: U64,
    pub nonce: [u8; 32],
    pub mac: [u8; MAC_LEN],
}

/// Second message, server to client: welcome or refusal.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Reply {
    pub magic: [u8; 4],
    pub kind: u8,
    pub flags: u8,
    pub version: U16,
    pub version_min: U16,
    pub version_max: U16,
    pub reason: U16,
    pub reserved: [u8; 2],
    pub nonce: [u8; 32],
    pub mac: [u8; MAC_LEN],
}

/// Start of the third (confirm, from the client) and fourth message (finish or refusal, from the server); `len` bytes of
/// blob, of Noise message around it, or of a reason, and a code follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Lead {
    pub magic: [u8; 4],
    pub len: U16,
    pub reserved: [u8; 2],
}

pub(super) const HELLO_LEN: usize = size_of::<Hello>();
pub(super) const REPLY_LEN: usize = size_of::<Reply>();
pub(super) const LEAD_LEN: usize = size_of::<Lead>();

/// Bytes of a refusal in place of a finish: its lead, the reason and the code.
pub(super) const REFUSAL_LEN: usize = LEAD_LEN + 2 + MAC_LEN;

const _: () = assert!(HELLO_LEN == 96 && REPLY_LEN == 80 && LEAD_LEN == 8);
const _: () = assert!(std::mem::offset_of!(Reply, nonce) == REPLY_FIXED);

/// Why a server refuses a client that proved the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Reason {
    Version = 1,
    PskNeeded = 2,
    PskUnknown = 3,
    PskDiffers = 4,
    KeysNeeded = 5,
    KeysUnknown = 6,
    KeyNotAdmitted = 7,
}
