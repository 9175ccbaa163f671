//! `lspan trash`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use linkspan_files::client::Client;
use linkspan_files::fs::{Kind, RealFs};
use linkspan_files::name::{Name, RelPath, escape};
use linkspan_files::trash::began;
use linkspan_files::wire::Entry;
use linkspan_files::{Error, Side};
use linkspan_user::place::Place;
use serde_json::json;

use super::{connect, counted, name_json, usage};
use crate::cli::files::{PeerArgs, Trash};
use crate::exit::{Exit, Failure};
use crate::out::Out;

/// Seconds of a day.
const DAY: i64 = 24 * 3600;

pub(crate) fn run(what: &Trash) -> Result<Exit, Failure> {
    match what {
        Trash::List(args) => with(&args.at, &args.peer, |side| list(side, args.json)),
        Trash::Restore(args) => with(&args.at, &args.peer, |mut side| {
            let mut exit = Exit::Ok;
            for path in &args.paths {
                if let Err(failure) = restore(&mut side, path) {
                    let shown = escape(path.as_os_str().as_bytes());
                    eprintln!("lspan: {shown}: {}", failure.message);
                    exit = failure.exit;
                }
            }
            Ok(exit)
        }),
        Trash::Empty(args) => with(&args.at, &args.peer, |side| empty(side, args.older)),
    }
}

/// Has the tree that is meant: a share of a peer, or a directory of this host.
fn with(at: &str, peer: &PeerArgs, act: impl FnOnce(Side<'_>) -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    if !at.contains(':') || Path::new(at).is_dir() {
        let root = RealFs::root(Path::new(at)).map_err(|error| Failure::system(at, &error))?;
        return act(Side::Here(Arc::new(root)));
    }
    let place = Place::whole(at)?;
    if !place.path.is_root() {
        return Err(usage(&format!("{at:?} is a directory of a share: the trash is that of all of {}", place.share)));
    }
    let mut client: Client = connect(&place.peer, peer)?;
    act(Side::There(&mut client, place.at()))
}

fn join(path: &RelPath, name: &[u8]) -> Option<RelPath> {
    path.join(&Name::new(name).ok()?).ok()
}

/// The runs, the oldest first.
fn runs(trash: &mut Side<'_>) -> Result<Vec<(i64, RelPath)>, Error> {
    let mut runs = Vec::new();
    trash.list(&RelPath::default(), |entry| {
        if let (Some(began), Some(path)) = (began(&entry.name), join(&RelPath::default(), &entry.name)) {
            runs.push((began, path));
        }
    })?;
    runs.sort();
    Ok(runs)
}

fn list(mut side: Side<'_>, json: bool) -> Result<Exit, Failure> {
    let mut out = Out::default();
    let Some(mut trash) = side.trash()? else { return Ok(Exit::Ok) };
    for (began, run) in runs(&mut trash)? {
        list_below(&mut trash, began, &run, json, &mut out)?;
    }
    Ok(Exit::Ok)
}

fn list_below(trash: &mut Side<'_>, began: i64, path: &RelPath, json: bool, out: &mut Out) -> Result<(), Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    trash.list(path, |entry| entries.push(entry))?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let Some(path) = join(path, &entry.name) else { continue };
        if entry.kind == Kind::Dir {
            let below = trash.usage(&path)?;
            // A directory stands for what is in it, or is empty.
            if below.files + below.others > 0 {
                list_below(trash, began, &path, json, out)?;
                continue;
            }
        }
        if json {
            let mut line = json!({"schema": "linkspan.trash/1", "size_bytes": entry.size, "deleted_s": began});
            name_json(&mut line, "path", path.bytes());
            out.json(&line, false)?;
        } else {
            let date = linkspan_perf::format::gbench::date(began.max(0) as u64);
            let slash = if entry.kind == Kind::Dir { "/" } else { "" };
            out.text(&format!("{date} {:>14} {}{slash}\n", entry.size, escape(path.bytes())))?;
        }
    }
    Ok(())
}

fn restore(side: &mut Side<'_>, path: &Path) -> Result<(), Failure> {
    let bytes = path.as_os_str().as_bytes();
    let (run, bytes) = match bytes.iter().position(|&b| b == b'/') {
        Some(at) if began(&bytes[..at]).is_some() => {
            (Some(String::from_utf8_lossy(&bytes[..at]).into_owned()), &bytes[at + 1..])
        }
        _ => (None, bytes),
    };
    let path = RelPath::new(bytes).map_err(|why| usage(&format!("no path in a share: {why}")))?;
    Ok(side.restore(&path, run)?)
}

fn empty(mut side: Side<'_>, older: Option<u32>) -> Result<Exit, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let until = older.map_or(i64::MAX, |days| now.saturating_sub(i64::from(days) * DAY));
    let (mut gone, mut exit) = (0, Exit::Ok);
    if let Some(mut trash) = side.trash()? {
        for (_, run) in runs(&mut trash)?.into_iter().filter(|(began, _)| *began <= until) {
            match trash.remove(&run) {
                Ok(()) => gone += 1,
                // It keeps no other one.
                Err(error @ Error::Refused(_)) => {
                    let failure = Failure::from(error);
                    eprintln!("lspan: {}", failure.message);
                    exit = failure.exit;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    eprintln!("lspan: what {} had moved to the trash was removed", counted(gone, "run", "runs"));
    Ok(exit)
}
