//! Many peers at one URL.

use std::sync::{Arc, Mutex};

use linkspan::Context;
use pyo3::prelude::*;

use crate::arguments::{PORT, blocking, deadline, made, seconds};
use crate::error::BindingError;
use crate::op::{Op, Under, accept};
use crate::process;
use crate::remote::Url;

/// Accepts any number of peers at one URL, each with a transport of its own.
///
/// Args:
///     device: As for `Transport`, of the transports that it accepts.
///     paired: As for `Transport`.
///
/// Raises:
///     NotPaired, DeviceMemory, DeviceFailed, SystemFailed, Error, Forked: As for `Transport`.
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct Listener(Mutex<Option<Arc<linkspan::Listener>>>);

impl Listener {
    fn inner(&self) -> PyResult<Arc<linkspan::Listener>> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
        Ok(inner.ok_or(BindingError::Closed("listener"))?)
    }
}

#[pymethods]
impl Listener {
    #[new]
    #[pyo3(signature = (device = None, *, paired = false))]
    fn new(py: Python<'_>, device: Option<&Bound<'_, PyAny>>, paired: bool) -> PyResult<Listener> {
        let attach = |listener: &linkspan::Listener, gpu: &_| {
            listener.attach(gpu);
            Ok(())
        };
        let listener = made(py, device, paired, Context::listen, attach)?;
        Ok(Listener(Mutex::new(Some(Arc::new(listener)))))
    }

    /// Gives the URL to whoever asks for it at this TCP port of the host, until `close`: paired hosts find it by name then
    /// (`find_host`). Only those whose keys are trusted get in. For `paired` listeners.
    ///
    /// Args:
    ///     port: 24682 where nothing is said; 0: one that is free.
    ///
    /// Returns:
    ///     The port.
    ///
    /// Raises:
    ///     NotPaired: The listener was made without `paired`.
    ///     SystemFailed: Another process has the port.
    ///     Closed: After `close`.
    ///     Forked: In a child of fork(2).
    #[pyo3(signature = (port = PORT))]
    fn serve_at(&self, py: Python<'_>, port: u16) -> PyResult<u16> {
        let inner = self.inner()?;
        blocking(py, || inner.serve_at(port)).map(|addrs| addrs.first().map_or(port, |addr| addr.port()))
    }

    /// What peers connect to.
    #[getter]
    fn url(&self) -> PyResult<Url> {
        Ok(Url(self.inner()?.url().clone()))
    }

    /// Waits for the next peer that has connected.
    ///
    /// Args:
    ///     timeout: Seconds from 0; None waits without limit.
    ///
    /// Returns:
    ///     Its transport, connected.
    ///
    /// Raises:
    ///     TimedOut: Nobody connected in time; the listener goes on.
    ///     Aborted: `close` came meanwhile.
    ///     BadValue: A timeout below 0 or no number.
    ///     Closed: After `close`.
    ///     Forked: In a child of fork(2).
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let until = deadline(seconds(timeout)?);
        accept(py, &*self.inner()?, until)
    }

    /// As `accept`, to be awaited; `asyncio.timeout` limits it.
    ///
    /// Returns:
    ///     An operation of which the result is the transport; `close` ends it with `Aborted`.
    ///
    /// Raises:
    ///     Closed: After `close`.
    ///     Forked: In a child of fork(2).
    fn accept_async(&self) -> PyResult<Op> {
        Ok(Op::new(Under::Accept(self.inner()?)))
    }

    /// Turns new peers away, those included that were not accepted yet, and ends what waits for one with `Aborted`; transports that were
    /// accepted live on. Closing again does nothing.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        // What waits for a peer has it too.
        py.detach(|| inner.inspect(|listener| listener.close()));
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

    fn __repr__(&self) -> String {
        match &*self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(listener) => format!("<linkspan.Listener {}>", listener.url().redacted()),
            None => "<linkspan.Listener closed>".to_owned(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let inner = self.0.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        if process::is_forked() {
            std::mem::forget(inner);
        } else if inner.is_some() {
            process::unlocked(|| drop(inner));
        }
    }
}
