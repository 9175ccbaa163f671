//! The end of sessions in which nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When something last happened in a session, and how long nothing may. Clones share the time.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    limit: Option<Duration>,
    base: Instant,
    /// ns since `base`.
    last: Arc<AtomicU64>,
}

impl Idle {
    /// From now on. `None`: without end.
    pub(crate) fn new(limit: Option<Duration>) -> Idle {
        Idle { limit, base: Instant::now(), last: Arc::default() }
    }

    /// Something happened.
    pub(crate) fn touch(&self) {
        self.last.store(self.base.elapsed().as_nanos() as u64, Ordering::Release);
    }

    /// The limit, once it is reached.
    pub(crate) fn over(&self) -> Option<Duration> {
        let since = || self.base.elapsed().saturating_sub(Duration::from_nanos(self.last.load(Ordering::Acquire)));
        self.limit.filter(|limit| since() >= *limit)
    }
}
