//! A test as people know it: measurements one after another over connections to one peer.

use std::time::Duration;

use linkspan_perf::baseline::Found;
use linkspan_perf::link::{Connector, Link, LinkError};
use linkspan_perf::record::{HostInfo, Row};
use linkspan_perf::{Client, PerfError, Spec, Stop, Test, connects, multi};
use linkspan_topology::{Host, Roots};

use crate::link::{FabricConnector, FabricLink};

/// Connections at once of `multi`.
pub const STREAMS: u32 = 4;

/// What is measured unless somebody says otherwise: the kind, the sizes of messages, and for how long each.
pub fn usual(test: &str) -> Option<(Test, &'static [u64], Duration)> {
    const SECOND: Duration = Duration::from_secs(1);
    Some(match test {
        "bw" => (Test::Bw, &[8, 4 << 10, 64 << 10, 1 << 20, 16 << 20], SECOND),
        "lat" => (Test::Lat, &[8, 1 << 10, 16 << 10, 64 << 10, 1 << 20], SECOND),
        "jitter" => (Test::Jitter, &[64], Duration::from_secs(3)),
        "load" => (Test::Load, &[64], SECOND),
        "multi" => (Test::Bw, &[1 << 20], SECOND),
        "connect" => (Test::Lat, &[8], SECOND),
        _ => return None,
    })
}

/// The five tests, in the order of `all`.
pub const TESTS: [&str; 5] = ["bw", "lat", "jitter", "load", "multi"];

/// Measurements of one test.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Each of them.
    pub specs: Vec<Spec>,
    /// Connections at once, of `multi`.
    pub streams: Option<u32>,
    /// Handshakes only.
    pub connect: bool,
    /// Longest time that one may take; `None`: by what it is.
    pub timeout: Option<Duration>,
}

impl Suite {
    /// One of [`TESTS`], as usual or with other sizes of messages or another time. `None`: there is no such test.
    pub fn of(test: &str, sizes: &[u64], time: Option<Duration>) -> Option<Suite> {
        let (kind, usual, usual_time) = usual(test).filter(|_| TESTS.contains(&test))?;
        let sizes = if sizes.is_empty() { usual } else { sizes };
        let spec = |&size: &u64| Spec { stop: Stop::After(time.unwrap_or(usual_time)), ..Spec::new(kind, size) };
        let streams = (test == "multi").then_some(STREAMS);
        Some(Suite { specs: sizes.iter().map(spec).collect(), streams, connect: false, timeout: None })
    }

    /// Longest time that one measurement may take.
    pub fn timeout(&self, spec: &Spec) -> Duration {
        self.timeout.unwrap_or_else(|| {
            let timed = match spec.stop {
                Stop::After(time) => time,
                Stop::Messages(_) => Duration::ZERO,
            };
            Duration::from_secs(60) + timed.saturating_mul(4)
        })
    }
}

/// Who is told of measurements.
pub trait Measuring {
    /// What it fails with.
    type Failure: From<PerfError>;

    /// Something is being measured, or connected.
    fn begin(&mut self, what: &str);
    /// Measures the machine's limits beside a measurement; `None`: it does not.
    ///
    /// # Errors
    /// A [`Measuring::Failure`], where the row is of no use without the limits.
    fn beside(&mut self, _: &mut Client<FabricLink>, _: &Spec) -> Result<Option<Found>, Self::Failure> {
        Ok(None)
    }
    /// A measurement was made.
    ///
    /// # Errors
    /// A [`Measuring::Failure`]: the row cannot be reported, or makes the run fail.
    fn row(&mut self, row: Row) -> Result<(), Self::Failure>;
}

/// Makes every measurement and hands each row out. After an interrupt that of what was being measured comes out, then the error says so.
///
/// # Errors
/// The tests', with [`LinkError::Interrupted`] in it after an interrupt.
pub fn measure<M: Measuring>(suite: &Suite, connector: &FabricConnector, told: &mut M) -> Result<(), M::Failure> {
    let interrupt = &connector.interrupt;
    let interrupted = || M::Failure::from(LinkError::Interrupted.into());
    let go_on = || if interrupt.raised() { Err(interrupted()) } else { Ok(()) };
    let connect = || connector.connect().map_err(|error| M::Failure::from(error.into()));
    if suite.connect {
        told.begin("connecting");
        let desc = connect()?.describe();
        let found = connects(connector, suite.specs[0].stop, interrupt)?;
        told.row(Row::of_connects(&found, &desc))?;
        return go_on();
    }
    if let Some(streams) = suite.streams {
        for spec in &suite.specs {
            told.begin(&say(spec));
            let found = multi(connector, streams, spec, Some(suite.timeout(spec)), interrupt)?;
            told.row(Row::of_streams(&found))?;
            go_on()?;
        }
        return Ok(());
    }
    told.begin("connecting");
    let mut client = Client::new(connect()?, None).with_interrupt(interrupt);
    for spec in &suite.specs {
        told.begin(&say(spec));
        client.set_timeout(Some(suite.timeout(spec)));
        let out = match client.run(spec) {
            Err(PerfError::Link(LinkError::Interrupted)) => {
                leave(client);
                return Err(interrupted());
            }
            other => other?,
        };
        let mut row = Row::of(&out, &client.describe());
        if !interrupt.raised()
            && let Some(found) = told.beside(&mut client, spec)?
        {
            row.beside(&found);
        }
        told.row(row)?;
        if interrupt.raised() {
            leave(client);
            return Err(interrupted());
        }
    }
    client.close().map_err(M::Failure::from)
}

/// Closes the connection regularly where the peer still reads.
fn leave(client: Client<FabricLink>) {
    let _ = client.close();
}

/// A measurement that is being made, in words.
pub fn say(spec: &Spec) -> String {
    format!("measuring {} of {} B ...", spec.test.name(), linkspan_perf::units::show_size(spec.size))
}

/// This host for records.
pub fn host() -> HostInfo {
    let host = Host::read(&Roots::default());
    HostInfo {
        name: host.name,
        kernel: host.kernel,
        arch: host.arch.into(),
        cpu_model: host.cpu_model,
        cpus: host.cpus,
        memory_bytes: host.memory_bytes,
    }
}

/// Names of the environment that may matter, for records. The key's file is named there, the key never is.
pub fn environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with("LINKSPAN_") || name.starts_with("NCCL_"))
        .collect()
}
