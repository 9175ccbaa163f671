//! Lines on standard error that peers cause: a bounded number of them, whatever strangers do.

use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

use linkspan_fabric::{Level, Log};
use linkspan_net::LineLimit;

/// Sixty in a minute.
static SAID: Mutex<LineLimit> = Mutex::new(LineLimit::new(60));

/// Writes a line to standard error, for programs that outlive the terminal or the pipe that it leads to.
pub(crate) fn tell(line: &str) {
    // In one piece: other processes write to the same place.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes a line, where there may be one more in this minute.
pub(crate) fn say(line: &str) {
    let admitted = SAID.lock().unwrap_or_else(|e| e.into_inner()).admit("", Instant::now());
    let Some(left_out) = admitted else { return };
    if left_out > 0 {
        tell(&format!("lspan: {left_out} more lines about peers were left out"));
    }
    tell(line);
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
