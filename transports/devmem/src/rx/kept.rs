//! Pages that NCCL's kernels read: their tokens wait until the receive was consumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linkspan_gpu::Gpu;
use linkspan_gpu::devmem::Tokens;
use linkspan_gpu::offload::SLOTS;
use linkspan_gpu::unpack::PIECES;
use linkspan_transport::Buf;
use linkspan_transport::gpu::DeviceQueue;

use crate::Pool;
use crate::planted::{self, Bug};

/// Of the pool, pages beyond this part are not left to NCCL: another connection's kernel may wait for what needs a page.
const MOST: (u64, u64) = (1, 2);

/// The pages of one rail.
pub(super) struct Kept {
    queue: Arc<dyn DeviceQueue>,
    pages: Pages,
    /// Most pages of the pool that NCCL has.
    most: u64,
    /// Behind the last receive with a piece of this rail.
    end: u64,
}

struct Pages {
    /// For each of the receives in the queue, its number and its tokens.
    slots: [(u64, Vec<u32>); SLOTS],
    /// Pages of the pool that NCCL has, of all rails.
    lent: Arc<AtomicU64>,
}

impl Kept {
    pub(super) fn new(queue: Arc<dyn DeviceQueue>, pool: &Pool) -> Kept {
        let most = pool.mem.len() as u64 / 4096 * MOST.0 / MOST.1;
        let slots = std::array::from_fn(|_| (0, Vec::with_capacity(PIECES)));
        Kept { queue, pages: Pages { slots, lent: pool.lent.clone() }, most, end: 0 }
    }

    pub(super) fn queue(&self) -> &dyn DeviceQueue {
        &*self.queue
    }

    /// Whether one more page may be left to this receive.
    pub(super) fn has_space(&self, number: u64) -> bool {
        self.pages.slots[number as usize % SLOTS].1.len() < PIECES && self.pages.lent.load(Relaxed) < self.most
    }

    /// See [`DeviceQueue::push`].
    pub(super) fn push(&mut self, number: u64, from: u64, len: u32, to: u64) -> bool {
        let pushed = self.queue.push(number, from, len, to);
        if pushed {
            self.end = self.end.max(number + 1);
        }
        pushed
    }

    /// The token goes back when the receive was consumed, and all before it.
    pub(super) fn keep(&mut self, number: u64, token: u32, done: &mut Tokens) {
        if number < self.queue.consumed() || planted::is(Bug::KeptEarly) {
            return done.push(token);
        }
        let slot = number as usize % SLOTS;
        if self.pages.slots[slot].0 != number {
            // Of the receive that had the slot before, which was consumed.
            self.pages.release_slot(slot, done);
            self.pages.slots[slot].0 = number;
        }
        self.pages.slots[slot].1.push(token);
        self.pages.lent.fetch_add(1, Relaxed);
    }

    /// Gives back what NCCL has done with.
    pub(super) fn release(&mut self, done: &mut Tokens) {
        let consumed = self.queue.consumed();
        for slot in 0..SLOTS {
            if self.pages.slots[slot].0 < consumed {
                self.pages.release_slot(slot, done);
            }
        }
    }

    /// The rail ends. Receives that have pieces here may still be reported, and NCCL's kernels then read them: the stream, whose end
    /// gives the pages back, and the pool stay until they have.
    pub(super) fn end(self, pool: Pool, gpu: &dyn Gpu) {
        if self.end > self.queue.consumed() {
            // Nobody asks for that where no rail is left; a device that failed reads nothing.
            let _ = gpu.flush_writes();
            self.queue.keep(self.end, Box::new((self.pages, pool)));
        }
    }
}

impl Pages {
    fn release_slot(&mut self, slot: usize, done: &mut Tokens) {
        let tokens = &mut self.slots[slot].1;
        self.lent.fetch_sub(tokens.len() as u64, Relaxed);
        tokens.drain(..).for_each(|token| done.push(token));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The stream's end gives them back.
        let tokens: usize = self.slots.iter().map(|(_, tokens)| tokens.len()).sum();
        self.lent.fetch_sub(tokens as u64, Relaxed);
    }
}
