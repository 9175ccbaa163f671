//! A started operation as C holds it: asked by any thread, as often as it likes, until it is freed.
#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use linkspan::Op;

use crate::callback::{Call, CallbackOp, defer_wakeups};
use crate::status::{CallResult, Refusal, Report};

/// Freed operations that are kept for later ones, so that starting one allocates nothing.
const SPARE: usize = 4096;

enum Stage {
    Under(Op<'static>),
    /// A thread waits for it.
    Awaited,
    /// It calls back.
    Called(Arc<CallbackOp>),
    Over(Result<u64, Report>),
    Free,
}

/// One operation.
pub(crate) struct Started {
    stage: Mutex<Stage>,
    cond: Condvar,
}

static SPARES: Mutex<Vec<Arc<Started>>> = Mutex::new(Vec::new());

fn spares() -> MutexGuard<'static, Vec<Arc<Started>>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn over(result: Result<u64, linkspan::Error>) -> Result<u64, Report> {
    result.map_err(|error| Refusal::from(error).into())
}

impl Started {
    pub(crate) fn new(op: Op<'static>) -> Arc<Started> {
        let spare = spares().pop();
        let started =
            spare.unwrap_or_else(|| Arc::new(Started { stage: Mutex::new(Stage::Free), cond: Condvar::new() }));
        *started.lock() = Stage::Under(op);
        started
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its report, if there is one.
    pub(crate) fn test(&self) -> Option<Result<u64, Report>> {
        let _later = defer_wakeups();
        let mut stage = self.lock();
        if let Stage::Under(op) = &mut *stage {
            let result = op.test()?;
            *stage = Stage::Over(over(result));
        }
        match &*stage {
            Stage::Over(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Its report. This thread drives meanwhile, unless another one does already.
    pub(crate) fn wait(&self) -> Result<u64, Report> {
        let mut stage = self.lock();
        if let Stage::Under(_) = &*stage
            && let Stage::Under(op) = std::mem::replace(&mut *stage, Stage::Awaited)
        {
            drop(stage);
            let result = over(op.wait());
            *self.lock() = Stage::Over(result.clone());
            self.cond.notify_all();
            return result;
        }
        loop {
            match &*stage {
                Stage::Over(result) => return result.clone(),
                Stage::Under(_) | Stage::Awaited | Stage::Called(_) => {
                    stage = self.cond.wait(stage).unwrap_or_else(PoisonError::into_inner);
                }
                Stage::Free => return Err(Refusal::Handle { word: "operation", handle: 0 }.into()),
            }
        }
    }

    /// Calls back when it has reported, at once where it has.
    pub(crate) fn then(self: &Arc<Started>, call: Call) -> CallResult {
        let mut stage = self.lock();
        let callback = match std::mem::replace(&mut *stage, Stage::Awaited) {
            Stage::Under(op) => CallbackOp::new(op, call, self.clone()),
            Stage::Over(result) => {
                *stage = Stage::Over(result.clone());
                drop(stage);
                call(result);
                return Ok(());
            }
            other => {
                *stage = other;
                return Err(Refusal::Taken);
            }
        };
        *stage = Stage::Called(callback.clone());
        drop(stage);
        callback.go_on();
        Ok(())
    }

    /// The report of one that calls back.
    pub(crate) fn keep(&self, result: Result<u64, Report>) {
        let was = std::mem::replace(&mut *self.lock(), Stage::Over(result));
        self.cond.notify_all();
        drop(was);
    }

    /// Ends it; one that is under way is cancelled. One that another thread waits for goes on for that thread.
    pub(crate) fn free(mut started: Arc<Started>) {
        let mut stage = started.lock();
        let callback = match &*stage {
            Stage::Called(callback) => Some(callback.clone()),
            _ => None,
        };
        // Another thread may be in a call on it, which finds it ended.
        let under = matches!(&*stage, Stage::Under(_))
            .then(|| std::mem::replace(&mut *stage, Stage::Over(over(Err(linkspan::Error::Aborted)))));
        drop(stage);
        drop(under);
        if let Some(callback) = callback {
            callback.cancel();
        }
        let Some(own) = Arc::get_mut(&mut started) else { return };
        let stage = own.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::replace(stage, Stage::Free));
        let mut spares = spares();
        if spares.len() < SPARE {
            spares.push(started);
        }
    }
}
