//! `lspan perf`: the asking side.

mod plan;
pub(crate) mod sink;

pub(crate) use plan::Job;

use std::time::Duration;

use linkspan_fabric::Fabric;
use linkspan_perf::baseline::memcpy::memcpy;
use linkspan_perf::baseline::{Measure as Compared, compare};
use linkspan_perf::link::Connector;
use linkspan_perf::record::{BaselineRow, Row};
use linkspan_perf::{Client, Spec, Test, connects, multi};

use crate::child::OtherSide;
use crate::cli::{Measure, PathArg, Perf};
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::link::{FabricConnector, FabricLink};
use crate::out::Progress;
use crate::rendezvous;
use sink::Sink;

/// A peer that can be connected to, and the child that plays it where it is on this host.
pub(crate) struct Peer {
    pub(crate) connector: FabricConnector,
    _other_side: Option<OtherSide>,
}

impl Peer {
    /// The named peer, or a child of ours.
    pub(crate) fn find(name: Option<&str>, path: PathArg, device: usize) -> Result<Peer, Failure> {
        let (fabric, handle, other_side, peer): (Fabric, _, _, _) = match name {
            Some(name) => (fabric::open(path)?, rendezvous::ask(name)?, None, name.to_owned()),
            None => {
                let fabric = fabric::local(path, false)?;
                let side = OtherSide::start(path, device)?;
                (fabric, side.handle, Some(side), "the other side on this host".to_owned())
            }
        };
        let connector = FabricConnector { fabric, device, handle, peer };
        Ok(Peer { connector, _other_side: other_side })
    }
}

/// Runs a test command.
pub(crate) fn run(perf: Perf) -> Result<Exit, Failure> {
    let job = Job::new(perf)?;
    let mut sink = Sink::new(&job.measure)?;
    let result = sink.start().and_then(|()| measure(&job, &mut |row| sink.row(row)));
    sink.end(result)
}

/// Makes every measurement of a job and hands each row to `each`.
pub(crate) fn measure(job: &Job, each: &mut dyn FnMut(Row) -> Result<(), Failure>) -> Result<(), Failure> {
    let peer = Peer::find(job.measure.peer.as_deref(), job.measure.path, job.measure.device)?;
    measure_with(job, &peer, each)
}

/// As [`measure`], with a peer at hand.
pub(crate) fn measure_with(
    job: &Job,
    peer: &Peer,
    each: &mut dyn FnMut(Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut progress = Progress::new();
    if job.connect {
        progress.say("connecting");
        let desc = linkspan_perf::link::Link::describe(&peer.connector.connect()?);
        let found = connects(&peer.connector, job.specs[0].stop)?;
        progress.clear();
        return each(Row::of_connects(&found, &desc));
    }
    if let Some(streams) = job.streams {
        for spec in &job.specs {
            progress.say(&say(spec));
            let found = multi(&peer.connector, streams, spec, Some(job.timeout(spec)))?;
            progress.clear();
            each(Row::of_streams(&found))?;
        }
        return Ok(());
    }
    let mut session = Session { client: Client::new(peer.connector.connect()?, None), bare: None };
    for spec in &job.specs {
        progress.say(&say(spec));
        session.client.set_timeout(Some(job.timeout(spec)));
        let out = session.client.run(spec)?;
        let mut row = Row::of(&out, &session.client.describe());
        if job.measure.baseline {
            progress.say(&format!("{}, beside the baseline", say(spec)));
            row.baseline = session.baseline(spec, job.measure.rounds)?;
        }
        progress.clear();
        each(row)?;
    }
    session.client.close().map_err(Failure::from)
}

fn say(spec: &Spec) -> String {
    format!("measuring {} of {} B ...", spec.test.name(), linkspan_perf::units::show_size(spec.size))
}

struct Session {
    client: Client<FabricLink>,
    bare: Option<linkspan_perf::baseline::bare::Bare>,
}

impl Session {
    fn baseline(&mut self, spec: &Spec, rounds: u32) -> Result<Vec<BaselineRow>, Failure> {
        let bare = match &mut self.bare {
            Some(bare) => bare,
            None => {
                let mut token = [0; 16];
                getrandom::fill(&mut token)
                    .map_err(|error| Failure::new(Exit::Failed, format!("the system's random numbers: {error}")))?;
                self.bare.insert(self.client.bare(token)?)
            }
        };
        let Some(found) = compare(&mut self.client, bare, spec, rounds)? else {
            eprintln!(
                "lspan: the bare loop has no counterpart for {} {}: it is measured beside `bw --direction send` and `lat`",
                spec.test.name(),
                spec.direction.name()
            );
            return Ok(Vec::new());
        };
        let mut rows = vec![BaselineRow::from(&found)];
        if found.measure == Compared::Bandwidth {
            let (ours, base) = (found.medians().0, memcpy(spec.size, spec.window_used(), Duration::from_millis(100)));
            let ratio = if base > 0.0 { ours / base } else { 0.0 };
            rows.push(BaselineRow {
                kind: "memcpy".into(),
                measure: "bw_gbyte_s".into(),
                ours,
                base,
                ratio,
                ratio_min: ratio,
                ratio_max: ratio,
                rounds: 1,
                cpu_ratio: None,
                congestion: None,
            });
        }
        Ok(rows)
    }
}

/// Whether a test of this kind can have a baseline.
pub(crate) fn has_baseline(test: Test) -> bool {
    matches!(test, Test::Bw | Test::Lat)
}

/// Settings of a measurement without a command line.
pub(crate) fn quiet(path: PathArg) -> Measure {
    Measure { path, seed: 1, ..Measure::default() }
}
