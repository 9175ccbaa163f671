//! One-sided and two-sided operations, each with a twin that does not wait.

use linkspan::{Read, Write};

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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        // SAFETY: the caller's promise, see the module.
        let (there, note) = unsafe { (raw::value(there, "there")?, raw::maybe(note, "note")?) };
        let done = peer(transport)?.transport.write_blocking(
            &view(local)?,
            &remote(&there)?,
            notify(note)?,
            timeout(timeout_ms)?,
        )?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        // SAFETY: the caller's promise, see the module.
        let (there, note) = unsafe { (raw::value(there, "there")?, raw::maybe(note, "note")?) };
        out.set(started(peer(transport)?.transport.write(
            &view(local)?,
            &remote(&there)?,
            notify(note)?,
            timeout(timeout_ms)?,
        ))?);
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        // SAFETY: the caller's promise, see the module.
        let there = unsafe { raw::value(there, "there")? };
        let done =
            peer(transport)?.transport.read_blocking(&view_mut(local)?, &remote(&there)?, timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        // SAFETY: the caller's promise, see the module.
        let there = unsafe { raw::value(there, "there")? };
        out.set(started(peer(transport)?.transport.read(&view_mut(local)?, &remote(&there)?, timeout(timeout_ms)?))?);
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        // SAFETY: the caller's promise, see the module.
        let (parts, note) = unsafe { (raw::list(parts, count, "parts")?, raw::maybe(note, "note")?) };
        let done =
            peer(transport)?.transport.write_batch_blocking(&writes(parts)?, notify(note)?, timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        // SAFETY: the caller's promise, see the module.
        let (parts, note) = unsafe { (raw::list(parts, count, "parts")?, raw::maybe(note, "note")?) };
        out.set(started(peer(transport)?.transport.write_batch(&writes(parts)?, notify(note)?, timeout(timeout_ms)?))?);
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        // SAFETY: the caller's promise, see the module.
        let parts = unsafe { raw::list(parts, count, "parts")? };
        let done = peer(transport)?.transport.read_batch_blocking(&reads(parts)?, timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        // SAFETY: the caller's promise, see the module.
        let parts = unsafe { raw::list(parts, count, "parts")? };
        out.set(started(peer(transport)?.transport.read_batch(&reads(parts)?, timeout(timeout_ms)?))?);
        Ok(())
    })
}

/// Waits for one notification of the peer, the oldest first; each is taken by one wait. `value` may be null. A wait that times
/// out leaves the path alone, so a timeout of 0 is the way to poll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_wait_for_write(
    transport: *mut linkspan_transport,
    timeout_ms: i64,
    value: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(value, "value")? };
        let done = peer(transport)?.transport.wait_for_write_blocking(timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
}

/// As linkspan_wait_for_write, without waiting; the value is what that gives. The operation is freed by linkspan_op_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_wait_for_write_start(
    transport: *mut linkspan_transport,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(started(peer(transport)?.transport.wait_for_write(timeout(timeout_ms)?))?);
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        let done = peer(transport)?.transport.send_blocking(tag, &view(local)?, timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(started(peer(transport)?.transport.send(tag, &view(local)?, timeout(timeout_ms)?))?);
        Ok(())
    })
}

/// Receives a message with this tag; `bytes` becomes its length and may be null. A receive that times out revokes its path, and
/// both sides connect anew: do not poll with short timeouts, but start one and ask linkspan_op_test.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_recv(
    transport: *mut linkspan_transport,
    tag: u32,
    local: linkspan_view,
    timeout_ms: i64,
    bytes: *mut u64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::maybe(bytes, "bytes")? };
        let done = peer(transport)?.transport.recv_blocking(tag, &view_mut(local)?, timeout(timeout_ms)?)?;
        out.into_iter().for_each(|out| out.set(done));
        Ok(())
    })
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
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(started(peer(transport)?.transport.recv(tag, &view_mut(local)?, timeout(timeout_ms)?))?);
        Ok(())
    })
}
