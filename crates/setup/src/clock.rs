//! Time as the sans-IO state machines take it: since the process began.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// The time since the first call of this process.
pub fn now() -> Duration {
    START.get_or_init(Instant::now).elapsed()
}
