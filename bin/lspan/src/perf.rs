//! `lspan perf`: the asking side.

pub(crate) mod compare;
mod idle;
pub(crate) mod matrix;
mod once;
mod plan;
pub(crate) mod sink;

pub(crate) use plan::Job;

use linkspan_fabric::{Fabric, MemoryName, chain};
use linkspan_perf::baseline::bare::Bare;
use linkspan_perf::baseline::{Found, compare};
use linkspan_perf::record::Row;
use linkspan_perf::{Client, PerfError, Spec, Test};
use linkspan_service::rendezvous;
use linkspan_user::link::{FabricConnector, FabricLink};
use linkspan_user::suite::{self, Measuring};

use crate::child::OtherSide;
use crate::cli::{Measure, PathArg, Perf};
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::out::Progress;
use crate::signals;
use idle::Idle;
use sink::Sink;

/// A peer that can be connected to, and the child that plays it where it is on this host.
pub(crate) struct Peer {
    pub(crate) connector: FabricConnector,
    _other_side: Option<OtherSide>,
}

impl Peer {
    /// The named peer, or a child of ours.
    pub(crate) fn find(name: Option<&str>, path: PathArg, device: usize, memory: MemoryName) -> Result<Peer, Failure> {
        let gpu = fabric::gpu(memory)?;
        let (fabric, handle, other_side, peer): (Fabric, _, _, _) = match name {
            Some(name) => {
                let found = rendezvous::ask(name, rendezvous::PERF)?;
                let handle = found.handle;
                fabric::connect_to(found);
                (fabric::open(path, memory)?, handle, None, name.to_owned())
            }
            None => {
                let fabric = fabric::local(path, memory, false)?;
                let side = OtherSide::start(path, device, memory)?;
                (fabric, side.handle, Some(side), "the other side on this host".to_owned())
            }
        };
        // Until here Ctrl-C ends the process, and there is nothing to keep.
        let interrupt = signals::interrupt()?;
        let connector = FabricConnector { fabric, device, handle, gpu, peer, interrupt };
        Ok(Peer { connector, _other_side: other_side })
    }
}

/// Runs a test command.
pub(crate) fn run(perf: Perf) -> Result<Exit, Failure> {
    let jobs = Job::list(perf)?;
    let first = &jobs[0];
    let mut sink = Sink::new(&first.measure)?;
    let result = sink.start().and_then(|()| {
        let peer = find(first)?;
        // Both ends of a test without a peer are here, and need no cable.
        if first.measure.peer.is_some() {
            sink.idle(Idle::read(&peer.connector.fabric));
        }
        jobs.iter().try_for_each(|job| {
            if jobs.len() > 1 {
                sink.title(job.name())?;
            }
            measure(job, &peer, &mut |row| sink.row(row))
        })
    });
    sink.end(result)
}

fn find(job: &Job) -> Result<Peer, Failure> {
    Peer::find(job.measure.peer.as_deref(), job.measure.path, job.measure.device, job.measure.mem)
}

/// Makes every measurement of a job and hands each row to `each`. After Ctrl-C `each` still gets what was being measured, then the failure says
/// so.
pub(crate) fn measure(job: &Job, peer: &Peer, each: &mut dyn FnMut(Row) -> Result<(), Failure>) -> Result<(), Failure> {
    let baseline = job.measure.baseline.then_some(job.measure.rounds);
    let mut shown = Shown { progress: Progress::new(), each, baseline, bare: None };
    let result = suite::measure(&job.suite, &peer.connector, &mut shown);
    shown.progress.clear();
    result
}

/// Measurements at a terminal.
struct Shown<'a> {
    progress: Progress,
    each: &'a mut dyn FnMut(Row) -> Result<(), Failure>,
    /// Rounds of the baseline.
    baseline: Option<u32>,
    bare: Option<Bare>,
}

impl Measuring for Shown<'_> {
    type Failure = Failure;

    fn begin(&mut self, what: &str) {
        self.progress.say(what);
    }

    fn beside(&mut self, client: &mut Client<FabricLink>, spec: &Spec) -> Result<Option<Found>, Failure> {
        let Some(rounds) = self.baseline else { return Ok(None) };
        self.progress.say(&format!("{}, beside the baseline", suite::say(spec)));
        match self.baseline(client, spec, rounds) {
            // The row stands without it.
            Err(failure) if failure.exit == Exit::Interrupted => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn row(&mut self, row: Row) -> Result<(), Failure> {
        self.progress.clear();
        (self.each)(row)
    }
}

impl Shown<'_> {
    fn baseline(&mut self, client: &mut Client<FabricLink>, spec: &Spec, rounds: u32) -> Result<Found, Failure> {
        let bare = match &mut self.bare {
            Some(bare) => bare,
            None => {
                let mut token = [0; 16];
                getrandom::fill(&mut token)
                    .map_err(|error| Failure::new(Exit::Failed, format!("the system's random numbers: {error}")))?;
                let mut bare = match client.bare(token) {
                    Ok(bare) => bare,
                    Err(error) => return Ok(without(error)?),
                };
                if !fabric::cma()? {
                    bare.forbid_split("LINKSPAN_CMA=0");
                }
                self.bare.insert(bare)
            }
        };
        Ok(compare(client, bare, spec, rounds)?)
    }
}

/// What is found beside a row where there is no bare connection: the reason. The measured row stands without it.
fn without(error: PerfError) -> Result<Found, PerfError> {
    match error {
        PerfError::Refused(_) | PerfError::Baseline { .. } => {
            Ok(Found { notes: vec![format!("no baseline: {}", chain(&error))], ..Found::default() })
        }
        error => Err(error),
    }
}

/// Whether a test of this kind can have a baseline.
pub(crate) fn has_baseline(test: Test) -> bool {
    matches!(test, Test::Bw | Test::Lat)
}

/// Settings of a measurement without a command line.
fn quiet(path: PathArg) -> Measure {
    Measure { path, seed: 1, ..Measure::default() }
}

#[cfg(test)]
mod tests;
