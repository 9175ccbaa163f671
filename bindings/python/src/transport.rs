//! The transport: one peer. Each operation comes twice: blocking, and as an `Op` to be awaited.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use linkspan::Context;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arguments::{
    PATIENCE, Tag, begun, blocking, limit, made, notification, pairs, seconds, stats_by_name, url_of, writable,
};
use crate::endpoint::Of;
use crate::error::BindingError;
use crate::memory::{mutable_of, view_of};
use crate::op::{Gives, Op, Under};
use crate::pages::{Pages, RemotePages, indices};
use crate::process::{self, Held};
use crate::remote::{Exposed, RemoteBuffer, Support, Url, access_of};

/// A connection to one peer process, for writes into and reads from its memory, and for messages. All methods may be called
/// from several threads at a time; those that wait release Python's lock.
///
/// Args:
///     device: "cpu", or the GPU whose memory is carried beside that of the host: "cuda:0", "hip:1", `torch.device("cuda")`.
///     paired: Both sides of the connection prove their keys (`lspan pair`): for peers by the names of their hosts, see `find_host`.
///
/// Raises:
///     NotPaired: `paired`, and this user has no key.
///     DeviceMemory: There are no transports for this device, no such GPU, or no driver for it.
///     DeviceFailed: The GPU or its driver refused or failed.
///     SystemFailed: A system call failed.
///     BadSetting: A setting (`LINKSPAN_*`) has a value that cannot be.
///     Forked: In a child of fork(2).
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct Transport {
    inner: Mutex<Option<Arc<linkspan::Transport>>>,
    /// The endpoint that it belongs to.
    of: Option<Of>,
}

impl Transport {
    fn wrap(transport: Arc<linkspan::Transport>) -> Transport {
        transport.stop_waiting_when(process::stop_waiting);
        Transport { inner: Mutex::new(Some(transport)), of: None }
    }

    /// That of an endpoint's peer: the endpoint has it too.
    pub(crate) fn of_endpoint(py: Python<'_>, transport: Arc<linkspan::Transport>, of: Of) -> PyResult<Py<PyAny>> {
        transport.stop_waiting_when(process::stop_waiting);
        Ok(Py::new(py, Transport { inner: Mutex::new(Some(transport)), of: Some(of) })?.into_any())
    }

    pub(crate) fn python(py: Python<'_>, transport: Arc<linkspan::Transport>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Transport::wrap(transport))?.into_any())
    }

    #[inline]
    fn inner(&self) -> Result<Held<linkspan::Transport>, BindingError> {
        process::ours()?;
        let inner = self.inner.lock().unwrap_or_else(|e| e.into_inner()).clone();
        inner.map(Held::from).ok_or(BindingError::Closed("transport"))
    }
}

#[pymethods]
impl Transport {
    #[new]
    #[pyo3(signature = (device = None, *, paired = false))]
    fn new(py: Python<'_>, device: Option<&Bound<'_, PyAny>>, paired: bool) -> PyResult<Transport> {
        Ok(Transport::wrap(made(py, device, paired, Context::transport, linkspan::Transport::attach)?.into()))
    }

    /// Which paths this machine and the settings (`LINKSPAN_*`) have, and why not the others.
    ///
    /// Returns:
    ///     One entry for each path.
    ///
    /// Raises:
    ///     BadSetting: A setting has a value that cannot be.
    ///     SystemFailed: A system call failed.
    ///     Forked: In a child of fork(2).
    #[staticmethod]
    fn supported(py: Python<'_>) -> PyResult<Vec<Support>> {
        process::begin()?;
        let list = blocking(py, || Context::shared().map(|context| context.supported()))?;
        Ok(list.into_iter().map(Support).collect())
    }

    /// Lets one peer connect; the URL stays the same however often it is asked for.
    ///
    /// Returns:
    ///     What the peer passes to `connect`. It carries a secret.
    ///
    /// Raises:
    ///     BadSetting, SystemFailed: The device that was set does not exist; the system refuses a listening socket.
    ///     Broken, Closed, Forked: The transport is beyond use; after `close`; in a child of fork(2).
    fn bind(&self, py: Python<'_>) -> PyResult<Url> {
        let inner = self.inner()?;
        blocking(py, || inner.bind()).map(Url)
    }

    /// Connects to the transport or listener at `url`.
    ///
    /// Args:
    ///     url: A `Url` or its text.
    ///     timeout: Seconds from 0; None waits a year.
    ///
    /// Raises:
    ///     ConnectFailed: No path came about in time; the message names every path that was tried.
    ///     HasPeer: This transport has a peer already.
    ///     UrlError: Text that is no URL of ours.
    ///     BadType: Neither a `Url` nor text.
    ///     BadValue: A timeout below 0 or no number.
    ///     Broken, Aborted: The transport is beyond use; `abort` or `close` came.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (url, timeout = Some(PATIENCE)), text_signature = "($self, url, timeout=10.0)")]
    fn connect(&self, py: Python<'_>, url: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let (inner, url, limit) = (self.inner()?, url_of(url)?, limit(timeout)?);
        blocking(py, || inner.connect_blocking(&url, limit))
    }

    /// As `connect`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun: await it, or call its `wait`.
    #[pyo3(signature = (url, timeout = Some(PATIENCE)), text_signature = "($self, url, timeout=10.0)")]
    fn connect_async(&self, py: Python<'_>, url: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, url, limit) = (self.inner()?, url_of(url)?, limit(timeout)?);
        Ok(begun(py.detach(|| inner.connect(&url, limit)), Gives::Nothing))
    }

    /// Waits until the peer that has our URL is connected.
    ///
    /// Args:
    ///     timeout: Seconds from 0; None waits a year.
    ///
    /// Raises:
    ///     ConnectFailed: No peer connected in time.
    ///     BadValue: A timeout below 0 or no number.
    ///     Broken, Aborted: The transport is beyond use; `abort` or `close` came.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (timeout = None))]
    fn wait_connected(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (inner, limit) = (self.inner()?, limit(timeout)?);
        blocking(py, || inner.wait_connected_blocking(limit))
    }

    /// As `wait_connected`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun: await it, or call its `wait`.
    #[pyo3(signature = (timeout = None))]
    fn wait_connected_async(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, limit) = (self.inner()?, limit(timeout)?);
        Ok(begun(py.detach(|| inner.wait_connected(limit)), Gives::Nothing))
    }

    /// Whether there is a path to the peer at this moment.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.connected()))
    }

    /// What carries the bytes and why, one line; None while there is no path.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.path()))
    }

    /// The name that the peer was paired under, or its key's fingerprint; None without keys (`paired`), and while there is no path.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn peer_name(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.peer_name()))
    }

    /// Paths to the peer so far: one, and one more for every revocation.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u32> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.epoch()))
    }

    /// What this transport has done so far. Numbers only grow, but for "pending"; `lspan stats` has those of the process.
    ///
    /// Returns:
    ///     Operations that have reported and bytes that they moved, by name: "writes" and "written_bytes", "reads" and "read_bytes", "sends"
    ///     and "sent_bytes", "receives" and "received_bytes"; "notifications" taken; "failures"; "paths" made; "pending" operations.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner()?;
        let stats = py.detach(|| inner.stats());
        stats_by_name(&stats).into_py_dict(py)
    }

    /// Gives the peer access to memory until `unexpose` or the end of the transport, which keep the memory alive.
    ///
    /// Args:
    ///     memory: A view, or an object whose whole memory is meant.
    ///     access: What the peer may do: "read", "write" or "readwrite".
    ///
    /// Returns:
    ///     The region; its `remote` is for the peer.
    ///
    /// Raises:
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     ReadOnly: Memory that must not be written to, and `access` lets the peer write.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: Another word for `access`.
    ///     TooMany: No more regions can be exposed.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (memory, access = "readwrite"))]
    fn expose(&self, py: Python<'_>, memory: &Bound<'_, PyAny>, access: &str) -> PyResult<Exposed> {
        let (inner, view, access) = (self.inner()?, view_of(memory)?, access_of(access)?);
        blocking(py, || inner.expose(&view, access)).map(Exposed)
    }

    /// Takes access back. When this returns nothing of the peer lands in the region or is read from it any more.
    ///
    /// Args:
    ///     region: What `expose` returned.
    ///     timeout: Seconds from 0 for the peer to confirm; without an answer the path is revoked.
    ///
    /// Raises:
    ///     NotExposed: The region was taken back already.
    ///     BadValue: A timeout below 0 or no number.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (region, timeout = PATIENCE), text_signature = "($self, region, timeout=10.0)")]
    fn unexpose(&self, py: Python<'_>, region: &Exposed, timeout: f64) -> PyResult<()> {
        let (inner, limit) = (self.inner()?, limit(Some(timeout))?);
        blocking(py, || inner.unexpose(&region.0, limit))
    }

    /// Writes into the peer's memory, and notifies it afterwards if asked.
    ///
    /// Args:
    ///     source: Memory or a view of it; it must not change until this is done.
    ///     to: Where to; at least as long as `source`.
    ///     notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///     fence: The notification waits for all earlier writes, whichever call began them.
    ///
    /// Returns:
    ///     Bytes written.
    ///
    /// Raises:
    ///     OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: A timeout below 0, or a `notify` that is neither.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (source, to, notify = None, timeout = None, *, fence = false))]
    fn write(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        to: RemoteBuffer,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<u64> {
        let (inner, view, to) = (self.inner()?, view_of(source)?, to.0);
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        blocking(py, || inner.write_blocking(&view, &to, notify, timeout))
    }

    /// As `write`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes written.
    #[pyo3(signature = (source, to, notify = None, timeout = None, *, fence = false))]
    fn write_async(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        to: RemoteBuffer,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<Op> {
        let (inner, view, to) = (self.inner()?, view_of(source)?, to.0);
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.write(&view, &to, notify, timeout)), Gives::Number))
    }

    /// Reads the first bytes of `source` in the peer's memory, as many as `into` has.
    ///
    /// Args:
    ///     into: Memory or a view of it that may be written to.
    ///     source: Where from; at least as long as `into`.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Bytes read.
    ///
    /// Raises:
    ///     ReadOnly: `into` must not be written to.
    ///     OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: A timeout below 0 or no number.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (into, source, timeout = None))]
    fn read(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        source: RemoteBuffer,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let (inner, view, source, timeout) = (self.inner()?, mutable_of(into)?, source.0, seconds(timeout)?);
        blocking(py, || inner.read_blocking(&view, &source, timeout))
    }

    /// As `read`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes read.
    #[pyo3(signature = (into, source, timeout = None))]
    fn read_async(
        &self,
        py: Python<'_>,
        into: &Bound<'_, PyAny>,
        source: RemoteBuffer,
        timeout: Option<f64>,
    ) -> PyResult<Op> {
        let (inner, view, source, timeout) = (self.inner()?, mutable_of(into)?, source.0, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.read(&view, &source, timeout)), Gives::Number))
    }

    /// Many writes in one call. The notification covers all of them.
    ///
    /// Args:
    ///     parts: Pairs of memory here and a remote buffer.
    ///     notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///     fence: The notification waits for all earlier writes, whichever call began them.
    ///
    /// Returns:
    ///     Bytes written in all.
    ///
    /// Raises:
    ///     OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: No parts with a notification, a timeout below 0, or a `notify` that is neither.
    ///     BadType: A part that is no such pair.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (parts, notify = None, timeout = None, *, fence = false))]
    fn write_batch(
        &self,
        py: Python<'_>,
        parts: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<u64> {
        let (inner, parts) = (self.inner()?, pairs(parts, view_of)?);
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        blocking(py, || inner.write_batch_blocking(&parts, notify, timeout))
    }

    /// As `write_batch`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes written in all.
    #[pyo3(signature = (parts, notify = None, timeout = None, *, fence = false))]
    fn write_batch_async(
        &self,
        py: Python<'_>,
        parts: &Bound<'_, PyAny>,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<Op> {
        let (inner, parts) = (self.inner()?, pairs(parts, view_of)?);
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.write_batch(&parts, notify, timeout)), Gives::Number))
    }

    /// Many reads in one call.
    ///
    /// Args:
    ///     parts: Pairs of memory here, which may be written to, and a remote buffer.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Bytes read in all.
    ///
    /// Raises:
    ///     ReadOnly: Memory that must not be written to.
    ///     OutOfBounds, NoRight, WrongPeer: The remote buffer is too small, does not give this right, or is of another transport.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: A timeout below 0 or no number.
    ///     BadType: A part that is no such pair.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (parts, timeout = None))]
    fn read_batch(&self, py: Python<'_>, parts: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let (inner, parts, timeout) = (self.inner()?, pairs(parts, mutable_of)?, seconds(timeout)?);
        blocking(py, || inner.read_batch_blocking(&parts, timeout))
    }

    /// As `read_batch`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes read in all.
    #[pyo3(signature = (parts, timeout = None))]
    fn read_batch_async(&self, py: Python<'_>, parts: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, parts, timeout) = (self.inner()?, pairs(parts, mutable_of)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.read_batch(&parts, timeout)), Gives::Number))
    }

    /// Writes pages by their numbers: page `ours[n]` of `source` becomes page `theirs[n]` of `to`, for every n. One notification comes after
    /// all of them.
    ///
    /// Args:
    ///     source: Pages here.
    ///     ours: Their numbers: an array of whole numbers on the host (numpy, torch), or a sequence; None is all, in order.
    ///     to: Pages at the peer, with as many bytes each.
    ///     theirs: Their numbers, as many.
    ///     notify: True counts at the peer; a number from 0 below 2**64 is brought along; None and False do nothing.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///     fence: The notification waits for all earlier writes, whichever call began them.
    ///
    /// Returns:
    ///     Bytes written in all.
    ///
    /// Raises:
    ///     OutOfBounds: An index that is not of a page.
    ///     BadValue: Lists of different lengths, pages of different bytes, no pages with a notification, a timeout below 0.
    ///     UnsupportedMemory: Indices that are no whole numbers, have more than one dimension, or lie on a GPU.
    ///     NoRight, WrongPeer: The remote buffer does not give this right, or is of another transport.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (source, ours, to, theirs, notify = None, timeout = None, *, fence = false))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn write_pages(
        &self,
        py: Python<'_>,
        source: &Pages,
        ours: Option<&Bound<'_, PyAny>>,
        to: &RemotePages,
        theirs: Option<&Bound<'_, PyAny>>,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<u64> {
        let (inner, from, to) = (self.inner()?, &source.pages, &to.0);
        let (ours, theirs) = indices(py, (ours, from.shape()), (theirs, to.shape()))?;
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        blocking(py, || inner.write_pages_blocking(from, &ours, to, &theirs, notify, timeout))
    }

    /// As `write_pages`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes written in all.
    #[pyo3(signature = (source, ours, to, theirs, notify = None, timeout = None, *, fence = false))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn write_pages_async(
        &self,
        py: Python<'_>,
        source: &Pages,
        ours: Option<&Bound<'_, PyAny>>,
        to: &RemotePages,
        theirs: Option<&Bound<'_, PyAny>>,
        notify: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        fence: bool,
    ) -> PyResult<Op> {
        let (inner, from, to) = (self.inner()?, &source.pages, &to.0);
        let (ours, theirs) = indices(py, (ours, from.shape()), (theirs, to.shape()))?;
        let (notify, timeout) = (notification(notify, fence)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.write_pages(from, &ours, to, &theirs, notify, timeout)), Gives::Number))
    }

    /// Reads pages by their numbers: page `ours[n]` of `into` gets page `theirs[n]` of `source`, for every n.
    ///
    /// Args:
    ///     into: Pages here, of memory that may be written to.
    ///     ours: Their numbers: an array of whole numbers on the host (numpy, torch), or a sequence; None is all, in order.
    ///     source: Pages at the peer, with as many bytes each.
    ///     theirs: Their numbers, as many.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Bytes read in all.
    ///
    /// Raises:
    ///     OutOfBounds: An index that is not of a page.
    ///     BadValue: Lists of different lengths, pages of different bytes, or a timeout below 0.
    ///     UnsupportedMemory: Indices that are no whole numbers, have more than one dimension, or lie on a GPU.
    ///     ReadOnly: `into` must not be written to.
    ///     NoRight, WrongPeer: The remote buffer does not give this right, or is of another transport.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Refused: The peer took the region back, or does not give the range or the right.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (into, ours, source, theirs, timeout = None))]
    fn read_pages(
        &self,
        py: Python<'_>,
        into: &Pages,
        ours: Option<&Bound<'_, PyAny>>,
        source: &RemotePages,
        theirs: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let (inner, into, from) = (self.inner()?, writable(py, into)?, &source.0);
        let (ours, theirs) = indices(py, (ours, into.pages().shape()), (theirs, from.shape()))?;
        let timeout = seconds(timeout)?;
        blocking(py, || inner.read_pages_blocking(into, &ours, from, &theirs, timeout))
    }

    /// As `read_pages`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes read in all.
    #[pyo3(signature = (into, ours, source, theirs, timeout = None))]
    fn read_pages_async(
        &self,
        py: Python<'_>,
        into: &Pages,
        ours: Option<&Bound<'_, PyAny>>,
        source: &RemotePages,
        theirs: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Op> {
        let (inner, into, from) = (self.inner()?, writable(py, into)?, &source.0);
        let (ours, theirs) = indices(py, (ours, into.pages().shape()), (theirs, from.shape()))?;
        let timeout = seconds(timeout)?;
        Ok(begun(py.detach(|| inner.read_pages(into, &ours, from, &theirs, timeout)), Gives::Number))
    }

    /// Takes the oldest notification of the peer, waiting for it if need be.
    ///
    /// A wait that times out leaves the path alone, so `wait_for_write(0)` is the way to poll.
    ///
    /// Args:
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Its value, 0 for `notify=True`.
    ///
    /// Raises:
    ///     TimedOut: None came in time.
    ///     BadValue: A timeout below 0 or no number.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (timeout = None))]
    fn wait_for_write(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let (inner, timeout) = (self.inner()?, seconds(timeout)?);
        blocking(py, || inner.wait_for_write_blocking(timeout))
    }

    /// As `wait_for_write`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is the value.
    #[pyo3(signature = (timeout = None))]
    fn wait_for_write_async(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, timeout) = (self.inner()?, seconds(timeout)?);
        let op = py.detach(|| inner.wait_for_write(timeout));
        Ok(Op::new(Under::Notification(op)))
    }

    /// The notifications of the peer, one after the other, for `async for`.
    ///
    /// Returns:
    ///     An iterator over their values, which ends when the peer closes its transport or this one is closed, not at `abort`.
    ///
    /// Raises:
    ///     Broken: From the iterator, where the peer's process has ended, or the path could not be made again.
    ///     NotConnected: From the iterator: there is no peer yet.
    fn notifications<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("linkspan._aio")?.getattr("notifications")?.call1((slf,))
    }

    /// Sends a message to the peer's receive with the same tag, which may be posted later: both sides may send first.
    ///
    /// Args:
    ///     tag: A number from 0 below 2**32 - 1; the k-th send with a tag meets the k-th receive with it.
    ///     source: Memory or a view of it; it must not change until this is done.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Bytes sent.
    ///
    /// Raises:
    ///     MessageTooLong: The receive is shorter; a small message fails at the receiver alone.
    ///     Interrupted: Another operation revoked the path meanwhile; whether it arrived is unknown.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: A tag that there cannot be or that is kept for the transport, or a timeout below 0.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (tag, source, timeout = None))]
    fn send(&self, py: Python<'_>, tag: Tag, source: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let (inner, view, timeout) = (self.inner()?, view_of(source)?, seconds(timeout)?);
        blocking(py, || inner.send_blocking(tag.0, &view, timeout))
    }

    /// As `send`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is bytes sent.
    #[pyo3(signature = (tag, source, timeout = None))]
    fn send_async(&self, py: Python<'_>, tag: Tag, source: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, view, timeout) = (self.inner()?, view_of(source)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.send(tag.0, &view, timeout)), Gives::Number))
    }

    /// Receives a message with this tag. What had been sent can still be received when the peer has closed its transport or was lost.
    ///
    /// A receive that times out or is cancelled revokes its path, and both sides connect anew: do not poll with short timeouts, but keep one `recv_async` and
    /// ask its `done()`.
    ///
    /// Args:
    ///     tag: That of the send.
    ///     into: Memory or a view of it that may be written to, as long as the message at least.
    ///     timeout: Seconds from 0; None waits as long as the peer is alive.
    ///
    /// Returns:
    ///     Its length in bytes.
    ///
    /// Raises:
    ///     MessageTooLong: The message is longer than `into`.
    ///     Interrupted: Another operation revoked the path meanwhile.
    ///     ReadOnly: `into` must not be written to.
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     DeviceMemory: Memory of a GPU that this transport does not carry.
    ///     BadValue: A tag that there cannot be or that is kept for the transport, or a timeout below 0.
    ///     NotConnected, Broken, Aborted: There is no peer yet; the transport is beyond use; `abort`, `close` or `cancel` came.
    ///     TimedOut, TimedOutUnrevoked: Not done in time; with the latter the peer has not confirmed that nothing lands any more.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (tag, into, timeout = None))]
    fn recv(&self, py: Python<'_>, tag: Tag, into: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let (inner, view, timeout) = (self.inner()?, mutable_of(into)?, seconds(timeout)?);
        blocking(py, || inner.recv_blocking(tag.0, &view, timeout))
    }

    /// As `recv`, with its arguments and errors, to be awaited; it begins at once.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is the length in bytes.
    #[pyo3(signature = (tag, into, timeout = None))]
    fn recv_async(&self, py: Python<'_>, tag: Tag, into: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, view, timeout) = (self.inner()?, mutable_of(into)?, seconds(timeout)?);
        Ok(begun(py.detach(|| inner.recv(tag.0, &view, timeout)), Gives::Number))
    }

    /// Ends everything pending, on every thread, with `Aborted`. The transport stays usable.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner()?;
        py.detach(|| inner.abort());
        Ok(())
    }

    /// For event loops other than asyncio's: a descriptor that can be read when an operation has reported. Then call `poll`
    /// and `Op.done`.
    ///
    /// Returns:
    ///     The descriptor, which stays the same and is closed with the transport; for an endpoint's peer that of the endpoint.
    ///
    /// Raises:
    ///     SystemFailed: No descriptor is left to this process.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let inner = self.inner()?;
        blocking(py, || inner.event_fd().map(|fd| fd.as_raw_fd()))
    }

    /// Silences the descriptor of `fileno`, unless it is an endpoint's, and moves on what can move, without waiting.
    ///
    /// Returns:
    ///     True where something moved.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.poll()))
    }

    /// Ends everything pending with `Aborted`, calls of other threads too, closes the connection and releases all memory: a call that it ends
    /// lets go of its own as it returns. A signal handler may close it. Closing again does nothing.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        process::ours()?;
        let inner = self.inner.lock().unwrap_or_else(|e| e.into_inner()).take();
        py.detach(|| {
            if let (Some(transport), Some(of)) = (&inner, &self.of) {
                return of.remove(transport);
            }
            // Not waited for: a signal handler closes it from within a call of this very thread.
            if let Some(transport) = inner {
                transport.close();
            }
        });
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("linkspan._aio")?.getattr("entered")?.call1((slf,))
    }

    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        _kind: &Bound<'py, PyAny>,
        _value: &Bound<'py, PyAny>,
        _trace: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("linkspan._aio")?.getattr("closed")?.call1((slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let inner = self.inner.lock().unwrap_or_else(|e| e.into_inner()).clone().map(Held::from);
        let state = match inner {
            _ if process::is_forked() => "of the parent process".to_owned(),
            None => "closed".to_owned(),
            Some(inner) => py.detach(|| inner.path().unwrap_or_else(|| without_path(&inner))),
        };
        format!("<linkspan.Transport {state}>")
    }
}

/// What a transport without a path is.
fn without_path(transport: &linkspan::Transport) -> String {
    // Nothing to write is refused in any case, and does nothing: a transport that is beyond use says so first.
    match transport.write_batch_blocking(&[], Some(linkspan::Notify::COUNT), None) {
        Err(linkspan::Error::Broken(why)) => format!("broken: {why}"),
        _ => "not connected".to_owned(),
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if process::is_forked() {
            // A close message would be sent on the parent's sockets.
            std::mem::forget(inner);
        } else if inner.is_some() {
            process::unlocked(|| drop(inner));
        }
    }
}
