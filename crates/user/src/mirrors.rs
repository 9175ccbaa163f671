//! The mirrors that a user's service follows changes with: kept on the disk until somebody stops them or they fail, so that the next start of
//! the service has them again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::place::{read_state, state_dir, write_state};
use crate::task::{Kind, Say, Task};

/// One that is kept.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Source and destination, as asked.
    pub ends: [String; 2],
    /// The options with which it goes on.
    pub options: Value,
    /// Whose it is, once one runs.
    #[serde(skip)]
    task: Option<u64>,
}

/// All of one user. May be used from any thread.
pub struct Mirrors {
    path: PathBuf,
    kept: Mutex<Vec<Kept>>,
    /// Why the file was not read.
    unread: Option<String>,
    begun: AtomicBool,
}

impl std::fmt::Debug for Mirrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirrors").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Mirrors {
    /// Those of this file.
    pub fn new(path: PathBuf, say: &Say) -> Mirrors {
        let (kept, unread) = read_state(&path, say);
        Mirrors { path, kept: Mutex::new(kept), unread, begun: AtomicBool::new(false) }
    }

    /// Those that go on now that the service has begun; none at a later call.
    pub fn begin(&self) -> Vec<Kept> {
        if self.begun.swap(true, Ordering::AcqRel) { Vec::new() } else { self.locked().clone() }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the mirror of a task, unless that was cancelled.
    ///
    /// # Errors
    /// [`Error::Refused`]: the file could not be read; [`Error::System`].
    pub(crate) fn keep(&self, task: &Task, options: &Value) -> Result<(), Error> {
        let Ok(ends) = <[String; 2]>::try_from(task.arguments.clone()) else { return Ok(()) };
        let new = Kept { ends, options: options.clone(), task: Some(task.id) };
        let mut kept = self.locked();
        if task.interrupt.raised() {
            return Ok(());
        }
        match kept.iter_mut().find(|one| (&one.ends, &one.options) == (&new.ends, &new.options)) {
            Some(one) => one.task = new.task,
            None => {
                let mut all = kept.clone();
                all.retain(|one| one.ends != new.ends);
                all.push(new);
                self.write(&mut kept, all)?;
            }
        }
        task.kept.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps that of a task no more; that of another one with the same ends stays.
    ///
    /// # Errors
    /// As those of keeping it: the next start has it again.
    pub fn release(&self, task: &Task) -> Result<(), Error> {
        let mut kept = self.locked();
        let mut all = kept.clone();
        all.retain(|one| one.ends[..] != task.arguments[..] || one.task.is_some_and(|owner| owner != task.id));
        if task.kind == Kind::Mirror && all.len() < kept.len() {
            self.write(&mut kept, all)?;
        }
        task.kept.store(false, Ordering::Release);
        Ok(())
    }

    /// Where they are kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, kept: &mut Vec<Kept>, all: Vec<Kept>) -> Result<(), Error> {
        if let Some(why) = &self.unread {
            return Err(Error::Refused(why.clone()));
        }
        write_state(&self.path, &all)?;
        *kept = all;
        Ok(())
    }
}

/// Where mirrors of this user are kept.
///
/// # Errors
/// [`Error::System`].
pub fn file() -> Result<PathBuf, Error> {
    Ok(state_dir("service")?.join("mirrors.json"))
}
