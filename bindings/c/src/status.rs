//! What a call returns, and the text that explains it.
#![forbid(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use linkspan_fabric::chain;

use crate::raw;
use crate::types::LINKSPAN_OK;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The Rust API's own errors keep their codes.
    #[error(transparent)]
    Linkspan(#[from] linkspan::Error),
    /// A pointer that must be there.
    #[error("LS1150 argument {0} is a null pointer")]
    Null(&'static str),
    /// A pointer that no object of its type can have.
    #[error("LS1151 argument {name} points to {address:#x}, which is not aligned to {align} bytes")]
    Misaligned {
        /// Of the argument.
        name: &'static str,
        /// Where it points.
        address: usize,
        /// Of its type.
        align: usize,
    },
    /// A handle that names nothing: null, closed, of another kind, or made up.
    #[error(
        "LS1152 {handle:#x} is not an open {word}: it is null, was closed, belongs to another kind of object, or was never given out"
    )]
    Handle {
        /// What was wanted.
        word: &'static str,
        /// The handle.
        handle: u64,
    },
    /// A number outside of its range.
    #[error("LS1153 argument {name} is {value}: it takes {takes}")]
    Value {
        /// Of the argument.
        name: &'static str,
        /// As given.
        value: i128,
        /// What is possible.
        takes: &'static str,
    },
    /// A place for a result that is too small.
    #[error("LS1154 argument {name} has space for {have}, {need} are needed")]
    TooSmall {
        /// Of the argument.
        name: &'static str,
        /// Bytes or elements there are.
        have: usize,
        /// Bytes or elements needed.
        need: usize,
    },
    /// Bytes that are no text.
    #[error("LS1155 argument {name} is not UTF-8 text with a zero among its first {most} bytes")]
    Text {
        /// Of the argument.
        name: &'static str,
        /// Longest text.
        most: usize,
    },
    /// Memory whose bytes must stay where they are.
    #[error(
        "LS1156 the memory is in use by an operation or an exposed region: its bytes must stay; wait for the operations, unexpose the regions or close their transports, and release it again"
    )]
    MemoryInUse,
    /// A mistake of ours.
    #[error("LS1157 internal error, please report it: {0}")]
    Panic(String),
    /// More objects than handles.
    #[error("LS1158 no more handles for a {0}: close some")]
    Full(&'static str),
    /// A setting that does not exist.
    #[error("LS1159 there is no setting {0:?}: docs/PARAMETERS.md lists all")]
    Setting(String),
    /// An operation that others wait for.
    #[error(
        "LS1160 another thread waits for this operation, or it has a callback already: only one of them can get its result"
    )]
    Taken,
    /// An object for one thread at a time.
    #[error(
        "LS1161 another thread is in a call on this {0}, which one thread may use at a time: call again when that call has returned"
    )]
    InCall(&'static str),
    /// No space for one more entry.
    #[error(
        "LS1162 the submission queue is full: hand it over (linkspan_ring_doorbell), take completions, and put the entry again"
    )]
    QueueFull,
    /// A child of fork(2).
    #[error(
        "LS1163 this process was forked from one that used linkspan, whose connections and threads are the parent's: let the child call exec or _exit, or fork before the first call"
    )]
    Forked,
    /// The device of the kernel module: its errors keep their codes.
    #[error(transparent)]
    Device(#[from] linkspan_tbring::Error),
}

/// Result of everything behind the border.
pub(crate) type CallResult<T = ()> = Result<T, Refusal>;

/// Error codes with their messages, sorted; written by `cargo xtask gen`.
const TEXTS: &[(i32, &CStr)] = include!("status/texts.in");

struct Last {
    status: i32,
    /// `None`: the text of the table says all there is to say.
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { status: LINKSPAN_OK, text: None }) };
}

/// A status with the words that belong to it.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    status: i32,
    text: Option<CString>,
}

impl From<Refusal> for Report {
    #[cold]
    fn from(refusal: Refusal) -> Report {
        use linkspan::Error::{Aborted, TimedOutUnrevoked, Timeout};
        // These come often and say nothing that the table does not say.
        let known = match &refusal {
            Refusal::Linkspan(Timeout) => Some(crate::types::LINKSPAN_TIMEOUT),
            Refusal::Linkspan(TimedOutUnrevoked) => Some(crate::types::LINKSPAN_TIMED_OUT_UNREVOKED),
            Refusal::Linkspan(Aborted) => Some(crate::types::LINKSPAN_ABORTED),
            Refusal::QueueFull => Some(crate::types::LINKSPAN_QUEUE_FULL),
            _ => None,
        };
        if let Some(status) = known {
            return Report { status, text: None };
        }
        let text = match &refusal {
            // It says itself what the system said.
            Refusal::Device(error) => error.to_string(),
            other => chain(other),
        };
        let digits = text.strip_prefix("LS").and_then(|rest| rest.get(..4));
        // Every message begins with its code; one that did not would be a mistake of ours.
        let status = digits.and_then(|digits| digits.parse().ok()).filter(|n| *n > 0).unwrap_or(1157);
        Report { status, text: CString::new(text.replace('\0', "?")).ok() }
    }
}

impl Report {
    /// Makes it the thread's last error.
    pub(crate) fn tell(self) -> i32 {
        let Report { status, text } = self;
        // A thread on its way out has no last error any more.
        let _ = LAST.try_with(|last| last.replace(Last { status, text }));
        status
    }
}

const UNUSED: u8 = 0;
const USED: u8 = 1;
const FORKED: u8 = 2;

/// Whether this process has called, or is the child of one that had: then objects and locks are the parent's.
static PROCESS: AtomicU8 = AtomicU8::new(UNUSED);

extern "C" fn forked() {
    PROCESS.store(FORKED, Relaxed);
}

#[cold]
fn first_call() {
    raw::in_children_call(forked);
    PROCESS.store(USED, Relaxed);
}

/// Runs a call: success, a refusal, or a panic as an internal error. In a forked child it is not run, so that nothing of the parent is
/// ended there.
#[inline]
pub(crate) fn border(call: impl FnOnce() -> CallResult) -> i32 {
    match PROCESS.load(Relaxed) {
        USED => {}
        FORKED => return tell(Refusal::Forked),
        _ => first_call(),
    }
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => LINKSPAN_OK,
        Ok(Err(refusal)) => tell(refusal),
        Err(payload) => tell(Refusal::Panic(words(payload))),
    }
}

#[cold]
fn tell(refusal: Refusal) -> i32 {
    catch_unwind(AssertUnwindSafe(|| Report::from(refusal).tell())).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        1157
    })
}

#[cold]
fn words(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping a foreign payload may panic again.
    std::mem::forget(payload);
    text.unwrap_or_else(|| "without words".to_owned())
}

/// The last error of this thread.
pub(crate) fn last_status() -> i32 {
    LAST.try_with(|last| last.borrow().status).unwrap_or(LINKSPAN_OK)
}

/// Its text, which stays until the next one.
pub(crate) fn last_text() -> *const c_char {
    let text = LAST.try_with(|last| {
        let last = last.borrow();
        last.text.as_ref().map_or_else(|| text_of(last.status).as_ptr(), |text| text.as_ptr())
    });
    text.unwrap_or(c"".as_ptr())
}

/// The text of any status.
pub(crate) fn text_of(status: i32) -> &'static CStr {
    if status == LINKSPAN_OK {
        return c"no error";
    }
    let found = TEXTS.binary_search_by_key(&status, |(code, _)| *code).ok().and_then(|at| TEXTS.get(at));
    found.map_or(c"not a status of this release", |(_, text)| *text)
}

#[cfg(test)]
mod tests;
