//! Types and constants of the device `/dev/linkspan/N`.

/// LS1161: another thread is in a call on this ring or swap; this call did nothing.
pub const LINKSPAN_IN_CALL: i32 = 1161;
/// LS1162: the submission queue is full; the entry was not put.
pub const LINKSPAN_QUEUE_FULL: i32 = 1162;
/// LS1501: the device cannot be opened.
pub const LINKSPAN_NO_DEVICE: i32 = 1501;
/// LS1503: the link did not come up in time.
pub const LINKSPAN_LINK_NOT_UP: i32 = 1503;
/// LS1504: the link was lost; close what was opened on it and open it again.
pub const LINKSPAN_LINK_LOST: i32 = 1504;
/// LS1505: the driver refused; the words name the error of the system.
pub const LINKSPAN_DEVICE_REFUSED: i32 = 1505;
/// LS1506: a range outside of its region or buffer.
pub const LINKSPAN_REGION_BOUNDS: i32 = 1506;
/// LS1508: the other host has closed the channel.
pub const LINKSPAN_CHANNEL_ENDED: i32 = 1508;
/// LS1509: a message is longer than the place for it; it waits.
pub const LINKSPAN_MESSAGE_LONG: i32 = 1509;
/// LS1510: the other host takes nothing.
pub const LINKSPAN_CHANNEL_LATE: i32 = 1510;

/// A send; registering: memory that is sent from.
pub const LINKSPAN_RING_SEND: u32 = 1;
/// A receive; registering: memory that is received into.
pub const LINKSPAN_RING_RECEIVE: u32 = 2;

/// Doorbell: the waiting spins instead of sleeping until an interrupt.
pub const LINKSPAN_DOORBELL_SPIN: u32 = 1;

/// State of a link: the other host is not on the allow-list.
pub const LINKSPAN_LINK_WAITING: u32 = 0;
/// State of a link: the other host has not answered.
pub const LINKSPAN_LINK_LOGIN: u32 = 1;
/// State of a link: rings and paths are being set up.
pub const LINKSPAN_LINK_STARTING: u32 = 2;
/// State of a link: ours are set up, the other host's are not known to be.
pub const LINKSPAN_LINK_READY: u32 = 3;
/// State of a link: messages go both ways.
pub const LINKSPAN_LINK_UP: u32 = 4;
/// State of a link: unplugged or unloaded.
pub const LINKSPAN_LINK_GONE: u32 = 5;
/// State of a link: its ring pairs carry the network interface of the driver.
pub const LINKSPAN_LINK_NETWORK: u32 = 6;
/// State of a link: one host has it in mode direct, the other one in mode network.
pub const LINKSPAN_LINK_REFUSED: u32 = 7;

/// An open device of linkspan.ko: queues, registered memory, channels.
pub struct linkspan_ring {
    _private: [u8; 0],
}

/// One channel of such a device with two buffers for each direction that change hands.
pub struct linkspan_swap {
    _private: [u8; 0],
}

/// How a ring is opened. All zeros but wait_ms: the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_ring_options {
    /// How long to wait for the link to come up; 0: not at all.
    pub wait_ms: i64,
    /// Entries of the submission queue: a power of two from 8 to 4096; 0: 256.
    pub submissions: u32,
    /// Entries of the completion queue, the same; at most as many operations are under way; 0: 512.
    pub completions: u32,
    /// Asks for a thread of the kernel that polls for this ring, and sleeps after so long with nothing to do, 1 to 1000000 us. The
    /// driver of today has none: without effect. 0: none.
    pub thread_us: u32,
    /// 0.
    pub reserved: u32,
}

/// A finished send or receive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_completion {
    /// The number that was given with it.
    pub cookie: u64,
    /// Bytes of the message, also where a receive was too short for it.
    pub length: u64,
    /// LINKSPAN_OK; LINKSPAN_CHANNEL_ENDED; LINKSPAN_MESSAGE_LONG; LINKSPAN_LINK_LOST; LINKSPAN_DEVICE_REFUSED: see error.
    pub status: i32,
    /// The driver's result: 0 or a number of errno.h (ECANCELED: this side has closed the channel, EBADF: it is not open here).
    pub error: i32,
    /// Its channel.
    pub channel: u32,
    /// LINKSPAN_RING_SEND or LINKSPAN_RING_RECEIVE.
    pub operation: u32,
}

/// What a device says about its link and the host at the other end. Counters are since the module was loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linkspan_link_info {
    /// This host, as the Thunderbolt core names it.
    pub local_uuid: [u8; 16],
    /// The other one.
    pub peer_uuid: [u8; 16],
    /// LINKSPAN_LINK_*.
    pub state: u32,
    /// How often the link has come up.
    pub generation: u32,
    /// Gb/s of a lane, as negotiated.
    pub lane_gbps: u32,
    /// Lanes: 1, 2, or asymmetric 4 (sending) and 8 (receiving).
    pub lanes: u32,
    /// Entries of the rings that carry data only.
    pub ring_size: u32,
    /// Ring pairs in use.
    pub ring_pairs: u32,
    /// Data frames sent.
    pub sent_frames: u64,
    /// Data frames received.
    pub received_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Of those, either way, moved by a processor.
    pub copied_bytes: u64,
    /// Control frames sent.
    pub control_frames: u64,
    /// Doorbells.
    pub doorbells: u64,
    /// Restarts, for a peer that broke the protocol.
    pub restarts: u64,
    /// 0: the driver has no polling threads.
    pub polled_ns: u64,
    /// 0.
    pub reserved: [u64; 4],
}
