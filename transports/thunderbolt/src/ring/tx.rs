//! The sending half: slots for control messages, chunks that wait for the device.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, End, MemSlice};

use super::{CHUNKS, Of, RingIo, SLOT, SLOTS, Slots, uncopied};
use crate::cache::Held;
use crate::device::RingDevice;

/// An accepted item: gone when nothing of it is left with the device.
struct Item<R> {
    left: u8,
    /// Keeps the memory registered.
    region: Option<Arc<Held<R>>>,
}

pub(crate) struct Tx<D: RingDevice> {
    free: Vec<u8>,
    /// The item that each slot belongs to; 0 for none.
    owner: [u64; SLOTS],
    items: VecDeque<Item<D::Region>>,
    taken: u64,
    chunks: usize,
    /// The peer has closed.
    pub(crate) deaf: bool,
}

impl<D: RingDevice> Tx<D> {
    pub(crate) fn new() -> Tx<D> {
        Tx {
            free: (0..SLOTS as u8).rev().collect(),
            owner: [0; SLOTS],
            items: VecDeque::with_capacity(SLOTS + CHUNKS),
            taken: 0,
            chunks: 0,
            deaf: false,
        }
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the device has something of ours.
    pub(crate) fn under_way(&self) -> bool {
        !self.items.is_empty() || self.free.len() < SLOTS
    }

    /// Whether there is space for a chunk.
    pub(crate) fn takes(&self) -> bool {
        self.chunks < CHUNKS && !self.free.is_empty()
    }

    fn accept(&mut self, left: u8, region: Option<Arc<Held<D::Region>>>) -> u64 {
        self.items.push_back(Item { left, region });
        self.taken + self.items.len() as u64
    }

    /// A message of the bytes that `fill` puts into a slot; `None` of it: they could not be copied.
    fn slot(&mut self, port: &mut RingIo<D>, fill: impl FnOnce(MemSlice) -> Option<usize>) -> Result<Option<u8>, End> {
        let Some(slot) = self.free.pop() else { return Ok(None) };
        let at = Slots::<D>::at(slot.into());
        let Some(mem) = port.slots.mem.sub(at, SLOT as u64) else { return Ok(None) };
        let Some(len) = fill(mem) else { return Err(uncopied("from")) };
        let put = port.device.send(port.control, &port.slots.region, at, len as u64, Of::Sent.cookie(u64::from(slot)));
        port.put(put)?;
        Ok(Some(slot))
    }

    /// A message that is no item.
    pub(crate) fn raw(&mut self, port: &mut RingIo<D>, bytes: &[u8]) -> Result<(), End> {
        self.slot(port, |mem| mem.fill(0, bytes).then_some(bytes.len()))?;
        Ok(())
    }

    /// A head and what fits behind it. `Err(None)`: no space at the moment.
    pub(crate) fn message(&mut self, port: &mut RingIo<D>, head: &Head, body: MemSlice) -> Result<u64, Option<End>> {
        let fill = |mem: MemSlice| mem.fill(0, head.as_wire()) && copy(body, mem);
        let slot = self.slot(port, |mem| fill(mem).then_some(HEAD_LEN + body.len()))?;
        let slot = slot.ok_or(None)?;
        let n = self.accept(1, None);
        self.owner[usize::from(slot)] = n;
        Ok(n)
    }

    /// A head, and its payload on the other channel: where no more memory may be locked, by scratch, once no other chunk is under way.
    pub(crate) fn chunk(&mut self, port: &mut RingIo<D>, head: &Head, src: MemSlice) -> Result<u64, Option<End>> {
        if !self.takes() {
            return Err(None);
        }
        let held = port.region(src, false)?;
        if held.is_none() {
            // Those that are under way wake the rail. The memory that others have locked would not.
            if self.chunks > 0 {
                return Err(None);
            }
            let scratch = port.slots.mem.sub(Slots::<D>::SEND_SCRATCH, src.len() as u64);
            if !scratch.is_some_and(|scratch| src.copy_to_host(scratch)) {
                return Err(Some(uncopied("from")));
            }
        }
        let n = self.message(port, head, MemSlice::NONE)?;
        let (region, offset) = match &held {
            Some(held) => (held.region(), held.offset(src)),
            None => (&port.slots.region, Slots::<D>::SEND_SCRATCH),
        };
        let put = port.device.send(port.data, region, offset, src.len() as u64, Of::DataSent.cookie(n));
        port.put(put)?;
        self.chunks += 1;
        if let Some(item) = self.items.back_mut() {
            (item.left, item.region) = (2, held);
        }
        Ok(n)
    }

    /// The message in slot `n` is gone.
    pub(crate) fn sent(&mut self, n: u64) {
        let Some(owner) = self.owner.get_mut(n as usize) else { return };
        let owner = std::mem::take(owner);
        self.free.push(n as u8);
        self.settle(owner, false);
    }

    /// The payload of item `n` is gone.
    pub(crate) fn data_sent(&mut self, n: u64) {
        self.settle(n, true);
    }

    fn settle(&mut self, n: u64, data: bool) {
        let Some(item) = n.checked_sub(self.taken + 1).and_then(|at| self.items.get_mut(at as usize)) else { return };
        item.left = item.left.saturating_sub(1);
        if data {
            item.region = None;
            self.chunks = self.chunks.saturating_sub(1);
        }
        while self.items.front().is_some_and(|item| item.left == 0) {
            self.items.pop_front();
            self.taken += 1;
        }
    }
}

/// Copies a body behind the head in a slot. Bodies are at most `EAGER_MAX` bytes.
fn copy(body: MemSlice, slot: MemSlice) -> bool {
    let mut at = 0;
    let mut piece = [0; 1024];
    while at < body.len() {
        let n = piece.len().min(body.len() - at);
        if !body.read(at as u64, &mut piece[..n]) || !slot.fill((HEAD_LEN + at) as u64, &piece[..n]) {
            return false;
        }
        at += n;
    }
    true
}
