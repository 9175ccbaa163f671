//! Operations that have begun: waited for by a thread, or awaited in an asyncio loop.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::IntoPyObjectExt;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::endpoint::{Event, peer_of};
use crate::error::{BindingError, chain, raise};
use crate::notifier::{Notifier, Watchers};
use crate::process::{self, Held, take_interrupt};
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
    /// The next notification.
    Notification(linkspan::Op<'static>),
    Accept(Arc<linkspan::Listener>, Wait<linkspan::Transport>),
    /// An endpoint's connecting to a peer, by its name.
    Dial(linkspan::Op<'static>, Arc<linkspan::Endpoint>, String),
    /// The next event of an endpoint.
    Event(Arc<linkspan::Endpoint>, Wait<linkspan::Event>),
}

/// A wait that keeps its place, and the waker of those who await it, until it is let go of.
type Wait<T> = Pin<Box<dyn Future<Output = Result<T, linkspan::Error>> + Send>>;

enum Stage {
    Under(Under),
    /// A thread waits for it.
    Awaited,
    /// This thread looks at it, without Python's lock, for as long as one look takes.
    Looked(ThreadId),
    Over(Report),
}

/// What an operation has come to. An error is kept as its text: to make the exception runs Python, and so signal handlers, which may use
/// the operation or raise what is none of its own.
type Report = Result<Py<PyAny>, String>;

/// An operation that has begun. `await op` in an asyncio loop, or `op.wait()` in any thread; both give its result and may be
/// repeated. Letting go of it before that cancels it.
#[pyclass(frozen, generic, module = "linkspan", weakref)]
pub(crate) struct Op {
    stage: Mutex<Stage>,
    /// The generators that wait in tasks that were made of it, by task.
    running: Mutex<Option<Py<PyDict>>>,
    /// Those that await it.
    watchers: OnceLock<Arc<Watchers>>,
    /// What it has found, until somebody has its result.
    found: Mutex<Option<Unread>>,
}

/// What others get where nobody has the result of the operation that found it.
enum Unread {
    Event(Arc<linkspan::Endpoint>, linkspan::Event),
    Notification(linkspan::Op<'static>),
    /// Its object has been let go of when this is given back.
    Peer(Arc<linkspan::Listener>, Arc<linkspan::Transport>),
}

impl Unread {
    fn give_back(self) {
        match self {
            Unread::Peer(listener, transport) => {
                if let Some(transport) = Arc::into_inner(transport) {
                    listener.give_back(transport);
                }
            }
            Unread::Event(endpoint, event) => endpoint.give_back(event),
            Unread::Notification(op) => op.give_back(),
        }
    }
}

static AWAITING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Op {
    pub(crate) fn new(under: Under) -> Op {
        let stage = Mutex::new(Stage::Under(under));
        Op { stage, running: Mutex::default(), watchers: OnceLock::new(), found: Mutex::default() }
    }

    /// What nobody has had.
    fn unread(&self) -> Option<Unread> {
        self.found.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    /// Held for as long as one look takes, never while anything waits.
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes it out where it is under way, once no other thread looks at it, and leaves this stage in its place. Where this one does, a
    /// finalizer or signal handler asks, and the look cannot end before it returns.
    fn take(&self, py: Python<'_>, into: Stage) -> Option<Under> {
        loop {
            let mut stage = self.lock();
            match std::mem::replace(&mut *stage, Stage::Awaited) {
                Stage::Under(under) => {
                    *stage = into;
                    return Some(under);
                }
                Stage::Looked(by) if by != thread::current().id() => *stage = Stage::Looked(by),
                other => {
                    *stage = other;
                    return None;
                }
            }
            drop(stage);
            py.detach(thread::yield_now);
        }
    }

    fn is_over(&self) -> bool {
        matches!(*self.lock(), Stage::Over(_))
    }

    fn result_of(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let text = match &*self.lock() {
            Stage::Over(Ok(value)) => return Some(Ok(value.clone_ref(py))),
            Stage::Over(Err(text)) => text.clone(),
            _ => return None,
        };
        Some(Err(raise(py, &text)))
    }

    fn finish(&self, py: Python<'_>, report: Report) {
        let before = std::mem::replace(&mut *self.lock(), Stage::Over(report));
        // An object that ends with it lets go of Python's lock meanwhile, which whoever waits for the stage may have.
        drop(before);
        // Whoever has found it: no report wakes them any more.
        if let Some(watchers) = self.watchers.get() {
            watchers.end(py);
        }
    }

    /// Looks once, without Python's lock: a look moves the path on. The watcher's waker is left where it is still under way; without one, an
    /// earlier waker stays.
    fn look(&self, py: Python<'_>, watcher: Option<(&Notifier, u64)>) -> bool {
        let waker = watcher.map(|(notifier, token)| {
            let watchers = self.watchers.get_or_init(Arc::default);
            watchers.add(notifier, token);
            Waker::from(watchers.clone())
        });
        // It is told by what this returns.
        let told = || {
            if let (Some(watchers), Some((notifier, token))) = (self.watchers.get(), watcher) {
                watchers.remove(notifier, token);
            }
        };
        let Some(mut under) = self.take(py, Stage::Looked(thread::current().id())) else {
            let over = self.is_over();
            if over {
                told();
            }
            return over;
        };
        // Put back before this thread waits for Python's lock: one that holds it and wants to take the operation would find it looked at
        // for ever, where another asks time and again.
        let looked = py.detach(|| match under.look(waker.as_ref()) {
            Some(found) => Some((found, under)),
            None => {
                *self.lock() = Stage::Under(under);
                None
            }
        });
        let Some((found, under)) = looked else { return false };
        let (report, unread, rest) = match (found, under) {
            (Found::Event(event), Under::Event(endpoint, _)) => {
                (made(Event::python(py, event.clone())), Some(Unread::Event(endpoint, event)), None)
            }
            (Found::Report(report), Under::Notification(op)) => {
                (given(py, report, Gives::Number), Some(Unread::Notification(op)), None)
            }
            (Found::Peer(transport), Under::Accept(listener, _)) => {
                let transport = Arc::new(transport);
                (made(Transport::python(py, transport.clone())), Some(Unread::Peer(listener, transport)), None)
            }
            (found, under) => (Found::python(py, found, &under), None, Some(under)),
        };
        *self.found.lock().unwrap_or_else(|e| e.into_inner()) = unread;
        told();
        self.finish(py, report);
        py.detach(|| drop(rest));
        true
    }

    /// One step of what waits in the task that runs now: each that was made of it has a generator of its own.
    fn step<'py>(slf: &Bound<'py, Self>, name: &str, args: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let current = CURRENT.import(py, "asyncio", "current_task")?;
        let task = current.call0().unwrap_or_else(|_| py.None().into_bound(py));
        let running = {
            let mut place = slf.get().running.lock().unwrap_or_else(|e| e.into_inner());
            place.get_or_insert_with(|| PyDict::new(py).unbind()).bind(py).clone()
        };
        let run = match running.get_item(&task)? {
            Some(run) => run,
            None => {
                let made = Op::__await__(slf.clone())?;
                running.set_item(&task, &made)?;
                made
            }
        };
        let stepped = run.call_method1(name, args);
        if stepped.is_err() {
            let _ = running.del_item(&task);
        }
        stepped
    }

    fn cancelled() -> String {
        linkspan::Error::Aborted.to_string()
    }
}

/// What a look has found.
enum Found {
    Report(Result<u64, linkspan::Error>),
    Peer(linkspan::Transport),
    Event(linkspan::Event),
}

impl Found {
    fn python(py: Python<'_>, found: Found, under: &Under) -> Report {
        match (found, under) {
            (Found::Report(report), Under::Op(_, gives)) => given(py, report, *gives),
            (Found::Report(Ok(_)), Under::Dial(_, endpoint, peer)) => dialled(py, endpoint, peer),
            (Found::Report(report), _) => given(py, report, Gives::Nothing),
            (Found::Event(event), _) => made(Event::python(py, event)),
            (Found::Peer(transport), _) => made(Transport::python(py, Arc::new(transport))),
        }
    }
}

impl Under {
    pub(crate) fn accept(listener: Arc<linkspan::Listener>) -> Under {
        let of = listener.clone();
        Under::Accept(listener, Box::pin(async move { of.accept().await }))
    }

    pub(crate) fn event(endpoint: Arc<linkspan::Endpoint>) -> Under {
        let of = endpoint.clone();
        Under::Event(endpoint, Box::pin(async move { of.next_event().await }))
    }

    fn look(&mut self, waker: Option<&Waker>) -> Option<Found> {
        match (self, waker.map(Context::from_waker)) {
            (Under::Op(op, _) | Under::Notification(op) | Under::Dial(op, ..), Some(mut cx)) => {
                polled(Pin::new(op).poll(&mut cx), |bytes| Found::Report(Ok(bytes)))
            }
            (Under::Op(op, _) | Under::Notification(op) | Under::Dial(op, ..), None) => op.test().map(Found::Report),
            (Under::Accept(_, wait), Some(mut cx)) => polled(wait.as_mut().poll(&mut cx), Found::Peer),
            (Under::Accept(listener, _), None) => match listener.accept_blocking(Duration::ZERO) {
                Err(error) if error.is_timeout() => None,
                found => Some(found.map_or_else(|error| Found::Report(Err(error)), Found::Peer)),
            },
            (Under::Event(_, wait), Some(mut cx)) => polled(wait.as_mut().poll(&mut cx), Found::Event),
            (Under::Event(endpoint, _), None) => match endpoint.try_event() {
                Ok(event) => event.map(Found::Event),
                Err(error) => Some(Found::Report(Err(error))),
            },
        }
    }
}

fn polled<T>(polled: Poll<Result<T, linkspan::Error>>, found: impl FnOnce(T) -> Found) -> Option<Found> {
    match polled {
        Poll::Ready(result) => Some(result.map_or_else(|error| Found::Report(Err(error)), found)),
        Poll::Pending => None,
    }
}

fn given(py: Python<'_>, report: Result<u64, linkspan::Error>, gives: Gives) -> Report {
    let number = report.map_err(|error| chain(&error))?;
    match gives {
        Gives::Number => made(number.into_py_any(py)),
        Gives::Nothing => Ok(py.None()),
    }
}

/// The transport of a peer that has been connected to.
fn dialled(py: Python<'_>, endpoint: &Arc<linkspan::Endpoint>, peer: &str) -> Report {
    let transport = py.detach(|| endpoint.peer(peer)).map_err(|error| chain(&error))?;
    made(peer_of(py, endpoint, peer, transport))
}

/// An object, for which nothing but memory can be lacking.
fn made(object: PyResult<Py<PyAny>>) -> Report {
    object.map_err(|error| error.to_string())
}

/// Waits without Python's lock, a slice at a time, looking after signals between them.
pub(crate) fn sliced<T>(
    until: Option<Instant>,
    mut wait: impl FnMut(Duration) -> Result<T, linkspan::Error>,
) -> Result<T, linkspan::Error> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        match wait(slice) {
            Err(error) if error.is_timeout() && left.is_none_or(|left| left > slice) => {
                if process::stop_waiting() {
                    return Err(linkspan::Error::Aborted);
                }
            }
            ended => return ended,
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
    ///     InUse: Another thread waits for it.
    ///     Forked: In a child of fork(2).
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(result) = self.result_of(py) {
            if let Some(read) = self.unread() {
                py.detach(|| drop(read));
            }
            return result;
        }
        process::ours()?;
        let Some(under) = self.take(py, Stage::Awaited) else {
            return if self.is_over() { self.wait(py) } else { Err(BindingError::Awaited.into()) };
        };
        let report = match under {
            Under::Op(op, gives) => given(py, py.detach(|| op.wait()), gives),
            Under::Notification(op) => given(py, py.detach(|| op.wait()), Gives::Number),
            Under::Accept(listener, wait) => {
                drop(wait);
                let listener = Held::from(listener);
                let accepted = py.detach(|| sliced(None, |slice| listener.accept_blocking(slice)));
                accepted.map_err(|e| chain(&e)).and_then(|transport| made(Transport::python(py, Arc::new(transport))))
            }
            Under::Dial(op, endpoint, peer) => {
                let endpoint = Held::from(endpoint);
                let connected = py.detach(|| {
                    // What is asked meanwhile whether a signal came.
                    if let Ok(transport) = endpoint.peer(&peer) {
                        transport.stop_waiting_when(process::stop_waiting);
                    }
                    op.wait()
                });
                connected.map_err(|e| chain(&e)).and_then(|_| dialled(py, &endpoint, &peer))
            }
            Under::Event(endpoint, wait) => {
                drop(wait);
                let endpoint = Held::from(endpoint);
                let event = py.detach(|| sliced(None, |slice| endpoint.next_event_blocking(Some(slice))));
                event.map_err(|e| chain(&e)).and_then(|event| made(Event::python(py, event)))
            }
        };
        // What a signal handler raised meanwhile is this call's alone.
        let interrupt = take_interrupt();
        self.finish(py, report);
        match interrupt {
            Some(raised) => Err(raised),
            None => self.result_of(py).unwrap_or_else(|| Err(raise(py, &Op::cancelled()))),
        }
    }

    /// Whether it has reported. To ask moves its path on, without Python's lock, where no other thread does: a loop that asks needs no
    /// other help.
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
    ///     InUse: Another thread waits for it, which only `abort` and `close` of its transport, listener or endpoint end.
    ///     Forked: In a child of fork(2).
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        process::ours()?;
        let Some(under) = self.take(py, Stage::Awaited) else {
            if !self.is_over() {
                return Err(BindingError::Awaited.into());
            }
            // What nobody will have is the next one of others.
            if let Some(unread) = self.unread() {
                self.finish(py, Err(Op::cancelled()));
                py.detach(|| unread.give_back());
            }
            return Ok(false);
        };
        py.detach(|| drop(under));
        self.finish(py, Err(Op::cancelled()));
        Ok(true)
    }

    /// Looks once; if it is still under way, `notifier` is signaled with `token` when it has reported.
    fn _watch(&self, py: Python<'_>, notifier: &Notifier, token: u64) -> PyResult<bool> {
        process::ours()?;
        Ok(self.look(py, Some((notifier, token))))
    }

    /// As a coroutine has it: an operation can be given to `asyncio.create_task` and `TaskGroup.create_task`.
    ///
    /// Args:
    ///     value: None.
    ///
    /// Returns:
    ///     The future that is waited for.
    ///
    /// Raises:
    ///     StopIteration: It has reported; with its result.
    ///     Error: Those of the call that began it.
    fn send<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Op::step(slf, "send", (value,))
    }

    /// As a coroutine has it: `asyncio.CancelledError` cancels the operation.
    ///
    /// Args:
    ///     typ: An exception or its class.
    ///     val: Its value, where a class was given.
    ///     tb: Its traceback.
    ///
    /// Returns:
    ///     The future that is waited for.
    ///
    /// Raises:
    ///     BaseException: That which was thrown.
    #[pyo3(signature = (typ, val = None, tb = None))]
    fn throw<'py>(
        slf: &Bound<'py, Self>,
        typ: Bound<'py, PyAny>,
        val: Option<Bound<'py, PyAny>>,
        tb: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let thrown = match (val, tb) {
            (None, None) => Op::step(slf, "throw", (typ,)),
            (val, tb) => Op::step(slf, "throw", (typ, val, tb)),
        };
        if thrown.is_err() {
            // Where it had not begun to wait, nothing else has cancelled it. One that a thread waits for goes on for that thread.
            let _ = slf.get().cancel(slf.py());
        }
        thrown
    }

    /// As a coroutine has it: cancels the operation.
    ///
    /// Raises:
    ///     InUse: Another thread waits for it.
    ///     Forked: In a child of fork(2).
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel(py).map(drop)
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        AWAITING.import(py, "linkspan._aio", "awaiting")?.call1((slf,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(running) = self.running.try_lock() {
            visit.call(&*running)?;
        }
        match self.stage.try_lock().as_deref() {
            Ok(Stage::Over(Ok(value))) => visit.call(value),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let running = self.running.lock().unwrap_or_else(|e| e.into_inner()).take();
        let mut stage = self.lock();
        let over = matches!(*stage, Stage::Over(_)).then(|| std::mem::replace(&mut *stage, Stage::Awaited));
        drop(stage);
        drop((running, over));
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
        let stage = self.stage.get_mut().unwrap_or_else(|e| e.into_inner());
        let stage = std::mem::replace(stage, Stage::Awaited);
        let watchers = self.watchers.take();
        if process::is_forked() {
            // It is the parent's, and so is the lock that its end would take.
            std::mem::forget((stage, watchers));
            return;
        }
        match stage {
            Stage::Under(under) => process::unlocked(|| drop((under, watchers))),
            over => {
                drop(over);
                if let Some(unread) = self.unread() {
                    process::unlocked(|| unread.give_back());
                }
            }
        }
    }
}
