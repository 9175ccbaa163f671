//! GPUs whose memory objects of Python lend, and the streams that still work on it.
#![allow(unsafe_code)]

use std::sync::Arc;

use linkspan::{ForeignStream, Gpu};
use pyo3::prelude::*;

use crate::arguments::blocking;

/// The GPU of this name; its driver is loaded now if it was not.
pub(crate) fn named(py: Python<'_>, name: &str) -> PyResult<Arc<dyn Gpu>> {
    blocking(py, || linkspan::gpu(name))
}

/// Waits, without Python's lock, until what is queued on a stream has run: a handle of the driver's, or 0, 1 and 2 for the
/// default streams.
pub(super) fn finish(py: Python<'_>, gpu: &Arc<dyn Gpu>, stream: u64) -> PyResult<()> {
    // SAFETY: the interface promises that the stream it names is valid, as it does for the memory.
    let stream = unsafe { ForeignStream::new(stream) };
    blocking(py, || Ok(gpu.finish(stream)?))
}

/// What `export` gives, which is told a stream of ours that is to wait for the producer's work: when this returns, the work has
/// run.
pub(super) fn after_producer<T>(
    py: Python<'_>,
    gpu: &Arc<dyn Gpu>,
    export: impl FnOnce(u64) -> PyResult<T>,
) -> PyResult<T> {
    let stream = blocking(py, || Ok(gpu.stream()?))?;
    let exported = blocking(py, || Ok(gpu.native(stream)?)).and_then(|handle| {
        let exported = export(handle)?;
        finish(py, gpu, handle)?;
        Ok(exported)
    });
    py.detach(|| gpu.retire_stream(stream));
    exported
}
