//! Where streams that are measured at once wait for each other.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Debug, Default)]
struct State {
    members: u32,
    waiting: u32,
    /// How often all have passed.
    round: u64,
}

impl State {
    fn open(&mut self, changed: &Condvar) {
        if self.waiting == self.members {
            self.waiting = 0;
            self.round += 1;
            changed.notify_all();
        }
    }
}

/// A member of a gate that opens, again and again, when all members wait at it. One that is dropped keeps no other back.
#[derive(Debug)]
pub(crate) struct Gate {
    shared: Arc<(Mutex<State>, Condvar)>,
    /// The round that this one waits in.
    joined: Option<u64>,
}

impl Gate {
    /// One for each member.
    pub(crate) fn all(members: u32) -> Vec<Gate> {
        let shared = Arc::new((Mutex::new(State { members, ..State::default() }), Condvar::new()));
        (0..members).map(|_| Gate { shared: Arc::clone(&shared), joined: None }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits for at most about `most`. False: it is still shut, ask again.
    pub(crate) fn passed(&mut self, most: Duration) -> bool {
        let mut state = self.lock();
        let round = self.joined.unwrap_or_else(|| {
            state.waiting += 1;
            state.round
        });
        if self.joined.is_none() {
            state.open(&self.shared.1);
        }
        if state.round == round {
            state = self.shared.1.wait_timeout(state, most).unwrap_or_else(|e| e.into_inner()).0;
        }
        let passed = state.round != round;
        drop(state);
        self.joined = (!passed).then_some(round);
        passed
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.lock();
        if self.joined == Some(state.round) {
            state.waiting -= 1;
        }
        state.members -= 1;
        state.open(&self.shared.1);
    }
}

#[cfg(test)]
mod tests;
