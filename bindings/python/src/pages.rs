//! Page lists: pieces of memory at equal distances, moved by the indices of an array.

use linkspan::{Error, PageShape};
use pyo3::prelude::*;

use crate::error::{BindingError, from_linkspan};
use crate::lend;

/// Pages in memory of this process, made once and used with any indices.
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct Pages {
    pub(crate) pages: linkspan::Pages<'static>,
    /// The same to read into, where that is allowed.
    pub(crate) mutable: Option<linkspan::MutablePages<'static>>,
}

/// Pages in the peer's memory, made once and used with any indices.
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct RemotePages(pub(crate) linkspan::RemotePages);

/// How pages of `nbytes` lie in `have` bytes, where what is left out is what fits.
pub(crate) fn shape(
    have: u64,
    nbytes: u64,
    count: Option<u64>,
    stride: Option<u64>,
    pieces: u64,
    piece_stride: Option<u64>,
) -> PageShape {
    let stride = stride.unwrap_or(nbytes);
    let piece_stride = piece_stride.or_else(|| have.checked_div(pieces)).unwrap_or(have);
    let span = span(have, pieces, piece_stride);
    let fit = || span.checked_sub(nbytes).and_then(|rest| rest.checked_div(stride)).map_or(0, |n| n.saturating_add(1));
    PageShape { len: nbytes, stride, count: count.unwrap_or_else(fit), pieces, piece_stride }
}

/// Bytes of which each page has one piece.
fn span(have: u64, pieces: u64, piece_stride: u64) -> u64 {
    if pieces == 1 { have } else { piece_stride.min(have) }
}

/// Refuses pages that nobody counted and that cannot be meant: none, or those of another size than the pieces were made for, which
/// would lie across their borders. The library has found that they lie in the memory.
pub(crate) fn filled(shape: PageShape, have: u64, count: Option<u64>, piece_stride: Option<u64>) -> Result<(), Error> {
    let bad = |why| Err(Error::PageShape { shape, have, why });
    let left = || span(have, shape.pieces, shape.piece_stride) - (shape.count - 1) * shape.stride - shape.len;
    match count {
        Some(_) => Ok(()),
        None if shape.count == 0 => bad("not one fits; pass count=0 where none is meant"),
        None if shape.pieces == 1 => Ok(()),
        None if piece_stride.is_none() && !have.is_multiple_of(shape.pieces) => {
            bad("they are no equal pieces; pass count or piece_stride where that is meant")
        }
        // What lies between two pages may lie behind the last one too.
        None if left() > shape.stride - shape.len => {
            bad("part of a page is left over in each piece; pass count where that is meant")
        }
        None => Ok(()),
    }
}

/// The indices that were passed for both sides, or all of a side in order. What is at the peer is counted by what a peer has said: nothing
/// is made for it before as many were found here.
pub(crate) fn indices(
    py: Python<'_>,
    (ours, here): (Option<&Bound<'_, PyAny>>, PageShape),
    (theirs, there): (Option<&Bound<'_, PyAny>>, PageShape),
) -> PyResult<(Vec<u64>, Vec<u64>)> {
    let (ours, theirs) = (ours.map(lend::indices).transpose()?, theirs.map(lend::indices).transpose()?);
    let count = |list: &Option<Vec<u64>>, shape: PageShape| list.as_ref().map_or(shape.count as usize, Vec::len);
    let counts = (count(&ours, here), count(&theirs, there));
    if (here.pieces, here.len) != (there.pieces, there.len) {
        let error = Error::PageMismatch { here: (here.pieces, here.len), there: (there.pieces, there.len) };
        return Err(from_linkspan(py, &error));
    }
    if counts.0 != counts.1 {
        return Err(from_linkspan(py, &Error::PageLists { here: counts.0, there: counts.1 }));
    }
    let all = |list: Option<Vec<u64>>| list.unwrap_or_else(|| (0..counts.0 as u64).collect());
    Ok((all(ours), all(theirs)))
}

fn shown(kind: &str, shape: PageShape) -> String {
    let PageShape { len, stride, count, pieces, piece_stride } = shape;
    let bytes = len.saturating_mul(pieces);
    match pieces {
        1 => format!("<linkspan.{kind} of {count} x {bytes} bytes, stride={stride}>"),
        _ => format!(
            "<linkspan.{kind} of {count} x {bytes} bytes, stride={stride}, pieces={pieces} of {len} bytes, piece_stride={piece_stride}>"
        ),
    }
}

/// Numbers of an array of type `T`, which must be those of pages.
pub(crate) fn whole<T: Copy + TryInto<u64> + std::fmt::Display>(numbers: &[T]) -> Result<Vec<u64>, BindingError> {
    let each = numbers
        .iter()
        .enumerate()
        .map(|(at, &number)| number.try_into().map_err(|_| BindingError::BelowZero { index: number.to_string(), at }));
    each.collect()
}

#[pymethods]
impl Pages {
    /// Pages.
    #[getter]
    fn count(&self) -> u64 {
        self.pages.shape().count
    }

    /// Bytes of one page.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.pages.shape().len.saturating_mul(self.pages.shape().pieces)
    }

    /// Whether they can only be written from.
    #[getter]
    fn readonly(&self) -> bool {
        self.mutable.is_none()
    }

    fn __len__(&self) -> usize {
        self.count() as usize
    }

    fn __repr__(&self) -> String {
        shown("Pages", self.pages.shape())
    }
}

#[pymethods]
impl RemotePages {
    /// Pages.
    #[getter]
    fn count(&self) -> u64 {
        self.0.shape().count
    }

    /// Bytes of one page.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.shape().len.saturating_mul(self.0.shape().pieces)
    }

    fn __len__(&self) -> usize {
        self.count() as usize
    }

    fn __repr__(&self) -> String {
        shown("RemotePages", self.0.shape())
    }
}

/// Pages in a view.
pub(crate) fn of_view(
    py: Python<'_>,
    view: &linkspan::View<'static>,
    mutable: Option<&linkspan::MutableView<'static>>,
    shape: PageShape,
) -> PyResult<Pages> {
    let pages = view.pages(shape).map_err(|e| from_linkspan(py, &e))?;
    Ok(Pages { pages, mutable: mutable.and_then(|mutable| mutable.pages(shape).ok()) })
}
