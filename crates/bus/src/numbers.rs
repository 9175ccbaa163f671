//! Statistics as the bus shows them: made once for all who ask for the same within a moment, of a bounded number of processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::ProcessStats;
use linkspan_service::statistics;
use linkspan_service::system::System;
use serde::{Serialize, Serializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use zbus::zvariant::{Signature, Type};

use crate::{Dict, to_dict};

/// Most processes of an answer, of all users by turns. With all of its records each takes up to 370 KiB here, and 70 KiB as a message.
pub const PROCESSES: usize = 128;

/// Most processes in all answers that are kept at a time. Who needs more waits for its turn.
const KEPT: usize = 256;

/// For how long an answer is the answer. Shorter than the shortest interval of Watch, and so for each of its turns another one.
const FRESH: Duration = Duration::from_millis(200);

/// An answer, for as many as ask for it.
#[derive(Clone, Debug)]
pub(crate) struct Processes(Arc<Built>);

#[derive(Debug)]
struct Built {
    at: Instant,
    dicts: Vec<Dict>,
    /// Given back with the last clone. `None`: there are no processes.
    _kept: Option<OwnedSemaphorePermit>,
}

impl Type for Processes {
    const SIGNATURE: &'static Signature = <Vec<Dict>>::SIGNATURE;
}

impl Serialize for Processes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.dicts.serialize(serializer)
    }
}

/// What is answered for one user, or to those who may see all.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    built: tokio::sync::Mutex<Option<Processes>>,
    /// Held while a message of it is made and sent: one at a time, for each is some MiB.
    pub(crate) sending: tokio::sync::Mutex<()>,
}

/// The answers that are kept.
type Answers = Arc<Mutex<HashMap<Option<u32>, Arc<Answer>>>>;

/// The numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    system: Arc<System>,
    answers: Answers,
    free: Arc<Semaphore>,
}

fn locked(answers: &Answers) -> MutexGuard<'_, HashMap<Option<u32>, Arc<Answer>>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    pub(crate) fn new(system: Arc<System>) -> Numbers {
        Numbers { system, answers: Answers::default(), free: Arc::new(Semaphore::new(KEPT)) }
    }

    /// That of a user, or of all.
    pub(crate) fn answer(&self, uid: Option<u32>) -> Arc<Answer> {
        locked(&self.answers).entry(uid).or_default().clone()
    }

    /// What the jobs have counted, as of the last 200 ms.
    pub(crate) async fn read(&self, answer: &Arc<Answer>, uid: Option<u32>) -> Processes {
        let mut kept = answer.built.lock().await;
        if let Some(found) = kept.as_ref().filter(|found| found.0.at.elapsed() < FRESH) {
            return found.clone();
        }
        // The old one is gone before there is a new one.
        *kept = None;
        let system = self.system.clone();
        let pages = spawn_blocking(move || system.statistics()).await.unwrap_or_default();
        let mut turns: HashMap<u32, usize> = HashMap::new();
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for (at, page) in pages.iter().enumerate().filter(|(_, page)| uid.is_none_or(|uid| page.uid == uid)) {
            let turn = turns.entry(page.uid).or_default();
            *turn += 1;
            chosen.push((*turn, at));
        }
        chosen.sort_unstable();
        chosen.truncate(PROCESSES);
        chosen.sort_unstable_by_key(|(_, at)| *at);
        // All others are not kept meanwhile.
        let chosen: Vec<ProcessStats> = chosen.iter().filter_map(|(_, at)| pages.get(*at).cloned()).collect();
        drop(pages);
        let permits = u32::try_from(chosen.len()).unwrap_or_default();
        // The semaphore is never closed.
        let places = if permits == 0 { None } else { self.free.clone().acquire_many_owned(permits).await.ok() };
        let make = move || -> Vec<Dict> { chosen.iter().map(|page| to_dict(&statistics::json(page))).collect() };
        let dicts = spawn_blocking(make).await.unwrap_or_default();
        let built = Processes(Arc::new(Built { at: Instant::now(), dicts, _kept: places }));
        *kept = Some(built.clone());
        drop(kept);
        self.forget_later(answer.clone(), uid);
        built
    }

    /// Nobody has asked for a while: nothing is kept.
    fn forget_later(&self, answer: Arc<Answer>, uid: Option<u32>) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            tokio::time::sleep(FRESH).await;
            let mut kept = answer.built.lock().await;
            if kept.as_ref().is_some_and(|found| found.0.at.elapsed() >= FRESH) {
                *kept = None;
            }
            drop(kept);
            let mut all = locked(&answers);
            // The map's and this one: nobody is asking.
            if Arc::strong_count(&answer) == 2 {
                all.remove(&uid);
            }
        });
    }
}

#[cfg(test)]
mod tests;
