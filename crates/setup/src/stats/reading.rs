//! Reads pages, also those of other users, who may have written anything.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_shmring::page;

use super::places::{all, runs, shared};
use super::{
    BUCKETS, COMM, COUNTERS, Counter, DOWNGRADES, EVENTS, Event, HEADER, JOB, LATENCY, MAGIC, NAME, PEER, RECORD,
    RECORDS, VERSION,
};

/// Text that somebody else may have written: control characters, which a terminal would obey, are replaced.
fn unpack(words: impl Iterator<Item = u64>) -> String {
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|b| *b != 0).collect();
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(&bytes).chars().map(plain).collect()
}

/// One device, transport and peer of a process, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Device name (cut at 64 bytes).
    pub device: String,
    /// Transport.
    pub transport: String,
    /// Name of the peer, where it logged in by a key pair; else empty.
    pub peer: String,
    /// In the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
    /// Latency buckets.
    pub latency: Vec<u64>,
}

/// A process's page, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Process number, in its own pid namespace.
    pub pid: u32,
    /// User that owns the page.
    pub uid: u32,
    /// Name of the process when it made the page (cut at 16 bytes).
    pub comm: String,
    /// Number of its Slurm job, else name of its pod, else empty (cut at 64 bytes).
    pub job: String,
    /// When the page was made, since 1970.
    pub start: Duration,
    /// Time since the page was made.
    pub uptime: Duration,
    /// Downgrades: paths that were slower than this machine could give.
    pub downgrades: u64,
    /// In the order of [`Event::ALL`].
    pub events: Vec<u64>,
    /// Its records.
    pub records: Vec<Record>,
}

/// Most users of a shared folder, and most pages of one user, that are read.
const USERS: usize = 256;
const PAGES: usize = 1024;

/// Reads the pages of all living processes in a directory and in its folders of runs; in a shared folder, those of all users that this one may
/// read. Files that are no pages of this layout are passed over.
///
/// # Errors
/// The error of `read_dir`: the directory exists and cannot be read. A directory that does not exist is an empty list.
pub fn read(dir: &Path) -> std::io::Result<Vec<ProcessStats>> {
    if !shared(dir) {
        return read_user(dir);
    }
    let mut parts: Vec<PathBuf> = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
    parts.retain(|path| owner(path).is_some());
    parts.sort();
    Ok(parts.iter().take(USERS).flat_map(|part| read_user(part).unwrap_or_default()).collect())
}

fn read_user(dir: &Path) -> std::io::Result<Vec<ProcessStats>> {
    let mut paths = pages(dir)?;
    for run in runs(dir) {
        paths.extend(all(&run).unwrap_or_default());
    }
    let living = paths.iter().take(PAGES).filter_map(|path| read_page(path, true));
    let owner = std::fs::metadata(dir).map(|meta| meta.uid()).ok();
    Ok(living.filter(|page| Some(page.uid) == owner).collect())
}

/// User that owns a directory; `None`: it is a link or no directory.
fn owner(path: &Path) -> Option<u32> {
    std::fs::symlink_metadata(path).ok().filter(Metadata::is_dir).map(|meta| meta.uid())
}

pub(super) fn pages(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "stats"));
    paths.sort();
    Ok(paths)
}

pub(super) fn read_page(path: &Path, living: bool) -> Option<ProcessStats> {
    let page = page::copy(path, HEADER + RECORDS * RECORD).ok()?;
    let word = |at: usize| page.words.get(at).copied();
    let pid = word(2)? as u32;
    if word(0)? != MAGIC || word(1)? != VERSION || word(5)? != RECORD as u64 || pid == 0 || (living && !page.held) {
        return None;
    }
    word(HEADER - 1)?;
    let span = |from: usize, len: usize| (from..from + len).filter_map(word).collect::<Vec<_>>();
    let text = |from: usize, len: usize| unpack(span(from, len).into_iter());
    let mut records = Vec::new();
    for n in 0..RECORDS {
        let at = HEADER + n * RECORD;
        if word(at + RECORD - 1).is_none() || word(at + NAME)? == 0 {
            break;
        }
        records.push(Record {
            device: text(at, NAME),
            transport: text(at + NAME, 1),
            peer: text(at + PEER, NAME),
            counters: span(at + COUNTERS, Counter::ALL.len()),
            latency: span(at + LATENCY, BUCKETS),
        });
    }
    let start = Duration::from_nanos(word(3)?);
    let uptime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(start);
    Some(ProcessStats {
        pid,
        uid: page.owner,
        comm: text(COMM.0, COMM.1),
        job: text(JOB.0, JOB.1),
        start,
        uptime,
        downgrades: word(DOWNGRADES)?,
        events: span(EVENTS, Event::ALL.len()),
        records,
    })
}
