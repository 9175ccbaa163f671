//! Zero-copy receive by io_uring; and what the kernel has of it, asked only: nothing is bound by that.
//!
//! Numbers and layouts: include/uapi/linux/io_uring.h (`io_uring_probe`) and io_uring/query.h.

mod abi;
mod map;
mod notifier;
mod zcrx;

pub use notifier::Notifier;
pub use zcrx::{Area, Harvest, Issuer, Source, UringError, zero_copy};

use std::ffi::{c_long, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `IORING_OP_RECV_ZC`, and the flag of operations that there are.
const RECV_ZC: usize = 58;
const SUPPORTED: u16 = 1;

/// `IORING_REGISTER_PROBE`, `IORING_REGISTER_QUERY`.
const PROBE: c_uint = 8;
const QUERY: c_uint = 35;

/// `IO_URING_QUERY_ZCRX`, and `ZCRX_REG_NODEV` of its answer.
const QUERY_ZCRX: u32 = 1;
const NODEV: u64 = 2;

/// Operations asked for.
const OPS: usize = 64;

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroCopyReceive {
    /// The operation that receives so (Linux 6.15).
    pub receives: bool,
    /// Without a card, by copying: a mode for tests (Linux 7.1).
    pub without_card: bool,
}

/// `struct io_uring_probe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operation {
    op: u8,
    reserved: u8,
    flags: u16,
    reserved2: u32,
}

#[repr(C)]
struct Probe {
    last: u8,
    len: u8,
    reserved: u16,
    reserved2: [u32; 3],
    ops: [Operation; OPS],
}

/// `struct io_uring_query_hdr`.
#[repr(C)]
struct Question {
    next: u64,
    data: u64,
    op: u32,
    size: u32,
    result: i32,
    reserved: [u32; 3],
}

/// `struct io_uring_query_zcrx`.
#[repr(C)]
#[derive(Default)]
struct Known {
    register_flags: u64,
    area_flags: u64,
    controls: u32,
    features: u32,
    header: u32,
    align: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Probe>() == 16 + 8 * OPS && size_of::<Question>() == 40 && size_of::<Known>() == 40);

/// Asks the kernel whether it has zero-copy receive (`io_uring_register`).
///
/// # Errors
/// The error of `io_uring_setup(2)`: `EPERM` where the process may use no io_uring, `ENOSYS` where the kernel has none.
pub fn zero_copy_receive() -> io::Result<ZeroCopyReceive> {
    // `struct io_uring_params`, all zero: a plain ring.
    let mut params = [0u8; 120];
    // SAFETY: writes `struct io_uring_params`, which has 120 bytes.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1 as c_uint, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made for us.
    let ring = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let register = |fd: i32, what: c_uint, arg: *mut c_void, count: usize| -> c_long {
        // SAFETY: each caller's argument is the structure that the operation reads and writes, as long as `count` says.
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd, what, arg, count as c_uint) }
    };
    let mut probe = Probe { last: 0, len: 0, reserved: 0, reserved2: [0; 3], ops: [Operation::default(); OPS] };
    if register(ring.as_raw_fd(), PROBE, (&raw mut probe).cast(), OPS) < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut known = Known::default();
    let data = (&raw mut known).expose_provenance() as u64;
    let mut question =
        Question { next: 0, data, op: QUERY_ZCRX, size: size_of::<Known>() as u32, result: 0, reserved: [0; 3] };
    // Older kernels do not know the question.
    let asked = register(-1, QUERY, (&raw mut question).cast(), 0) >= 0 && question.result >= 0;
    Ok(ZeroCopyReceive {
        receives: probe.ops[RECV_ZC].flags & SUPPORTED != 0,
        without_card: asked && known.register_flags & NODEV != 0,
    })
}
