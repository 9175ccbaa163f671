//! Where the fabric's lines go: NCCL's logger inside NCCL, standard error elsewhere.

use std::sync::Arc;

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is worse than it should be.
    Warn,
    /// What was chosen and why.
    Info,
}

type Sink = dyn Fn(Level, &str) + Send + Sync;

/// A destination of log lines. Cloning is cheap; lines come from any thread.
#[derive(Clone)]
pub struct Log(Option<Arc<Sink>>);

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
        Log(Some(Arc::new(f)))
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
                eprintln!("linkspan: {word} {line}");
            }
        })
    }

    /// One line of level [`Level::Warn`].
    pub fn warn(&self, line: &str) {
        if let Some(f) = &self.0 {
            f(Level::Warn, line);
        }
    }

    /// One line of level [`Level::Info`].
    pub fn info(&self, line: &str) {
        if let Some(f) = &self.0 {
            f(Level::Info, line);
        }
    }
}
