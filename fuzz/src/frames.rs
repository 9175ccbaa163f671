//! Messages that are almost right: true magic, everything else near what an honest peer might send.

use linkspan_proto::{Head, Kind};

use crate::Input;

/// Every kind there is.
pub const KINDS: [Kind; 15] = [
    Kind::Eager,
    Kind::Grant,
    Kind::Ack,
    Kind::InlinePut,
    Kind::Notify,
    Kind::Read,
    Kind::Truncated,
    Kind::RailDown,
    Kind::Refused,
    Kind::GoAway,
    Kind::InlinePutNotify,
    Kind::Chunk,
    Kind::Put,
    Kind::BatchHeads,
    Kind::Beside,
];

/// What an honest peer would put into its next message.
#[derive(Clone, Debug, Default)]
pub struct Likely {
    /// Number of its next control message, and of its next chunk on the rail.
    pub seq: u32,
    pub chunk: u32,
    /// Control messages of ours that it has seen.
    pub ack: u32,
    /// Receives, regions and rails it may name.
    pub ids: Vec<u32>,
    /// Bytes of the largest payload to send.
    pub most: usize,
}

/// The head of one more message. Its length is honest: so many bytes are to follow it.
pub fn head(input: &mut Input<'_>, likely: &Likely) -> (Head, Kind) {
    let kind = input.pick(&KINDS);
    let mut head = Head::new(kind);
    let len = match input.u8() {
        0..=99 => 0,
        100..=179 => usize::from(input.u8()),
        180..=219 => kind.max_len(),
        _ => usize::from(input.u16()),
    };
    let len = if kind.max_len() == 0 && input.u8() < 250 { 0 } else { len.min(likely.most) };
    head.len.set(len as u32);
    let due = if kind.is_payload() { likely.chunk } else { likely.seq };
    head.seq.set(input.near(due.into()) as u32);
    head.ack.set(input.near(likely.ack.into()) as u32);
    let tag = input.u8() % 5;
    head.tag.set(input.near(tag.into()) as u32);
    let id = if likely.ids.is_empty() { 0 } else { input.pick(&likely.ids) };
    head.id.set(input.near(id.into()) as u32);
    head.offset.set(input.near(0));
    head.total.set(input.near(len as u64));
    (head, kind)
}
