//! `lspan doctor --speed`: each way to a peer measured, where nothing else uses linkspan.

mod record;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_doctor::{Asked, Finding, Measured, Report, Snapshot, shut, speeds, stalled};
use linkspan_fabric::Config;
use linkspan_fabric::stats::{Counter, read};
use linkspan_service::rendezvous;
use linkspan_topology::{Machine, Roots, cables};

use crate::cli::CompareArgs;
use crate::exit::{Exit, Failure};
use crate::out::Progress;
use crate::perf::compare;
use crate::signals;
use record::{File, load, place, save};

/// Length of each measurement.
const TIME: Duration = Duration::from_millis(500);

/// What was measured, what stood still, and why the others came to nothing.
#[derive(Default)]
struct Ways {
    measured: Vec<Measured>,
    stalled: Vec<Finding>,
    failures: Vec<String>,
}

/// Measures and judges; what hindered it goes into the notes. `asked` is what the peer answered.
///
/// # Errors
/// [`Exit::NoPeer`]: nobody serves there, a job runs, or nothing could be measured and what was asked does not say why.
/// [`Exit::Interrupted`]: nothing is kept then.
pub(super) fn judge(
    snapshot: &Snapshot,
    peer: &str,
    asked: Option<&Asked>,
    notes: &mut Vec<String>,
) -> Result<Report, Failure> {
    let nothing = |why: &str| Failure::new(Exit::NoPeer, format!("LS2021 nothing could be measured to {peer}: {why}"));
    if let Some(why) = busy()? {
        return Err(nothing(&why));
    }
    // A peer that serves nobody is told of once, not for each way.
    rendezvous::ask(peer, rendezvous::PERF)?;
    eprintln!("lspan: measuring each way to {peer}, up to two seconds each (`lspan perf serve` has to run there)");
    let Ways { measured, stalled, failures } = measure(snapshot, peer, notes)?;
    if measured.is_empty() && stalled.is_empty() {
        let shut = shut(snapshot.host(), peer, asked.and_then(Asked::open), &failures);
        return Ok(Report { findings: vec![shut.ok_or_else(|| nothing("the notes say why"))?], ..Report::default() });
    }
    let place = place();
    let mut file = match place.as_deref().map(load) {
        Some(Ok(file)) => file,
        Some(Err(why)) => {
            notes.push(why);
            File::default()
        }
        None => File::default(),
    };
    let ids = record::ids(peer, asked.map(Asked::address))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let kept = file.of(&ids, now);
    let mut report = speeds(snapshot.host(), peer, &measured, kept);
    report.findings.extend(stalled);
    record::cut(kept, &measured);
    match place {
        Some(place) => match save(&place, &mut file) {
            Ok(()) => report.facts.push(format!("the record of {} is in {}", ids.join(", "), place.display())),
            Err(error) => notes.push(format!("the speeds are not kept: {}: {error}", place.display())),
        },
        None => notes.push("the speeds are not kept: neither XDG_STATE_HOME nor HOME is set".into()),
    }
    Ok(report)
}

/// Who uses linkspan at the moment: a measurement would slow it down, and be slowed down.
fn busy() -> Result<Option<String>, Failure> {
    let Some(dir) = Config::from_env()?.stats_dir else {
        return Ok(Some("LINKSPAN_STATS_DIR=off hides whether a job uses the cables".into()));
    };
    let pages = read(&dir).map_err(|error| Failure::system(&format!("statistics in {}", dir.display()), &error))?;
    let open = |page: &&linkspan_fabric::stats::ProcessStats| {
        page.records.iter().any(|record| record.counters.get(Counter::Open as usize).is_some_and(|open| *open > 0))
    };
    Ok(pages.iter().find(open).map(|page| format!("process {} has connections over linkspan", page.pid)))
}

fn measure(snapshot: &Snapshot, peer: &str, notes: &mut Vec<String>) -> Result<Ways, Failure> {
    let machine = Machine::read(&Roots::default());
    let args = CompareArgs { peer: peer.to_owned(), duration: TIME, json: true };
    let local = compare::is_local(peer)?;
    let interrupt = signals::interrupt()?;
    let (mut ways, mut progress) = (Ways::default(), Progress::new());
    for way in compare::ways(&machine, snapshot.survey(), local) {
        if interrupt.raised() {
            break;
        }
        if let Some(why) = busy()? {
            notes.push(format!("{} and what follows was not measured: {why}", way.name));
            break;
        }
        progress.say(&format!("measuring {} ...", way.name));
        match compare::measure(&args, &way) {
            Ok(once) => {
                let equal = equal(snapshot, &machine, &way.over);
                ways.measured.push(Measured {
                    way: way.name,
                    over: way.over,
                    kind: way.path.into(),
                    equal,
                    gbit_s: once.gbit_s,
                });
            }
            Err(why) if why.contains("LS0705") || why.contains("did not end within") => {
                ways.stalled.push(stalled(snapshot.host(), peer, &way.name, &way.over, &why));
            }
            // A way that leads elsewhere, or is not there, is no fault of speed; that none works is told.
            Err(why) => {
                notes.push(format!("{} was not measured: {why}", way.name));
                ways.failures.push(why);
            }
        }
    }
    // Also in the last way.
    if interrupt.raised() {
        return Err(Failure::new(Exit::Interrupted, "interrupted; nothing was kept"));
    }
    Ok(ways)
}

/// What two equal rails have in common: the negotiated rate of their cables.
fn equal(snapshot: &Snapshot, machine: &Machine, over: &str) -> String {
    let cable = cables(machine, snapshot.survey());
    let thunderbolt =
        cable.iter().find(|cable| cable.peer.is_some() && cable.paths.iter().any(|path| path.over == over));
    if let Some(cable) = thunderbolt {
        return format!("{:?}", cable.link);
    }
    let port = snapshot.survey().iter().find(|(iface, _)| iface.name == over);
    port.and_then(|(iface, _)| iface.speed_mbps).map_or_else(String::new, |mbps| format!("{mbps} Mb/s"))
}
