//! How an event loop hears of operations: one descriptor for all that are awaited in it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Wake;

use linkspan::Error;
use pyo3::prelude::*;

use crate::arguments::blocking;
use crate::process::Held;

pub(crate) struct Inner {
    notifier: linkspan_net::Notifier,
    ready: Mutex<Vec<u64>>,
}

/// An eventfd that can be read when an operation that was given to it has reported, and the tokens of those that have.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Notifier(Held<Inner>);

/// All that await one operation, which has one place for a waker.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<(Arc<Inner>, u64)>>);

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<Inner>, u64)>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn add(&self, notifier: &Notifier, token: u64) {
        self.remove(notifier, token);
        self.lock().push((notifier.0.clone(), token));
    }

    pub(crate) fn remove(&self, notifier: &Notifier, token: u64) {
        self.lock().retain(|(inner, of)| *of != token || !Arc::ptr_eq(inner, &notifier.0));
    }

    /// Tells them that it is over. It writes to their descriptors and may close them: without Python's lock.
    pub(crate) fn end(&self, py: Python<'_>) {
        let watchers = std::mem::take(&mut *self.lock());
        if !watchers.is_empty() {
            py.detach(move || ring(&watchers));
        }
    }
}

fn ring(watchers: &[(Arc<Inner>, u64)]) {
    for (inner, token) in watchers {
        inner.ready.lock().unwrap_or_else(|e| e.into_inner()).push(*token);
        inner.notifier.signal();
    }
}

impl Wake for Watchers {
    fn wake(self: Arc<Self>) {
        ring(&self.lock());
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
