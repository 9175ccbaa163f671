//! What happened to cables and jobs, with times: kept in memory, a bounded number of them.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A cable was there when observing began.
    Present,
    /// A cable came.
    Plugged,
    /// A cable went.
    Unplugged,
    /// A cable has another speed or number of lanes than before.
    SpeedChanged,
    /// Bytes have no way over the cable any more.
    Degraded,
    /// Bytes have a way over the cable again.
    Recovered,
    /// A job lost a rail.
    RailLost,
    /// A job has a rail again that it had lost.
    RailBack,
    /// A connection of a job ended in an error.
    ConnectionFailed,
    /// A job refused a peer.
    PeerRefused,
    /// A job took a path that is slower than this machine could give.
    SlowPath,
}

impl Kind {
    /// The word in JSON, on D-Bus and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Present => "present",
            Kind::Plugged => "plugged",
            Kind::Unplugged => "unplugged",
            Kind::SpeedChanged => "speed_changed",
            Kind::Degraded => "degraded",
            Kind::Recovered => "recovered",
            Kind::RailLost => "rail_lost",
            Kind::RailBack => "rail_back",
            Kind::ConnectionFailed => "connection_failed",
            Kind::PeerRefused => "peer_refused",
            Kind::SlowPath => "slow_path",
        }
    }

    /// Whether it is worse than before.
    pub fn warns(self) -> bool {
        !matches!(self, Kind::Present | Kind::Plugged | Kind::Recovered | Kind::RailBack)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that happened. Names are not verified: those of peers are what they say of themselves, those of jobs what their owner says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was noticed, microseconds since 1970. No two events have the same: it names the event too, and grows.
    pub time_us: u64,
    /// What.
    pub kind: Kind,
    /// The cable, as `lspan status` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cable: Option<String>,
    /// Name of the host at its other end, or of the job's peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// UUID of the host at the cable's other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_uuid: Option<String>,
    /// User whose job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Process of the job, in its own pid namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Name of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Device that the job used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Transport that the job used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// How many times since the job's last event of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// A sentence for people.
    pub text: String,
}

impl Event {
    /// About no cable and no job; the time is that of [`EventLog::push`].
    pub(crate) fn new(kind: Kind, text: String) -> Event {
        Event {
            time_us: 0,
            kind,
            cable: None,
            peer: None,
            peer_uuid: None,
            uid: None,
            pid: None,
            comm: None,
            device: None,
            transport: None,
            count: None,
            text,
        }
    }

    /// The line of `lspan events`: time (UTC), kind, sentence.
    pub fn line(&self) -> String {
        format!("{} {:<17} {}", utc(self.time_us), self.kind.name(), self.text)
    }
}

/// A moment to the second, as RFC 3339 writes it, in UTC.
pub fn utc(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last one; an era has 400 years, 146,097 days. 719,468 days lie between
    // 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Most events of one answer: a message of D-Bus takes 32 MiB on the system bus.
pub const EVENTS_EACH: usize = 4096;

/// The last events. A full one forgets the oldest event of whoever has most in it (the cables, or one user's jobs), so that nobody can
/// push out what others did.
#[derive(Debug)]
pub struct EventLog {
    kept: VecDeque<Event>,
    /// How many of them are whose.
    counts: BTreeMap<Option<u32>, usize>,
    most: usize,
    last: u64,
}

impl EventLog {
    /// Keeps `most` events, at least one.
    pub fn new(most: usize) -> EventLog {
        EventLog { kept: VecDeque::new(), counts: BTreeMap::new(), most: most.max(1), last: 0 }
    }

    /// Keeps another number from now on.
    pub fn keep(&mut self, most: usize) {
        self.most = most.max(1);
        self.forget(self.kept.len().saturating_sub(self.most));
    }

    /// Adds an event that was noticed now. Its time is later than that of every other, also where the clock was set back.
    pub fn push(&mut self, mut event: Event, now_us: u64) -> &Event {
        if self.kept.len() >= self.most {
            self.forget(1);
        }
        self.last = now_us.max(self.last + 1);
        event.time_us = self.last;
        *self.counts.entry(event.uid).or_default() += 1;
        self.kept.push_back(event);
        &self.kept[self.kept.len() - 1]
    }

    /// So many at once, as if it were one after another.
    fn forget(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let mut whose: BinaryHeap<(usize, Option<u32>)> = self.counts.iter().map(|(uid, n)| (*n, *uid)).collect();
        let mut gone: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for _ in 0..count {
            if let Some(mut most) = whose.peek_mut() {
                most.0 -= 1;
                *gone.entry(most.1).or_default() += 1;
            }
        }
        self.counts = whose.into_iter().filter(|(n, _)| *n > 0).map(|(n, uid)| (uid, n)).collect();
        self.kept.retain(|event| match gone.get_mut(&event.uid) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
    }

    /// The first [`EVENTS_EACH`] later than this moment that `uid` may see: those of cables, and of its own jobs; of all jobs for
    /// `None`. Where there are so many, there may be more after the last one's time.
    pub fn after(&self, time_us: u64, uid: Option<u32>) -> Vec<Event> {
        let seen = |event: &&Event| event.uid.is_none() || uid.is_none() || event.uid == uid;
        self.kept.iter().filter(|event| event.time_us > time_us).filter(seen).take(EVENTS_EACH).cloned().collect()
    }

    /// Time of the last event; 0: there was none.
    pub fn last_us(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests;
