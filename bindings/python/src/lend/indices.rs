//! Indices of pages, out of arrays of whole numbers: numpy's, torch's, any buffer's, or a sequence of Python.
#![allow(unsafe_code)]

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::dlpack;
use crate::arguments::kind;
use crate::error::BindingError;
use crate::pages::whole;

fn wrong(object: &Bound<'_, PyAny>, why: impl Into<String>) -> PyErr {
    BindingError::Indices { kind: kind(object), why: why.into() }.into()
}

/// The numbers of `object`, none of them below 0.
pub(crate) fn indices(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if PyMemoryView::from(object).is_ok() {
        return by_buffer(object);
    }
    if let Some(found) = dlpack::numbers(object, wrong)? {
        return Ok(found);
    }
    let numbers = object.try_iter().map_err(|_| wrong(object, "it is no array of whole numbers"))?;
    let each = numbers.enumerate().map(|(at, number)| {
        let number = number?;
        number.extract::<u64>().map_err(|error| match number.extract::<i128>() {
            Ok(index) => BindingError::BelowZero { index: index.to_string(), at }.into(),
            Err(_) if error.is_instance_of::<PyOverflowError>(object.py()) => wrong(object, error.to_string()),
            Err(_) => wrong(object, format!("its item {at} is a {}", kind(&number))),
        })
    });
    each.collect()
}

fn by_buffer(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    fn of<T: Element + TryInto<u64> + std::fmt::Display>(object: &Bound<'_, PyAny>) -> Option<PyResult<Vec<u64>>> {
        let buffer = PyBuffer::<T>::get(object).ok()?;
        if buffer.dimensions() != 1 {
            return Some(Err(wrong(object, format!("it has {} dimensions, and a list has one", buffer.dimensions()))));
        }
        Some(buffer.to_vec(object.py()).and_then(|numbers| Ok(whole(&numbers)?)))
    }
    let kinds = [of::<i64>, of::<i32>, of::<u64>, of::<u32>, of::<i16>, of::<u16>];
    kinds.into_iter().find_map(|of| of(object)).unwrap_or_else(|| {
        let format = PyMemoryView::from(object).and_then(|view| view.getattr("format")?.extract::<String>());
        let format = format.unwrap_or_else(|_| "?".to_owned());
        Err(wrong(
            object,
            format!("its items have the format {format:?}, and indices are whole numbers of 16 to 64 bits"),
        ))
    })
}
