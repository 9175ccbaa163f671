//! From our errors to Python's exceptions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// What goes wrong in this binding, before anything reaches the transport.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindingError {
    /// An object that shows no memory.
    #[error(
        "LS1180 {kind} shows no memory that can be used: {why}pass an object with the buffer protocol, DLPack or __cuda_array_interface__ (numpy, torch, cupy, bytearray, mmap)"
    )]
    NoMemory {
        /// Its type.
        kind: String,
        /// What its own protocol said, and a semicolon.
        why: String,
    },
    /// Memory with gaps.
    #[error("LS1181 this memory is not contiguous: pass a contiguous copy (.contiguous(), numpy.ascontiguousarray)")]
    Gaps,
    /// Memory of a device.
    #[error(
        "LS1182 this memory is on {device}, and only memory of the host, of CUDA and of HIP is moved: copy it to the host first (.cpu())"
    )]
    OnDevice {
        /// Which.
        device: String,
    },
    /// A transport or listener after `close()`.
    #[error("LS1183 this {0} was closed: make a new one")]
    Closed(&'static str),
    /// A child of fork(2).
    #[error(
        "LS1184 this process was forked from one that used linkspan, whose connections belong to the parent: start it with multiprocessing's \"spawn\" or \"forkserver\""
    )]
    Forked,
    /// A device that transports cannot be made for.
    #[error("LS1185 there are no transports for device {0:?}: \"cpu\", \"cuda:0\" and \"hip:0\" name some")]
    Device(String),
    /// An operation that another thread waits for.
    #[error(
        "LS1186 another thread waits for this operation, so that it can be neither waited for nor cancelled here: abort or close what it belongs to"
    )]
    Awaited,
    /// A slice that is no range of bytes.
    #[error("LS1187 memory is sliced by ranges of bytes with a step of 1, as in view[16:48]; this is {0}")]
    Slice(String),
    /// A timeout that is no time.
    #[error("LS1188 a timeout is seconds from 0, or None to wait without limit while the peer is alive; this is {0}")]
    Seconds(f64),
    /// Rights by an unknown name.
    #[error("LS1189 access is \"read\", \"write\" or \"readwrite\" (what the peer may do); this is {0:?}")]
    Access(String),
    /// An object that cannot be a notification.
    #[error("LS1190 notify is True, False or a whole number from 0 below 2**64; this is {0}")]
    Notify(String),
    /// An object that is no list of pages.
    #[error("LS1192 {kind} is no list of pages: {why}")]
    Indices {
        /// Its type.
        kind: String,
        /// What is wrong.
        why: String,
    },
    /// A page with a number below 0.
    #[error("LS1193 index {index}, at position {at} of the list, is below 0: pages are counted from 0")]
    BelowZero {
        /// The index.
        index: String,
        /// Where it stands.
        at: usize,
    },
    /// Something else in the place of a URL.
    #[error(
        "LS1194 a url is a linkspan.Url or its text, and that of Endpoint.connect may be a function; this is a {0}"
    )]
    NoUrl(String),
    /// Memory that is to be pickled.
    #[error("LS1195 memory stays in its process: expose it and send the remote buffer")]
    Pickled,
    /// A number that its argument cannot be.
    #[error(
        "LS1196 sizes, counts, tags and ports are whole numbers from 0, and this one is below 2**{bits}; this is {given}"
    )]
    Number {
        /// Of the largest one.
        bits: usize,
        /// What was passed.
        given: String,
    },
    /// A part of a batch that is none.
    #[error("LS1197 part {at} of the batch is no tuple of memory and a linkspan.RemoteBuffer: {why}")]
    Part {
        /// Where it stands.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// A slice of less than nothing.
    #[error("LS1198 the slice ends at byte {to}, before byte {from} at which it begins")]
    Backwards {
        /// First byte.
        from: isize,
        /// The one behind the last.
        to: isize,
    },
    /// It can be resized.
    #[error("LS1191 the storage of this tensor can be resized and could not be fixed: {0}")]
    Resizable(String),
}

static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// What builds exceptions. It is found when the module is loaded: an interpreter that ends imports nothing any more.
pub(crate) fn build(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    BUILD.get_or_try_init(py, || Ok(py.import("linkspan._errors")?.getattr("build")?.unbind()))
}

/// The exception with this text, whose class `linkspan/_errors.py` finds by the code at its start.
pub(crate) fn raise(py: Python<'_>, text: &str) -> PyErr {
    let made = build(py).and_then(|build| build.call1(py, (text,)));
    match made {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(error) => error,
    }
}

/// A text with all that lies behind an error.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// As an exception; one that a signal handler raised while the call waited comes first.
pub(crate) fn from_linkspan(py: Python<'_>, error: &linkspan::Error) -> PyErr {
    crate::process::take_interrupt().unwrap_or_else(|| raise(py, &chain(error)))
}

impl From<BindingError> for PyErr {
    fn from(error: BindingError) -> PyErr {
        Python::attach(|py| raise(py, &error.to_string()))
    }
}
