//! Many peers at one URL.

use std::sync::{Arc, Mutex};

use linkspan::Context;
use pyo3::prelude::*;

use crate::arguments::{PORT, blocking, deadline, made, number, seconds};
use crate::error::BindingError;
use crate::op::{Op, Under, sliced};
use crate::process::{self, Held};
use crate::remote::Url;
use crate::transport::Transport;

/// Accepts any number of peers at one URL, each with a transport of its own.
///
/// Args:
///     device: As for `Transport`, of the transports that it accepts.
///     paired: As for `Transport`.
///
/// Raises:
///     NotPaired, DeviceMemory, DeviceFailed, SystemFailed, BadSetting, Forked: As for `Transport`.
#[pyclass(frozen, module = "linkspan", weakref)]
pub(crate) struct Listener(Mutex<Option<Arc<linkspan::Listener>>>);

impl Listener {
    fn inner(&self) -> Result<Held<linkspan::Listener>, BindingError> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
        inner.map(Held::from).ok_or(BindingError::Closed("listener"))
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
    ///     BadNumber: A port that there cannot be.
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (port = PORT), text_signature = "($self, port=24682)")]
    fn serve_at(&self, py: Python<'_>, #[pyo3(from_py_with = number)] port: u16) -> PyResult<u16> {
        let inner = self.inner()?;
        blocking(py, || inner.serve_at(port)).map(|addrs| addrs.first().map_or(port, |addr| addr.port()))
    }

    /// What peers connect to.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
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
    ///     Closed, Forked: After `close`; in a child of fork(2).
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let until = deadline(seconds(timeout)?);
        let inner = self.inner()?;
        let transport = blocking(py, || sliced(until, |slice| inner.accept_blocking(slice)))?;
        Transport::python(py, Arc::new(transport))
    }

    /// As `accept`, to be awaited; `asyncio.timeout` limits it.
    ///
    /// Returns:
    ///     An operation of which the result is the transport; `close` ends it with `Aborted`.
    ///
    /// Raises:
    ///     Closed, Forked: After `close`; in a child of fork(2).
    fn accept_async(&self) -> PyResult<Op> {
        Ok(Op::new(Under::accept(self.inner()?.clone())))
    }

    /// Turns new peers away, those included that were not accepted yet, and ends what waits for one with `Aborted`; transports that were
    /// accepted live on. Closing again does nothing.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        process::ours()?;
        let inner = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        py.detach(|| {
            // What waits for a peer has it too.
            if let Some(listener) = inner {
                listener.close();
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
