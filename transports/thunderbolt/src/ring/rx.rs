//! The receiving half: control messages in order, chunks in the order in which they were placed.

use std::collections::VecDeque;
use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, End, MemSlice, Sink};

use super::{CHUNK, CHUNKS, Of, RingIo, SLOT, SLOTS, Slots, is_apart, uncopied};
use crate::cache::Held;
use crate::device::RingDevice;
use crate::setup::NONCE_LEN;
use crate::stream::HELLO;

/// A slot that a message came into, or whose receive ended with the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Not,
    Message(usize),
    Closed,
}

/// A chunk that is arriving.
struct IncomingChunk<R> {
    head: Head,
    landed: bool,
    /// Keeps the memory registered.
    _region: Option<Arc<Held<R>>>,
    /// Where it is copied to from scratch.
    copied: Option<MemSlice>,
}

pub(crate) struct Rx<D: RingDevice> {
    came: [Came; SLOTS],
    /// The slot that the next message is in: receives meet messages in the order in which they were posted.
    next: usize,
    arriving: VecDeque<IncomingChunk<D::Region>>,
    /// A chunk that has a place, of which no more memory may be locked: it comes when those before have landed, by scratch if need be.
    waiting: Option<(Head, MemSlice)>,
    /// Number of the first of those.
    first: u64,
    scratch: Box<[u8]>,
    pub(crate) hello: Option<[u8; NONCE_LEN]>,
    /// No more than the first message is to be looked at.
    pub(crate) one: bool,
    /// A chunk will never arrive, nor can those after it land: none is placed any more.
    pub(crate) lost: bool,
    over: bool,
}

impl<D: RingDevice> Rx<D> {
    pub(crate) fn new() -> Rx<D> {
        Rx {
            came: [Came::Not; SLOTS],
            next: 0,
            arriving: VecDeque::with_capacity(CHUNKS),
            waiting: None,
            first: 0,
            scratch: vec![0; SLOT].into(),
            hello: None,
            one: false,
            lost: false,
            over: false,
        }
    }

    /// Whether all that the peer sent before it closed has been seen.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the next chunk may be placed.
    fn takes(&self) -> bool {
        let by_scratch = self.arriving.front().is_some_and(|chunk| chunk.copied.is_some());
        self.arriving.len() < CHUNKS && self.waiting.is_none() && !by_scratch
    }

    /// Whether chunks are on their way to us.
    fn is_arriving(&self) -> bool {
        !self.arriving.is_empty()
    }

    fn mark(&mut self, slot: u64, came: Came) -> Result<(), End> {
        match self.came.get_mut(slot as usize) {
            Some(place) if *place == Came::Not => {
                *place = came;
                Ok(())
            }
            _ => Err(End::Gone("the device reports a receive twice".into())),
        }
    }

    /// A message of `length` bytes is in a slot.
    pub(crate) fn received(
        &mut self,
        port: &mut RingIo<D>,
        slot: u64,
        length: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), End> {
        self.mark(slot, Came::Message((length as usize).min(SLOT)))?;
        self.go_on(port, sink)
    }

    /// The peer has closed, and nothing came into a slot.
    pub(crate) fn closed(&mut self, slot: u64) -> Result<(), End> {
        self.mark(slot, Came::Closed)
    }

    /// Looks at messages as far as chunks may be placed.
    pub(crate) fn go_on(&mut self, port: &mut RingIo<D>, sink: &mut dyn Sink) -> Result<(), End> {
        while (self.lost || self.takes()) && !(self.one && self.hello.is_some()) {
            let len = match self.came[self.next] {
                Came::Not => return Ok(()),
                Came::Closed => {
                    self.over = true;
                    return Ok(());
                }
                Came::Message(len) => len,
            };
            let slot = self.next;
            let at = Slots::<D>::at(SLOTS + slot);
            let mut bytes = std::mem::take(&mut self.scratch);
            let inside = port.slots.mem.read(at, &mut bytes[..len]);
            debug_assert!(inside);
            let waits = !self.one && !self.lost && waits(&bytes[..len], sink);
            let read = if waits { Ok(()) } else { self.read(port, &bytes[..len], sink) };
            self.scratch = bytes;
            read?;
            if waits {
                return Ok(());
            }
            self.came[slot] = Came::Not;
            self.next = (slot + 1) % SLOTS;
            let cookie = Of::Received.cookie(slot as u64);
            let put = port.device.receive(port.control, &port.slots.region, at, SLOT as u64, cookie);
            port.put(put)?;
        }
        Ok(())
    }

    fn read(&mut self, port: &mut RingIo<D>, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), End> {
        if self.one {
            let hello = bytes.split_first().filter(|(first, _)| **first == HELLO);
            self.hello = hello.and_then(|(_, nonce)| nonce.try_into().ok());
            return match self.hello {
                Some(_) => Ok(()),
                None => Err(End::Protocol("a first message that is none".into())),
            };
        }
        let Some((head, body)) = bytes.split_first_chunk::<HEAD_LEN>() else {
            return Err(End::Protocol(format!("a message of {} bytes", bytes.len())));
        };
        let (head, kind) = Head::decode(head).map_err(|bad| End::Protocol(bad.to_string()))?;
        if self.lost && kind.is_payload() {
            return Ok(());
        }
        if is_apart(kind, &head) {
            if !body.is_empty() {
                return Err(End::Protocol(format!("{} bytes behind the head of a long chunk", body.len())));
            }
            return self.place(port, &head, sink);
        }
        if body.len() != head.len.get() as usize {
            return Err(End::Protocol(format!("{} bytes of body, the head says {}", body.len(), head.len.get())));
        }
        if !kind.is_payload() {
            return Ok(sink.ctrl(&head, body)?);
        }
        match sink.place(&head)? {
            Some(mem) if mem.len() != body.len() => return Err(misplaced(&head, mem.len())),
            Some(mem) if !mem.fill(0, body) => return Err(uncopied("to")),
            _ => {}
        }
        self.arriving.push_back(IncomingChunk { head, landed: true, _region: None, copied: None });
        self.land(sink)
    }

    /// The payload of a head comes on the other channel.
    fn place(&mut self, port: &mut RingIo<D>, head: &Head, sink: &mut dyn Sink) -> Result<(), End> {
        let len = head.len.get() as usize;
        if len > CHUNK {
            return Err(End::Protocol(format!("a chunk of {len} bytes, {CHUNK} is most")));
        }
        match sink.place(head)? {
            Some(mem) if mem.len() == len => self.post(port, *head, mem),
            Some(mem) => Err(misplaced(head, mem.len())),
            None => self.scratch(port, *head, None),
        }
    }

    /// Of the next chunk.
    fn cookie(&self) -> u64 {
        Of::DataReceived.cookie(self.first + self.arriving.len() as u64)
    }

    /// Receives a chunk into its place; where no more memory may be locked, into scratch, which is used by no other then.
    fn post(&mut self, port: &mut RingIo<D>, head: Head, mem: MemSlice) -> Result<(), End> {
        let Some(held) = port.region(mem, true)? else {
            if self.is_arriving() {
                self.waiting = Some((head, mem));
                return Ok(());
            }
            return self.scratch(port, head, Some(mem));
        };
        let put = port.device.receive(port.data, held.region(), held.offset(mem), mem.len() as u64, self.cookie());
        port.put(put)?;
        self.arriving.push_back(IncomingChunk { head, landed: false, _region: Some(held), copied: None });
        Ok(())
    }

    fn scratch(&mut self, port: &mut RingIo<D>, head: Head, copied: Option<MemSlice>) -> Result<(), End> {
        let len = head.len.get().into();
        let put = port.device.receive(port.data, &port.slots.region, Slots::<D>::SCRATCH, len, self.cookie());
        port.put(put)?;
        self.arriving.push_back(IncomingChunk { head, landed: false, _region: None, copied });
        Ok(())
    }

    /// The payload of chunk `n` is in place.
    pub(crate) fn landed(&mut self, port: &mut RingIo<D>, n: u64, length: u64, sink: &mut dyn Sink) -> Result<(), End> {
        let Some(chunk) = n.checked_sub(self.first).and_then(|at| self.arriving.get_mut(at as usize)) else {
            return Err(End::Gone("the device reports a chunk that was not posted".into()));
        };
        if length != u64::from(chunk.head.len.get()) {
            return Err(End::Protocol(format!("{length} bytes of a chunk of {}", chunk.head.len.get())));
        }
        chunk.landed = true;
        if let Some(mem) = chunk.copied
            && !port.slots.mem.sub(Slots::<D>::SCRATCH, length).is_some_and(|from| from.copy_to_host(mem))
        {
            return Err(uncopied("to"));
        }
        self.land(sink)?;
        if let Some((head, mem)) = self.waiting.take_if(|_| !self.lost) {
            self.post(port, head, mem)?;
        }
        self.go_on(port, sink)
    }

    fn land(&mut self, sink: &mut dyn Sink) -> Result<(), End> {
        while self.arriving.front().is_some_and(|chunk| chunk.landed) {
            if let Some(chunk) = self.arriving.pop_front() {
                self.first += 1;
                sink.landed(&chunk.head)?;
            }
        }
        Ok(())
    }
}

/// Whether this is the head of a long chunk for which the sink has no place yet.
fn waits(bytes: &[u8], sink: &mut dyn Sink) -> bool {
    let head = bytes.first_chunk::<HEAD_LEN>().and_then(|head| Head::decode(head).ok());
    head.is_some_and(|(head, kind)| is_apart(kind, &head) && !sink.ready(&head))
}

fn misplaced(head: &Head, len: usize) -> End {
    End::Protocol(format!("a chunk of {} bytes met a place of {len}", head.len.get()))
}
