//! DLPack (dmlc/dlpack, `include/dlpack/dlpack.h`, versions 0.8 and 1.x): the capsule of `__dlpack__`, read in place.
//!
//! The capsule is never renamed: it stays ours, and its own destructor gives the tensor back.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::{Lent, POINTERS, gpus, refused, said};
use crate::error::BindingError;
use crate::pages::whole;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

/// `DLPACK_FLAG_BITMASK_READ_ONLY` and `DLPACK_FLAG_BITMASK_IS_COPIED`.
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;

/// `kDLOpaqueHandle`.
const HANDLE: u8 = 3;

/// `kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`: memory that the processor reads and writes like any other.
const ON_HOST: [i32; 3] = [1, 3, 11];

/// `kDLCUDA`, `kDLROCM`, `kDLCUDAManaged`: memory of a GPU, and the name that we give it.
const ON_GPU: [(i32, &str); 3] = [(2, "cuda"), (10, "hip"), (13, "cuda")];

/// The DLDeviceType of those that are neither, for messages.
const NAMES: [(i32, &str); 6] =
    [(4, "opencl"), (7, "vulkan"), (8, "metal"), (14, "oneapi"), (15, "webgpu"), (16, "hexagon")];

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// Everything before the tensor of a `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// The memory of a tensor; `None` where the object does not speak DLPack.
pub(super) fn lend(object: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
    if !object.hasattr("__dlpack__")? || !object.hasattr("__dlpack_device__")? {
        return Ok(None);
    }
    let (kind, id): (i32, i32) = said(object, "device", &object.call_method0("__dlpack_device__")?)?;
    let gpu = match ON_GPU.iter().find(|known| known.0 == kind) {
        Some((_, name)) => Some(gpus::named(object.py(), &format!("{name}:{id}"))?),
        None if ON_HOST.contains(&kind) => None,
        None => {
            let name = NAMES.iter().find(|n| n.0 == kind).map_or("device", |n| n.1);
            return Err(BindingError::OnDevice { device: format!("{name}:{id}") }.into());
        }
    };
    let capsule = match &gpu {
        // The producer lets our stream wait for its work, and we wait for our stream.
        Some(gpu) => gpus::after_producer(object.py(), gpu, |stream| export(object, Some(stream)))?,
        None => export(object, None)?,
    };
    let (tensor, flags) = open(object, &capsule)?;
    if (tensor.device.kind, tensor.device.id) != (kind, id) {
        return Err(refused(object, "its tensor is on another device than the one it names"));
    }
    if tensor.code == HANDLE {
        return Err(refused(object, POINTERS));
    }
    let len = bytes(object, tensor)?;
    if flags & COPIED != 0 {
        return Err(refused(object, "it only gives copies of its bytes away"));
    }
    fix(object)?;
    let ptr = tensor.data.cast::<u8>().wrapping_add(usize::try_from(tensor.byte_offset)?);
    Ok(Some(Lent { ptr, len, writable: flags & READ_ONLY == 0, gpu, keeper: capsule.into_any().unbind() }))
}

/// The numbers of a tensor of whole numbers with one dimension, on the host; `None` where the object does not speak DLPack.
pub(super) fn numbers(
    object: &Bound<'_, PyAny>,
    wrong: impl Fn(&Bound<'_, PyAny>, String) -> PyErr,
) -> PyResult<Option<Vec<u64>>> {
    if !object.hasattr("__dlpack__")? || !object.hasattr("__dlpack_device__")? {
        return Ok(None);
    }
    let (kind, id): (i32, i32) = said(object, "device", &object.call_method0("__dlpack_device__")?)?;
    if !ON_HOST.contains(&kind) {
        let name = ON_GPU.iter().chain(&NAMES).find(|known| known.0 == kind).map_or("device", |known| known.1);
        return Err(wrong(object, format!("it is on {name}:{id}, and indices are read on the host (.cpu())")));
    }
    let capsule = export(object, None)?;
    let (tensor, _) = open(object, &capsule)?;
    if tensor.ndim != 1 {
        return Err(wrong(object, format!("it has {} dimensions, and a list has one", tensor.ndim)));
    }
    // SAFETY: `shape`, and `strides` where it is not null, are arrays of `ndim` numbers, which is 1, that live with the tensor.
    let (len, stride) = unsafe { (*tensor.shape, tensor.strides.as_ref().copied().unwrap_or(1)) };
    let (len, stride) = (usize::try_from(len)?, isize::try_from(stride)?);
    let first = tensor.data.cast::<u8>().wrapping_add(usize::try_from(tensor.byte_offset)?);
    let is = |code: u8, bits: u8| (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1);
    /// `len` numbers at `first`, `stride` of their size apart.
    fn read<T: Copy>(first: *const u8, len: usize, stride: isize) -> Vec<T> {
        let each = (0..len as isize).map(|n| {
            let at = first.cast::<T>().wrapping_offset(n.wrapping_mul(stride));
            // SAFETY: the tensor has an element of this type at each of these places, of which it says nothing of the alignment.
            unsafe { at.read_unaligned() }
        });
        each.collect()
    }
    // kDLInt and kDLUInt.
    let found = match () {
        () if is(0, 64) => whole(&read::<i64>(first, len, stride)),
        () if is(0, 32) => whole(&read::<i32>(first, len, stride)),
        () if is(0, 16) => whole(&read::<i16>(first, len, stride)),
        () if is(1, 64) => whole(&read::<u64>(first, len, stride)),
        () if is(1, 32) => whole(&read::<u32>(first, len, stride)),
        () if is(1, 16) => whole(&read::<u16>(first, len, stride)),
        () => {
            let (code, bits) = (tensor.code, tensor.bits);
            let why = format!(
                "its items are of DLPack's type {code} with {bits} bits, and indices are whole numbers of 16 to 64 bits"
            );
            return Err(wrong(object, why));
        }
    };
    Ok(Some(found?))
}

/// The capsule, in the newest form that the object knows. `stream`: the driver's handle of the one that is to wait for the
/// producer's work.
fn export<'py>(object: &Bound<'py, PyAny>, stream: Option<u64>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    let (modern, old) = (PyDict::new(py), PyDict::new(py));
    if let Some(stream) = stream {
        modern.set_item("stream", stream)?;
        old.set_item("stream", stream)?;
    }
    modern.set_item("max_version", (1, 0))?;
    modern.set_item("copy", false)?;
    let exported = object.call_method("__dlpack__", (), Some(&modern)).or_else(|error| {
        if error.is_instance_of::<PyTypeError>(py) {
            object.call_method("__dlpack__", (), Some(&old))
        } else {
            Err(error)
        }
    });
    match exported {
        Ok(capsule) => capsule.cast_into().map_err(|_| refused(object, "its __dlpack__ gives no capsule")),
        // Gradients, conjugate views and the like: the tensor says what to do.
        Err(error) => Err(refused(object, error.value(py))),
    }
}

fn open<'a>(object: &Bound<'_, PyAny>, capsule: &'a Bound<'_, PyCapsule>) -> PyResult<(&'a Tensor, u64)> {
    if let Ok(ptr) = capsule.pointer_checked(Some(VERSIONED)) {
        // SAFETY: a capsule of this name holds a DLManagedTensorVersioned, whose version and flags stand at the same place in
        // every version; it lives as long as the capsule, which the reference borrows.
        let managed = unsafe { ptr.cast::<Versioned>().as_ref() };
        if managed.major != 1 {
            return Err(refused(object, format_args!("its DLPack version is {}.{}", managed.major, managed.minor)));
        }
        return Ok((&managed.tensor, managed.flags));
    }
    let other = |_| refused(object, "its capsule is not of DLPack, or was taken by another");
    let ptr = capsule.pointer_checked(Some(PLAIN)).map_err(other)?;
    // SAFETY: a capsule of this name holds a DLManagedTensor, which begins with its tensor and lives as long as the capsule.
    Ok((unsafe { ptr.cast::<Tensor>().as_ref() }, 0))
}

/// Bytes of a tensor that lies in one piece, the last dimension fastest.
fn bytes(object: &Bound<'_, PyAny>, tensor: &Tensor) -> PyResult<usize> {
    let overflow = || refused(object, "its shape is none, or larger than any memory");
    let ndim = usize::try_from(tensor.ndim).map_err(|_| overflow())?;
    let list = |ptr: *const i64| match ndim {
        0 => &[][..],
        // SAFETY: `shape`, and `strides` where it is not null, are arrays of `ndim` numbers that live with the tensor.
        _ => unsafe { std::slice::from_raw_parts(ptr, ndim) },
    };
    let shape = list(tensor.shape);
    let mut items = 1usize;
    for &n in shape {
        items = usize::try_from(n).ok().and_then(|n| items.checked_mul(n)).ok_or_else(overflow)?;
    }
    if items > 0 && !tensor.strides.is_null() {
        let mut expected = 1i64;
        for (&n, &stride) in shape.iter().zip(list(tensor.strides)).rev() {
            if n != 1 && stride != expected {
                return Err(BindingError::Gaps.into());
            }
            expected = expected.checked_mul(n).ok_or_else(overflow)?;
        }
    }
    let bits = usize::from(tensor.bits) * usize::from(tensor.lanes);
    Ok(items.checked_mul(bits).ok_or_else(overflow)?.div_ceil(8))
}

/// A capsule keeps a tensor's storage alive, but torch lets a storage be resized under it: that is switched off.
fn fix(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if !object.hasattr("untyped_storage")? {
        return Ok(());
    }
    let fixed = object.py().import("linkspan._tensors")?.getattr("fix_storage")?.call1((object,));
    fixed.map(drop).map_err(|error| BindingError::Resizable(error.value(object.py()).to_string()).into())
}
