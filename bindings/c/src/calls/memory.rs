//! Memory and remote buffers.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use linkspan::{Access, Gpu, Memory, MemoryKind, RemoteBuffer};

use super::objects::{MEMORIES, gpu_named, handle, id, remote, timeout};
use crate::lease::{Lease, Registered};
use crate::raw::{self, Out};
use crate::status::{CallResult, Refusal, border};
use crate::text::fixed;
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
        // SAFETY: the caller's promise: the bytes stay until the release, which waits for the guard.
        out.set(unsafe { register(None, address, length, flags)? });
        Ok(())
    })
}

/// Registers memory of a GPU: `length` bytes at its `address`, as cudaMalloc, cuMemAlloc or hipMalloc gave it. `gpu`: its name,
/// as cuda:0 or hip:1; null: the driver is asked whose it is. The bytes must stay until linkspan_memory_release has returned
/// LINKSPAN_OK. `flags` as for linkspan_memory_register.
///
/// A transport carries it once the GPU is attached (linkspan_transport_attach). What is written from it must have been finished
/// by the GPU before the call (cudaStreamSynchronize); what has arrived there the GPU may use at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_register_device(
    gpu: *const c_char,
    address: *mut c_void,
    length: usize,
    flags: u32,
    out: *mut *mut linkspan_memory,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let owner = match gpu.is_null() {
            true => linkspan::gpu_of(address.addr() as u64)?,
            // SAFETY: the caller's promise, see the module.
            false => unsafe { gpu_named(gpu)? },
        };
        // SAFETY: the caller's promise: the bytes stay until the release, which waits for the guard.
        out.set(unsafe { register(Some(&owner), address, length, flags)? });
        Ok(())
    })
}

/// # Safety
/// As `raw::lend`, with a guard that the release waits for.
unsafe fn register(
    gpu: Option<&Arc<dyn Gpu>>,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> CallResult<*mut linkspan_memory> {
    let writable = writable(flags)?;
    let lease = Arc::new(Lease::default());
    // SAFETY: by the caller's promise.
    let memory = unsafe { raw::lend(gpu, address, length, writable, lease.guard())? };
    Ok(handle(MEMORIES.insert(Arc::new(Registered { memory, lease: Some(lease) }))?))
}

fn writable(flags: u32) -> CallResult<bool> {
    match flags {
        0 => Ok(true),
        LINKSPAN_READ_ONLY => Ok(false),
        _ => Err(Refusal::Value { name: "flags", value: flags.into(), takes: "0 or LINKSPAN_READ_ONLY" }),
    }
}

/// Maps `length` bytes from `offset` (a multiple of the page size) of what `fd` stands for: a file, a memfd, a dma-buf whose exporter
/// lets processors map it. What arrives goes to the descriptor's owner. `flags`: 0 (the descriptor must be open for reading and
/// writing then) or LINKSPAN_READ_ONLY. The descriptor may be closed afterwards. A file that is made shorter while it is mapped
/// ends the process (SIGBUS).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_map(
    fd: c_int,
    offset: u64,
    length: usize,
    flags: u32,
    out: *mut *mut linkspan_memory,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, fd) = unsafe { (Out::new(out, "out")?, raw::fd(fd, "fd")?) };
        let memory = Memory::map(fd, offset, length, writable(flags)?)?;
        out.set(handle(MEMORIES.insert(Arc::new(Registered { memory, lease: None }))?));
        Ok(())
    })
}

/// Allocates memory of a GPU (cuda:0, hip:1), with undefined contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_memory_alloc_device(
    gpu: *const c_char,
    length: usize,
    out: *mut *mut linkspan_memory,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, gpu) = unsafe { (Out::new(out, "out")?, gpu_named(gpu)?) };
        let memory = Memory::on_gpu(&gpu, length)?;
        out.set(handle(MEMORIES.insert(Arc::new(Registered { memory, lease: None }))?));
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
            kind: match found.memory.kind() {
                MemoryKind::Device => LINKSPAN_MEMORY_DEVICE,
                MemoryKind::Mapped => LINKSPAN_MEMORY_MAPPED,
                _ => LINKSPAN_MEMORY_HOST,
            },
            reserved: 0,
            gpu: fixed(&found.memory.gpu().map(|gpu| gpu.info().id()).unwrap_or_default()),
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
        let (slice, gpu) = (linkspan_slice(&found.memory), found.memory.gpu().cloned());
        drop(found);
        if lease.ended(until) {
            return MEMORIES.retire(id(memory));
        }
        let (address, length, writable) = slice;
        // SAFETY: the caller's promise at the registration still holds: the release has failed.
        let again = unsafe { raw::lend_again(gpu.as_ref(), address, length, writable, lease.guard()) };
        MEMORIES.resume(id(memory), Arc::new(Registered { memory: again, lease: Some(lease) }))?;
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
