//! What travels between processes: URLs and remote buffers; and what is reported about paths.

use std::hash::{DefaultHasher, Hash, Hasher};

use linkspan::Access;
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::arguments::{kind, number, number_or_none};
use crate::error::{BindingError, from_linkspan};
use crate::memory::range;
use crate::pages::{self, RemotePages};

/// The name of rights, as `expose` takes it.
pub(crate) fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::ReadWrite => "readwrite",
    }
}

/// Rights by their name.
pub(crate) fn access_of(name: &str) -> Result<Access, BindingError> {
    match name {
        "read" => Ok(Access::Read),
        "write" => Ok(Access::Write),
        "readwrite" => Ok(Access::ReadWrite),
        other => Err(BindingError::Access(other.chars().take(32).collect())),
    }
}

/// What a peer needs to connect. It carries a secret: `str(url)` and pickling give all of it, `repr(url)` leaves the secret
/// out.
///
/// Args:
///     text: What `str(url)` gave.
///
/// Raises:
///     UrlError: Text that is no URL of ours.
#[pyclass(frozen, module = "linkspan", eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct Url(pub(crate) linkspan::Url);

#[pymethods]
impl Url {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Url> {
        let parsed: Result<linkspan::Url, linkspan::UrlError> = text.parse();
        parsed.map(Url).map_err(|e| from_linkspan(py, &e.into()))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<linkspan.Url {}>", self.0.redacted())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String,)) {
        (slf.get_type(), (slf.get().0.to_string(),))
    }
}

/// A place in a peer's memory, with its length, generation and rights: plain data that travels pickled or as 40 bytes.
#[pyclass(frozen, module = "linkspan", eq)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct RemoteBuffer(pub(crate) linkspan::RemoteBuffer);

impl<'py> FromPyObject<'_, 'py> for RemoteBuffer {
    type Error = PyErr;

    /// PyO3 notes the name of the argument behind the text.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<RemoteBuffer> {
        if let Ok(remote) = object.cast::<RemoteBuffer>() {
            return Ok(*remote.get());
        }
        let way = match object.cast::<Exposed>() {
            Ok(_) => "pass its remote (region.remote)",
            Err(_) => "memory of this process comes first, then the remote buffer",
        };
        let kind = kind(&object);
        Err(PyTypeError::new_err(format!("a linkspan.RemoteBuffer is to stand here, and this is a {kind}: {way}")))
    }
}

#[pymethods]
impl RemoteBuffer {
    /// Bytes in it.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.len()
    }

    /// What may be done with it: "read", "write" or "readwrite".
    #[getter]
    fn access(&self) -> &'static str {
        access_name(self.0.access())
    }

    /// How often the region's number had been given out before, and once: an older one is refused.
    #[getter]
    fn generation(&self) -> u32 {
        self.0.generation()
    }

    /// The region's key, which its owner checks at every use.
    #[getter]
    fn key(&self) -> u32 {
        self.0.key()
    }

    /// The 40 bytes it travels as.
    ///
    /// Returns:
    ///     The bytes.
    #[expect(clippy::wrong_self_convention, reason = "Python calls it with a reference")]
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    /// A remote buffer from the bytes of `to_bytes`.
    ///
    /// Args:
    ///     data: 40 bytes.
    ///
    /// Returns:
    ///     The remote buffer.
    ///
    /// Raises:
    ///     BadRemoteBuffer: These bytes are none.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: PyBackedBytes) -> PyResult<RemoteBuffer> {
        linkspan::RemoteBuffer::decode(&data).map(RemoteBuffer).map_err(|e| from_linkspan(py, &e))
    }

    /// A part of it.
    ///
    /// Args:
    ///     offset: First byte.
    ///     length: Bytes; None is up to the end.
    ///
    /// Returns:
    ///     The part, with the same rights.
    ///
    /// Raises:
    ///     OutOfBounds: It reaches over the end.
    ///     BadNumber: A number below 0, or too large.
    #[pyo3(signature = (offset = 0, length = None))]
    fn view(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] offset: u64,
        #[pyo3(from_py_with = number_or_none)] length: Option<u64>,
    ) -> PyResult<RemoteBuffer> {
        let length = length.unwrap_or(self.0.len().saturating_sub(offset));
        self.0.slice(offset, length).map(RemoteBuffer).map_err(|e| from_linkspan(py, &e))
    }

    /// Pages in it, as `View.pages` has them in memory of this process.
    ///
    /// Args:
    ///     nbytes: Bytes of one piece of a page.
    ///     count: Pages; None is as many as fit: one at least, and with more pieces nothing may be left over of any.
    ///     stride: Bytes from a page to the next one; None is `nbytes`.
    ///     pieces: Pieces of each page.
    ///     piece_stride: Bytes from a piece to the next one of its page; None divides the memory into equal parts.
    ///
    /// Returns:
    ///     The pages.
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
    ) -> PyResult<RemotePages> {
        let have = self.0.len();
        let shape = pages::shape(have, nbytes, count, stride, pieces, piece_stride);
        let made = self.0.pages(shape).and_then(|made| pages::filled(shape, have, count, piece_stride).map(|()| made));
        made.map(RemotePages).map_err(|e| from_linkspan(py, &e))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<RemoteBuffer> {
        let (offset, len) = range(key, self.0.len())?;
        self.view(key.py(), offset, Some(len))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.encode().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let bytes = slf.get().to_bytes(py);
        Ok((slf.get_type().getattr("from_bytes")?, PyTuple::new(py, [bytes])?))
    }

    fn __repr__(&self) -> String {
        format!(
            "<linkspan.RemoteBuffer of {} bytes, {}, generation {}>",
            self.0.len(),
            self.access(),
            self.generation()
        )
    }
}

/// A region that a peer has been given access to.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Exposed(pub(crate) linkspan::Exposed);

#[pymethods]
impl Exposed {
    /// What to send to the peer.
    #[getter]
    fn remote(&self) -> RemoteBuffer {
        RemoteBuffer(self.0.remote())
    }

    /// The same range was exposed with the same rights already: this is that region again, with its key.
    #[getter]
    fn reused_registration(&self) -> bool {
        self.0.reused_registration()
    }

    fn __repr__(&self) -> String {
        let remote = self.remote();
        format!("<linkspan.Exposed of {} bytes, {}>", remote.nbytes(), remote.access())
    }
}

/// One way by which bytes may travel.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Support(pub(crate) linkspan::Support);

#[pymethods]
impl Support {
    /// What LINKSPAN_PATH takes, such as "tcp"; and "cma" (within "shm", large messages without a copy in between).
    #[getter]
    fn path(&self) -> &'static str {
        self.0.path
    }

    /// Whether it may be taken.
    #[getter]
    fn usable(&self) -> bool {
        self.0.usable
    }

    /// Over what, or why not.
    #[getter]
    fn why(&self) -> &str {
        &self.0.why
    }

    fn __repr__(&self) -> String {
        let state = if self.0.usable { "usable" } else { "not usable" };
        format!("<linkspan.Support {}: {state}, {}>", self.0.path, self.0.why)
    }
}
