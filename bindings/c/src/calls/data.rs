//! One-sided and two-sided operations, each with a twin that does not wait.

use linkspan::{Op, Read, Transport, Write};

use super::objects::{notify, peer, remote, started, timeout, view, view_mut};
use crate::raw::{self, Out};
use crate::status::{CallResult, border};
use crate::types::*;

fn writes(parts: &[linkspan_part]) -> CallResult<Vec<Write<'static>>> {
    parts.iter().map(|p| Ok((view(p.local)?, remote(&p.remote)?))).collect()
}

fn reads(parts: &[linkspan_part]) -> CallResult<Vec<Read<'static>>> {
    parts.iter().map(|p| Ok((view_mut(p.local)?, remote(&p.remote)?))).collect()
}

/// A call that waits: what it gives goes to `out`, where that is not null.
///
/// # Safety
/// `out` is null, or may be written during the call.
unsafe fn waits<T>(
    transport: *mut linkspan_transport,
    (out, name): (*mut T, &'static str),
    call: impl FnOnce(&Transport) -> CallResult<T>,
) -> i32 {
    border(|| {
        // SAFETY: by the caller's promise.
        let out = unsafe { Out::maybe(out, name)? };
        let done = call(&peer(transport)?.transport)?;
        if let Some(out) = out {
            out.set(done);
        }
        Ok(())
    })
}

/// A call that does not wait: what it begins goes to `out`.
///
/// # Safety
/// `out` may be written during the call, or is null, which is refused.
unsafe fn begins(
    transport: *mut linkspan_transport,
    out: *mut *mut linkspan_op,
    call: impl FnOnce(&Transport) -> CallResult<Op<'static>>,
) -> i32 {
    border(|| {
        // SAFETY: by the caller's promise.
        let out = unsafe { Out::new(out, "out")? };
        out.set(started(call(&peer(transport)?.transport)?)?);
        Ok(())
    })
}

/// Writes into the peer's memory. `note` may be null: no notification. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_write(
    transport: *mut linkspan_transport,
    local: linkspan_view,
    there: *const linkspan_remote,
    note: *const linkspan_notify,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            let (there, note) = (raw::value(there, "there")?, raw::maybe(note, "note")?);
            Ok(transport.write_blocking(&view(local)?, &remote(&there)?, notify(note)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_write, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_write_start(
    transport: *mut linkspan_transport,
    local: linkspan_view,
    there: *const linkspan_remote,
    note: *const linkspan_notify,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        begins(transport, out, |transport| {
            let (there, note) = (raw::value(there, "there")?, raw::maybe(note, "note")?);
            Ok(transport.write(&view(local)?, &remote(&there)?, notify(note)?, timeout(timeout_ms)?))
        })
    }
}

/// Reads the first bytes of a place in the peer's memory. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_read(
    transport: *mut linkspan_transport,
    local: linkspan_view,
    there: *const linkspan_remote,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            let there = raw::value(there, "there")?;
            Ok(transport.read_blocking(&view_mut(local)?, &remote(&there)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_read, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_read_start(
    transport: *mut linkspan_transport,
    local: linkspan_view,
    there: *const linkspan_remote,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        begins(transport, out, |transport| {
            let there = raw::value(there, "there")?;
            Ok(transport.read(&view_mut(local)?, &remote(&there)?, timeout(timeout_ms)?))
        })
    }
}

/// Many writes in one call; the notification covers all of them. The first refusal ends the batch. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_write_batch(
    transport: *mut linkspan_transport,
    parts: *const linkspan_part,
    count: usize,
    note: *const linkspan_notify,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            let (parts, note) = (raw::list(parts, count, "parts")?, raw::maybe(note, "note")?);
            Ok(transport.write_batch_blocking(&writes(parts)?, notify(note)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_write_batch, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_write_batch_start(
    transport: *mut linkspan_transport,
    parts: *const linkspan_part,
    count: usize,
    note: *const linkspan_notify,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        begins(transport, out, |transport| {
            let (parts, note) = (raw::list(parts, count, "parts")?, raw::maybe(note, "note")?);
            Ok(transport.write_batch(&writes(parts)?, notify(note)?, timeout(timeout_ms)?))
        })
    }
}

/// Many reads in one call. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_read_batch(
    transport: *mut linkspan_transport,
    parts: *const linkspan_part,
    count: usize,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            let parts = raw::list(parts, count, "parts")?;
            Ok(transport.read_batch_blocking(&reads(parts)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_read_batch, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_read_batch_start(
    transport: *mut linkspan_transport,
    parts: *const linkspan_part,
    count: usize,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        begins(transport, out, |transport| {
            let parts = raw::list(parts, count, "parts")?;
            Ok(transport.read_batch(&reads(parts)?, timeout(timeout_ms)?))
        })
    }
}

/// Waits for one notification of the peer, the oldest first; each is taken by one wait. `value` may be null. A wait that times
/// out leaves the path alone, so a timeout of 0 is the way to poll: it waits for no other thread either, and may be used in a call of
/// linkspan_op_then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_wait_for_write(
    transport: *mut linkspan_transport,
    timeout_ms: i64,
    value: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (value, "value"), |transport| Ok(transport.wait_for_write_blocking(timeout(timeout_ms)?)?))
    }
}

/// As linkspan_wait_for_write, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_wait_for_write_start(
    transport: *mut linkspan_transport,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe { begins(transport, out, |transport| Ok(transport.wait_for_write(timeout(timeout_ms)?))) }
}

/// Sends a message to the peer's receive with the same tag, which may be posted later: both sides may send first. One that times out
/// before its receive is posted leaves the path alone. `bytes` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_send(
    transport: *mut linkspan_transport,
    tag: u32,
    local: linkspan_view,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            Ok(transport.send_blocking(tag, &view(local)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_send, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_send_start(
    transport: *mut linkspan_transport,
    tag: u32,
    local: linkspan_view,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe { begins(transport, out, |transport| Ok(transport.send(tag, &view(local)?, timeout(timeout_ms)?))) }
}

/// Receives a message with this tag; `bytes` becomes its length and may be null. What had been sent can still be received when the peer
/// has closed its transport or was lost. A receive that times out, or is freed before its end, revokes its path, and both sides connect anew: do not poll with
/// short timeouts, but start one and ask linkspan_op_test.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_recv(
    transport: *mut linkspan_transport,
    tag: u32,
    local: linkspan_view,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe {
        waits(transport, (bytes, "bytes"), |transport| {
            Ok(transport.recv_blocking(tag, &view_mut(local)?, timeout(timeout_ms)?)?)
        })
    }
}

/// As linkspan_recv, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_recv_start(
    transport: *mut linkspan_transport,
    tag: u32,
    local: linkspan_view,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    // SAFETY: the caller's promise, see the module.
    unsafe { begins(transport, out, |transport| Ok(transport.recv(tag, &view_mut(local)?, timeout(timeout_ms)?))) }
}
