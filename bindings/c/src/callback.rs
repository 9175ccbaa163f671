//! Operations that call back when they have reported: what a future of another language is made of.
//!
//! The operation is polled by the thread that wakes it: the engine thread, or a thread in a blocking call. Nothing is
//! locked while it is polled or calls back. A thread that is woken in the middle of a poll takes the other one up
//! afterwards ([`defer_wakeups`]), so
//! that callbacks do not nest and find every operation in its place.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use linkspan::Op;

use crate::op::Started;
use crate::status::{Refusal, Report};

/// What is called, once.
pub(crate) type Call = Box<dyn FnOnce(Result<u64, Report>) + Send>;

/// An operation with what is to be called.
pub(crate) struct CallbackOp {
    /// Taken while it is polled, and permanently when it is over: the thread that has it then makes the call.
    op: Mutex<Option<Op<'static>>>,
    call: Mutex<Option<Call>>,
    /// Polls asked for since the last one that found nothing new.
    asked: AtomicU32,
    cancelled: AtomicBool,
    /// The operation is gone: nothing of it touches local memory any more.
    ended: AtomicBool,
    started: Arc<Started>,
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl CallbackOp {
    pub(crate) fn new(op: Op<'static>, call: Call, started: Arc<Started>) -> Arc<CallbackOp> {
        Arc::new(CallbackOp {
            op: Mutex::new(Some(op)),
            call: Mutex::new(Some(call)),
            asked: AtomicU32::new(0),
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            started,
        })
    }

    /// Asks the operation; one thread at a time does.
    pub(crate) fn go_on(self: &Arc<CallbackOp>) {
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let (_later, waker) = (defer_wakeups(), Waker::from(self.clone()));
        let mut seen = 1;
        loop {
            let Some(mut op) = take(&self.op) else { return };
            if let Poll::Ready(result) = Pin::new(&mut op).poll(&mut Context::from_waker(&waker)) {
                drop(op);
                return self.end(result.map_err(|error| Refusal::from(error).into()));
            }
            *self.op.lock().unwrap_or_else(PoisonError::into_inner) = Some(op);
            if self.cancelled.load(Ordering::SeqCst) {
                return self.reap();
            }
            match self.asked.compare_exchange(seen, 0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Ends the operation, if it is not over: its call is made with "aborted". Nothing of it touches local memory afterwards.
    pub(crate) fn cancel(&self) {
        let _later = defer_wakeups();
        self.cancelled.store(true, Ordering::SeqCst);
        self.reap();
        // Another thread has it in a poll, which does not wait: it ends it when it finds the mark.
        while !self.ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    fn reap(&self) {
        if let Some(op) = take(&self.op) {
            drop(op);
            self.end(Err(Refusal::from(linkspan::Error::Aborted).into()));
        }
    }

    fn end(&self, result: Result<u64, Report>) {
        self.ended.store(true, Ordering::SeqCst);
        self.started.keep(result.clone());
        if let Some(call) = take(&self.call) {
            call(result);
        }
    }
}

impl Wake for CallbackOp {
    fn wake(self: Arc<CallbackOp>) {
        let put_off = WOKEN.try_with(|woken| match &mut *woken.borrow_mut() {
            Some(list) => {
                list.push_back(self.clone());
                true
            }
            None => false,
        });
        // A thread that ends has no list any more, and nothing that could nest.
        if put_off != Ok(true) {
            self.go_on();
        }
    }
}

thread_local! {
    static WOKEN: RefCell<Option<VecDeque<Arc<CallbackOp>>>> = const { RefCell::new(None) };
}

/// While it lives, what is woken on this thread is put off; when it goes, that is taken up.
pub(crate) struct DeferredWakeups {
    outermost: bool,
}

/// See [`DeferredWakeups`].
pub(crate) fn defer_wakeups() -> DeferredWakeups {
    let begun = WOKEN.try_with(|woken| {
        let mut woken = woken.borrow_mut();
        let outermost = woken.is_none();
        woken.get_or_insert_default();
        outermost
    });
    DeferredWakeups { outermost: begun.unwrap_or(false) }
}

impl Drop for DeferredWakeups {
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        loop {
            let next = WOKEN.try_with(|woken| {
                let mut woken = woken.borrow_mut();
                let next = woken.as_mut().and_then(VecDeque::pop_front);
                if next.is_none() {
                    *woken = None;
                }
                next
            });
            let Ok(Some(callback)) = next else { return };
            callback.go_on();
        }
    }
}

#[cfg(test)]
mod tests;
