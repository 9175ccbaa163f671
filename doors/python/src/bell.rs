//! How an event loop hears of operations: one descriptor for all that are awaited in it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

struct Inner {
    fd: OwnedFd,
    ready: Mutex<Vec<u64>>,
    rung: AtomicBool,
}

/// An eventfd that can be read when an operation that was given to it has reported, and the tokens of those that have.
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct Bell(Arc<Inner>);

struct Token {
    bell: Arc<Inner>,
    token: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.bell.ready.lock().unwrap_or_else(|e| e.into_inner()).push(self.token);
        if !self.bell.rung.swap(true, Ordering::SeqCst) {
            // It can only fail when the counter is full, and then it can be read anyway.
            let _ = rustix::io::write(&self.bell.fd, &1u64.to_ne_bytes());
        }
    }
}

impl Bell {
    pub(crate) fn waker(&self, token: u64) -> Waker {
        Waker::from(Arc::new(Token { bell: self.0.clone(), token }))
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| PyOSError::new_err((e.raw_os_error(), format!("eventfd: {e}"))))?;
        Ok(Bell(Arc::new(Inner { fd, ready: Mutex::default(), rung: AtomicBool::new(false) })))
    }

    fn fileno(&self) -> i32 {
        self.0.fd.as_raw_fd()
    }

    /// Silences it and returns the tokens of what may have reported.
    fn hear(&self) -> Vec<u64> {
        // Between the two halves of a ring there is nothing to read yet. Then it stays rung: were it not, what is written next
        // would never be read, and the loop would be awake for good.
        if self.0.rung.load(Ordering::SeqCst) && rustix::io::read(&self.0.fd, &mut [0; 8]).is_ok() {
            self.0.rung.swap(false, Ordering::SeqCst);
        }
        std::mem::take(&mut *self.0.ready.lock().unwrap_or_else(|e| e.into_inner()))
    }
}
