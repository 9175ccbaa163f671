//! The last answers to each client: a request that is repeated after a lost connection has effect once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::wire::{Answer, Fault};

/// Sessions of one peer whose last answers are kept, and answers of each.
const SESSIONS_KEPT: usize = 16;
const ANSWERS_KEPT: usize = 8;

/// Those of one session.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Connections that it has had.
    pub(crate) connections: u64,
    answers: VecDeque<(u64, Result<Answer, Fault>)>,
}

impl Said {
    /// Carries a request out, unless it was answered before under this number: then that answer is given again.
    pub(crate) fn once(&mut self, number: u64, act: impl FnOnce() -> Result<Answer, Fault>) -> Result<Answer, Fault> {
        if let Some((_, said)) = self.answers.iter().find(|(n, _)| *n == number) {
            return said.clone();
        }
        let result = act();
        if self.answers.len() >= ANSWERS_KEPT {
            self.answers.pop_front();
        }
        self.answers.push_back((number, result.clone()));
        result
    }
}

/// Those to one peer, the session that was connected longest ago first.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<([u8; 16], Arc<Mutex<Said>>)>);

impl Answers {
    /// Those of this session.
    pub(crate) fn of(&mut self, session: [u8; 16]) -> Arc<Mutex<Said>> {
        let known = self.0.iter().position(|(id, _)| *id == session);
        let (_, said) = known.and_then(|at| self.0.remove(at)).unwrap_or_default();
        // One that has a connection stays: of those a peer has fewer than a bound, too.
        let idle = self.0.iter().position(|(_, said)| Arc::strong_count(said) == 1);
        if let Some(idle) = idle.filter(|_| self.0.len() >= SESSIONS_KEPT) {
            self.0.remove(idle);
        }
        self.0.push_back((session, said.clone()));
        said
    }
}
