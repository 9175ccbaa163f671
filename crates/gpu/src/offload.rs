//! NCCL's device offload ("unpack", version 7): its own kernels put in place what a network card has left in pieces.
//!
//! Of each receiving connection one [`Queue`] lies in host memory that the GPU reads: for each of 16 receives up to 2048
//! descriptors ([`Piece`]) and how many they are. NCCL's proxy reports a receive to its kernel when we have reported it
//! done; the kernel then copies the pieces from the bounce buffer to the receive's buffer, fused with what it does next, and
//! the proxy says that the receive was consumed, from when on the pages may be used again.
//!
//! Layout, after NCCL's headers (`unpack_defs.h`): `netUnpackMeta { loadMeta mem[16][2048]; u64 cnt[16]; }` and
//! `unpackNetDeviceHandle { netUnpackMeta* meta; void* bounce_buf; u64 head; }`. The kernel counts `head` up before it looks
//! into slot `head % 16`, once for each receive of the Simple protocol, and keeps it in the handle between launches.
//!
//! All connections of a GPU must name the same bounce buffer: a thread block of NCCL's has space for one. So the buffer is
//! the [`bounce`] base of the GPU, and pieces of pools further than 4 GiB behind it are left to our own unpack.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex};

use linkspan_transport::gpu::DeviceQueue;
use linkspan_transport::{Buf, MemSlice, MemoryDomain};

use crate::unpack::{PIECE_LEN, PIECES, Piece};
use crate::{Gpu, GpuError, Pinned};

/// Receives in the queue (`NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH`).
pub const SLOTS: usize = 16;

/// Longest piece. NCCL's kernel gives each piece to one warp (`SLICE_PAGE_SIZE`).
pub const LONGEST: u32 = 4096;

/// Where the counts begin.
const COUNTS: usize = SLOTS * PIECES * PIECE_LEN;

/// Where the handle lies, and its bytes: behind the counts, aligned for the GPU.
const HANDLE: usize = COUNTS + SLOTS * 8;

/// Bytes of `unpackNetDeviceHandle`.
pub const HANDLE_LEN: usize = 24;

/// What the kernel's count begins with: counted up, it names slot 0.
const HEAD: u64 = SLOTS as u64 - 1;

/// The bounce buffers of this process.
static BOUNCE: Mutex<Option<HashMap<MemoryDomain, u64>>> = Mutex::new(None);

/// The base that descriptors count from on this device: the first pool that was asked for.
pub fn bounce((domain, first): (MemoryDomain, u64)) -> u64 {
    let mut known = BOUNCE.lock().unwrap_or_else(|e| e.into_inner());
    *known.get_or_insert_default().entry(domain).or_insert(first)
}

/// A receive in the queue. Written by the thread that drives the connection; atomics only because the plugin and the rails
/// share it.
#[derive(Debug, Default)]
struct Slot {
    /// Number of the receive, from 1; 0: free.
    number: AtomicU64,
    addr: AtomicU64,
    len: AtomicU64,
    count: AtomicU32,
    /// The last piece, in case that the next goes on where it ends: source and length, and target.
    last: AtomicU64,
    last_to: AtomicU64,
}

/// The queue of one receiving connection. Driven by one thread at a time.
#[derive(Debug)]
pub struct Queue {
    memory: Pinned,
    device: u64,
    base: u64,
    slots: [Slot; SLOTS],
    /// Receives opened, and of these the first so many that were consumed.
    opened: AtomicU64,
    consumed: AtomicU64,
    /// Pieces that were left to NCCL, and to our own unpack.
    left: AtomicU64,
    taken: AtomicU64,
    /// What pieces of paths that ended lie in, each with the number behind its last receive, and whether there is any.
    kept: Mutex<Vec<(u64, Box<dyn Any + Send>)>>,
    keeps: AtomicBool,
}

impl Queue {
    /// A queue of which descriptors count from `base`, on this device.
    ///
    /// # Errors
    /// [`GpuError::Call`] where the driver refuses pinned memory, [`GpuError::Unsupported`] where the device cannot
    /// read it.
    pub fn new(gpu: &Arc<dyn Gpu>, base: u64) -> Result<Arc<Queue>, GpuError> {
        let memory = Pinned::new(gpu, HANDLE + 64)?;
        let device = gpu.device_address(memory.mem())?;
        let mut handle = [0; HANDLE_LEN];
        handle[..8].copy_from_slice(&device.to_le_bytes());
        handle[8..16].copy_from_slice(&base.to_le_bytes());
        handle[16..].copy_from_slice(&HEAD.to_le_bytes());
        let written = memory.mem().fill(HANDLE as u64, &handle);
        debug_assert!(written);
        Ok(Arc::new(Queue {
            memory,
            device,
            base,
            slots: Default::default(),
            opened: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            left: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            kept: Mutex::default(),
            keeps: AtomicBool::new(false),
        }))
    }

    /// Device address of the handle that NCCL's kernels read.
    pub fn handle(&self) -> u64 {
        self.device + HANDLE as u64
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize % SLOTS]
    }

    /// A receive is posted: its number, from 0. `None`: 16 are not consumed.
    pub fn open(&self, dst: MemSlice) -> Option<u64> {
        let number = self.opened.load(Relaxed);
        let slot = self.slot(number);
        if slot.number.load(Relaxed) != 0 {
            return None;
        }
        slot.addr.store(dst.as_ptr() as u64, Relaxed);
        slot.len.store(if dst.is_host() { 0 } else { dst.len() as u64 }, Relaxed);
        slot.count.store(0, Relaxed);
        slot.number.store(number + 1, Relaxed);
        self.opened.store(number + 1, Relaxed);
        Some(number)
    }

    /// Withdraws the receive that was opened last: it was not posted.
    pub fn close(&self, number: u64) {
        if self.opened.load(Relaxed) == number + 1 {
            self.slot(number).number.store(0, Relaxed);
            self.opened.store(number, Relaxed);
        }
    }

    fn describe(&self, slot: &Slot, number: u64, (mut src, mut len, mut dst): (u64, u32, u64)) -> bool {
        let count = slot.count.load(Relaxed) as usize;
        // Longer ones than a page in parts, and neighbours up to a page in one.
        let (last, last_to) = (slot.last.load(Relaxed), slot.last_to.load(Relaxed));
        let (last_src, last_len) = (last >> 32, last as u32);
        let joins = count > 0 && last_src + u64::from(last_len) == src && last_to + u64::from(last_len) == dst;
        let grow = if joins { (LONGEST - last_len.min(LONGEST)).min(len) } else { 0 };
        if count + ((len - grow).div_ceil(LONGEST)) as usize > PIECES {
            return false;
        }
        let write = |at: usize, src: u64, len: u32, dst: u64| {
            let piece = Piece { src: src as u32, len, dst };
            let place = (number as usize % SLOTS * PIECES + at) * PIECE_LEN;
            let written = self.memory.mem().fill(place as u64, &piece.to_bytes());
            debug_assert!(written);
            slot.last.store(src << 32 | u64::from(len), Relaxed);
            slot.last_to.store(dst, Relaxed);
        };
        if grow > 0 {
            write(count - 1, last_src, last_len + grow, last_to);
            (src, len, dst) = (src + u64::from(grow), len - grow, dst + u64::from(grow));
        }
        let mut at = count;
        while len > 0 {
            let now = len.min(LONGEST);
            write(at, src, now, dst);
            (src, len, dst, at) = (src + u64::from(now), len - now, dst + u64::from(now), at + 1);
        }
        slot.count.store(at as u32, Relaxed);
        true
    }

    /// The receive is complete: what the kernel reads of it stands in the queue when this returns.
    pub fn finish(&self, number: u64) {
        let slot = self.slot(number);
        let count = u64::from(slot.count.load(Relaxed));
        let at = COUNTS + number as usize % SLOTS * 8;
        let written = self.memory.mem().fill(at as u64, &count.to_le_bytes());
        debug_assert!(written);
        // NCCL's proxy tells its kernel by a store of its own, after a fence of its own.
        std::sync::atomic::fence(Release);
    }

    /// To be called when NCCL's kernel has unpacked the receive.
    pub fn consume(&self, number: u64) {
        let slot = self.slot(number);
        if slot.number.load(Relaxed) != number + 1 {
            return;
        }
        slot.number.store(0, Relaxed);
        let opened = self.opened.load(Relaxed);
        let mut first = self.consumed.load(Relaxed);
        while first < opened && self.slot(first).number.load(Relaxed) != first + 1 {
            first += 1;
        }
        self.consumed.store(first, Relaxed);
        if self.keeps.load(Relaxed) {
            let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
            kept.retain(|(end, _)| *end > first);
            self.keeps.store(!kept.is_empty(), Relaxed);
        }
    }

    /// Pieces that NCCL's kernels had to put in place, and those that the queue had no space or words for.
    pub fn counts(&self) -> (u64, u64) {
        (self.left.load(Relaxed), self.taken.load(Relaxed))
    }

    /// The memory of the queue, for tests that act as the GPU.
    pub fn memory(&self) -> &Pinned {
        &self.memory
    }
}

impl DeviceQueue for Queue {
    fn of(&self, part: MemSlice) -> Option<u64> {
        let (at, len) = (part.as_ptr() as u64, part.len() as u64);
        let inside = |slot: &&Slot| {
            let begin = slot.addr.load(Relaxed);
            let space = at.checked_sub(begin).and_then(|skip| slot.len.load(Relaxed).checked_sub(skip));
            space.is_some_and(|space| len <= space) && slot.number.load(Relaxed) != 0
        };
        // An address may be posted again as soon as its receive is done and before it is consumed: the newest counts.
        let found = self.slots.iter().filter(inside).map(|slot| slot.number.load(Relaxed)).max()?;
        Some(found - 1)
    }

    fn push(&self, number: u64, from: u64, len: u32, to: u64) -> bool {
        let slot = self.slot(number);
        let (Some(src), Some(dst)) = (from.checked_sub(self.base), to.checked_sub(slot.addr.load(Relaxed))) else {
            return false;
        };
        if src + u64::from(len) > 1 << 32 || slot.number.load(Relaxed) != number + 1 {
            return false;
        }
        let taken = self.describe(slot, number, (src, len, dst));
        self.left.fetch_add(u64::from(taken), Relaxed);
        self.taken.fetch_add(u64::from(!taken), Relaxed);
        taken
    }

    fn consumed(&self) -> u64 {
        self.consumed.load(Relaxed)
    }

    fn keep(&self, end: u64, pages: Box<dyn Any + Send>) {
        self.kept.lock().unwrap_or_else(|e| e.into_inner()).push((end, pages));
        self.keeps.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests;
