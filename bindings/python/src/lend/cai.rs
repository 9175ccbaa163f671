//! `__cuda_array_interface__`, version 3 (and 2, which has no streams): a dictionary that says where an array lies.
//!
//! It keeps nothing alive: the object that it came from does, and is kept.
#![allow(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Lent, gpus};
use crate::error::{BindingError, from_linkspan};

/// The memory of an array; `None` where the object has no such interface.
pub(super) fn lend(object: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
    let py = object.py();
    if !object.hasattr("__cuda_array_interface__")? {
        return Ok(None);
    }
    let interface = object.getattr("__cuda_array_interface__")?.cast_into::<PyDict>()?;
    let needed = |key: &str| {
        let missing = || PyValueError::new_err(format!("__cuda_array_interface__ has no {key:?}"));
        interface.get_item(key)?.ok_or_else(missing)
    };
    // Absent and None mean the same.
    let optional = |key: &str| PyResult::Ok(interface.get_item(key)?.filter(|value| !value.is_none()));
    let (address, read_only): (u64, bool) = needed("data")?.extract()?;
    let shape: Vec<usize> = needed("shape")?.extract()?;
    let item = item_size(&needed("typestr")?.extract::<String>()?)?;
    if optional("mask")?.is_some() {
        return Err(BindingError::NoMemory { kind: "this array".to_owned(), why: ": it is masked".to_owned() }.into());
    }
    let strides = optional("strides")?.map(|strides| strides.extract::<Vec<isize>>()).transpose()?;
    let len = bytes(&shape, strides.as_deref(), item)?;
    if len == 0 {
        let keeper = object.clone().unbind();
        return Ok(Some(Lent { ptr: std::ptr::null_mut(), len, writable: !read_only, gpu: None, keeper }));
    }
    let gpu = py.detach(|| linkspan::gpu_of(address)).map_err(|e| from_linkspan(py, &e))?;
    // None: nothing is under way, or the producer has waited.
    if let Some(stream) = optional("stream")? {
        gpus::finish(py, &gpu, stream.extract()?)?;
    }
    let ptr = std::ptr::without_provenance_mut(usize::try_from(address)?);
    Ok(Some(Lent { ptr, len, writable: !read_only, gpu: Some(gpu), keeper: object.clone().unbind() }))
}

/// Bytes of one element, by a type string as `<f4`.
fn item_size(typestr: &str) -> PyResult<usize> {
    let digits = typestr.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().map_err(|_| PyValueError::new_err(format!("__cuda_array_interface__ has the typestr {typestr:?}")))
}

/// Bytes of an array that lies in one piece, the last dimension fastest.
fn bytes(shape: &[usize], strides: Option<&[isize]>, item: usize) -> PyResult<usize> {
    let overflow = || PyValueError::new_err("the shape of this array is larger than any memory");
    let len = shape.iter().try_fold(item, |all, n| all.checked_mul(*n)).ok_or_else(overflow)?;
    let Some(strides) = strides.filter(|_| len > 0) else { return Ok(len) };
    if strides.len() != shape.len() {
        return Err(PyValueError::new_err("__cuda_array_interface__ has as many strides as dimensions, or None"));
    }
    let mut expected = isize::try_from(item).map_err(|_| overflow())?;
    for (&n, &stride) in shape.iter().zip(strides).rev() {
        if n != 1 && stride != expected {
            return Err(BindingError::Gaps.into());
        }
        expected = isize::try_from(n).ok().and_then(|n| expected.checked_mul(n)).ok_or_else(overflow)?;
    }
    Ok(len)
}
