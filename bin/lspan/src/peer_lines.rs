//! Lines on standard error that peers cause: a bounded number of them, whatever strangers do.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use linkspan_fabric::{Level, Log};

/// Lines in each [`SPAN`].
const MOST: u32 = 60;
const SPAN: Duration = Duration::from_secs(60);

static SAID: Mutex<Said> = Mutex::new(Said { since: None, lines: 0, left_out: 0 });

struct Said {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Said {
    /// Whether a line may be written now, and how many were left out in the span before, once.
    fn admit(&mut self, now: Instant) -> (bool, u64) {
        let mut before = 0;
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            before = self.left_out;
            *self = Said { since: Some(now), lines: 0, left_out: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        let may = self.lines <= MOST;
        self.left_out += u64::from(!may);
        (may, before)
    }
}

/// Writes a line to standard error, for programs that outlive the terminal or the pipe that it leads to.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a line, where there may be one more in this minute.
pub(crate) fn say(line: &str) {
    let (may, left_out) = SAID.lock().unwrap_or_else(|e| e.into_inner()).admit(Instant::now());
    if left_out > 0 {
        tell(&format!("lspan: {left_out} more lines about peers were left out"));
    }
    if may {
        tell(line);
    }
}

/// The fabric's log with its warnings bounded. What `LINKSPAN_LOG=info` asks for is written as it comes.
pub(crate) fn log() -> Log {
    if matches!(std::env::var("LINKSPAN_LOG").as_deref(), Ok("off")) {
        return Log::off();
    }
    let log = Log::stderr();
    Log::to(move |level, line| match level {
        Level::Warn => say(&format!("linkspan: WARN {line}")),
        Level::Info => log.info(line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_what_is_left_out_is_counted() {
        let mut said = Said { since: None, lines: 0, left_out: 0 };
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| said.admit(start).0).count();
        assert_eq!(admitted, MOST as usize);
        assert_eq!(said.admit(start + SPAN), (true, 1000 - u64::from(MOST)));
        assert_eq!(said.admit(start + SPAN), (true, 0));
    }
}
