//! Memory of Python's objects, lent to transports: where it is, and what keeps it there.
//!
//! Whatever holds the memory (an export of the buffer protocol, a DLPack capsule) is kept for as long as an operation or an
//! exposed region uses the memory, so that the object can neither go away nor be resized meanwhile.
#![allow(unsafe_code)]

mod cai;
mod dlpack;
mod gpus;
mod indices;

pub(crate) use indices::indices;

use std::sync::Arc;

use linkspan::{Gpu, MemSlice, Memory};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::arguments::{blocking, kind};
use crate::error::BindingError;

/// Where a range of memory is, by one of the protocols. It stays there as long as `keeper` lives.
struct Lent {
    ptr: *mut u8,
    len: usize,
    writable: bool,
    /// Whose memory it is, where it is not the host's.
    gpu: Option<Arc<dyn Gpu>>,
    keeper: Py<PyAny>,
}

/// The memory of a Python object, by the first protocol that it has: buffer, DLPack, `__cuda_array_interface__`.
pub(crate) fn memory(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
    let lent = match PyMemoryView::from(object) {
        Ok(view) => by_buffer(view.into_any())?,
        Err(why) => match dlpack::lend(object)? {
            Some(lent) => lent,
            None => cai::lend(object)?.ok_or_else(|| no_memory(object, &why))?,
        },
    };
    let Lent { ptr, len, writable, gpu, keeper } = lent;
    match gpu {
        _ if len == 0 => Ok(Memory::lend(MemSlice::NONE, writable, keeper)),
        Some(gpu) => {
            let address = ptr as u64;
            blocking(object.py(), || linkspan::check_on_gpu(&gpu, address, len))?;
            // SAFETY: as below, and the driver knows the range as memory of this GPU.
            let slice = unsafe { MemSlice::on_device(gpu.place(), address, len) };
            Ok(Memory::lend_gpu(&gpu, slice, writable, keeper))
        }
        None => {
            // SAFETY: the protocols promise `len` bytes at `ptr`, mapped as long as the keeper lives; `lend` keeps it until
            // nothing uses the memory any more. `writable` says whether it is ever a destination.
            Ok(Memory::lend(unsafe { MemSlice::new(ptr, len) }, writable, keeper))
        }
    }
}

fn no_memory(object: &Bound<'_, PyAny>, why: &PyErr) -> PyErr {
    let py = object.py();
    // An object without the protocol at all is told so by the sentence itself.
    let why = if why.is_instance_of::<pyo3::exceptions::PyTypeError>(py) { String::new() } else { format!(": {why}") };
    BindingError::NoMemory { kind: kind(object), why }.into()
}

/// Of an object whose protocol says what cannot be.
fn refused(object: &Bound<'_, PyAny>, why: impl std::fmt::Display) -> PyErr {
    BindingError::NoMemory { kind: kind(object), why: format!(": {why}") }.into()
}

/// A value of a protocol, as what it has to be.
fn said<'py, T>(object: &Bound<'py, PyAny>, what: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: FromPyObjectOwned<'py>,
{
    value.extract::<T>().map_err(|_| refused(object, format_args!("its {what} is {value}")))
}

/// `view` is a memoryview of our own, which no other code can release: it holds the export.
fn by_buffer(view: Bound<'_, PyAny>) -> PyResult<Lent> {
    let buffer = PyUntypedBuffer::get(&view)?;
    if !buffer.is_c_contiguous() {
        return Err(BindingError::Gaps.into());
    }
    let lent = Lent {
        ptr: buffer.buf_ptr().cast(),
        len: buffer.len_bytes(),
        writable: !buffer.readonly(),
        gpu: None,
        keeper: view.clone().unbind(),
    };
    buffer.release(view.py());
    Ok(lent)
}
