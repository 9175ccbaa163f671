//! What a listening socket does after `accept` has failed.

use std::io;
use std::time::{Duration, Instant};

use crate::LineLimit;

/// How long `accept` is left alone after it has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A pause after `accept` has failed, and one warning a minute about it.
///
/// accept4(2) gives EMFILE before it looks at its queue, and the socket stays readable: a loop that waits for it and calls
/// again would spin and write a line each time. While the pause lasts the socket is neither asked nor waited for.
#[derive(Debug)]
pub struct AcceptPause {
    until: Option<Instant>,
    warnings: LineLimit,
}

impl Default for AcceptPause {
    fn default() -> AcceptPause {
        AcceptPause::new()
    }
}

impl AcceptPause {
    /// No pause.
    pub const fn new() -> AcceptPause {
        AcceptPause { until: None, warnings: LineLimit::new(1) }
    }

    /// Whether `accept` may be called, and its socket be waited for.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// `accept` failed: begins a pause. True when the caller should warn.
    #[must_use]
    pub fn begin(&mut self, now: Instant) -> bool {
        self.until = Some(now + PAUSE);
        self.warnings.admit("", now).is_some()
    }
}

/// Whether the process or the host has no descriptor or no memory left, which passes.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests;
