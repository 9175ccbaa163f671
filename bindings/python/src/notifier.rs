//! How an event loop hears of operations: one descriptor for all that are awaited in it.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use linkspan::Error;
use pyo3::prelude::*;

use crate::arguments::blocking;
use crate::process::Held;

struct Inner {
    notifier: linkspan_net::Notifier,
    ready: Mutex<Vec<u64>>,
}

/// An eventfd that can be read when an operation that was given to it has reported, and the tokens of those that have.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Notifier(Held<Inner>);

struct Token {
    inner: Arc<Inner>,
    token: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.inner.ready.lock().unwrap_or_else(|e| e.into_inner()).push(self.token);
        self.inner.notifier.signal();
    }
}

impl Notifier {
    pub(crate) fn waker(&self, token: u64) -> Waker {
        Waker::from(Arc::new(Token { inner: self.0.clone(), token }))
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Notifier> {
        let failed = |source| Error::System { call: "eventfd", source };
        let notifier = blocking(py, || linkspan_net::Notifier::new().map_err(failed))?;
        Ok(Notifier(Arc::new(Inner { notifier, ready: Mutex::default() }).into()))
    }

    fn fileno(&self) -> i32 {
        self.0.notifier.wait_fd().fd
    }

    /// Silences it and returns the tokens of what may have reported.
    fn drain(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.0.notifier.drain());
        std::mem::take(&mut *self.0.ready.lock().unwrap_or_else(|e| e.into_inner()))
    }
}
