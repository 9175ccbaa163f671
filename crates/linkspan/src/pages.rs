//! Page lists: equal pieces at equal distances in memory, here and at the peer, moved by their numbers.

use crate::memory::{MutableView, View};
use crate::{Error, RemoteBuffer};

/// How pages lie in memory. A page is a block of `len` bytes, or `pieces` of them, as where one index of a tensor that is not its
/// first one chooses something of every layer: page `i` has the bytes from `piece * piece_stride + i * stride`, `len` of them, for
/// each piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShape {
    /// Bytes of one piece of a page; not 0.
    pub len: u64,
    /// Bytes from a page to the next one, at least `len`.
    pub stride: u64,
    /// Pages.
    pub count: u64,
    /// Pieces of one page; 1 is a block.
    pub pieces: u64,
    /// Bytes from a piece of a page to its next one, at least `len`; of no meaning where `pieces` is 1.
    pub piece_stride: u64,
}

impl PageShape {
    /// Blocks of `len` bytes, one after the other.
    pub const fn blocks(len: u64, count: u64) -> PageShape {
        PageShape { len, stride: len, count, pieces: 1, piece_stride: len }
    }

    /// Refuses what does not lie in `have` bytes. Afterwards no sum of offsets overflows.
    fn inside(&self, have: u64) -> Result<(), Error> {
        let bad = |why| Error::PageShape { shape: *self, have, why };
        if self.len == 0 || self.pieces == 0 {
            return Err(bad("a page has one piece and one byte at least"));
        }
        if self.stride < self.len || (self.pieces > 1 && self.piece_stride < self.len) {
            return Err(bad("pages would overlap"));
        }
        let steps = |n: u64, stride: u64| n.saturating_sub(1).checked_mul(stride);
        let end = steps(self.pieces, self.piece_stride)
            .zip(steps(self.count, self.stride))
            .and_then(|(piece, page)| piece.checked_add(page)?.checked_add(self.len));
        match end {
            _ if self.count == 0 => Ok(()),
            Some(end) if end <= have => Ok(()),
            _ => Err(bad("they reach over its end")),
        }
    }

    /// Where a piece of a page begins.
    fn at(&self, page: u64, piece: u64) -> u64 {
        piece * self.piece_stride + page * self.stride
    }

    fn check(&self, pages: &[u64], of: &'static str) -> Result<(), Error> {
        match pages.iter().position(|&page| page >= self.count) {
            None => Ok(()),
            Some(at) => Err(Error::PageIndex { index: pages[at], at, of, have: self.count }),
        }
    }
}

/// Pages in memory of this process, to write from ([`View::pages`]). Made once, used with any indices.
#[derive(Clone, Debug)]
pub struct Pages<'m> {
    view: View<'m>,
    shape: PageShape,
}

/// Pages in memory of this process, to read into ([`MutableView::pages`]).
#[derive(Clone, Debug)]
pub struct MutablePages<'m>(Pages<'m>);

/// Pages in the peer's memory ([`RemoteBuffer::pages`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePages {
    remote: RemoteBuffer,
    shape: PageShape,
}

impl<'m> View<'m> {
    /// Pages of this shape in this memory.
    ///
    /// # Errors
    /// [`Error::PageShape`]: they do not lie inside, overlap, or have no bytes.
    pub fn pages(&self, shape: PageShape) -> Result<Pages<'m>, Error> {
        shape.inside(self.len() as u64)?;
        Ok(Pages { view: self.clone(), shape })
    }
}

impl<'m> MutableView<'m> {
    /// Pages of this shape in this memory.
    ///
    /// # Errors
    /// [`Error::PageShape`]: they do not lie inside, overlap, or have no bytes.
    pub fn pages(&self, shape: PageShape) -> Result<MutablePages<'m>, Error> {
        self.view().pages(shape).map(MutablePages)
    }
}

impl RemoteBuffer {
    /// Pages of this shape in this range.
    ///
    /// # Errors
    /// [`Error::PageShape`]: they do not lie inside, overlap, or have no bytes.
    pub fn pages(&self, shape: PageShape) -> Result<RemotePages, Error> {
        shape.inside(self.len())?;
        Ok(RemotePages { remote: *self, shape })
    }
}

impl<'m> Pages<'m> {
    /// How they lie.
    pub fn shape(&self) -> PageShape {
        self.shape
    }

    /// The memory that they lie in.
    pub fn view(&self) -> &View<'m> {
        &self.view
    }
}

impl<'m> MutablePages<'m> {
    /// The same pages, to write from.
    pub fn pages(&self) -> &Pages<'m> {
        &self.0
    }
}

impl RemotePages {
    /// How they lie.
    pub fn shape(&self) -> PageShape {
        self.shape
    }

    /// The range that they lie in.
    pub fn remote(&self) -> RemoteBuffer {
        self.remote
    }
}

/// A batch of pages whose indices are all in bounds.
pub(crate) struct Moved<'a, 'm> {
    pub(crate) here: &'a Pages<'m>,
    pub(crate) there: &'a RemotePages,
    pairs: (&'a [u64], &'a [u64]),
}

impl<'a, 'm> Moved<'a, 'm> {
    /// Page `from[n]` of one side meets page `to[n]` of the other one.
    pub(crate) fn new(
        here: &'a Pages<'m>,
        ours: &'a [u64],
        there: &'a RemotePages,
        theirs: &'a [u64],
    ) -> Result<Moved<'a, 'm>, Error> {
        let (a, b) = (here.shape, there.shape);
        if (a.len, a.pieces) != (b.len, b.pieces) {
            return Err(Error::PageMismatch { here: (a.pieces, a.len), there: (b.pieces, b.len) });
        }
        if ours.len() != theirs.len() {
            return Err(Error::PageLists { here: ours.len(), there: theirs.len() });
        }
        a.check(ours, "pages here")?;
        b.check(theirs, "pages at the peer")?;
        Ok(Moved { here, there, pairs: (ours, theirs) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.0.is_empty()
    }

    /// Offset here and offset there of every piece. All have the same length.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = (u64, u64)> {
        let (a, b) = (self.here.shape, self.there.shape);
        let pairs = self.pairs.0.iter().zip(self.pairs.1);
        pairs.flat_map(move |(&ours, &theirs)| (0..a.pieces).map(move |p| (a.at(ours, p), b.at(theirs, p))))
    }
}

#[cfg(test)]
mod tests;
