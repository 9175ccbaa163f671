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
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyString};

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
        Ok(view) => by_buffer(object, view.into_any())?,
        Err(why) => match dlpack::lend(object) {
            Ok(Some(lent)) => lent,
            Ok(None) => cai::lend(object)?.ok_or_else(|| no_memory(object, &why))?,
            // One that has both: numpy's DLPack does not name the type that its buffers leave out.
            Err(_) if !why.is_instance_of::<PyTypeError>(object.py()) => return Err(no_memory(object, &why)),
            Err(other) => return Err(other),
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
    let why = if is_time(object) {
        format!("{}, but its numbers are memory (.view(\"i8\")); ", why.value(object.py()))
    } else if object.is_instance_of::<PyString>() {
        "encode the text (.encode()); ".to_owned()
    } else if why.is_instance_of::<PyTypeError>(object.py()) {
        // An object without the protocol at all is told so by the sentence itself.
        String::new()
    } else {
        format!("{why}; ")
    };
    BindingError::NoMemory { kind: kind(object), why }.into()
}

/// Whether it is an array of numpy's datetime64 or timedelta64.
fn is_time(object: &Bound<'_, PyAny>) -> bool {
    let kind = object.getattr("dtype").and_then(|kind| kind.getattr("kind")?.extract::<String>());
    kind.is_ok_and(|kind| kind == "M" || kind == "m")
}

/// Of an object whose protocol says what cannot be.
fn refused(object: &Bound<'_, PyAny>, why: impl std::fmt::Display) -> PyErr {
    BindingError::NoMemory { kind: kind(object), why: format!("{why}; ") }.into()
}

/// A value of a protocol, as what it has to be.
fn said<'py, T>(object: &Bound<'py, PyAny>, what: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: FromPyObjectOwned<'py>,
{
    value.extract::<T>().map_err(|_| refused(object, format_args!("its {what} is {value}")))
}

/// Said of what means nothing in another process, and harms this one where it is overwritten.
const POINTERS: &str = "it holds Python objects or pointers, which no other process can use";

/// Said of an item that is no array of one.
const SINGLE: &str =
    "it has no dimensions: make it an array of one item (numpy.atleast_1d, (type(x) * 1).from_buffer(x))";

/// Whether items of a format of the buffer protocol (PEP 3118) have Python objects or pointers in them.
fn has_pointers(format: &[u8]) -> bool {
    // Names of fields stand between colons.
    let parts = format.split(|&c| c == b':').step_by(2);
    // `Zf`, `Zd` and `Zg` are complex numbers; other `Z` are pointers of ctypes.
    let wide = |part: &[u8]| {
        let at = part.iter().position(|&c| c == b'Z');
        at.is_some_and(|at| !matches!(part.get(at + 1), Some(b'f' | b'd' | b'g')))
    };
    parts.into_iter().any(|part| part.iter().any(|c| b"O&XPz".contains(c)) || wide(part))
}

/// Whether there are some of which the format says nothing, in structures of ctypes and selected fields of numpy.
fn hides_pointers(view: &Bound<'_, PyAny>) -> PyResult<bool> {
    let found = view.py().import("linkspan._tensors")?.getattr("hides_pointers")?;
    found.call1((view.getattr("obj")?,))?.extract()
}

/// `view` is a memoryview of our own, which no other code can release: it holds the export.
fn by_buffer(object: &Bound<'_, PyAny>, view: Bound<'_, PyAny>) -> PyResult<Lent> {
    // PyO3 takes no single items, only arrays of some.
    let Ok(buffer) = PyUntypedBuffer::get(&view) else {
        let format: String = view.getattr("format")?.extract()?;
        let pointers = has_pointers(format.as_bytes()) || hides_pointers(&view)?;
        return Err(refused(object, if pointers { POINTERS } else { SINGLE }));
    };
    let format = buffer.format().to_bytes();
    let layout = matches!(format.first(), Some(b'B' | b'T')) && buffer.item_size() > 1;
    if has_pointers(format) || (layout && hides_pointers(&view)?) {
        return Err(refused(object, POINTERS));
    }
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
