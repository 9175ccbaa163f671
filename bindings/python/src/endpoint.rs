//! Many peers by their names: one object, one source of events.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};

use pyo3::prelude::*;

use crate::arguments::{PATIENCE, PORT, blocking, deadline, limit, made, number, seconds, url_of};
use crate::error::{BindingError, from_linkspan};
use crate::memory::view_of;
use crate::op::{Op, Under, sliced};
use crate::process::{self, Held, take_interrupt};
use crate::remote::{Exposed, Url, access_of};
use crate::transport::Transport;

/// What has happened at a peer of an endpoint.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Event {
    kind: &'static str,
    peer: String,
    value: Option<u64>,
    why: Option<String>,
}

impl Event {
    pub(crate) fn python(py: Python<'_>, event: linkspan::Event) -> PyResult<Py<PyAny>> {
        let peer = event.peer().to_string();
        let (kind, value, why) = match event {
            linkspan::Event::Connected { .. } => ("connected", None, None),
            linkspan::Event::Notified { value, .. } => ("notified", Some(value), None),
            linkspan::Event::Lost { why, .. } => ("lost", None, Some(why.to_string())),
            // One that this binding does not know yet.
            _ => ("other", None, None),
        };
        Ok(Py::new(py, Event { kind, peer, value, why })?.into_any())
    }
}

#[pymethods]
impl Event {
    /// "connected", "notified" or "lost".
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// The peer's name.
    #[getter]
    fn peer(&self) -> &str {
        &self.peer
    }

    /// What a notification brought along, 0 for `notify=True`; None for other kinds.
    #[getter]
    fn value(&self) -> Option<u64> {
        self.value
    }

    /// Why a peer was lost; None for other kinds.
    #[getter]
    fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn __repr__(&self) -> String {
        let more = match (self.value, &self.why) {
            (Some(value), _) => format!(", value={value}"),
            (_, Some(why)) => format!(", why={why:?}"),
            _ => String::new(),
        };
        format!("<linkspan.Event {} peer={:?}{more}>", self.kind, self.peer)
    }
}

/// Any number of peers by their names, each with a `Transport`, and memory that is exposed once for all of them. All methods may be
/// called from several threads at a time; those that wait release Python's lock.
///
/// Args:
///     name: What peers call it: 1 to 64 visible characters of ASCII, another one for each endpoint of a job.
///     device: As for `Transport`, of the transports of all peers.
///     paired: As for `Transport`.
///
/// Raises:
///     BadValue: The name cannot be one.
///     NotPaired, DeviceMemory, DeviceFailed, SystemFailed, BadSetting, Forked: As for `Transport`.
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct Endpoint(Mutex<Option<Arc<linkspan::Endpoint>>>);

impl Endpoint {
    fn inner(&self) -> Result<Held<linkspan::Endpoint>, BindingError> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
        inner.map(Held::from).ok_or(BindingError::Closed("endpoint"))
    }
}

/// What Python's transports of peers know of their endpoint: closing one removes the peer.
pub(crate) struct Of {
    endpoint: Weak<linkspan::Endpoint>,
    peer: String,
}

impl Of {
    pub(crate) fn remove(&self, transport: &Arc<linkspan::Transport>) {
        if let Some(endpoint) = self.endpoint.upgrade()
            && endpoint.peer(&self.peer).is_ok_and(|now| Arc::ptr_eq(&now, transport))
        {
            // Another thread may have been faster.
            let _ = endpoint.remove(&self.peer);
        }
    }
}

/// The transport of a peer, as Python has it.
pub(crate) fn peer_of(
    py: Python<'_>,
    endpoint: &Arc<linkspan::Endpoint>,
    peer: &str,
    transport: Arc<linkspan::Transport>,
) -> PyResult<Py<PyAny>> {
    let of = Of { endpoint: Arc::downgrade(endpoint), peer: peer.to_owned() };
    Transport::of_endpoint(py, transport, of)
}

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (name, device = None, *, paired = false))]
    fn new(py: Python<'_>, name: &str, device: Option<&Bound<'_, PyAny>>, paired: bool) -> PyResult<Endpoint> {
        let made = made(py, device, paired, |context| context.endpoint(name), linkspan::Endpoint::attach)?;
        Ok(Endpoint(Mutex::new(Some(Arc::new(made)))))
    }

    /// Gives the URL to whoever asks for it at this TCP port of the host, until `close`: paired hosts find it by name then
    /// (`find_host`). Only those whose keys are trusted get in. For `paired` endpoints.
    ///
    /// Args:
    ///     port: 24682 where nothing is said; 0: one that is free.
    ///
    /// Returns:
    ///     The port.
    ///
    /// Raises:
    ///     NotPaired: The endpoint was made without `paired`.
    ///     SystemFailed: Another process has the port.
    ///     BadNumber: A port that there cannot be.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (port = PORT), text_signature = "($self, port=24682)")]
    fn serve_at(&self, py: Python<'_>, #[pyo3(from_py_with = number)] port: u16) -> PyResult<u16> {
        let inner = self.inner()?;
        blocking(py, || inner.serve_at(port)).map(|addrs| addrs.first().map_or(port, |addr| addr.port()))
    }

    /// What peers call it.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.inner()?.name().to_owned())
    }

    /// What peers connect to, any number of them. It carries a secret.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[getter]
    fn url(&self) -> PyResult<Url> {
        Ok(Url(self.inner()?.url().clone()))
    }

    /// Connects to the endpoint called `peer`. Where it is connected already, or connects to this one meanwhile, that is the connection.
    ///
    /// Args:
    ///     peer: Its name.
    ///     url: A `Url`, its text, or a function that is called with the name and returns one of these, or None as long as nobody has
    ///         it: a lookup in a store that all processes have.
    ///     timeout: Seconds from 0; None waits a year.
    ///
    /// Returns:
    ///     The peer's transport, connected.
    ///
    /// Raises:
    ///     ConnectFailed: No path came about in time, an endpoint of another name answered, or another process there has our name.
    ///     BadValue: A name that cannot be one, or is that of a peer with another URL; a timeout below 0 or no number.
    ///     UrlError: Text that is no URL of ours.
    ///     BadType: Neither a `Url` nor text nor a function.
    ///     TooMany: There are as many peers as there can be.
    ///     Broken, Aborted: The peer was lost or removed meanwhile.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (peer, url, timeout = Some(PATIENCE)), text_signature = "($self, peer, url, timeout=10.0)")]
    fn connect(&self, py: Python<'_>, peer: &str, url: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let (inner, limit) = (self.inner()?, limit(timeout)?);
        if !url.is_callable() {
            let url = url_of(url)?;
            let op = blocking(py, || inner.connect(peer, &url, limit))?;
            return Op::new(Under::Dial(op, inner.clone(), peer.to_owned())).wait(py);
        }
        let (find, mut raised) = (url.clone().unbind(), None);
        let found = py.detach(|| {
            let ask = |name: &str| {
                let asked = Python::attach(|py| {
                    py.check_signals()?;
                    let url = find.bind(py).call1((name,))?;
                    if url.is_none() { Ok(None) } else { url_of(&url).map(Some) }
                });
                asked.map_err(|error| {
                    raised = Some(error);
                    linkspan::Error::Aborted
                })
            };
            inner.connect_found_blocking(peer, ask, limit)
        });
        match (found, raised) {
            (_, Some(error)) => Err(error),
            (Ok(transport), None) => match take_interrupt() {
                // The path came up between the signal and the look.
                Some(raised) => Err(raised),
                None => peer_of(py, &inner, peer, transport),
            },
            (Err(error), None) => Err(from_linkspan(py, &error)),
        }
    }

    /// As `connect`, with its arguments and errors, to be awaited; it begins at once. A function has no place here: await what it
    /// asks for first.
    ///
    /// Returns:
    ///     An operation that has begun, of which the result is the peer's transport.
    #[pyo3(signature = (peer, url, timeout = Some(PATIENCE)), text_signature = "($self, peer, url, timeout=10.0)")]
    fn connect_async(&self, py: Python<'_>, peer: &str, url: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Op> {
        let (inner, url, limit) = (self.inner()?, url_of(url)?, limit(timeout)?);
        let op = blocking(py, || inner.connect(peer, &url, limit))?;
        Ok(Op::new(Under::Dial(op, inner.clone(), peer.to_owned())))
    }

    /// The peers that are connected, or whose path is being made again.
    ///
    /// Returns:
    ///     Their names, sorted.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn peers(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.peers()).iter().map(|name| name.to_string()).collect())
    }

    /// The transport of a peer, for everything that goes to it or comes from it. Closing it removes the peer.
    ///
    /// Args:
    ///     name: The peer's name.
    ///
    /// Returns:
    ///     Its transport; of a peer that was lost, until its "lost" event was taken, one that is broken.
    ///
    /// Raises:
    ///     UnknownPeer: No peer has this name; the message has those that are there.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn peer(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let inner = self.inner()?;
        let transport = blocking(py, || inner.peer(name))?;
        peer_of(py, &inner, name, transport)
    }

    /// Closes the connection to a peer: what is under way ends with `Aborted`, and no event of it comes any more. It may connect again.
    ///
    /// Args:
    ///     name: The peer's name.
    ///
    /// Raises:
    ///     UnknownPeer: No peer has this name.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let inner = self.inner()?;
        blocking(py, || inner.remove(name))
    }

    /// Gives all peers access to memory, those to come included, until `unexpose` or the end of the endpoint, which keep the memory alive.
    /// One remote buffer is good for every peer.
    ///
    /// Args:
    ///     memory: A view, or an object whose whole memory is meant.
    ///     access: What the peers may do: "read", "write" or "readwrite".
    ///
    /// Returns:
    ///     The region; its `remote` is for the peers.
    ///
    /// Raises:
    ///     UnsupportedMemory, NotContiguous: The object shows no memory that can be used, or memory with gaps.
    ///     ReadOnly: Memory that must not be written to, and `access` lets peers write.
    ///     DeviceMemory: Memory of a GPU that this endpoint does not carry.
    ///     BadValue: Another word for `access`.
    ///     TooMany: No more regions can be exposed.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (memory, access = "readwrite"))]
    fn expose(&self, py: Python<'_>, memory: &Bound<'_, PyAny>, access: &str) -> PyResult<Exposed> {
        let (inner, view, access) = (self.inner()?, view_of(memory)?, access_of(access)?);
        blocking(py, || inner.expose(&view, access)).map(Exposed)
    }

    /// Takes access back from all peers. When this returns nothing of any of them lands in the region or is read from it any more.
    ///
    /// Args:
    ///     region: What `expose` returned.
    ///     timeout: Seconds from 0 for the peers to confirm; paths of those that do not answer are revoked.
    ///
    /// Raises:
    ///     NotExposed: The region was taken back already, or is of one transport.
    ///     BadValue: A timeout below 0 or no number.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (region, timeout = PATIENCE), text_signature = "($self, region, timeout=10.0)")]
    fn unexpose(&self, py: Python<'_>, region: &Exposed, timeout: f64) -> PyResult<()> {
        let (inner, limit) = (self.inner()?, limit(Some(timeout))?);
        blocking(py, || inner.unexpose(&region.0, limit))
    }

    /// Waits for the next event of any peer. Events of one peer come in order, and peers take turns. `next_event(0)` is the way to poll.
    ///
    /// Args:
    ///     timeout: Seconds from 0; None waits without limit.
    ///
    /// Returns:
    ///     A peer that has connected, notified, or was lost.
    ///
    /// Raises:
    ///     TimedOut: Nothing happened in time.
    ///     BadValue: A timeout below 0 or no number.
    ///     Closed: After `close`, also of another thread meanwhile.
    ///     Forked: In a child of fork(2).
    #[pyo3(signature = (timeout = None))]
    fn next_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let until = deadline(seconds(timeout)?);
        let inner = self.inner()?;
        Event::python(py, blocking(py, || sliced(until, |slice| inner.next_event_blocking(Some(slice))))?)
    }

    /// As `next_event`, to be awaited; `asyncio.timeout` limits it.
    ///
    /// Returns:
    ///     An operation of which the result is the event.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn next_event_async(&self) -> PyResult<Op> {
        Ok(Op::new(Under::event(self.inner()?.clone())))
    }

    /// The events of all peers, one after the other, for `async for`.
    ///
    /// Returns:
    ///     An iterator over them, which ends when the endpoint is closed.
    ///
    /// Raises:
    ///     Forked: From the iterator, in a child of fork(2).
    fn events<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("linkspan._aio")?.getattr("events")?.call1((slf,))
    }

    /// For event loops other than asyncio's: a descriptor that can be read when there is an event, or an operation with any peer has
    /// reported. Then call `poll`, `next_event(0)` until it is `TimedOut`, and `Op.done`.
    ///
    /// Returns:
    ///     The descriptor, which stays the same and is closed with the endpoint.
    ///
    /// Raises:
    ///     SystemFailed: No descriptor is left to this process.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let inner = self.inner()?;
        blocking(py, || inner.event_fd().map(|fd| fd.as_raw_fd()))
    }

    /// Silences the descriptor of `fileno`.
    ///
    /// Returns:
    ///     True where there may be events.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner()?;
        Ok(py.detach(|| inner.poll()))
    }

    /// Closes all connections, ends everything pending with `Aborted`, and turns new peers away. Closing again does nothing.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        py.detach(|| {
            if let Some(inner) = inner {
                inner.close();
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
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).clone().map(Held::from);
        match inner {
            _ if process::is_forked() => "<linkspan.Endpoint of the parent process>".to_owned(),
            None => "<linkspan.Endpoint closed>".to_owned(),
            Some(inner) => {
                let peers = py.detach(|| inner.peers().len());
                format!("<linkspan.Endpoint {:?} with {peers} peers>", inner.name())
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let inner = self.0.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if process::is_forked() {
            std::mem::forget(inner);
        } else if let Some(inner) = inner {
            process::unlocked(move || inner.close());
        }
    }
}
