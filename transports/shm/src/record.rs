//! What stands in the ring: records that begin on a cache line. The first line holds everything a receiver decides
//! upon; it is copied out once and only then looked at.
//!
//! ```text
//! 0   u32 payload bytes, u8 kind, 3 zero
//! 8   the 40 bytes of a head (control, first piece of a chunk, offer)
//!     or u32 generation, u8 slot, 3 zero, u64 offset in the chunk (piece of a transfer)
//! 48  control: payload; offer: u64 address, u8 slot, zero, u16 slice in pages of 4 KiB, u32 generation
//! 64  payload of pieces; batch: for each of its chunks 40 bytes of a head, u64 address
//! ```

use linkspan_proto::Head;
use linkspan_proto::head::{EAGER_MAX, HEAD_LEN};
use linkspan_shmring::ring::LINE;

/// Where the payload of a control record begins, so that 16 bytes of it share the line of the head.
pub(crate) const CTRL_AT: usize = 48;

/// Where the payload of other records begins.
pub(crate) const LINE_LEN: usize = LINE;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// A control message, whole.
    Ctrl = 1,
    /// Head and first piece of a chunk.
    Chunk = 2,
    /// Next piece of the chunk under way.
    More = 3,
    /// A chunk to be copied directly.
    ShmOffer = 4,
    /// A piece of an offered chunk that could not be copied directly.
    Piece = 5,
    /// Nothing: the rest of the ring is left out.
    Skip = 6,
    /// Chunks to be copied directly together; the payload tells which.
    Batch = 7,
}

/// A record as its receiver sees it, its payload aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) tag: Tag,
    pub(crate) len: usize,
    line: [u8; LINE],
}

/// Fields of an offer behind its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(crate) address: u64,
    pub(crate) slot: u8,
    pub(crate) pages: u16,
    pub(crate) generation: u32,
}

/// Bytes that a record with this payload takes.
#[inline]
pub(crate) fn size(tag: Tag, len: usize) -> usize {
    match tag {
        Tag::Ctrl => (CTRL_AT + len).next_multiple_of(LINE),
        Tag::Chunk | Tag::More | Tag::Piece | Tag::Skip | Tag::Batch => LINE + len.next_multiple_of(LINE),
        Tag::ShmOffer => LINE,
    }
}

fn array<const N: usize>(line: &[u8; LINE], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&line[at..at + N]);
    out
}

/// The first line of a control message or a chunk.
#[inline]
pub(crate) fn with_head(tag: Tag, len: usize, head: &Head) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[0..4].copy_from_slice(&(len as u32).to_le_bytes());
    line[4] = tag as u8;
    line[8..8 + HEAD_LEN].copy_from_slice(head.as_wire());
    line
}

/// The line of a further piece of a chunk.
pub(crate) fn more(len: usize) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[0..4].copy_from_slice(&(len as u32).to_le_bytes());
    line[4] = Tag::More as u8;
    line
}

/// The line of a record of `size` bytes, whole lines, without any meaning.
pub(crate) fn skip(size: usize) -> [u8; LINE] {
    let mut line = more(size - LINE);
    line[4] = Tag::Skip as u8;
    line
}

/// The line of a piece of an offered chunk.
pub(crate) fn piece(len: usize, slot: u8, generation: u32, offset: u64) -> [u8; LINE] {
    let mut line = more(len);
    line[4] = Tag::Piece as u8;
    line[8..12].copy_from_slice(&generation.to_le_bytes());
    line[12] = slot;
    line[16..24].copy_from_slice(&offset.to_le_bytes());
    line
}

/// Bytes that say which chunk comes next in a batch.
pub(crate) const ENTRY: usize = HEAD_LEN + 8;

/// The line of a batch of `count` chunks.
pub(crate) fn batch(count: usize, slot: u8, generation: u32) -> [u8; LINE] {
    let mut line = piece(count * ENTRY, slot, generation, 0);
    line[4] = Tag::Batch as u8;
    line
}

/// A chunk of a batch and where it lies.
pub(crate) fn entry(head: &Head, address: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..HEAD_LEN].copy_from_slice(head.as_wire());
    entry[HEAD_LEN..].copy_from_slice(&address.to_le_bytes());
    entry
}

/// What [`entry`] made: the head, not yet checked, and the address.
pub(crate) fn parse_entry(entry: &[u8; ENTRY]) -> ([u8; HEAD_LEN], u64) {
    let (mut head, mut address) = ([0; HEAD_LEN], [0; 8]);
    head.copy_from_slice(&entry[..HEAD_LEN]);
    address.copy_from_slice(&entry[HEAD_LEN..]);
    (head, u64::from_le_bytes(address))
}

/// The line of an offer.
pub(crate) fn offer(head: &Head, direct: Direct) -> [u8; LINE] {
    let mut line = with_head(Tag::ShmOffer, 0, head);
    line[48..56].copy_from_slice(&direct.address.to_le_bytes());
    line[56] = direct.slot;
    line[58..60].copy_from_slice(&direct.pages.to_le_bytes());
    line[60..64].copy_from_slice(&direct.generation.to_le_bytes());
    line
}

impl Record {
    /// Reads a first line; the lengths in it are within what `ready` published bytes can hold.
    #[inline]
    pub(crate) fn parse(line: [u8; LINE], ready: usize) -> Result<Record, &'static str> {
        let len = u32::from_le_bytes(array(&line, 0)) as usize;
        let tag = match line[4] {
            1 => Tag::Ctrl,
            2 => Tag::Chunk,
            3 => Tag::More,
            4 => Tag::ShmOffer,
            5 => Tag::Piece,
            6 => Tag::Skip,
            7 => Tag::Batch,
            _ => return Err("a record of unknown kind"),
        };
        if len > ready || size(tag, len) > ready || (tag == Tag::Ctrl && len > EAGER_MAX) {
            return Err("a record longer than what was published");
        }
        Ok(Record { tag, len, line })
    }

    /// The payload bytes of a control record that came with the first line.
    #[inline]
    pub(crate) fn inline(&self) -> &[u8] {
        &self.line[CTRL_AT..CTRL_AT + self.len.min(LINE - CTRL_AT)]
    }

    pub(crate) fn head(&self) -> [u8; HEAD_LEN] {
        array(&self.line, 8)
    }

    pub(crate) fn direct(&self) -> Direct {
        Direct {
            address: u64::from_le_bytes(array(&self.line, 48)),
            slot: self.line[56],
            pages: u16::from_le_bytes(array(&self.line, 58)),
            generation: u32::from_le_bytes(array(&self.line, 60)),
        }
    }

    /// Generation, slot and offset of a piece; of a batch without the offset.
    pub(crate) fn piece(&self) -> (u32, u8, u64) {
        (u32::from_le_bytes(array(&self.line, 8)), self.line[12], u64::from_le_bytes(array(&self.line, 16)))
    }
}

#[cfg(test)]
mod tests;
