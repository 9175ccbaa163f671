//! From a command line to measurements.

use std::time::Duration;

use linkspan_perf::{Direction, Spec, Stop, WaitMode};
use linkspan_user::suite::{self, STREAMS, Suite};

use crate::cli::{BulkArgs, DirectionArg, JitterArgs, LoadArgs, Measure, MultiArgs, PathArg, Perf, WaitArg};
use crate::exit::{Exit, Failure};

/// What a command asks for.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) measure: Measure,
    pub(crate) suite: Suite,
}

impl Job {
    /// The jobs of a command: one, or those of `perf all`.
    pub(crate) fn list(perf: Perf) -> Result<Vec<Job>, Failure> {
        let Perf::All(measure) = perf else {
            useful(&perf)?;
            return Ok(vec![Job::new(perf)?]);
        };
        if measure.baseline {
            return Err(Failure::new(Exit::Usage, "--baseline goes with `perf bw` and `perf lat`; leave it out here"));
        }
        let bulk = BulkArgs { measure: measure.clone(), ..BulkArgs::default() };
        let every = Duration::from_millis(1);
        let tests = [
            Perf::Bw(bulk.clone()),
            Perf::Lat(measure.clone()),
            Perf::Jitter(JitterArgs { measure, interval: every }),
            Perf::Load(LoadArgs { bulk: bulk.clone(), load_size: 1 << 20 }),
            Perf::Multi(MultiArgs { bulk, streams: STREAMS }),
        ];
        tests.into_iter().map(Job::new).collect()
    }

    /// These measurements, without a command line.
    pub(crate) fn of(path: PathArg, specs: Vec<Spec>) -> Job {
        Job { measure: super::quiet(path), suite: Suite { specs, streams: None, connect: false, timeout: None } }
    }

    pub(crate) fn new(perf: Perf) -> Result<Job, Failure> {
        let (mut streams, mut connect) = (None, false);
        let (measure, specs) = match perf {
            Perf::Bw(args) => {
                let specs = specs(&args.measure, "bw");
                (args.measure.clone(), with_direction(specs, &args))
            }
            Perf::Lat(measure) => {
                let specs = specs(&measure, "lat");
                (measure, specs)
            }
            Perf::Jitter(args) => {
                let mut specs = specs(&args.measure, "jitter");
                specs.iter_mut().for_each(|spec| spec.interval = args.interval);
                (args.measure, specs)
            }
            Perf::Load(args) => {
                let mut specs = with_direction(specs(&args.bulk.measure, "load"), &args.bulk);
                for spec in &mut specs {
                    spec.load_size = args.load_size;
                    spec.load_window = args.bulk.measure.window.unwrap_or(8);
                }
                (args.bulk.measure, specs)
            }
            Perf::Multi(args) => {
                streams = Some(args.streams);
                let specs = specs(&args.bulk.measure, "multi");
                (args.bulk.measure.clone(), with_direction(specs, &args.bulk))
            }
            Perf::Connect(measure) => {
                connect = true;
                let none = [
                    ("--size", measure.size.is_some(), "it moves no data; leave it out"),
                    ("--wait", measure.wait != WaitArg::default(), "it moves no data; leave it out"),
                    ("--timeout", measure.timeout.is_some(), "LINKSPAN_CONNECT_TIMEOUT_MS limits each connection"),
                ];
                if let Some((option, _, why)) = none.iter().find(|(_, given, _)| *given) {
                    return Err(Failure::new(
                        Exit::Usage,
                        format!("{option} has no meaning for `perf connect`: {why}"),
                    ));
                }
                let specs = specs(&measure, "connect");
                (measure, specs)
            }
            Perf::Serve(_) | Perf::Write(_) | Perf::Read(_) | Perf::All(_) | Perf::Compare(_) | Perf::Matrix(_) => {
                return Err(Failure::new(Exit::Usage, "this test does not send messages"));
            }
        };
        if measure.baseline
            && (connect || streams.is_some() || !specs.iter().all(|spec| super::has_baseline(spec.test)))
        {
            return Err(Failure::new(Exit::Usage, "--baseline goes with `perf bw` and `perf lat`; leave it out here"));
        }
        let timeout = measure.timeout;
        Ok(Job { measure, suite: Suite { specs, streams, connect, timeout } })
    }

    /// Name of the test, as the command line has it.
    pub(crate) fn name(&self) -> &'static str {
        match (self.suite.streams, self.suite.connect) {
            (Some(_), _) => "multi",
            (None, true) => "connect",
            (None, false) => self.suite.specs.first().map_or("", |spec| spec.test.name()),
        }
    }
}

/// That no option is given which changes nothing of this test; `perf all` has tests for each.
fn useful(perf: &Perf) -> Result<(), Failure> {
    let rows = ("--histogram", "its rows have no latencies; it goes with `perf lat`, `jitter` and `load`");
    let window = ("--window", "each message waits for the one before");
    let (option, why, name, given) = match perf {
        Perf::Bw(args) => (rows.0, rows.1, "bw", args.measure.histogram),
        Perf::Multi(args) => (rows.0, rows.1, "multi", args.bulk.measure.histogram),
        Perf::Lat(measure) => (window.0, window.1, "lat", measure.window.is_some()),
        Perf::Jitter(args) => (window.0, window.1, "jitter", args.measure.window.is_some()),
        _ => return Ok(()),
    };
    let failure = || Failure::new(Exit::Usage, format!("{option} has no meaning for `perf {name}`: {why}"));
    if given { Err(failure()) } else { Ok(()) }
}

fn specs(measure: &Measure, test: &str) -> Vec<Spec> {
    let Some((kind, usual, time)) = suite::usual(test) else { return Vec::new() };
    let sizes = measure.size.as_ref().map_or(usual, |sizes| &sizes.0);
    let one = |&size: &u64| {
        let mut spec = Spec::new(kind, size);
        spec.wait = match measure.wait {
            WaitArg::Spin => WaitMode::Spin,
            WaitArg::Adaptive => WaitMode::Adaptive,
            WaitArg::Sleep => WaitMode::Sleep,
        };
        spec.stop = match (measure.iters, measure.duration) {
            (Some(n), _) => Stop::Messages(n),
            (None, time_given) => Stop::After(time_given.unwrap_or(time)),
        };
        spec.warmup = measure.warmup.unwrap_or(spec.warmup);
        spec.window = measure.window.unwrap_or(spec.window);
        spec.verify = !measure.no_verify;
        spec.seed = measure.seed;
        spec
    };
    sizes.iter().map(one).collect()
}

fn with_direction(mut specs: Vec<Spec>, args: &BulkArgs) -> Vec<Spec> {
    let direction = match args.direction {
        _ if args.bidir => Direction::Both,
        DirectionArg::Send => Direction::Send,
        DirectionArg::Recv => Direction::Recv,
        DirectionArg::Both => Direction::Both,
    };
    specs.iter_mut().for_each(|spec| spec.direction = direction);
    specs
}

#[cfg(test)]
mod tests;
