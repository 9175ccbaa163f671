//! `lspan doctor --speed`: each way to a peer measured, where nothing else uses linkspan.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linkspan_doctor::{Kept, Measured, RECORD, Report, Snapshot, speeds};
use linkspan_fabric::Config;
use linkspan_fabric::stats::{Counter, read};
use linkspan_topology::{Machine, Roots, cables};
use serde::{Deserialize, Serialize};

use crate::cli::CompareArgs;
use crate::exit::{Exit, Failure};
use crate::out::Progress;
use crate::perf::compare;
use crate::signals;
use crate::status::TRANSPORTS;

/// Schema of the record.
const SCHEMA: &str = "linkspan.speeds/1";

/// Largest record that is read, bytes, and most peers and ways that are kept in it.
const FILE_MAX: u64 = 1 << 20;
const PEERS_MAX: usize = 256;
const WAYS_MAX: usize = 64;

/// Length of each measurement.
const TIME: Duration = Duration::from_millis(500);

/// What is kept of all peers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    schema: String,
    peers: BTreeMap<String, Kept>,
}

/// Measures and judges; what hindered it goes into the notes.
pub(super) fn judge(snapshot: &Snapshot, peer: &str, notes: &mut Vec<String>) -> Result<Report, Failure> {
    if let Some(why) = busy()? {
        notes.push(format!("nothing was measured: {why}"));
        return Ok(Report::default());
    }
    eprintln!("lspan: measuring each way to {peer}, up to two seconds each (`lspan perf serve` has to run there)");
    let measured = measure(snapshot, peer, notes)?;
    if measured.is_empty() {
        notes.push(format!("nothing could be measured to {peer}"));
        return Ok(Report::default());
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
    let kept = file.peers.entry(peer.to_owned()).or_default();
    let mut report = speeds(snapshot.host(), peer, &measured, kept);
    match place {
        Some(place) => match save(&place, &mut file) {
            Ok(()) => report.facts.push(format!("the record of this pair is in {}", place.display())),
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

fn measure(snapshot: &Snapshot, peer: &str, notes: &mut Vec<String>) -> Result<Vec<Measured>, Failure> {
    let machine = Machine::read(&Roots::default());
    let args = CompareArgs { peer: peer.to_owned(), duration: TIME, json: true };
    let local = compare::is_local(peer)?;
    let interrupt = signals::interrupt()?;
    let (mut measured, mut progress) = (Vec::new(), Progress::new());
    for way in compare::ways(&machine, snapshot.survey(), local) {
        if interrupt.raised() {
            return Err(Failure::new(Exit::Interrupted, "interrupted; nothing was kept"));
        }
        if let Some(why) = busy()? {
            notes.push(format!("{} and what follows was not measured: {why}", way.name));
            break;
        }
        progress.say(&format!("measuring {} ...", way.name));
        match compare::measure(&args, &way) {
            Ok(once) => {
                let equal = equal(snapshot, &machine, &way.over);
                measured.push(Measured {
                    way: way.name,
                    over: way.over,
                    kind: way.path.into(),
                    equal,
                    gbit_s: once.gbit_s,
                });
            }
            // A way that leads elsewhere, or is not there, is no fault of speed; that none works is told.
            Err(why) => notes.push(format!("{} was not measured: {why}", way.name)),
        }
    }
    Ok(measured)
}

/// What two equal rails have in common: the negotiated rate of their cables.
fn equal(snapshot: &Snapshot, machine: &Machine, over: &str) -> String {
    let cable = cables(machine, snapshot.survey(), TRANSPORTS);
    let thunderbolt =
        cable.iter().find(|cable| cable.peer.is_some() && cable.paths.iter().any(|path| path.over == over));
    if let Some(cable) = thunderbolt {
        return format!("{:?}", cable.link);
    }
    let port = snapshot.survey().iter().find(|(iface, _)| iface.name == over);
    port.and_then(|(iface, _)| iface.speed_mbps).map_or_else(String::new, |mbps| format!("{mbps} Mb/s"))
}

/// The record: state of this user (the XDG base directory specification).
fn place() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("linkspan/speeds.json"))
}

fn load(place: &Path) -> Result<File, String> {
    let bad = |why: &str| format!("{} is no record of speeds ({why}); it is written anew", place.display());
    let mut bytes = Vec::new();
    match std::fs::File::open(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        opened => opened
            .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| bad(&error.to_string()))?,
    };
    let mut file: File = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
    if file.schema != SCHEMA || bytes.len() as u64 > FILE_MAX {
        return Err(bad("another version, or too long"));
    }
    for record in file.peers.values_mut().flat_map(BTreeMap::values_mut) {
        record.truncate(RECORD);
    }
    Ok(file)
}

/// Writes it whole or not at all.
fn save(place: &Path, file: &mut File) -> std::io::Result<()> {
    file.schema = SCHEMA.into();
    while file.peers.len() > PEERS_MAX {
        file.peers.pop_first();
    }
    for ways in file.peers.values_mut() {
        while ways.len() > WAYS_MAX {
            ways.pop_first();
        }
    }
    let folder = place.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = place.with_extension(format!("{}.new", std::process::id()));
    let mut at = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    serde_json::to_writer_pretty(&mut at, file)?;
    at.sync_all()?;
    std::fs::rename(&new, place)
}

#[cfg(test)]
mod tests;
