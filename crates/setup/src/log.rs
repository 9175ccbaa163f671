//! Where the fabric's lines go: NCCL's logger inside NCCL, standard error elsewhere.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use linkspan_net::LineLimit;

use crate::stats::Stats;

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is worse than it should be.
    Warn,
    /// What was chosen and why.
    Info,
}

/// How a line about a downgrade begins.
const DOWNGRADE: &str = "downgrade: ";

type Sink = dyn Fn(Level, &str) + Send + Sync;

/// Lines of one log in a minute that others can cause as often as they like.
const SELDOM: usize = 64;

struct Lines {
    sink: Box<Sink>,
    seldom: Mutex<LineLimit>,
}

/// A destination of log lines. Cloning is cheap; lines come from any thread.
#[derive(Clone)]
pub struct Log(Option<Arc<Lines>>);

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Log" } else { "Log(off)" })
    }
}

impl Log {
    /// A log that drops every line.
    pub fn off() -> Log {
        Log(None)
    }

    /// A log that passes each line to a function.
    pub fn to(f: impl Fn(Level, &str) + Send + Sync + 'static) -> Log {
        Log(Some(Arc::new(Lines { sink: Box::new(f), seldom: Mutex::new(LineLimit::new(SELDOM)) })))
    }

    /// A log on standard error at the level of `LINKSPAN_LOG`.
    pub fn stderr() -> Log {
        let most = match std::env::var("LINKSPAN_LOG").as_deref() {
            Ok("off") => return Log::off(),
            Ok("info") => Level::Info,
            _ => Level::Warn,
        };
        Log::to(move |level, line| {
            if level <= most {
                let word = if level == Level::Warn { "WARN" } else { "INFO" };
                // In one piece: other processes write to the same terminal or file. One that is gone is no reason to end.
                let _ = std::io::stderr().write_all(format!("linkspan: {word} {line}\n").as_bytes());
            }
        })
    }

    /// One line of level [`Level::Warn`].
    pub fn warn(&self, line: &str) {
        if let Some(lines) = &self.0 {
            (lines.sink)(Level::Warn, line);
        }
    }

    /// One line of level [`Level::Info`].
    pub fn info(&self, line: &str) {
        if let Some(lines) = &self.0 {
            (lines.sink)(Level::Info, line);
        }
    }
}

/// A log that passes all on to this one, and counts each downgrade into the page.
pub fn counting(log: Log, stats: Arc<Stats>) -> Log {
    Log::to(move |level, line| {
        if let (Level::Warn, Some(what)) = (level, line.strip_prefix(DOWNGRADE)) {
            stats.downgraded(what);
        }
        match level {
            Level::Warn => log.warn(line),
            Level::Info => log.info(line),
        }
    })
}

/// One line of level [`Level::Warn`], unless there was one about this matter less than a minute ago; whether it was written.
pub fn warn_seldom(log: &Log, matter: &str, line: &str) -> bool {
    let Some(lines) = &log.0 else { return false };
    let admitted = lines.seldom.lock().unwrap_or_else(PoisonError::into_inner).admit(matter, Instant::now());
    if admitted.is_some() {
        log.warn(line);
    }
    admitted.is_some()
}
