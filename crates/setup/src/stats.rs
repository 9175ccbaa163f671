//! Counters of a process's connections in a file that `lspan stats` reads while the job runs.
//!
//! The file `PID.stats` in the statistics directory (`LINKSPAN_STATS_DIR`) is an array of 64-bit words in the machine's
//! byte order. Words 0 to 7: magic `LSPNSTAT`, layout version, process number, start (ns since 1970), number of record
//! slots, words per record, downgrades counted, and which process of that number it is: the inode of its pid namespace in the upper half, the
//! moment when it began in the lower one (clock ticks since boot); 0: not known. A process has a page for each list of transports that it has made,
//! and is read as one; what a page has counted that goes before the process is in another one from then on. Words 8 to 9: the process's name, 10 to 17: its job
//! (bytes, filled up with zeros), 18 to 31: what happened while connections were set up, in the order of [`Event`], filled up with zeros. Records of [`RECORD`] words follow, one per device, transport and named peer: 8 words of
//! device name and one of transport (bytes, filled up with zeros; an empty transport means a free slot), then the counters in the
//! order of [`Counter`], then [`BUCKETS`] latency buckets: bucket n counts operations that took less than 2^n µs (one in
//! 64 is timed), then 8 words of the peer's name where it logged in by a key pair, then 10 of why its newest connection took this path. Counters only
//! grow, except [`Counter::Open`]. They are written every few dozen calls and on close. Behind the records are 64 words: when the newest downgrade was (ns since 1970), and what.
//! A reason that is cut ends with `…`.
//! Pages of earlier versions end with the records.
//!
//! The process holds the page's lock (flock(2)) while it lives; a page whose lock is free is dead. Process numbers say nothing of that: a page
//! may come from another pid namespace.
//!
//! A directory belongs to one user; its permissions say who else may read the pages. A folder with the sticky bit that everybody may
//! write to ([`shared`]) holds such a directory per user, `UID`, or `UID.1` and so on where that name is another's, or `UID.` and a random number where all of these are.
//!
//! A page goes with its process, except from a folder of one run ([`RunFolder`]), which keeps the pages of processes that have ended.

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_shmring::page::Page;

mod places;
mod reading;

pub use places::{RunFolder, shared};
use places::{SAME, keeps, own, sweep};
pub use reading::{ProcessStats, Record, plain, read};

const MAGIC: u64 = u64::from_le_bytes(*b"LSPNSTAT");

/// Layout version.
pub const VERSION: u64 = 2;

/// Words per record.
pub const RECORD: usize = 64;

/// Latency buckets per record.
pub const BUCKETS: usize = 24;

/// Words of the header.
pub const HEADER: usize = 32;

/// Word of the header that is the process's number.
const PID: usize = 2;

/// Word of the header that says when the page was made (ns since 1970).
const START: usize = 3;

/// Word of the header that counts downgrades.
const DOWNGRADES: usize = 6;

/// Word of the header that tells processes of the same number apart.
const WHICH: usize = 7;

/// Words of the header that hold the process's name, and how many.
const COMM: (usize, usize) = (8, 2);

/// Likewise its job.
const JOB: (usize, usize) = (10, 8);

/// Words of the header that count [`Event`]s.
const EVENTS: usize = 18;
const NAME: usize = 8;
const COUNTERS: usize = NAME + 1;
const LATENCY: usize = COUNTERS + Counter::ALL.len();
const PEER: usize = LATENCY + BUCKETS;
const REASON: (usize, usize) = (PEER + NAME, 10);
const RECORDS: usize = 32;

/// Word of the page that says when the newest downgrade was.
const DOWNGRADED: usize = HEADER + RECORDS * RECORD;

/// Words that say what it was, and how many.
const DOWNGRADE: (usize, usize) = (DOWNGRADED + 1, 63);

/// Words of a page.
pub const PAGE: usize = DOWNGRADE.0 + DOWNGRADE.1;

/// Most records of named peers; those of further peers count into the record without a name, which so has a place.
const NAMED: usize = 24;

const _: () = assert!(REASON.0 + REASON.1 <= RECORD && EVENTS + Event::ALL.len() <= HEADER);

macro_rules! counters {
    ($(#[$what:meta])* $kind:ident: $($id:ident $name:literal $text:literal,)*) => {
        $(#[$what])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $(#[doc = $text] $id,)* }

        impl $kind {
            /// All, in the order of the file.
            pub const ALL: &[$kind] = &[$($kind::$id),*];

            /// Name in `lspan stats --json`, with its unit.
            pub fn name(self) -> &'static str {
                match self { $($kind::$id => $name),* }
            }

            /// What it counts, a sentence.
            pub fn text(self) -> &'static str {
                match self { $($kind::$id => $text),* }
            }
        }
    };
}

counters! {
    /// What is counted per device, transport and named peer.
    Counter:
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

counters! {
    /// What is counted for the whole process, with its reason: who was not let in, and what had to be tried again.
    Event:
    StrangersSilent "strangers_silent" "Streams that ended before they had said anything.",
    StrangersUnknown "strangers_unknown" "Streams whose first bytes are no login, or are that of somebody without the token.",
    LoginsUnproven "logins_unproven" "Logins that ended before the peer had answered our nonce: somebody else's hello, or a peer that gave up.",
    LoginsReplayed "logins_replayed" "Logins of a stream that had logged in already.",
    RefusedKey "refused_key" "Peers whose key is another, or that have none.",
    RefusedVersion "refused_version" "Peers of another protocol version, and refusals for a reason that this version does not know.",
    SetupsDropped "setups_dropped" "Streams that were dropped after their login, before their connection was up.",
    AcceptPauses "accept_pauses" "Minutes in which no stream could be accepted at times, for want of descriptors or memory.",
    ConnectRetries "connect_retries" "Connects that began again because no stream came up.",
    RailRetries "rail_retries" "Tries to reconnect a rail that failed.",
    PathRetries "path_retries" "Tries to make the path of a transport again that failed.",
}

/// What a connection has counted since it last told the page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    counts: [u64; Counter::ALL.len()],
    latency: [u32; BUCKETS],
}

impl Tally {
    #[inline]
    /// Adds to a counter.
    pub fn add(&mut self, counter: Counter, n: u64) {
        self.counts[counter as usize] = self.counts[counter as usize].wrapping_add(n);
    }

    /// Adds an operation to the latency buckets.
    pub fn took(&mut self, time: Duration) {
        let bucket = (64 - (time.as_micros() as u64).leading_zeros() as usize).min(BUCKETS - 1);
        self.latency[bucket] += 1;
    }
}

/// A page of this process.
#[derive(Debug)]
struct Own {
    page: Page,
    path: PathBuf,
    /// Held where records are made and texts are written.
    lock: Mutex<()>,
}

/// The pages of this process, for what an ended one has counted goes on in another one.
static OWN: Mutex<Vec<Weak<Own>>> = Mutex::new(Vec::new());

/// The page of a list of transports; where there is none, all counts into nothing.
#[derive(Debug, Default)]
pub struct Stats(Option<Arc<Own>>);

/// A record's slot.
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

impl Stats {
    /// Makes the page, in the user's part of a shared folder. An unusable directory is told and costs the statistics alone.
    pub fn new(dir: Option<&Path>, job: &str) -> Result<Stats, String> {
        let Some(dir) = dir else { return Ok(Stats(None)) };
        let told = |e: std::io::Error| format!("no statistics: {} cannot be used: {e}", dir.display());
        let dir = own(dir).map_err(told)?;
        if !keeps(&dir) {
            sweep(&dir);
        }
        // A name may be taken: a process may load the plugin twice, and other pid namespaces have the same numbers.
        let pid = std::process::id();
        let mut made = Err(std::io::ErrorKind::AlreadyExists.into());
        let mut path = PathBuf::new();
        for n in 0..SAME {
            path = dir.join(if n == 0 { format!("{pid}.stats") } else { format!("{pid}.{n}.stats") });
            made = Page::create(&path, PAGE);
            if !matches!(&made, Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        let page = made.map_err(told)?;
        for (at, word) in [VERSION, u64::from(pid), now(), RECORDS as u64, RECORD as u64].into_iter().enumerate() {
            page.word(1 + at).store(word, Relaxed);
        }
        page.word(WHICH).store(which().unwrap_or(0), Relaxed);
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let texts = [(COMM, pack::<{ COMM.1 }>(comm.trim_end()).to_vec()), (JOB, pack::<{ JOB.1 }>(job).to_vec())];
        for ((at, _), words) in texts {
            words.iter().enumerate().for_each(|(i, w)| page.word(at + i).store(*w, Relaxed));
        }
        page.word(0).store(MAGIC, Release);
        let own = Arc::new(Own { page, path, lock: Mutex::new(()) });
        OWN.lock().unwrap_or_else(|e| e.into_inner()).push(Arc::downgrade(&own));
        Ok(Stats(Some(own)))
    }

    /// The record of a device, a transport and a peer (empty: one without a name), made if need be. `None`: no page, or all
    /// records are taken.
    pub fn slot(&self, device: &str, transport: &str, peer: &str) -> Option<Slot> {
        self.0.as_ref()?.slot(&pack(device), pack::<1>(transport)[0], pack(peer))
    }

    /// Says why the newest connection of a record took this path.
    pub fn chosen(&self, slot: Slot, why: &str) {
        if let Some(own) = &self.0 {
            own.write(slot.0 + REASON.0, &pack::<{ REASON.1 }>(&short(why, REASON.1)));
        }
    }

    /// Adds a tally to a record and empties it.
    pub fn report(&self, slot: Slot, tally: &mut Tally) {
        let Some(own) = &self.0 else { return };
        for (n, count) in tally.counts.iter().enumerate().filter(|(_, c)| **c != 0) {
            own.page.word(slot.0 + COUNTERS + n).fetch_add(*count, Relaxed);
        }
        for (n, count) in tally.latency.iter().enumerate().filter(|(_, c)| **c != 0) {
            own.page.word(slot.0 + LATENCY + n).fetch_add(u64::from(*count), Relaxed);
        }
        *tally = Tally::default();
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        if let Some(own) = &self.0 {
            own.page.word(EVENTS + event as usize).fetch_add(1, Relaxed);
        }
    }

    /// Counts a path that is slower than the machine could give, and says which and why.
    pub fn downgraded(&self, what: &str) {
        let Some(own) = &self.0 else { return };
        own.write(DOWNGRADE.0, &pack::<{ DOWNGRADE.1 }>(&short(what, DOWNGRADE.1)));
        own.page.word(DOWNGRADED).store(now(), Relaxed);
        own.page.word(DOWNGRADES).fetch_add(1, Release);
    }
}

impl Own {
    fn slot(&self, device: &[u64; NAME], transport: u64, mut peer: [u64; NAME]) -> Option<Slot> {
        let _one = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        let page = &self.page;
        let holds =
            |at: usize, words: &[u64]| words.iter().enumerate().all(|(i, w)| page.word(at + i).load(Relaxed) == *w);
        let named = (0..RECORDS).map(|n| HEADER + n * RECORD).filter(|at| page.word(at + PEER).load(Relaxed) != 0);
        let known =
            |at: usize| page.word(at + NAME).load(Relaxed) == transport && holds(at, device) && holds(at + PEER, &peer);
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
            if taken == transport && holds(at, device) && holds(at + PEER, &peer) {
                return Some(Slot(at));
            }
        }
        None
    }

    /// Writes a text. Who reads in between may get parts of two.
    fn write(&self, at: usize, words: &[u64]) {
        let _one = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        words.iter().enumerate().for_each(|(i, word)| self.page.word(at + i).store(*word, Relaxed));
    }

    /// Counts on what another page of this process, whose lists of transports have ended, has counted.
    fn take_over(&self, ended: &Page) {
        let words = |at: usize, n: usize| (at..at + n).map(|at| ended.word(at).load(Relaxed));
        let add = |to: usize, from: usize, n: usize| {
            words(from, n).enumerate().filter(|(_, count)| *count != 0).for_each(|(i, count)| {
                self.page.word(to + i).fetch_add(count, Relaxed);
            });
        };
        let name = |at: usize| std::array::from_fn(|i| ended.word(at + i).load(Relaxed));
        self.page.word(START).fetch_min(ended.word(START).load(Relaxed), Relaxed);
        add(DOWNGRADES, DOWNGRADES, 1);
        if ended.word(DOWNGRADED).load(Relaxed) > self.page.word(DOWNGRADED).load(Relaxed) {
            self.write(DOWNGRADED, &words(DOWNGRADED, 1 + DOWNGRADE.1).collect::<Vec<_>>());
        }
        add(EVENTS, EVENTS, Event::ALL.len());
        for at in (0..RECORDS).map(|n| HEADER + n * RECORD) {
            let transport = ended.word(at + NAME).load(Relaxed);
            if transport != 0
                && let Some(Slot(to)) = self.slot(&name(at), transport, name(at + PEER))
            {
                add(to + COUNTERS, at + COUNTERS, Counter::ALL.len() + BUCKETS);
            }
        }
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        let Some(own) = self.0.take() else { return };
        let dir = own.path.parent();
        // In a child of fork(2) it is the parent's; a run's folder keeps it.
        if own.page.word(PID).load(Relaxed) != u64::from(std::process::id()) || dir.is_some_and(keeps) {
            return;
        }
        let mut all = OWN.lock().unwrap_or_else(|e| e.into_inner());
        all.retain(|page| page.strong_count() > 0 && !std::ptr::eq(page.as_ptr(), &raw const *own));
        // The counters of a process that lives only grow.
        if let Some(other) = all.iter().filter_map(Weak::upgrade).find(|other| other.path.parent() == dir) {
            other.take_over(&own.page);
        }
        let _ = std::fs::remove_file(&own.path);
    }
}

/// Which process of its number this one is.
fn which() -> Option<u64> {
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Its name, in brackets, may have anything in it; `starttime` is the 20th field behind it (proc_pid_stat(5)).
    let began: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(namespace << 32 | began & u64::from(u32::MAX))
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// As much of a text as so many words hold, and `…` where that is not all.
fn short(text: &str, words: usize) -> Cow<'_, str> {
    const CUT: char = '…';
    if text.len() <= 8 * words {
        return text.into();
    }
    let end = text.floor_char_boundary(8 * words - CUT.len_utf8());
    format!("{}{CUT}", &text[..end]).into()
}

fn pack<const N: usize>(text: &str) -> [u64; N] {
    let mut words = [0; N];
    for (n, byte) in text.bytes().take(N * 8).enumerate() {
        words[n / 8] |= u64::from(byte) << (8 * (n % 8));
    }
    words
}

#[cfg(test)]
mod tests;
