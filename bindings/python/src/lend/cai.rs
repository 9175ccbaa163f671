//! `__cuda_array_interface__`, version 3 (and 2, which has no streams): a dictionary that says where an array lies.
//!
//! It keeps nothing alive: the object that it came from does, and is kept.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Lent, POINTERS, gpus, refused, said};
use crate::arguments::blocking;
use crate::error::BindingError;

/// The memory of an array; `None` where the object has no such interface.
pub(super) fn lend(object: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
    let py = object.py();
    if !object.hasattr("__cuda_array_interface__")? {
        return Ok(None);
    }
    let interface = object.getattr("__cuda_array_interface__")?.cast_into::<PyDict>();
    let interface = interface.map_err(|_| refused(object, "its __cuda_array_interface__ is no dict"))?;
    let needed = |key: &str| {
        let missing = || refused(object, format_args!("its __cuda_array_interface__ has no {key:?}"));
        interface.get_item(key)?.ok_or_else(missing)
    };
    // Absent and None mean the same.
    let optional = |key: &str| PyResult::Ok(interface.get_item(key)?.filter(|value| !value.is_none()));
    let (address, read_only): (u64, bool) = said(object, "data", &needed("data")?)?;
    let shape: Vec<usize> = said(object, "shape", &needed("shape")?)?;
    let typestr: String = said(object, "typestr", &needed("typestr")?)?;
    if typestr.contains('O') {
        return Err(refused(object, POINTERS));
    }
    let item = item_size(&typestr).ok_or_else(|| refused(object, format_args!("its typestr is {typestr:?}")))?;
    if optional("mask")?.is_some() {
        return Err(refused(object, "it is masked"));
    }
    let strides: Option<Vec<isize>> = optional("strides")?.map(|all| said(object, "strides", &all)).transpose()?;
    let len = bytes(object, &shape, strides.as_deref(), item)?;
    if len == 0 {
        let keeper = object.clone().unbind();
        return Ok(Some(Lent { ptr: std::ptr::null_mut(), len, writable: !read_only, gpu: None, keeper }));
    }
    let gpu = blocking(py, || linkspan::gpu_of(address))?;
    // None: nothing is under way, or the producer has waited.
    if let Some(stream) = optional("stream")? {
        gpus::finish(py, &gpu, said(object, "stream", &stream)?)?;
    }
    let ptr = std::ptr::without_provenance_mut(usize::try_from(address)?);
    Ok(Some(Lent { ptr, len, writable: !read_only, gpu: Some(gpu), keeper: object.clone().unbind() }))
}

/// Bytes of one element, by a type string as `<f4`.
fn item_size(typestr: &str) -> Option<usize> {
    typestr.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Bytes of an array that lies in one piece, the last dimension fastest.
fn bytes(object: &Bound<'_, PyAny>, shape: &[usize], strides: Option<&[isize]>, item: usize) -> PyResult<usize> {
    let overflow = || refused(object, "its shape is larger than any memory");
    let len = shape.iter().try_fold(item, |all, n| all.checked_mul(*n)).ok_or_else(overflow)?;
    let Some(strides) = strides.filter(|_| len > 0) else { return Ok(len) };
    if strides.len() != shape.len() {
        let (have, want) = (strides.len(), shape.len());
        return Err(refused(object, format_args!("it has {have} strides and {want} dimensions")));
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
