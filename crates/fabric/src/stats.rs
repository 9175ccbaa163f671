//! Counters of a process's connections in a file that `lspan stats` reads while the job runs.
//!
//! The file `PID.stats` in the statistics directory (`LINKSPAN_STATS_DIR`) is an array of 64-bit words in the machine's
//! byte order. Words 0 to 7: magic `LSPNSTAT`, layout version, process number, start (ns since 1970), number of record
//! slots, words per record, downgrades counted, one word reserved. Records of [`RECORD`] words follow, one per device, transport and named peer: 8 words of
//! device name and one of transport (bytes, filled up with zeros; an empty transport means a free slot), then the counters in the
//! order of [`Counter`], then [`BUCKETS`] latency buckets: bucket n counts operations that took less than 2^n µs (one in
//! 64 is timed), then 8 words of the peer's name where it logged in by a key pair. Counters only grow, except [`Counter::Open`]. They are written every few dozen calls and on close.
//!
//! A page goes with its process, except from a folder of one run ([`RunFolder`]), which keeps the pages of processes that have ended.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_shmring::page::Page;

const MAGIC: u64 = u64::from_le_bytes(*b"LSPNSTAT");

/// Layout version.
pub const VERSION: u64 = 1;

/// Words per record.
pub const RECORD: usize = 64;

/// Latency buckets per record.
pub const BUCKETS: usize = 24;

const HEADER: usize = 8;

/// Word of the header that counts downgrades.
const DOWNGRADES: usize = 6;
const NAME: usize = 8;
const COUNTERS: usize = NAME + 1;
const LATENCY: usize = COUNTERS + Counter::ALL.len();
const PEER: usize = LATENCY + BUCKETS;
const RECORDS: usize = 32;

/// Most records of named peers; those of further peers count into the record without a name, which so has a place.
const NAMED: usize = 24;

const _: () = assert!(PEER + NAME <= RECORD);

macro_rules! counters {
    ($($id:ident $name:literal $text:literal,)*) => {
        /// What is counted per device, transport and named peer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $text] $id,)* }

        impl Counter {
            /// All, in the order of the file.
            pub const ALL: &[Counter] = &[$(Counter::$id),*];

            /// Name in `lspan stats --json`, with its unit.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$id => $name),* }
            }
        }
    };
}

counters! {
    Open "connections_open" "Connections up at the moment.",
    Connections "connections" "Connections made.",
    TxBytes "tx_host_bytes" "Bytes sent from host memory: messages, writes, and what the peer read.",
    RxBytes "rx_host_bytes" "Bytes received into host memory: messages, reads, and what the peer wrote.",
    TxDeviceBytes "tx_device_bytes" "Bytes sent from device memory, likewise.",
    RxDeviceBytes "rx_device_bytes" "Bytes received into device memory, likewise.",
    TxOps "tx_ops" "Messages sent and writes begun.",
    RxOps "rx_ops" "Receives and reads finished.",
    Stalls "stalls" "Posts refused because too much was in flight, or waited for receives.",
    Retries "retries" "TCP segments sent again.",
    RailsLost "rails_lost" "Rails lost.",
    RailsBack "rails_back" "Lost rails that were reconnected.",
    Failures "failures" "Connections that ended in an error.",
}

/// What a connection has counted since it last told the page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    counts: [u64; Counter::ALL.len()],
    latency: [u32; BUCKETS],
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, n: u64) {
        self.counts[counter as usize] = self.counts[counter as usize].wrapping_add(n);
    }

    pub(crate) fn took(&mut self, time: Duration) {
        let bucket = (64 - (time.as_micros() as u64).leading_zeros() as usize).min(BUCKETS - 1);
        self.latency[bucket] += 1;
    }
}

/// The page of this process; a process without one counts into nothing.
#[derive(Debug, Default)]
pub(crate) struct Stats(Option<(Page, PathBuf, Mutex<()>)>);

/// A record's slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot(usize);

impl Stats {
    /// Makes the page. An unusable directory is told and costs the statistics alone.
    pub(crate) fn new(dir: Option<&Path>) -> Result<Stats, String> {
        let Some(dir) = dir else { return Ok(Stats(None)) };
        let told = |e: std::io::Error| format!("no statistics: {} cannot be used: {e}", dir.display());
        private_dir(dir).map_err(told)?;
        if !keeps(dir) {
            sweep(dir);
        }
        // A process may load the plugin twice, so a name may be taken: by us, then the next one is free.
        let pid = std::process::id();
        let mut made = Err(std::io::ErrorKind::AlreadyExists.into());
        let mut path = PathBuf::new();
        for n in 0..16 {
            path = dir.join(if n == 0 { format!("{pid}.stats") } else { format!("{pid}.{n}.stats") });
            made = Page::create(&path, HEADER + RECORDS * RECORD);
            if made.is_ok() {
                break;
            }
        }
        let page = made.map_err(told)?;
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        for (at, word) in [VERSION, u64::from(pid), start, RECORDS as u64, RECORD as u64].into_iter().enumerate() {
            page.word(1 + at).store(word, Relaxed);
        }
        page.word(0).store(MAGIC, Release);
        Ok(Stats(Some((page, path, Mutex::new(())))))
    }

    /// The record of a device, a transport and a peer (empty: one without a name), made if need be. `None`: no page, or all
    /// records are taken.
    pub(crate) fn slot(&self, device: &str, transport: &str, peer: &str) -> Option<Slot> {
        let (page, _, lock) = self.0.as_ref()?;
        let _one = lock.lock().unwrap_or_else(|e| e.into_inner());
        let (device, transport) = (pack::<NAME>(device), pack::<1>(transport)[0]);
        let mut peer = pack::<NAME>(peer);
        let holds =
            |at: usize, words: &[u64]| words.iter().enumerate().all(|(i, w)| page.word(at + i).load(Relaxed) == *w);
        let named = (0..RECORDS).map(|n| HEADER + n * RECORD).filter(|at| page.word(at + PEER).load(Relaxed) != 0);
        let known = |at: usize| {
            page.word(at + NAME).load(Relaxed) == transport && holds(at, &device) && holds(at + PEER, &peer)
        };
        if named.clone().count() >= NAMED && !named.clone().any(known) {
            peer = [0; NAME];
        }
        for n in 0..RECORDS {
            let at = HEADER + n * RECORD;
            let taken = page.word(at + NAME).load(Relaxed);
            if taken == 0 {
                let texts = device.iter().enumerate().chain(peer.iter().enumerate().map(|(i, w)| (PEER + i, w)));
                texts.for_each(|(i, w)| page.word(at + i).store(*w, Relaxed));
                page.word(at + NAME).store(transport, Release);
                return Some(Slot(at));
            }
            if taken == transport && holds(at, &device) && holds(at + PEER, &peer) {
                return Some(Slot(at));
            }
        }
        None
    }

    /// Adds a tally to a record and empties it.
    pub(crate) fn report(&self, slot: Slot, tally: &mut Tally) {
        let Some((page, ..)) = &self.0 else { return };
        for (n, count) in tally.counts.iter().enumerate().filter(|(_, c)| **c != 0) {
            page.word(slot.0 + COUNTERS + n).fetch_add(*count, Relaxed);
        }
        for (n, count) in tally.latency.iter().enumerate().filter(|(_, c)| **c != 0) {
            page.word(slot.0 + LATENCY + n).fetch_add(u64::from(*count), Relaxed);
        }
        *tally = Tally::default();
    }

    /// Counts a path that is slower than the machine could give.
    pub(crate) fn downgraded(&self) {
        if let Some((page, ..)) = &self.0 {
            page.word(DOWNGRADES).fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        if let Some((_, path, _)) = &self.0
            && !path.parent().is_some_and(keeps)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What a folder of one run is called, before the number of the process that made it.
const RUN: &str = "run-";

/// File in such a folder by which it keeps its pages.
const KEEP: &str = "keep";

fn keeps(dir: &Path) -> bool {
    dir.join(KEEP).exists()
}

/// A folder for the pages of one run, below the usual one: they stay until this is dropped, those of ended processes too.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes the folder, and removes those that runs which were killed have left.
    ///
    /// # Errors
    /// The error of making it; also where the usual folder is not this user's alone.
    pub fn make(dir: &Path) -> std::io::Result<RunFolder> {
        private_dir(dir)?;
        let old = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
        for path in old.filter(|path| run_of(path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())) {
            remove_run(&path);
        }
        let path = dir.join(format!("{RUN}{}", std::process::id()));
        // Of a process that had this number before.
        remove_run(&path);
        private_dir(&path)?;
        std::fs::write(path.join(KEEP), [])?;
        Ok(RunFolder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The pages of all processes that wrote one, ended ones too.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(&self) -> std::io::Result<Vec<ProcessStats>> {
        Ok(pages(&self.0)?.iter().filter_map(|path| read_page(path, false)).collect())
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        remove_run(&self.0);
    }
}

/// Number of the process whose run the folder is for.
fn run_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(RUN)?.parse().ok()
}

/// Removes the pages of a run and their folder, and nothing else that somebody put there.
fn remove_run(path: &Path) {
    for file in pages(path).unwrap_or_default() {
        let _ = std::fs::remove_file(file);
    }
    let _ = std::fs::remove_file(path.join(KEEP));
    let _ = std::fs::remove_dir(path);
}

/// Makes the directory, for this user alone, and refuses one that another user could write to.
fn private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    match std::fs::DirBuilder::new().mode(0o700).recursive(true).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let meta = std::fs::symlink_metadata(dir)?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(std::io::Error::other("it must be a directory of this user that no other user can write to"))
}

/// Removes what dead processes have left.
fn sweep(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|n| n.strip_suffix(".stats")).and_then(|n| n.split('.').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn pack<const N: usize>(text: &str) -> [u64; N] {
    let mut words = [0; N];
    for (n, byte) in text.bytes().take(N * 8).enumerate() {
        words[n / 8] |= u64::from(byte) << (8 * (n % 8));
    }
    words
}

fn unpack(words: impl Iterator<Item = u64>) -> String {
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStats {
    /// Process number.
    pub pid: u32,
    /// Time since the page was made.
    pub uptime: Duration,
    /// Downgrades: paths that were slower than this machine could give.
    pub downgrades: u64,
    /// Its records.
    pub records: Vec<Record>,
}

/// Most folders of runs that are looked into.
const RUNS: usize = 64;

/// Reads the pages of all living processes in a directory and in its folders of runs. Files that are no pages of this layout are
/// passed over.
///
/// # Errors
/// The error of `read_dir`: the directory exists and cannot be read. A directory that does not exist is an empty list.
pub fn read(dir: &Path) -> std::io::Result<Vec<ProcessStats>> {
    let mut paths = pages(dir)?;
    if let Ok(entries) = std::fs::read_dir(dir) {
        for run in entries.flatten().map(|e| e.path()).filter(|path| run_of(path).is_some()).take(RUNS) {
            paths.extend(pages(&run).unwrap_or_default());
        }
    }
    Ok(paths.iter().filter_map(|path| read_page(path, true)).collect())
}

fn pages(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "stats"));
    paths.sort();
    Ok(paths)
}

fn read_page(path: &Path, living: bool) -> Option<ProcessStats> {
    let page = Page::open(path, HEADER + RECORDS * RECORD).ok()?;
    let word = |at: usize| (at < page.len()).then(|| page.word(at).load(Acquire));
    if word(0)? != MAGIC || word(1)? != VERSION || word(5)? != RECORD as u64 {
        return None;
    }
    let pid = word(2)? as u32;
    if living && !Path::new(&format!("/proc/{pid}")).exists() {
        return None;
    }
    let mut records = Vec::new();
    for n in 0..RECORDS {
        let at = HEADER + n * RECORD;
        if word(at + RECORD - 1).is_none() || word(at + NAME)? == 0 {
            break;
        }
        let span = |from: usize, len: usize| (from..from + len).filter_map(word).collect::<Vec<_>>();
        records.push(Record {
            device: unpack(span(at, NAME).into_iter()),
            transport: unpack(span(at + NAME, 1).into_iter()),
            peer: unpack(span(at + PEER, NAME).into_iter()),
            counters: span(at + COUNTERS, Counter::ALL.len()),
            latency: span(at + LATENCY, BUCKETS),
        });
    }
    let start = UNIX_EPOCH + Duration::from_nanos(word(3)?);
    Some(ProcessStats { pid, uptime: start.elapsed().unwrap_or_default(), downgrades: word(DOWNGRADES)?, records })
}

#[cfg(test)]
mod tests;
