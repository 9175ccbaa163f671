//! From the bytes of a stream, or the text of records, to messages and payload in place.

use linkspan_proto::head::{BadHead, EAGER_MAX, HEAD_LEN, MAGIC, padding};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, MemSlice, Sink};

use crate::batch::ChunkBatch;
use crate::rx::Fault;

/// Most bytes that [`Frames::take`] leaves: one short of the largest control message.
pub(crate) const LEFT_MOST: usize = HEAD_LEN + EAGER_MAX - 1;

/// What the next bytes are.
pub(crate) enum Next {
    /// Padding of that many bytes, then a head.
    Head { padding: usize },
    /// The rest of a payload, and where it goes.
    Payload { head: Head, rest: MemSlice },
    /// The rest of a payload that is no longer wanted.
    Drain { head: Head, rest: usize },
}

/// Where in the stream we are.
pub(crate) struct Frames {
    pub(crate) next: Next,
    /// Payloads that follow the next one without a head between.
    batch: ChunkBatch,
    /// Bytes that are in their places already; they come before the text.
    arrived: usize,
    /// The sink was not ready for the next message.
    held: bool,
}

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames { next: Next::Head { padding: 0 }, batch: ChunkBatch::new(), arrived: 0, held: false }
    }

    /// Whether a payload has begun and not ended.
    pub(crate) fn inside(&self) -> bool {
        !matches!(self.next, Next::Head { .. })
    }

    /// Whether the last [`Frames::take`] ended at a message for which the sink was not ready.
    pub(crate) fn held(&self) -> bool {
        self.held
    }

    /// Places that the stream fills behind the payload under way, one after the other; and whether they are all, to the end
    /// of the batch.
    pub(crate) fn row_places(&self) -> (&[MemSlice], bool) {
        self.batch.places()
    }

    /// So many of the next payload bytes are in their places already.
    pub(crate) fn arrived(&mut self, bytes: usize) {
        self.arrived = bytes;
    }

    /// Hands on what has arrived and what is in `text` behind it. Returns how many bytes of `text` were used (the others are
    /// part of a head or of a control message and come again with those that follow; more of them where `sink` was not
    /// ready) and the length of the last payload, or batch of them, that began.
    pub(crate) fn take<I: Sink + ?Sized>(
        &mut self,
        text: &[u8],
        sink: &mut I,
    ) -> Result<(usize, Option<usize>), Fault> {
        let mut at = 0;
        let mut payload = None;
        self.held = false;
        loop {
            let there = &text[at..];
            let (head, done) = match &mut self.next {
                Next::Head { padding: rest } if *rest > 0 => {
                    let n = there.len().min(*rest);
                    *rest -= n;
                    at += n;
                    if *rest > 0 {
                        return Ok((at, payload));
                    }
                    continue;
                }
                Next::Head { .. } => {
                    let Some((wire, behind)) = there.split_first_chunk::<HEAD_LEN>() else {
                        return match there.first() {
                            Some(&byte) if byte != MAGIC => Err(Fault::Head(BadHead::Magic(byte))),
                            _ => Ok((at, payload)),
                        };
                    };
                    let (head, kind) = Head::view(wire).map_err(Fault::Head)?;
                    let len = head.len.get() as usize;
                    if !sink.ready(head) {
                        self.held = true;
                        return Ok((at, payload));
                    }
                    if kind.is_payload() {
                        self.next = begun(*head, sink.place(head)?)?;
                        at += HEAD_LEN;
                        payload = Some(len);
                        continue;
                    }
                    let Some(body) = behind.get(..len) else { return Ok((at, payload)) };
                    if kind == Kind::BatchHeads {
                        if !self.batch.place(body, sink)? {
                            self.held = true;
                            return Ok((at, payload));
                        }
                        payload = Some(self.batch.bytes());
                        self.next = self.batch.next().ok_or(Fault::ChunkBatch("no heads in it"))?;
                    } else {
                        sink.ctrl(head, body)?;
                        self.next = Next::Head { padding: padding(len) };
                    }
                    at += HEAD_LEN + len;
                    continue;
                }
                Next::Payload { head, rest } => {
                    let already = rest.len().min(self.arrived);
                    self.arrived -= already;
                    let n = (rest.len() - already).min(there.len());
                    let fits = rest.fill_ascending(already as u64, &there[..n]);
                    debug_assert!(fits);
                    let done = already + n;
                    *rest = rest.sub(done as u64, (rest.len() - done) as u64).unwrap_or(MemSlice::EMPTY);
                    at += n;
                    (*head, rest.is_empty())
                }
                Next::Drain { head, rest } => {
                    let n = (*rest).min(there.len());
                    *rest -= n;
                    at += n;
                    (*head, *rest == 0)
                }
            };
            if !done {
                return Ok((at, payload));
            }
            self.next = match self.batch.next() {
                Some(next) => next,
                None => Next::Head { padding: padding(self.batch.end().unwrap_or(head.len.get() as usize)) },
            };
            sink.landed(&head)?;
        }
    }
}

/// A payload whose place is known.
pub(crate) fn begun(head: Head, place: Option<MemSlice>) -> Result<Next, Fault> {
    let want = head.len.get() as usize;
    match place {
        Some(rest) if rest.len() == want => Ok(Next::Payload { head, rest }),
        Some(place) => Err(Fault::Place { want, got: place.len() }),
        None => Ok(Next::Drain { head, rest: want }),
    }
}
