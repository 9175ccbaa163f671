//! The plain mode of linkspan.ko's device: buffers that change hands.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use linkspan_tbring::Swap;

use super::objects::{device, handle, id, limit};
use super::ring::link_info;
use crate::raw::Out;
use crate::single::Single;
use crate::status::{CallResult, border};
use crate::table::Table;
use crate::types::*;

static SWAPS: Table<Single<Swap>> = Table::new(0xA7, "swap");

fn with<T>(swap: *mut linkspan_swap, call: impl FnOnce(&mut Swap) -> CallResult<T>) -> CallResult<T> {
    let found = SWAPS.get(id(swap))?;
    let mut inside = found.enter(id(swap))?;
    call(&mut inside)
}

/// Opens `channel` (0 to 255) of the device at `path` (/dev/linkspan/0) with two buffers of `bytes` bytes for each direction, made
/// whole pages. Waits for the link, and linkspan_swap_send and _flush wait for a buffer, no longer than `wait_ms`.
///
/// Threads: as for linkspan_ring_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_swap_open(
    path: *const c_char,
    channel: u32,
    bytes: u64,
    wait_ms: i64,
    out: *mut *mut linkspan_swap,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, path) = unsafe { (Out::new(out, "out")?, device(path)?) };
        let swap = Swap::open(&path, channel, bytes, limit(wait_ms)?)?;
        out.set(handle(SWAPS.insert(Arc::new(Single::new("swap", swap)))?));
        Ok(())
    })
}

/// Ends a swap; messages that the other host has not asked for are taken back, unless linkspan_swap_flush came before. Its buffers are
/// gone afterwards.
///
/// Threads: as for linkspan_ring_close.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_swap_close(swap: *mut linkspan_swap) -> i32 {
    border(|| {
        let found = SWAPS.get(id(swap))?;
        let open = found.enter(id(swap))?.close();
        SWAPS.remove(id(swap))?;
        drop(open);
        Ok(())
    })
}

/// What the device says about its link and the other host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_swap_get(swap: *mut linkspan_swap, out: *mut linkspan_link_info) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(link_info(&with(swap, |swap| Ok(swap.peer()?))?));
        Ok(())
    })
}

/// The buffer to be filled next, the caller's until the next linkspan_swap_send. It holds what it held two messages ago. `capacity`: its
/// bytes, the longest message. After a send that was late it waits on, and may be late too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_swap_front(
    swap: *mut linkspan_swap,
    buffer: *mut *mut u8,
    capacity: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (buffer, capacity) = unsafe { (Out::new(buffer, "buffer")?, Out::new(capacity, "capacity")?) };
        with(swap, |swap| {
            let (size, front) = (swap.capacity(), swap.front()?);
            buffer.set(front.as_mut_ptr());
            capacity.set(size);
            Ok(())
        })
    })
}

/// Sends the first `length` bytes of the front buffer as one message, and waits until the other one is free to be the front.
/// LINKSPAN_CHANNEL_LATE: it did not become free; the message is under way, linkspan_swap_front and _flush wait on, and one of them comes
/// before the next message.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_swap_send(swap: *mut linkspan_swap, length: u64) -> i32 {
    border(|| with(swap, |swap| Ok(swap.send(length)?)))
}

/// Waits until all that was sent has left. To be called before the end.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_swap_flush(swap: *mut linkspan_swap) -> i32 {
    border(|| with(swap, |swap| Ok(swap.flush()?)))
}

/// Shows the next message, valid until the next linkspan_swap_receive; null where none comes in time. LINKSPAN_CHANNEL_ENDED: the other
/// side has closed, and all its messages were taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_swap_receive(
    swap: *mut linkspan_swap,
    timeout_ms: i64,
    message: *mut *const u8,
    length: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (message, length) = unsafe { (Out::new(message, "message")?, Out::new(length, "length")?) };
        let wait = limit(timeout_ms)?;
        with(swap, |swap| {
            let (at, bytes) = swap.receive(wait)?.map_or((std::ptr::null(), 0), |shown| (shown.as_ptr(), shown.len()));
            message.set(at);
            length.set(bytes as u64);
            Ok(())
        })
    })
}

/// A descriptor as that of linkspan_ring_fd: readable when a message, or a buffer that was sent, is back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_swap_fd(swap: *mut linkspan_swap, out: *mut c_int) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(with(swap, |swap| Ok(swap.as_fd().as_raw_fd()))?);
        Ok(())
    })
}
