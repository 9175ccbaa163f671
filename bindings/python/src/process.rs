//! What concerns the whole process: forks, and signals while a thread waits.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::error::BindingError;

/// Some transport or listener was made.
static USED: AtomicBool = AtomicBool::new(false);

/// This process is the child of one that had made some.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Called in the child of a fork, by `os.register_at_fork`. Whether the parent had used linkspan.
#[pyfunction]
pub(crate) fn forked() -> bool {
    if USED.load(Ordering::SeqCst) {
        FORKED.store(true, Ordering::SeqCst);
    }
    is_forked()
}

/// Whether our sockets belong to a parent: then nothing may be sent on them, not even a close message.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Refuses in a forked child.
pub(crate) fn ours() -> Result<(), BindingError> {
    if is_forked() { Err(BindingError::Forked) } else { Ok(()) }
}

/// Before the first use of the shared context.
pub(crate) fn begin() -> Result<(), BindingError> {
    ours()?;
    USED.store(true, Ordering::SeqCst);
    Ok(())
}

/// Does what may close sockets, without Python's lock where this thread has it.
pub(crate) fn unlocked(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let done = Python::try_attach(|py| py.detach(|| work.take().map(|work| work())));
    // The interpreter is going away.
    if done.is_none()
        && let Some(work) = work
    {
        work();
    }
}

/// What a call uses. Where another thread has let go of the object meanwhile, the end of the call is the end of its descriptors too: they
/// are closed without Python's lock.
pub(crate) struct Held<T: Send + Sync>(Option<Arc<T>>);

impl<T: Send + Sync> From<Arc<T>> for Held<T> {
    fn from(held: Arc<T>) -> Held<T> {
        Held(Some(held))
    }
}

impl<T: Send + Sync> Deref for Held<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("it is taken when it is dropped")
    }
}

impl<T: Send + Sync> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            unlocked(|| drop(last));
        }
    }
}

/// Asked by threads that wait: runs Python's signal handlers, and stops the wait where one raised.
pub(crate) fn stop_waiting() -> bool {
    let checked = Python::try_attach(|py| py.check_signals());
    match checked {
        Some(Ok(())) => false,
        Some(Err(raised)) => {
            INTERRUPT.with(|cell| *cell.borrow_mut() = Some(raised));
            true
        }
        // The interpreter is going away.
        None => true,
    }
}

/// What a signal handler raised on this thread while it waited.
pub(crate) fn take_interrupt() -> Option<PyErr> {
    INTERRUPT.with(|cell| cell.borrow_mut().take())
}
