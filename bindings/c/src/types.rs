//! Types and constants of the C interface, as `include/linkspan.h` shows them.
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, reason = "the names of C")]

use std::ffi::{c_char, c_void};

mod ring;

pub use ring::*;

/// The call did what it should.
pub const LINKSPAN_OK: i32 = 0;
/// LS1101: not done in time. If it was under way its path was revoked and is made again. The transport stays usable.
pub const LINKSPAN_TIMEOUT: i32 = 1101;
/// LS1102: as LINKSPAN_TIMEOUT, but the peer has not confirmed: bytes may still land in its memory, none in ours.
pub const LINKSPAN_TIMED_OUT_UNREVOKED: i32 = 1102;
/// LS1103: ended by linkspan_transport_abort or because its transport was closed.
pub const LINKSPAN_ABORTED: i32 = 1103;
/// LS1104: the transport is permanently broken; close it and open another one.
pub const LINKSPAN_BROKEN: i32 = 1104;
/// LS1105: a message was under way when its path was lost, or revoked for another operation.
pub const LINKSPAN_INTERRUPTED: i32 = 1105;
/// LS1106: there is no peer yet.
pub const LINKSPAN_NOT_CONNECTED: i32 = 1106;
/// LS1107: the transport has another peer already.
pub const LINKSPAN_HAS_PEER: i32 = 1107;
/// LS1108: no connection came about.
pub const LINKSPAN_NO_CONNECTION: i32 = 1108;
/// LS1109: a range outside of its memory or remote buffer.
pub const LINKSPAN_BOUNDS: i32 = 1109;
/// LS1110: an address outside of its memory.
pub const LINKSPAN_NOT_INSIDE: i32 = 1110;
/// LS1111: the remote buffer does not give this right.
pub const LINKSPAN_NO_RIGHT: i32 = 1111;
/// LS1112: the remote buffer was given out by another transport.
pub const LINKSPAN_WRONG_PEER: i32 = 1112;
/// LS1113: read-only memory as a destination.
pub const LINKSPAN_READ_ONLY_MEMORY: i32 = 1113;
/// LS1115: the region is not exposed (any more).
pub const LINKSPAN_NOT_EXPOSED: i32 = 1115;
/// LS1127: memory of a GPU that the transport does not carry.
pub const LINKSPAN_DEVICE_MEMORY: i32 = 1127;
/// LS1133: the endpoint has no peer of this name: it has not connected, or its end was told.
pub const LINKSPAN_UNKNOWN_PEER: i32 = 1133;
/// LS1134: no peer can have this name: 1 to 64 visible characters of ASCII, and not the endpoint's own.
pub const LINKSPAN_PEER_NAME: i32 = 1134;
/// LS1135: the endpoint has a peer of this name already, by another URL.
pub const LINKSPAN_PEER_NAME_TAKEN: i32 = 1135;
/// LS1136: the endpoint has as many peers as it can have.
pub const LINKSPAN_TOO_MANY_PEERS: i32 = 1136;
/// LS1137: the endpoint was closed.
pub const LINKSPAN_ENDPOINT_CLOSED: i32 = 1137;
/// LS1138: the context logs in without keys; linkspan_context_paired gives one with them.
pub const LINKSPAN_NOT_PAIRED: i32 = 1138;
/// LS0524: this user has no key: `lspan pair`, or `lspan key new`.
pub const LINKSPAN_NO_KEY: i32 = 524;
/// LS0731: no paired peer has this name, and it is no host's.
pub const LINKSPAN_UNKNOWN_HOST: i32 = 731;
/// LS0732: nobody serves at that port of the host, or nobody answered in time.
pub const LINKSPAN_NO_ANSWER: i32 = 732;
/// LS1301: there is no driver for such a GPU on this machine.
pub const LINKSPAN_NO_GPU_DRIVER: i32 = 1301;
/// LS1304: the driver shows no GPU of this number.
pub const LINKSPAN_NO_GPU: i32 = 1304;
/// LS1306: a range that is not memory of this GPU.
pub const LINKSPAN_GPU_RANGE: i32 = 1306;
/// LS0013: the peer refused: unknown or old key, outside of the region, or without the right.
pub const LINKSPAN_REMOTE_ACCESS: i32 = 13;
/// LS1150: a null pointer where something must be.
pub const LINKSPAN_NULL: i32 = 1150;
/// LS1152: a handle that is null, closed, of another kind, or none of ours.
pub const LINKSPAN_HANDLE: i32 = 1152;
/// LS1153: a value that the argument does not take.
pub const LINKSPAN_VALUE: i32 = 1153;
/// LS1154: the place for a result is too small.
pub const LINKSPAN_TOO_SMALL: i32 = 1154;
/// LS1156: the memory is still in use; its bytes must stay.
pub const LINKSPAN_MEMORY_IN_USE: i32 = 1156;
/// LS1160: another thread waits for the operation, or it has a call already.
pub const LINKSPAN_OP_TAKEN: i32 = 1160;
/// LS1163: a child of fork, whose parent had used linkspan; nothing was done, and nothing of the parent's was ended.
pub const LINKSPAN_FORKED: i32 = 1163;

/// A timeout: no limit while the peer is alive.
pub const LINKSPAN_FOREVER: i64 = -1;

/// The port of what a program serves to paired hosts, where no other is named.
pub const LINKSPAN_PORT: u16 = 24682;

/// Bytes that hold any URL with the zero at its end.
pub const LINKSPAN_URL_SIZE: usize = 256;
/// Bytes of an encoded remote buffer.
pub const LINKSPAN_REMOTE_SIZE: usize = 40;
/// Places for counters in linkspan_stats; linkspan_counter_name says how many are in use.
pub const LINKSPAN_COUNTERS: usize = 32;
/// Latency buckets in linkspan_stats: bucket n counts operations that took less than 2^n microseconds (one in 64 is timed).
pub const LINKSPAN_LATENCY_BUCKETS: usize = 24;

/// Register: the bytes are never written to.
pub const LINKSPAN_READ_ONLY: u32 = 1;

/// Kind of memory: pages of this process.
pub const LINKSPAN_MEMORY_HOST: u32 = 0;
/// Kind of memory: mapped from a descriptor.
pub const LINKSPAN_MEMORY_MAPPED: u32 = 1;
/// Kind of memory: a GPU's, which the processor does not reach by its address.
pub const LINKSPAN_MEMORY_DEVICE: u32 = 2;
/// Bytes that hold any name of a GPU with the zero at its end.
pub const LINKSPAN_GPU_NAME_SIZE: usize = 16;

/// Expose: the peer may read.
pub const LINKSPAN_ACCESS_READ: u32 = 1;
/// Expose: the peer may write.
pub const LINKSPAN_ACCESS_WRITE: u32 = 2;

/// Notify: it covers all earlier writes of the transport too, not only its own.
pub const LINKSPAN_FENCE: u32 = 1;

/// Bytes that hold any name of a peer with the zero at its end.
pub const LINKSPAN_PEER_NAME_SIZE: usize = 72;

/// Event: a peer is connected, whichever side dialled.
pub const LINKSPAN_PEER_CONNECTED: u32 = 1;
/// Event: it has written, and notified.
pub const LINKSPAN_PEER_NOTIFIED: u32 = 2;
/// Event: it has ended or was lost for good, after all of its notifications. Its name is free again.
pub const LINKSPAN_PEER_LOST: u32 = 3;

/// Settings, interfaces and the engine thread of any number of transports.
pub struct linkspan_context {
    _private: [u8; 0],
}

/// A connection to one peer.
pub struct linkspan_transport {
    _private: [u8; 0],
}

/// Accepts any number of peers at one URL.
pub struct linkspan_listener {
    _private: [u8; 0],
}

/// Any number of peers by their names.
pub struct linkspan_endpoint {
    _private: [u8; 0],
}

/// A range of memory of this process.
pub struct linkspan_memory {
    _private: [u8; 0],
}

/// An operation that was started and not freed.
pub struct linkspan_op {
    _private: [u8; 0],
}

/// One setting, as `docs/PARAMETERS.md` lists them. Both are text with a zero at the end, used during the call only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_setting {
    /// Name, as LINKSPAN_PATH.
    pub name: *const c_char,
    /// Its value; null or empty: as if unset.
    pub value: *const c_char,
}

/// Takes log lines: level 0 is a warning, 1 information. Called from any thread, also from several at once; `line` is valid
/// during the call. It must not throw, and must not call linkspan.
pub type linkspan_log = Option<unsafe extern "C" fn(level: u32, line: *const c_char, arg: *mut c_void)>;

/// Takes the report of an operation, see linkspan_op_then.
pub type linkspan_done = Option<unsafe extern "C" fn(status: i32, value: u64, arg: *mut c_void)>;

/// One path by which bytes may travel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_support {
    /// Its name: what LINKSPAN_PATH takes, such as tcp; and cma (within shm, large messages without a copy in between).
    pub path: [c_char; 16],
    /// Over what, or why not.
    pub why: [c_char; 232],
    /// 1: it may be taken; 0: it may not.
    pub usable: u32,
    /// 0.
    pub reserved: u32,
}

/// What a transport knows of its peer and path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_peer_info {
    /// What carries the bytes and why, one line; empty while there is no path.
    pub path: [c_char; 504],
    /// 1: there is a path to the peer at this moment.
    pub connected: u32,
    /// Paths to the peer so far: one, and one more for every revocation.
    pub epoch: u32,
}

/// The name of a peer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_peer_name {
    /// As text.
    pub name: [c_char; LINKSPAN_PEER_NAME_SIZE],
}

/// What has happened at a peer of an endpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_event {
    /// LINKSPAN_PEER_*.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// What a notification brought along.
    pub value: u64,
    /// The peer's name.
    pub peer: [c_char; LINKSPAN_PEER_NAME_SIZE],
    /// Why it was lost, one line; else empty.
    pub why: [c_char; 424],
}

/// What a memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_memory_info {
    /// Address of the first byte; of a GPU's memory, the GPU's.
    pub address: *mut c_void,
    /// Bytes.
    pub length: u64,
    /// 1: it may be written to.
    pub writable: u32,
    /// 1: allocated or mapped by linkspan; 0: registered.
    pub allocated: u32,
    /// LINKSPAN_MEMORY_*.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The GPU whose memory it is, as cuda:0; empty for memory of the host.
    pub gpu: [c_char; LINKSPAN_GPU_NAME_SIZE],
}

/// A part of a memory. Plain data, checked at each use. No bytes at either end are fine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_view {
    /// The memory.
    pub memory: *mut linkspan_memory,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A place in the peer's memory. Plain data with a fixed encoding, the same on every machine: send these bytes to the peer by
/// any way. What has come from elsewhere is checked at each use, and by linkspan_remote_decode.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_remote {
    /// The encoding.
    pub bytes: [u8; LINKSPAN_REMOTE_SIZE],
}

/// What a remote buffer says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_remote_info {
    /// Bytes.
    pub length: u64,
    /// The region's key.
    pub key: u32,
    /// How often the region's number had been given out before, and once.
    pub generation: u32,
    /// LINKSPAN_ACCESS_*.
    pub access: u32,
    /// 0.
    pub reserved: u32,
}

/// The notification of a write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_notify {
    /// Comes out of the peer's linkspan_wait_for_write.
    pub value: u64,
    /// 0 or LINKSPAN_FENCE.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// One part of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_part {
    /// Here.
    pub local: linkspan_view,
    /// There.
    pub remote: linkspan_remote,
}

/// What one process has moved through one device by one transport.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_stats {
    /// Process number.
    pub pid: u32,
    /// Counters in use, the first of `counters`.
    pub used: u32,
    /// Time since the process began to count, nanoseconds.
    pub uptime_ns: u64,
    /// Device.
    pub device: [c_char; 72],
    /// Transport: tcp, shm.
    pub transport: [c_char; 16],
    /// By the number that linkspan_counter_name takes.
    pub counters: [u64; LINKSPAN_COUNTERS],
    /// See LINKSPAN_LATENCY_BUCKETS.
    pub latency: [u64; LINKSPAN_LATENCY_BUCKETS],
}

#[cfg(test)]
mod tests;
