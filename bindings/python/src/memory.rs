//! Memory and its views, as Python sees them.

use linkspan::MutableView;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

use crate::arguments::{blocking, number, number_or_none};
use crate::error::{BindingError, from_linkspan};
use crate::lend;
use crate::pages::{self, Pages};

/// A range of bytes of an object that stays alive, and in place, with it. Slicing gives smaller ones: `view[16:48]`.
#[pyclass(frozen, subclass, module = "linkspan", weakref)]
pub(crate) struct View {
    pub(crate) view: linkspan::View<'static>,
    /// The same range to read into, where that is allowed.
    mutable: Option<MutableView<'static>>,
}

/// All bytes of a tensor, an array or a buffer, which stay alive and in place with it.
///
/// Args:
///     object: With the buffer protocol, DLPack or `__cuda_array_interface__`.
///
/// Raises:
///     UnsupportedMemory, NotContiguous: It shows no memory that can be used, or memory with gaps.
///     DeviceMemory: It lies on a device whose memory is not moved.
#[pyclass(frozen, extends = View, module = "linkspan", weakref)]
pub(crate) struct Memory;

impl View {
    fn lend(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let memory = lend::memory(object)?;
        let mutable = memory.view_mut().ok().map(|view| view.shared());
        Ok(View { view: memory.view().shared(), mutable })
    }

    fn part(&self, py: Python<'_>, offset: usize, len: usize) -> PyResult<View> {
        let view = self.view.slice(offset, len).map_err(|e| from_linkspan(py, &e))?;
        let mutable = self.mutable.as_ref().and_then(|mutable| mutable.slice(offset, len).ok());
        Ok(View { view, mutable })
    }
}

/// The view that was passed, or one of the whole object that was passed instead.
pub(crate) fn view_of(object: &Bound<'_, PyAny>) -> PyResult<linkspan::View<'static>> {
    match object.cast::<View>() {
        Ok(view) => Ok(view.get().view.clone()),
        Err(_) => Ok(View::lend(object)?.view),
    }
}

/// As `view_of`, to read into.
pub(crate) fn mutable_of(object: &Bound<'_, PyAny>) -> PyResult<MutableView<'static>> {
    let found = match object.cast::<View>() {
        Ok(view) => view.get().mutable.clone(),
        Err(_) => View::lend(object)?.mutable,
    };
    found.ok_or_else(|| from_linkspan(object.py(), &linkspan::Error::ReadOnly))
}

/// Start and length of `object[key]`. Unlike lists, memory does not shrink a slice that reaches over its end.
pub(crate) fn range(key: &Bound<'_, PyAny>, have: u64) -> PyResult<(u64, u64)> {
    let wrong =
        || PyErr::from(BindingError::Slice(key.repr().map_or_else(|_| "something else".into(), |r| r.to_string())));
    let Ok(slice) = key.cast::<PySlice>() else {
        return Err(wrong());
    };
    let end = isize::try_from(have).unwrap_or(isize::MAX);
    let fitted = slice.indices(end)?;
    if fitted.step != 1 {
        return Err(wrong());
    }
    // What was asked for, before it was fitted to the memory.
    let asked = |name: &str, default: isize| -> PyResult<isize> {
        let value = slice.getattr(name)?;
        if value.is_none() {
            return Ok(default);
        }
        let value: isize = value.extract().map_err(|_| wrong())?;
        Ok(if value < 0 { value.saturating_add(end) } else { value })
    };
    let (from, to) = (asked("start", fitted.start)?, asked("stop", fitted.stop)?);
    if 0 <= to && to < from && from <= end {
        return Err(BindingError::Backwards { from, to }.into());
    }
    if from < 0 || to > end || from > to {
        let (offset, len) = (from.max(0) as u64, to.saturating_sub(from).max(0) as u64);
        let error = linkspan::Error::Bounds { offset, len, of: "this memory", have };
        return Err(from_linkspan(key.py(), &error));
    }
    Ok((from as u64, (to - from) as u64))
}

#[pymethods]
impl View {
    /// Bytes in it.
    #[getter]
    fn nbytes(&self) -> usize {
        self.view.len()
    }

    /// Whether it can only be read from.
    #[getter]
    fn readonly(&self) -> bool {
        self.mutable.is_none()
    }

    /// Address of the first byte; of a GPU's memory, the GPU's.
    #[getter]
    fn address(&self) -> usize {
        self.view.as_ptr() as usize
    }

    fn __len__(&self) -> usize {
        self.view.len()
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<View> {
        let (offset, len) = range(key, self.view.len() as u64)?;
        self.part(key.py(), offset as usize, len as usize)
    }

    /// A part of it.
    ///
    /// Args:
    ///     offset: First byte.
    ///     length: Bytes; None is up to the end.
    ///
    /// Returns:
    ///     The part, which keeps the whole alive.
    ///
    /// Raises:
    ///     OutOfBounds: It reaches over the end.
    ///     BadNumber: A number below 0, or too large.
    #[pyo3(signature = (offset = 0, length = None))]
    fn view(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: usize,
        #[pyo3(from_py_with = number_or_none)] length: Option<usize>,
    ) -> PyResult<View> {
        self.part(py, offset, length.unwrap_or(self.view.len().saturating_sub(offset)))
    }

    /// Pages in it, to be moved by their numbers. Page `i` is the bytes from `i * stride`, `nbytes` of them; with more pieces, those
    /// from `piece * piece_stride + i * stride` of each piece, as where `i` is not the first index of a tensor.
    ///
    /// Args:
    ///     nbytes: Bytes of one piece of a page.
    ///     count: Pages; None is as many as fit: one at least, and with more pieces nothing may be left over of any.
    ///     stride: Bytes from a page to the next one; None is `nbytes`.
    ///     pieces: Pieces of each page.
    ///     piece_stride: Bytes from a piece to the next one of its page; None divides the memory into equal parts.
    ///
    /// Returns:
    ///     The pages, which keep the memory alive.
    ///
    /// Raises:
    ///     OutOfBounds: They reach over the end, overlap, or have no bytes; without `count`, none fits or something is left over.
    ///     BadNumber: A number below 0, or too large.
    #[pyo3(signature = (nbytes, *, count = None, stride = None, pieces = 1, piece_stride = None))]
    fn pages(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] nbytes: u64,
        #[pyo3(from_py_with = number_or_none)] count: Option<u64>,
        #[pyo3(from_py_with = number_or_none)] stride: Option<u64>,
        #[pyo3(from_py_with = number)] pieces: u64,
        #[pyo3(from_py_with = number_or_none)] piece_stride: Option<u64>,
    ) -> PyResult<Pages> {
        let have = self.view.len() as u64;
        let shape = pages::shape(have, nbytes, count, stride, pieces, piece_stride);
        let made = pages::of_view(py, &self.view, self.mutable.as_ref(), shape)?;
        pages::filled(shape, have, count, piece_stride).map_err(|e| from_linkspan(py, &e))?;
        Ok(made)
    }

    /// Where they are: "cpu", "cuda:0", "hip:1".
    #[getter]
    fn device(&self) -> String {
        self.view.gpu().map_or_else(|| "cpu".to_owned(), |gpu| gpu.info().id())
    }

    /// A copy of the bytes, from a GPU too.
    ///
    /// Returns:
    ///     The copy.
    ///
    /// Raises:
    ///     DeviceFailed: The GPU or its driver failed.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let read = |out: &mut [u8]| blocking(py, || self.view.read(out));
        PyBytes::new_with(py, self.view.len(), read)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(BindingError::Pickled.into())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let only = if this.mutable.is_some() { "" } else { ", read-only" };
        let place = this.view.gpu().map_or_else(String::new, |gpu| format!(" on {}", gpu.info().id()));
        Ok(format!("<linkspan.{} of {} bytes{place}{only}>", slf.get_type().name()?, this.view.len()))
    }
}

#[pymethods]
impl Memory {
    #[new]
    fn new(object: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Memory>> {
        Ok(PyClassInitializer::from(View::lend(object)?).add_subclass(Memory))
    }
}
