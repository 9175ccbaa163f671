//! From the bytes of a stream, or the text of records, to messages and payload in place.

use linkspan_proto::Head;
use linkspan_proto::head::{BadHead, EAGER_MAX, HEAD_LEN, MAGIC, padding};
use linkspan_transport::{Buf, MemSlice};

use crate::inlet::{Inlet, Place};
use crate::rx::Fault;

/// Most bytes that [`Frames::take`] leaves: one short of the largest control message.
pub(crate) const LEFT_MOST: usize = HEAD_LEN + EAGER_MAX - 1;

/// What the next bytes are.
pub(crate) enum Frames {
    /// Padding of that many bytes, then a head.
    Head { padding: usize },
    /// The rest of a payload, and where it goes.
    Payload { head: Head, rest: MemSlice },
    /// The rest of a payload that nobody wants any more.
    Drain { head: Head, rest: usize },
}

impl Frames {
    pub(crate) const BEGIN: Frames = Frames::Head { padding: 0 };

    /// Whether a payload has begun and not ended.
    pub(crate) fn inside(&self) -> bool {
        !matches!(self, Frames::Head { .. })
    }

    /// Hands on what is in `text`. Returns how many of its bytes were used (the others are part of a head or of a
    /// control message and come again with those that follow; more of them where `sink` held something back) and the
    /// length of the last payload that began.
    pub(crate) fn take<I: Inlet>(&mut self, text: &[u8], sink: &mut I) -> Result<(usize, Option<usize>), Fault> {
        let mut at = 0;
        let mut payload = None;
        loop {
            let there = &text[at..];
            let (head, done) = match self {
                Frames::Head { padding: rest } if *rest > 0 => {
                    let n = there.len().min(*rest);
                    *rest -= n;
                    at += n;
                    if *rest > 0 {
                        return Ok((at, payload));
                    }
                    continue;
                }
                Frames::Head { .. } => {
                    let Some((wire, behind)) = there.split_first_chunk::<HEAD_LEN>() else {
                        return match there.first() {
                            Some(&byte) if byte != MAGIC => Err(Fault::Head(BadHead::Magic(byte))),
                            _ => Ok((at, payload)),
                        };
                    };
                    let (head, kind) = Head::decode(wire).map_err(Fault::Head)?;
                    let len = head.len.get() as usize;
                    if !sink.open() {
                        return Ok((at, payload));
                    }
                    if kind.is_payload() {
                        *self = match sink.place(&head)? {
                            Place::At(place) if place.len() == len => Frames::Payload { head, rest: place },
                            Place::At(place) => return Err(Fault::Place { want: len, got: place.len() }),
                            Place::Nowhere => Frames::Drain { head, rest: len },
                            Place::Later => return Ok((at, payload)),
                        };
                        at += HEAD_LEN;
                        payload = Some(len);
                    } else {
                        let Some(body) = behind.get(..len) else { return Ok((at, payload)) };
                        sink.ctrl(&head, body)?;
                        at += HEAD_LEN + len;
                        *self = Frames::Head { padding: padding(len) };
                    }
                    continue;
                }
                Frames::Payload { head, rest } => {
                    let n = rest.len().min(there.len());
                    let fits = linkspan_net::fill_ascending(*rest, 0, &there[..n]);
                    debug_assert!(fits);
                    *rest = rest.sub(n as u64, (rest.len() - n) as u64).unwrap_or(MemSlice::EMPTY);
                    at += n;
                    (*head, rest.is_empty())
                }
                Frames::Drain { head, rest } => {
                    let n = (*rest).min(there.len());
                    *rest -= n;
                    at += n;
                    (*head, *rest == 0)
                }
            };
            if !done {
                return Ok((at, payload));
            }
            *self = Frames::Head { padding: padding(head.len.get() as usize) };
            sink.landed(&head)?;
        }
    }
}
