//! Several streams at once, each a connection and a thread of its own.

use std::thread;
use std::time::Duration;

use crate::error::PerfError;
use crate::gate::Gate;
use crate::interrupt::Interrupt;
use crate::link::{Connector, LinkDesc};
use crate::session::{Client, Outcome};
use crate::spec::Spec;

/// What [`multi`] found.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Each stream by itself.
    pub each: Vec<Outcome>,
    /// What the first stream's link is.
    pub desc: LinkDesc,
}

impl Streams {
    /// Bytes of all streams.
    pub fn bytes(&self) -> u64 {
        self.each.iter().map(Outcome::bytes).fold(0, u64::saturating_add)
    }

    /// Messages of all streams.
    pub fn messages(&self) -> u64 {
        self.each.iter().map(Outcome::messages).sum()
    }

    /// From the first byte of all streams to the last, ns.
    pub fn elapsed_ns(&self) -> u64 {
        let first = self.each.iter().map(|out| out.began).min();
        let end = |out: &Outcome| {
            let late = first.map_or(Duration::ZERO, |first| out.began.saturating_duration_since(first));
            late.as_nanos() as u64 + out.elapsed_ns()
        };
        self.each.iter().map(end).max().unwrap_or(0)
    }

    /// Speed of the slowest stream as a part of the fastest one's: 1 is fair.
    pub fn fairness(&self) -> f64 {
        let speed = |out: &Outcome| out.bytes() as f64 / out.elapsed_ns().max(1) as f64;
        let speeds = || self.each.iter().map(speed);
        let fastest = speeds().fold(0.0, f64::max);
        if fastest == 0.0 { 0.0 } else { speeds().fold(f64::INFINITY, f64::min) / fastest }
    }
}

/// Runs `spec` on `streams` connections at the same time. `interrupt` ends all of them, as in [`Client::run`].
///
/// # Errors
/// The [`PerfError`] of the first stream that fails; the others are ended. [`PerfError::Thread`].
pub fn multi<C: Connector>(
    connector: &C,
    streams: u32,
    spec: &Spec,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Streams, PerfError> {
    // All connections stand before the first byte moves.
    let mut clients = Vec::new();
    for gate in Gate::all(streams.max(1)) {
        clients.push(Client::new(connector.connect()?, timeout).with_interrupt(interrupt).with_gate(gate));
    }
    let desc = clients[0].describe();
    let results: Vec<Result<Outcome, PerfError>> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, mut client)| {
                let spec = Spec { seed: spec.seed.wrapping_add(index as u64), ..spec.clone() };
                scope.spawn(move || {
                    let out = client.run(&spec)?;
                    client.close()?;
                    Ok(out)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(PerfError::Thread))).collect()
    });
    Ok(Streams { each: results.into_iter().collect::<Result<_, _>>()?, desc })
}

#[cfg(test)]
mod tests;
