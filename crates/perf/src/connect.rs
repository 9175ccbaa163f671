//! Handshakes only.

use std::time::Instant;

use crate::error::PerfError;
use crate::hist::Recorder;
use crate::interrupt::Interrupt;
use crate::link::Connector;
use crate::session::Client;
use crate::spec::Stop;

/// What [`connects`] found.
#[derive(Clone, Debug)]
pub struct Connects {
    /// Time of each connection set-up, until it could carry data.
    pub handshakes: Recorder,
    /// Time of the whole test, ns.
    pub elapsed_ns: u64,
}

/// Connects and closes, one after another. `interrupt` ends it early.
///
/// # Errors
/// [`PerfError::Link`]: the first connection that fails ends the test.
pub fn connects<C: Connector>(connector: &C, stop: Stop, interrupt: &Interrupt) -> Result<Connects, PerfError> {
    let mut handshakes = Recorder::new();
    let start = Instant::now();
    let more = |done: u64| match stop {
        Stop::Messages(n) => done < n,
        Stop::After(time) => done == 0 || start.elapsed() < time,
    };
    while more(handshakes.count()) && !interrupt.raised() {
        let from = Instant::now();
        let one = connector.connect().map_err(PerfError::from).and_then(|link| {
            handshakes.record(from.elapsed().as_nanos() as u64);
            Client::new(link, None).close()
        });
        match one {
            // A terminal's Ctrl-C goes to both sides, and the other one may get it first.
            Err(_) if handshakes.count() > 0 && interrupt.soon() => break,
            other => other?,
        }
    }
    Ok(Connects { handshakes, elapsed_ns: start.elapsed().as_nanos() as u64 })
}

#[cfg(test)]
mod tests;
