//! Operations that have begun: waited for by a thread, or awaited in an asyncio loop.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::{BindingError, from_linkspan, raise};
use crate::notifier::Notifier;
use crate::process;
use crate::transport::Transport;

/// How long a thread waits for a peer between two looks at signals.
const SLICE: Duration = Duration::from_millis(100);

/// What an operation's report means.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    /// Bytes, or the value of a notification.
    Number,
    /// Nothing.
    Nothing,
}

/// What is under way.
pub(crate) enum Under {
    Op(linkspan::Op<'static>, Gives),
    Accept(Arc<linkspan::Listener>),
}

enum Stage {
    Under(Under),
    /// A thread waits for it.
    Awaited,
    Over(Result<Py<PyAny>, Py<PyAny>>),
}

/// An operation that has begun. `await op` in an asyncio loop, or `op.wait()` in any thread; both give its result and may be
/// repeated. Letting go of it before that cancels it.
#[pyclass(frozen, generic, module = "linkspan", weakref)]
pub(crate) struct Op(Mutex<Stage>);

static AWAITING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Op {
    pub(crate) fn new(under: Under) -> Op {
        Op(Mutex::new(Stage::Under(under)))
    }

    /// Held for as long as one look takes, never while anything waits.
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn result_of(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        match &*self.lock() {
            Stage::Over(Ok(value)) => Some(Ok(value.clone_ref(py))),
            Stage::Over(Err(error)) => Some(Err(PyErr::from_value(error.bind(py).clone()))),
            _ => None,
        }
    }

    fn finish(&self, py: Python<'_>, result: PyResult<Py<PyAny>>) {
        let result = result.map_err(|error| error.into_value(py).into_any());
        *self.lock() = Stage::Over(result);
    }

    /// Looks once, and leaves the waker where it is still under way. Without one, an earlier waker stays.
    fn look(&self, py: Python<'_>, waker: Option<&Waker>) -> bool {
        let mut stage = self.lock();
        let report = match (&mut *stage, waker.map(Context::from_waker)) {
            (Stage::Over(_), _) => return true,
            (Stage::Awaited, _) => return false,
            (Stage::Under(Under::Op(op, gives)), cx) => {
                let report = match cx {
                    Some(mut cx) => match Pin::new(op).poll(&mut cx) {
                        Poll::Ready(report) => Some(report),
                        Poll::Pending => None,
                    },
                    None => op.test(),
                };
                report.map(|report| given(py, report, *gives))
            }
            (Stage::Under(Under::Accept(listener)), cx) => {
                let transport = match cx {
                    Some(mut cx) => match pin!(listener.accept()).poll(&mut cx) {
                        Poll::Ready(transport) => Some(transport),
                        Poll::Pending => None,
                    },
                    None => listener.try_accept(),
                };
                transport.map(|transport| Transport::python(py, transport))
            }
        };
        let Some(report) = report else { return false };
        let old = std::mem::replace(&mut *stage, Stage::Awaited);
        drop(stage);
        drop(old);
        self.finish(py, report);
        true
    }

    fn cancelled(py: Python<'_>) -> PyErr {
        raise(py, &linkspan::Error::Aborted.to_string())
    }
}

fn given(py: Python<'_>, report: Result<u64, linkspan::Error>, gives: Gives) -> PyResult<Py<PyAny>> {
    match (report, gives) {
        (Ok(number), Gives::Number) => Ok(number.into_pyobject(py)?.into_any().unbind()),
        (Ok(_), Gives::Nothing) => Ok(py.None()),
        (Err(error), _) => Err(from_linkspan(py, &error)),
    }
}

/// Waits for a peer, looking after signals meanwhile.
pub(crate) fn accept(py: Python<'_>, listener: &linkspan::Listener, until: Option<Instant>) -> PyResult<Py<PyAny>> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        match py.detach(|| listener.accept_blocking(slice)) {
            Ok(transport) => return Transport::python(py, transport),
            Err(error) if error.is_timeout() && left.is_none_or(|left| left > slice) => py.check_signals()?,
            Err(error) => return Err(from_linkspan(py, &error)),
        }
    }
}

#[pymethods]
impl Op {
    /// Waits for the report; this thread drives the path meanwhile.
    ///
    /// Returns:
    ///     Its result, each time that it is asked for.
    ///
    /// Raises:
    ///     Error: Those of the call that began it.
    ///     Aborted: It was cancelled.
    ///     RuntimeError: Another thread waits for it.
    ///     Forked: In a child of fork(2).
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(result) = self.result_of(py) {
            return result;
        }
        process::ours()?;
        let under = match std::mem::replace(&mut *self.lock(), Stage::Awaited) {
            Stage::Under(under) => under,
            Stage::Awaited => return Err(BindingError::Awaited.into()),
            Stage::Over(result) => {
                *self.lock() = Stage::Over(result);
                return self.wait(py);
            }
        };
        let result = match under {
            Under::Op(op, gives) => {
                let report = py.detach(|| op.wait());
                given(py, report, gives)
            }
            Under::Accept(listener) => accept(py, &listener, None),
        };
        self.finish(py, result);
        self.result_of(py).unwrap_or_else(|| Err(Op::cancelled(py)))
    }

    /// Whether it has reported.
    ///
    /// Returns:
    ///     True when `wait` would return or raise at once.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        process::ours()?;
        Ok(self.look(py, None))
    }

    /// Cancels it: when this returns, nothing of it reads or writes local memory any more.
    ///
    /// Returns:
    ///     True if it was under way.
    ///
    /// Raises:
    ///     Forked: In a child of fork(2).
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        process::ours()?;
        let mut stage = self.lock();
        if !matches!(*stage, Stage::Under(_)) {
            return Ok(false);
        }
        let under = std::mem::replace(&mut *stage, Stage::Awaited);
        drop(stage);
        py.detach(|| drop(under));
        self.finish(py, Err(Op::cancelled(py)));
        Ok(true)
    }

    /// Looks once; if it is still under way, `notifier` is signaled with `token` when it has reported.
    fn _watch(&self, py: Python<'_>, notifier: &Notifier, token: u64) -> PyResult<bool> {
        process::ours()?;
        Ok(self.look(py, Some(&notifier.waker(token))))
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let awaiting =
            AWAITING.get_or_try_init(py, || PyResult::Ok(py.import("linkspan._aio")?.getattr("awaiting")?.unbind()))?;
        awaiting.bind(py).call1((slf,))
    }

    fn __repr__(&self) -> &'static str {
        match &*self.lock() {
            Stage::Over(Ok(_)) => "<linkspan.Op done>",
            Stage::Over(Err(_)) => "<linkspan.Op failed>",
            _ => "<linkspan.Op under way>",
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        let stage = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        let stage = std::mem::replace(stage, Stage::Awaited);
        if process::is_forked() {
            // It is the parent's, and so is the lock that its end would take.
            std::mem::forget(stage);
        }
    }
}
