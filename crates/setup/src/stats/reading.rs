//! Reads pages, also those of other users, who may have written anything.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_shmring::page;

use super::places::{DEEP, RUNS, is_run, shared};
use super::{
    BUCKETS, COMM, COUNTERS, Counter, DOWNGRADE, DOWNGRADED, DOWNGRADES, EVENTS, Event, HEADER, JOB, LATENCY, MAGIC,
    NAME, PAGE, PEER, REASON, RECORD, RECORDS, VERSION, WHICH,
};

/// Text that somebody else may have written, for a terminal: control characters, which it would obey, and those that change lines or the direction
/// of writing (Unicode Bidirectional Algorithm, UAX #9) are replaced.
pub fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The text of these words, no longer than they are, though what stands in for a byte has three.
fn unpack(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|b| *b != 0).collect();
    let mut text = plain(&String::from_utf8_lossy(&bytes));
    text.truncate(text.floor_char_boundary(8 * words.len()));
    text.shrink_to_fit();
    text
}

/// One device, transport and peer of a process, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Device name (cut at 64 bytes).
    pub device: String,
    /// Transport.
    pub transport: String,
    /// Name of the peer, where it logged in by a key pair; else empty.
    pub peer: String,
    /// Why its newest connection took this path (cut at 80 bytes). Empty: not known.
    pub reason: String,
    /// In the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
    /// Latency buckets.
    pub latency: Vec<u64>,
}

/// A process, as read: the sums of its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Process number, in its own pid namespace.
    pub pid: u32,
    /// User that owns the page.
    pub uid: u32,
    /// Name of the process when it made its first page (cut at 16 bytes).
    pub comm: String,
    /// Number of its Slurm job, else name of its pod, else empty (cut at 64 bytes).
    pub job: String,
    /// When its first page was made, since 1970.
    pub start: Duration,
    /// Time since then.
    pub uptime: Duration,
    /// Downgrades: paths that were slower than this machine could give.
    pub downgrades: u64,
    /// What the newest of them was, and why (cut at 504 bytes).
    pub last_downgrade: String,
    /// When that was, since 1970.
    pub downgraded: Duration,
    /// In the order of [`Event::ALL`].
    pub events: Vec<u64>,
    /// Its records.
    pub records: Vec<Record>,
}

/// A page, and which process of its number has written it.
#[derive(Debug)]
pub(super) struct Found {
    which: u64,
    page: ProcessStats,
}

/// The processes whose pages these are, in the order of their first ones.
pub(super) fn processes(found: impl Iterator<Item = Found>) -> Vec<ProcessStats> {
    let mut places = BTreeMap::new();
    let mut list: Vec<Vec<ProcessStats>> = Vec::new();
    for Found { which, page } in found {
        let next = list.len();
        let place = *places.entry((page.uid, page.pid, which)).or_insert(next);
        match list.get_mut(place).filter(|_| which != 0) {
            Some(pages) => pages.push(page),
            None => list.push(vec![page]),
        }
    }
    list.into_iter().flat_map(sums).collect()
}

/// The sums of a process's pages; where they have more records together than a page may, which another user can make, several.
fn sums(pages: Vec<ProcessStats>) -> Vec<ProcessStats> {
    let mut sums: Vec<ProcessStats> = Vec::new();
    for page in pages {
        match sums.last_mut().filter(|sum| sum.has_space_for(&page)) {
            Some(sum) => sum.add(page),
            None => sums.push(page),
        }
    }
    sums
}

impl Record {
    /// Whether it is of the same device, transport and peer.
    fn is_of(&self, other: &Record) -> bool {
        (&self.device, &self.transport, &self.peer) == (&other.device, &other.transport, &other.peer)
    }
}

impl ProcessStats {
    fn has_space_for(&self, page: &ProcessStats) -> bool {
        let new = page.records.iter().filter(|record| !self.records.iter().any(|known| known.is_of(record)));
        self.records.len() + new.count() <= RECORDS
    }

    /// Adds another page of the process.
    fn add(&mut self, page: ProcessStats) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = to.saturating_add(*from));
        };
        if page.start < self.start {
            (self.start, self.uptime, self.comm, self.job) = (page.start, page.uptime, page.comm, page.job);
        }
        self.downgrades = self.downgrades.saturating_add(page.downgrades);
        if page.downgraded > self.downgraded {
            (self.downgraded, self.last_downgrade) = (page.downgraded, page.last_downgrade);
        }
        add(&mut self.events, &page.events);
        for record in page.records {
            match self.records.iter_mut().find(|known| known.is_of(&record)) {
                Some(known) => {
                    add(&mut known.counters, &record.counters);
                    add(&mut known.latency, &record.latency);
                    if !record.reason.is_empty() {
                        known.reason = record.reason;
                    }
                }
                None => self.records.push(record),
            }
        }
    }
}

/// Most users of a shared folder whose pages are read, and most directories of one.
const USERS: usize = 256;
const DIRS: usize = 64;

/// Most pages of one user, in all of its directories and runs, and of all users together. A page that was read takes up to 25 KiB.
pub(super) const PAGES: usize = 1024;
pub(super) const ALL_PAGES: usize = 2048;

/// Most names in one user's directories that are looked at.
const NAMES: usize = 4 * PAGES;

/// Reads the pages of all living processes in a directory and in its folders of runs; in a shared folder, those of all users that this one may
/// read. Files that are no pages of this layout are passed over, and pages that have a second name. At most 1,024 of a user and 2,048 in all:
/// where there are more, all of this user's and of root's come first, and every other user has as many as the next.
///
/// # Errors
/// The error of `read_dir`: the directory exists and cannot be read. A directory that does not exist is an empty list.
pub fn read(dir: &Path) -> std::io::Result<Vec<ProcessStats>> {
    if !shared(dir) {
        let owner = std::fs::metadata(dir).map(|meta| meta.uid());
        // What cannot be read is an error here, and one user's own affair in a shared folder.
        if let Err(error) = std::fs::read_dir(dir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error);
        }
        return Ok(owner.map_or_else(|_| Vec::new(), |uid| processes(living(uid, &candidates(&[dir.to_owned()])))));
    }
    let mut turns: Vec<(usize, u32, PathBuf)> = Vec::new();
    let own = rustix::process::geteuid().as_raw();
    for (uid, dirs) in owners(dir, own)? {
        let first = uid == own || uid == 0;
        turns.extend(candidates(&dirs).into_iter().enumerate().map(|(n, path)| (if first { 0 } else { n }, uid, path)));
    }
    // By turns, so that nobody's many pages hide another's few.
    turns.sort();
    turns.truncate(ALL_PAGES);
    turns.sort_by(|(_, a, x), (_, b, y)| (a, x).cmp(&(b, y)));
    Ok(processes(turns.iter().flat_map(|(_, uid, path)| living(*uid, std::slice::from_ref(path)))))
}

/// The users that have directories in a shared folder, and these: by who owns them, whatever they are called, for anybody can take a name.
/// Where there are more than [`USERS`], this user, and then those of the lowest numbers: users have more of the higher ones
/// (`/etc/subuid`).
fn owners(dir: &Path, own: u32) -> std::io::Result<BTreeMap<u32, Vec<PathBuf>>> {
    let mut users: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        // `UID`, or `UID.` and something; the number is that of the owner's own user namespace.
        let number = name.to_str().and_then(|name| name.split('.').next()?.parse::<u32>().ok());
        let path = entry.path();
        let Some(uid) = number.and_then(|_| owner(&path)) else { continue };
        let dirs = users.entry(uid).or_default();
        if dirs.len() < DIRS {
            dirs.push(path);
        }
        if users.len() > USERS {
            let last = users.keys().copied().rfind(|uid| *uid != own);
            last.and_then(|uid| users.remove(&uid));
        }
    }
    Ok(users)
}

/// The files of one user that may be pages.
fn candidates(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let (mut paths, mut names) = (Vec::new(), 0);
    let mut look = |dir: &Path, runs: &mut Vec<PathBuf>| {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(NAMES - names) {
            names += 1;
            let path = entry.path();
            if is_page(&path) && paths.len() < PAGES {
                paths.push(path);
            } else if runs.len() < RUNS && is_run(&path) && owner(&path).is_some() {
                runs.push(path);
            }
        }
    };
    let mut runs = Vec::new();
    dirs.iter().for_each(|dir| look(dir, &mut runs));
    // Runs, and those within them.
    for _ in 0..=DEEP {
        let these = std::mem::take(&mut runs);
        these.iter().for_each(|run| look(run, &mut runs));
    }
    paths.sort();
    paths
}

/// Those of them that are pages of living processes of this user.
fn living(uid: u32, paths: &[PathBuf]) -> impl Iterator<Item = Found> {
    paths.iter().filter_map(|path| read_page(path, true)).filter(move |found| found.page.uid == uid)
}

/// User that owns a directory; `None`: it is a link or no directory.
fn owner(path: &Path) -> Option<u32> {
    std::fs::symlink_metadata(path).ok().filter(Metadata::is_dir).map(|meta| meta.uid())
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "stats")
}

pub(super) fn pages(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|path| is_page(path)).collect();
    paths.sort();
    Ok(paths)
}

pub(super) fn read_page(path: &Path, living: bool) -> Option<Found> {
    let page = page::copy(path, PAGE).ok()?;
    let word = |at: usize| page.words.get(at).copied();
    let pid = word(2)? as u32;
    if word(0)? != MAGIC || word(1)? != VERSION || word(5)? != RECORD as u64 || pid == 0 || (living && !page.held) {
        return None;
    }
    word(HEADER - 1)?;
    let span = |from: usize, len: usize| (from..from + len).filter_map(word).collect::<Vec<_>>();
    let text = |from: usize, len: usize| unpack(&span(from, len));
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
            reason: text(at + REASON.0, REASON.1),
            counters: span(at + COUNTERS, Counter::ALL.len()),
            latency: span(at + LATENCY, BUCKETS),
        });
    }
    let start = Duration::from_nanos(word(3)?);
    let uptime = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(start);
    let page = ProcessStats {
        pid,
        uid: page.owner,
        comm: text(COMM.0, COMM.1),
        job: text(JOB.0, JOB.1),
        start,
        uptime,
        downgrades: word(DOWNGRADES)?,
        last_downgrade: text(DOWNGRADE.0, DOWNGRADE.1),
        downgraded: Duration::from_nanos(word(DOWNGRADED).unwrap_or(0)),
        events: span(EVENTS, Event::ALL.len()),
        records,
    };
    Some(Found { which: word(WHICH)?, page })
}
