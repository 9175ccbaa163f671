//! A chunk batch: payloads that follow one another in the stream, their heads all before the first of them.
//!
//! ```text
//! head of the batch | head 0 | head 1 | ... | payload 0 | payload 1 | ... | padding
//! ```
//!
//! Pages of 16 KiB cost a system call each where their heads lie between them: the place of the next one is not known before
//! its head has come. Of a batch all places are known, and one system call fills them.

use linkspan_proto::Head;
use linkspan_proto::head::{BATCH_MAX, HEAD_LEN, ROW_PAYLOAD_MAX};
use linkspan_transport::{Buf, MemSlice, Sink};

use crate::frames::{Next, begun};
use crate::rx::Fault;

/// A batch on its way in.
pub(crate) struct ChunkBatch {
    heads: [Head; BATCH_MAX],
    /// Where they go; `wanted` tells which of them anywhere.
    places: [MemSlice; BATCH_MAX],
    wanted: [bool; BATCH_MAX],
    /// Heads whose place is known, and payloads begun.
    placed: usize,
    begun: usize,
    bytes: usize,
}

impl ChunkBatch {
    pub(crate) fn new() -> ChunkBatch {
        let none = Head::new(linkspan_proto::Kind::Put);
        ChunkBatch {
            heads: [none; BATCH_MAX],
            places: [MemSlice::EMPTY; BATCH_MAX],
            wanted: [false; BATCH_MAX],
            placed: 0,
            begun: 0,
            bytes: 0,
        }
    }

    /// Asks for the places of a batch whose heads are `text`. False: not all of them are known yet; ask again with the same.
    pub(crate) fn place<I: Sink + ?Sized>(&mut self, text: &[u8], sink: &mut I) -> Result<bool, Fault> {
        let (heads, rest) = text.as_chunks::<HEAD_LEN>();
        if !rest.is_empty() || heads.len() < 2 || heads.len() > BATCH_MAX {
            return Err(Fault::ChunkBatch("it is not of 2 to 30 heads"));
        }
        while self.placed < heads.len() {
            let (head, kind) = Head::decode(&heads[self.placed]).map_err(Fault::Head)?;
            let len = head.len.get() as usize;
            if !kind.is_payload() || len == 0 || len > ROW_PAYLOAD_MAX {
                return Err(Fault::ChunkBatch("one of its heads is not that of a payload of 1 to 65536 bytes"));
            }
            if !sink.ready(&head) {
                return Ok(false);
            }
            let (mem, wanted) = match sink.place(&head)? {
                None => (MemSlice::EMPTY, false),
                Some(place) if place.len() == len => (place, true),
                Some(place) => return Err(Fault::Place { want: len, got: place.len() }),
            };
            self.heads[self.placed] = head;
            self.places[self.placed] = mem;
            self.wanted[self.placed] = wanted;
            self.placed += 1;
            self.bytes += len;
        }
        Ok(true)
    }

    /// Payload bytes of the whole batch.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The payload that is next, which then is under way.
    pub(crate) fn next(&mut self) -> Option<Next> {
        if self.begun == self.placed {
            return None;
        }
        let at = self.begun;
        self.begun += 1;
        begun(self.heads[at], self.wanted[at].then_some(self.places[at])).ok()
    }

    /// Places in a row behind the payload under way, up to one that is no longer wanted; and whether the batch ends there.
    pub(crate) fn places(&self) -> (&[MemSlice], bool) {
        let wanted = self.wanted[self.begun..self.placed].iter().take_while(|wanted| **wanted).count();
        (&self.places[self.begun..self.begun + wanted], self.begun + wanted == self.placed)
    }

    /// Ends a batch; its payload bytes, if there was one.
    pub(crate) fn end(&mut self) -> Option<usize> {
        let bytes = std::mem::take(&mut self.bytes);
        let was = std::mem::take(&mut self.placed) > 0;
        self.begun = 0;
        was.then_some(bytes)
    }
}
