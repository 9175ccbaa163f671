//! Structures and numbers of include/uapi/linux/io_uring.h and io_uring/zcrx.h (Linux 7.3; those of 6.15 are the same as far as
//! they go), for what zero-copy receive takes.

use std::ffi::c_uint;

pub(super) const SETUP_CQSIZE: u32 = 1 << 3;
pub(super) const SETUP_CQE32: u32 = 1 << 11;
pub(super) const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub(super) const SETUP_DEFER_TASKRUN: u32 = 1 << 13;

pub(super) const OFF_SQ_RING: i64 = 0;
pub(super) const OFF_CQ_RING: i64 = 0x800_0000;
pub(super) const OFF_SQES: i64 = 0x1000_0000;

pub(super) const ENTER_GETEVENTS: c_uint = 1;

pub(super) const OP_RECV_ZC: u8 = 58;
pub(super) const RECV_MULTISHOT: u16 = 1 << 1;

pub(super) const REGISTER_EVENTFD: c_uint = 4;
pub(super) const REGISTER_SYNC_CANCEL: c_uint = 24;
pub(super) const REGISTER_ZCRX_IFQ: c_uint = 32;
pub(super) const REGISTER_ZCRX_CTRL: c_uint = 36;

/// `IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY`.
pub(super) const CANCEL_EVERYTHING: u32 = 1 | 4;

pub(super) const REGION_USER: u32 = 1;
pub(super) const AREA_DMABUF: u32 = 1;
pub(super) const REG_NODEV: u32 = 2;
pub(super) const CTRL_FLUSH_RQ: u32 = 0;

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SqOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) mask: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) dropped: u32,
    pub(super) array: u32,
    pub(super) reserved: u32,
    pub(super) user_addr: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CqOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) mask: u32,
    pub(super) entries: u32,
    pub(super) overflow: u32,
    pub(super) cqes: u32,
    pub(super) flags: u32,
    pub(super) reserved: u32,
    pub(super) user_addr: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Params {
    pub(super) sq_entries: u32,
    pub(super) cq_entries: u32,
    pub(super) flags: u32,
    pub(super) sq_thread_cpu: u32,
    pub(super) sq_thread_idle: u32,
    pub(super) features: u32,
    pub(super) wq_fd: u32,
    pub(super) reserved: [u32; 3],
    pub(super) sq: SqOffsets,
    pub(super) cq: CqOffsets,
}

/// `struct io_uring_sqe`, with the names that a receive gives its unions.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sqe {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) ioprio: u16,
    pub(super) fd: i32,
    pub(super) off: u64,
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) msg_flags: u32,
    pub(super) user_data: u64,
    pub(super) buf_index: u16,
    pub(super) personality: u16,
    pub(super) zcrx_ifq_idx: u32,
    pub(super) pad: [u64; 2],
}

/// `struct io_uring_cqe` of 32 bytes, its second half as `struct io_uring_zcrx_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Cqe {
    pub(super) user_data: u64,
    pub(super) res: i32,
    pub(super) flags: u32,
    pub(super) off: u64,
    pub(super) pad: u64,
}

/// `struct io_uring_zcrx_rqe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Rqe {
    pub(super) off: u64,
    pub(super) len: u32,
    pub(super) pad: u32,
}

/// `struct io_uring_zcrx_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RqOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) rqes: u32,
    pub(super) reserved: u32,
    pub(super) reserved2: [u64; 2],
}

/// `struct io_uring_zcrx_area_reg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AreaReg {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) token: u64,
    pub(super) flags: u32,
    pub(super) dmabuf_fd: u32,
    pub(super) reserved: [u64; 2],
}

/// `struct io_uring_region_desc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Region {
    pub(super) user_addr: u64,
    pub(super) size: u64,
    pub(super) flags: u32,
    pub(super) id: u32,
    pub(super) mmap_offset: u64,
    pub(super) reserved: [u64; 4],
}

/// `struct io_uring_zcrx_ifq_reg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct IfqReg {
    pub(super) interface: u32,
    pub(super) queue: u32,
    pub(super) rq_entries: u32,
    pub(super) flags: u32,
    pub(super) area_ptr: u64,
    pub(super) region_ptr: u64,
    pub(super) offsets: RqOffsets,
    pub(super) id: u32,
    pub(super) rx_buf_len: u32,
    pub(super) event_desc: u64,
    pub(super) reserved: [u64; 2],
}

/// `struct zcrx_ctrl`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Ctrl {
    pub(super) id: u32,
    pub(super) op: u32,
    pub(super) reserved: [u64; 2],
    pub(super) body: [u64; 6],
}

/// `struct io_uring_sync_cancel_reg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SyncCancel {
    pub(super) addr: u64,
    pub(super) fd: i32,
    pub(super) flags: u32,
    pub(super) seconds: i64,
    pub(super) nanoseconds: i64,
    pub(super) opcode: u8,
    pub(super) pad: [u8; 7],
    pub(super) reserved: [u64; 3],
}

const _: () = {
    assert!(size_of::<Params>() == 120 && size_of::<SqOffsets>() == 40 && size_of::<CqOffsets>() == 40);
    assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 32 && size_of::<Rqe>() == 16);
    assert!(size_of::<AreaReg>() == 48 && size_of::<Region>() == 64 && size_of::<IfqReg>() == 96);
    assert!(size_of::<Ctrl>() == 72 && size_of::<SyncCancel>() == 64 && size_of::<RqOffsets>() == 32);
};
