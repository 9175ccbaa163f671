//! An operation under way, as a future.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::Error;
use crate::ops::{Numbered, OpId};
use crate::shared::Shared;
use crate::state::Driver;

/// An operation that has begun. It is a plain future: any executor may poll it, the context's engine thread moves it on in
/// between. Its output is the number of bytes moved; for a wait, the value of the notification.
///
/// Dropping it cancels what is pending: when the drop returns, nothing of it reads or writes local memory any more. Where that
/// takes the path with it (a large transfer under way), the path is made again and other operations go on. What of it has happened at
/// the peer by then, its notification included, is not said.
#[must_use = "dropping an operation cancels it"]
pub struct Op<'m> {
    shared: Arc<Shared>,
    state: Stage,
    _memory: PhantomData<&'m ()>,
}

enum Stage {
    Under(OpId),
    Failed(Error),
    /// With the notification that it gave.
    Over(Option<Numbered>),
}

impl std::fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.state {
            Stage::Under(_) => "Op(under way)",
            Stage::Failed(_) => "Op(failed)",
            Stage::Over(_) => "Op(over)",
        })
    }
}

impl<'m> Op<'m> {
    pub(crate) fn new(shared: &Arc<Shared>, begun: Result<OpId, Error>) -> Op<'m> {
        let state = match begun {
            Ok(id) => Stage::Under(id),
            Err(error) => Stage::Failed(error),
        };
        Op { shared: shared.clone(), state, _memory: PhantomData }
    }

    /// Asks without waiting, and moves the transport on where no other thread does: a loop that asks drives its path by itself.
    /// `None`: still under way. After `Some` the operation is over.
    ///
    /// A thread that asks time and again is expected to go on: the next operation that it begins is left to it, and the
    /// engine thread takes over a millisecond or two after nobody has asked any more.
    ///
    /// # Panics
    /// The operation was over already.
    pub fn test(&mut self) -> Option<Result<u64, Error>> {
        match std::mem::replace(&mut self.state, Stage::Over(None)) {
            Stage::Failed(error) => Some(Err(error)),
            Stage::Over(_) => panic!("an operation was asked after its report"),
            Stage::Under(id) => {
                let (report, given, _hold) = self.shared.ask(id);
                self.state = if report.is_none() { Stage::Under(id) } else { Stage::Over(given) };
                report
            }
        }
    }

    /// Waits for the result; the calling thread drives the transport meanwhile. Returns the operation's output.
    ///
    /// # Errors
    /// Those of the call that began the operation, among them [`Error::Timeout`], [`Error::TimedOutUnrevoked`], [`Error::Aborted`],
    /// [`Error::Interrupted`] and [`Error::Broken`]; [`Error::Op`] where the peer refused it.
    ///
    /// # Panics
    /// The operation was over already.
    pub fn wait(mut self) -> Result<u64, Error> {
        match std::mem::replace(&mut self.state, Stage::Over(None)) {
            Stage::Failed(error) => Err(error),
            Stage::Over(_) => panic!("an operation was asked after its report"),
            Stage::Under(id) => self.shared.run(self.shared.lock(), id),
        }
    }

    /// Puts back the notification that it has given and that nobody used, as that of a task which was cancelled when it had been given it: waits
    /// get it before those that came later. Of another operation, or one that has not reported, it is as dropping it.
    pub fn give_back(self) {
        if let Stage::Over(Some((number, value))) = self.state {
            let mut guard = self.shared.lock();
            guard.give_back(number, value);
            self.shared.unlock(guard);
        }
    }
}

impl Future for Op<'_> {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = match self.state {
            Stage::Under(id) => id,
            _ => return self.test().map_or(Poll::Pending, Poll::Ready),
        };
        let mut guard = self.shared.lock();
        let mut drove = false;
        if !guard.ops.is_reported(id) && guard.driver == Driver::Nobody && !guard.armed {
            // The engine thread is awake or leaves this transport to callers: move on ourselves.
            while guard.step() {}
            guard.expire(Instant::now());
            drove = true;
        }
        let given = guard.ops.given(id);
        if let Some((result, hold)) = guard.ops.take(id) {
            let result = result.map_err(|fail| guard.error(fail));
            self.shared.unlock(guard);
            drop(hold);
            self.state = Stage::Over(given);
            return Poll::Ready(result);
        }
        guard.ops.wake_by(id, cx.waker());
        if drove {
            self.shared.see_to_it(guard);
        } else {
            self.shared.unlock(guard);
        }
        Poll::Pending
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        if let Stage::Under(id) = self.state {
            self.shared.forget(id);
        }
    }
}
