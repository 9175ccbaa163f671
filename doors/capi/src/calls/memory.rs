//! Memory and remote buffers.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use linkspan::{Access, Memory, RemoteBuffer};

use super::objects::{MEMORIES, handle, id, remote, timeout};
use crate::lease::{Lease, Registered};
use crate::raw::{self, Out};
use crate::status::{Refusal, border};
use crate::types::*;

/// Registers memory of this process. The bytes must stay mapped until linkspan_memory_release has returned LINKSPAN_OK. `flags`:
/// 0 or LINKSPAN_READ_ONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_register(
    address: *mut c_void,
    length: usize,
    flags: u32,
    out: *mut *mut linkspan_memory,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        if flags & !LINKSPAN_READ_ONLY != 0 {
            return Err(Refusal::Value { name: "flags", value: flags.into(), takes: "0 or LINKSPAN_READ_ONLY" });
        }
        let lease = Arc::new(Lease::default());
        // SAFETY: the caller's promise: the bytes stay until the release, which waits for the guard.
        let memory = unsafe { raw::lend(address, length, flags == 0, lease.guard())? };
        out.set(handle(MEMORIES.insert(Arc::new(Registered { memory, lease: Some(lease) }))?));
        Ok(())
    })
}

/// Allocates zeroed memory, aligned to pages. linkspan_memory_get says where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_alloc(length: usize, out: *mut *mut linkspan_memory) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        if length > isize::MAX as usize >> 8 {
            let takes = "no more than there is memory";
            return Err(Refusal::Value { name: "length", value: length as i128, takes });
        }
        out.set(handle(MEMORIES.insert(Arc::new(Registered { memory: Memory::host(length), lease: None }))?));
        Ok(())
    })
}

/// What a memory is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_get(memory: *mut linkspan_memory, out: *mut linkspan_memory_info) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let found = MEMORIES.get(id(memory))?;
        out.set(linkspan_memory_info {
            address: found.memory.as_ptr().cast_mut().cast(),
            length: found.memory.len() as u64,
            writable: found.memory.is_writable().into(),
            allocated: found.lease.is_none().into(),
        });
        Ok(())
    })
}

/// The part of a memory that lies at an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_view_at(
    memory: *mut linkspan_memory,
    address: *const c_void,
    length: u64,
    out: *mut linkspan_view,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let found = MEMORIES.get(id(memory))?;
        found.memory.slice_at(address.cast(), length as usize)?;
        let offset = (address.addr() - found.memory.as_ptr().addr()) as u64;
        out.set(linkspan_view { memory, offset, length });
        Ok(())
    })
}

/// Gives a memory back. Waits at most so long for operations and exposed regions that use it; then LINKSPAN_MEMORY_IN_USE, and
/// the memory stays as it was. After LINKSPAN_OK the bytes are the caller's alone.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_memory_release(memory: *mut linkspan_memory, timeout_ms: i64) -> i32 {
    border(|| {
        let until = timeout(timeout_ms)?.and_then(|t| Instant::now().checked_add(t));
        let found = MEMORIES.suspend(id(memory))?;
        let Some(lease) = found.lease.clone() else { return MEMORIES.retire(id(memory)) };
        let slice = linkspan_slice(&found.memory);
        drop(found);
        if lease.ended(until) {
            return MEMORIES.retire(id(memory));
        }
        let (address, length, writable) = slice;
        // SAFETY: the caller's promise at the registration still holds: the release has failed.
        let memory_again = unsafe { raw::lend(address, length, writable, lease.guard())? };
        MEMORIES.resume(id(memory), Arc::new(Registered { memory: memory_again, lease: Some(lease) }))?;
        Err(Refusal::MemoryInUse)
    })
}

fn linkspan_slice(memory: &Memory) -> (*mut c_void, usize, bool) {
    (memory.as_ptr().cast_mut().cast(), memory.len(), memory.is_writable())
}

/// Checks bytes that came from the peer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_remote_decode(bytes: *const u8, length: usize, out: *mut linkspan_remote) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, bytes) = unsafe { (Out::new(out, "out")?, raw::list(bytes, length, "bytes")?) };
        out.set(linkspan_remote { bytes: RemoteBuffer::decode(bytes)?.encode() });
        Ok(())
    })
}

/// `length` bytes from `offset` of a remote buffer. `out` may be `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_remote_slice(
    from: *const linkspan_remote,
    offset: u64,
    length: u64,
    out: *mut linkspan_remote,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, from) = unsafe { (Out::new(out, "out")?, raw::value(from, "from")?) };
        out.set(linkspan_remote { bytes: remote(&from)?.slice(offset, length)?.encode() });
        Ok(())
    })
}

/// What a remote buffer says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_remote_get(from: *const linkspan_remote, out: *mut linkspan_remote_info) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, from) = unsafe { (Out::new(out, "out")?, raw::value(from, "from")?) };
        let from = remote(&from)?;
        let access = match from.access() {
            Access::Read => LINKSPAN_ACCESS_READ,
            Access::Write => LINKSPAN_ACCESS_WRITE,
            Access::ReadWrite => LINKSPAN_ACCESS_READ | LINKSPAN_ACCESS_WRITE,
        };
        let (length, key, generation) = (from.len(), from.key(), from.generation());
        out.set(linkspan_remote_info { length, key, generation, access, reserved: 0 });
        Ok(())
    })
}
