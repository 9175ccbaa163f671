//! The last answers to each client: a request that is repeated after a lost connection has effect once.

use std::collections::VecDeque;

use crate::wire::{Answer, Fault};

/// Sessions of one peer whose last answers are kept, and answers of each.
const SESSIONS_KEPT: usize = 16;
const ANSWERS_KEPT: usize = 8;

type Said = VecDeque<(u64, Result<Answer, Fault>)>;

/// Those to one peer, the oldest session first.
#[derive(Debug, Default)]
pub(crate) struct Answers(VecDeque<([u8; 16], Said)>);

impl Answers {
    /// Carries a request out, unless it was answered before under this number: then that answer is given again.
    pub(crate) fn once(
        &mut self,
        session: [u8; 16],
        number: u64,
        act: impl FnOnce() -> Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        let at = match self.0.iter().position(|(id, _)| *id == session) {
            Some(at) => at,
            None => {
                if self.0.len() >= SESSIONS_KEPT {
                    self.0.pop_front();
                }
                self.0.push_back((session, Said::new()));
                self.0.len() - 1
            }
        };
        let said = &mut self.0[at].1;
        if let Some((_, said)) = said.iter().find(|(n, _)| *n == number) {
            return said.clone();
        }
        let result = act();
        if said.len() >= ANSWERS_KEPT {
            said.pop_front();
        }
        said.push_back((number, result.clone()));
        result
    }
}
