//! `kernel/uapi/linkspan.h` in Rust. A test compiles the header and compares every size, offset and number.

/// `LS_ABI_VERSION`.
pub const VERSION: u32 = 1;
/// `LS_EAGER_BYTES`: the longest message that travels without a grant.
pub const EAGER_BYTES: u64 = 4064;
/// `LS_MESSAGE_BYTES`: the longest message.
pub const MESSAGE_BYTES: u64 = 1 << 30;
/// `LS_CHANNELS`.
pub const CHANNELS: u32 = 256;
/// `LS_CREDITS`: short messages that wait at a reader who does not read.
pub const CREDITS: u32 = 16;
/// `LS_PAIRS`: ring pairs of a link at most.
pub const PAIRS: usize = 4;
/// `LS_OP_SEND`.
pub const OP_SEND: u32 = 1;
/// `LS_OP_RECV`.
pub const OP_RECV: u32 = 2;
/// `LS_REGION_READ`.
pub const REGION_READ: u32 = 1;
/// `LS_REGION_WRITE`.
pub const REGION_WRITE: u32 = 2;
/// `LS_REGION_DMABUF`.
pub const REGION_DMABUF: u32 = 4;
/// `LS_HELLO_POLL`.
pub const HELLO_POLL: u32 = 1;
/// `LS_POLL_IDLE_MAX_US`.
pub const POLL_IDLE_MAX_US: u32 = 1_000_000;
/// `LS_DOORBELL_POLL`.
pub const DOORBELL_POLL: u32 = 1;

/// Offsets in `struct ls_queue`.
pub mod queue {
    /// Written by the program.
    pub const SQ_TAIL: usize = 0;
    /// Written by the driver.
    pub const SQ_HEAD: usize = 64;
    /// Written by the driver.
    pub const CQ_TAIL: usize = 128;
    /// Written by the program.
    pub const CQ_HEAD: usize = 192;
    /// Written by the driver.
    pub const DEAD: usize = 256;
    /// Written by the driver.
    pub const FLAGS: usize = 320;
    /// Bytes of the structure.
    pub const BYTES: usize = 384;
    /// `LS_QUEUE_WAKE`, a flag.
    pub const WAKE: u32 = 1;
}

/// `struct ls_ioc_hello`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Hello {
    pub version: u32,
    pub timeout_ms: u32,
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub map_bytes: u64,
    pub sq_offset: u64,
    pub cq_offset: u64,
    pub channels: u32,
    pub eager_bytes: u32,
    pub message_bytes: u64,
    pub flags: u32,
    pub idle_us: u32,
    pub reserved: u64,
}

/// `struct ls_ioc_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Info {
    pub local_uuid: [u8; 16],
    pub peer_uuid: [u8; 16],
    pub state: u32,
    pub epoch: u32,
    pub link_speed: u32,
    pub link_width: u32,
    pub ring_size: u32,
    pub ring_pairs: u32,
    pub in_hopid: [u32; 2],
    pub out_hopid: [u32; 2],
    pub tx_frames: u64,
    pub rx_frames: u64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub copied_bytes: u64,
    pub control_frames: u64,
    pub doorbells: u64,
    pub restarts: u64,
    pub polled_ns: u64,
    pub reserved: [u64; 3],
}

/// `LS_PAIR_`: states of a ring pair.
#[allow(missing_docs)]
pub mod pair {
    pub const DOWN: u32 = 0;
    pub const UP: u32 = 1;
    pub const LIMIT: u32 = 2;
    pub const NO_RING: u32 = 3;
    pub const NO_HOPID: u32 = 4;
    pub const REFUSED: u32 = 5;
    pub const SILENT: u32 = 6;
    pub const PEER: u32 = 7;
}

/// `struct ls_pair_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct PairInfo {
    pub state: u32,
    pub error: i32,
    pub in_hopid: u32,
    pub out_hopid: u32,
    pub tx_frames: u64,
    pub rx_frames: u64,
    pub reserved: [u64; 2],
}

/// `struct ls_ioc_pairs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Pairs {
    pub pair: [PairInfo; PAIRS],
}

/// `struct ls_ioc_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Register {
    pub addr: u64,
    pub length: u64,
    pub flags: u32,
    pub fd: i32,
    pub region: u32,
    pub reserved: u32,
}

/// `struct ls_ioc_id`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Id {
    pub id: u32,
    pub reserved: u32,
}

/// `struct ls_ioc_eventfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Event {
    pub fd: i32,
    pub reserved: u32,
}

/// `struct ls_ioc_doorbell`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Doorbell {
    pub flags: u32,
    pub min_complete: u32,
    pub timeout_us: u32,
    pub submitted: u32,
}

/// `struct ls_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sqe {
    pub opcode: u32,
    pub channel: u32,
    pub cookie: u64,
    pub region: u32,
    pub reserved0: u32,
    pub offset: u64,
    pub length: u64,
    pub reserved1: [u64; 3],
}

/// `struct ls_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Cqe {
    pub cookie: u64,
    pub length: u64,
    pub result: i32,
    pub channel: u32,
    pub opcode: u32,
    pub reserved: u32,
}

/// `_IOC(dir, 'L', nr, size)` of `asm-generic/ioctl.h`: direction in bits 30 and 31 (1 write, 2 read), size from bit 16.
const fn ioc(dir: u32, nr: u32, size: usize) -> u32 {
    dir << 30 | (size as u32) << 16 | (b'L' as u32) << 8 | nr
}

/// `LS_IOC_HELLO`.
pub const IOC_HELLO: u32 = ioc(3, 0x40, size_of::<Hello>());
/// `LS_IOC_INFO`.
pub const IOC_INFO: u32 = ioc(2, 0x41, size_of::<Info>());
/// `LS_IOC_REGISTER`.
pub const IOC_REGISTER: u32 = ioc(3, 0x42, size_of::<Register>());
/// `LS_IOC_UNREGISTER`.
pub const IOC_UNREGISTER: u32 = ioc(1, 0x43, size_of::<Id>());
/// `LS_IOC_OPEN`.
pub const IOC_OPEN: u32 = ioc(1, 0x44, size_of::<Id>());
/// `LS_IOC_CLOSE`.
pub const IOC_CLOSE: u32 = ioc(1, 0x45, size_of::<Id>());
/// `LS_IOC_DOORBELL`.
pub const IOC_DOORBELL: u32 = ioc(3, 0x46, size_of::<Doorbell>());
/// `LS_IOC_EVENTFD`.
pub const IOC_EVENTFD: u32 = ioc(1, 0x47, size_of::<Event>());
/// `LS_IOC_PAIRS`.
pub const IOC_PAIRS: u32 = ioc(2, 0x48, size_of::<Pairs>());

const _: () = assert!(size_of::<Hello>() == 72 && size_of::<Info>() == 168 && size_of::<Register>() == 32);
const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 32 && size_of::<Doorbell>() == 16);
