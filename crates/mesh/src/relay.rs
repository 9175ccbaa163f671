//! One stream that passes through this host: two sockets, a buffer each way, a thread.
//!
//! Bytes leave as they come, nothing waits for the end of a message; a buffer that is full stops the reading, so the sender's
//! window closes as if the receiver were its neighbour, and memory is bounded by two buffers. An end or a reset on one
//! side is passed on to the other. What passes is not looked at, but for the mark by which the stream goes over to RDMA
//! ([`super::hops`]): from then on two queue pairs, joined, carry what there is, and the stream stays beside them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linkspan_net::WaitSet;
use linkspan_setup::clock;
use linkspan_setup::log::Log;
use linkspan_setup::secured::Secured;
use linkspan_setup::stats::{Counter, Slot, Stats, Tally};
use linkspan_stream::Stream;
use linkspan_stream::health::{is_dead, is_stalled};
use linkspan_transport::{Poll, Relay, chain};

use super::crossing::{Crossing, Over};
use super::hops::RelayMark;
use super::work::WorkSlot;

/// Bytes held each way.
pub(super) const BUFFER: usize = 256 << 10;

/// Longest sleep: the counters are told and the paths looked at that often.
const TICK: Duration = Duration::from_millis(500);

/// The same while queue pairs are set up, which say nothing when they are.
const SETTING_UP: Duration = Duration::from_millis(1);

/// Bytes in which a mark is looked for: a login has far fewer.
const SEARCHED: u64 = 64 << 10;

/// How long what may be the beginning of a mark is held: its rest comes with it or not at all.
const HELD: Duration = Duration::from_secs(1);

/// Looks in a row that found nothing before the thread sleeps until a card wakes it: some tens of us, so that the chunks of
/// one message do not each wait for a waking.
const IDLE_LOOKS: u32 = 256;

/// Looks at the cards for each at the stream beside them.
const STREAM_EVERY: u32 = 64;

struct Pipe {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    /// The source has ended.
    eof: bool,
    /// That was passed on.
    shut: bool,
    bytes: u64,
    /// Bytes read so far, while a mark is looked for; and whether it has come.
    mark: Option<(RelayMark, u64)>,
    marked: bool,
    /// When bytes were read last while it was looked for.
    read: Instant,
}

enum Moved {
    Yes,
    No,
    /// A side is gone.
    Gone,
}

impl Pipe {
    fn new(mark: Option<RelayMark>) -> Pipe {
        let (buf, mark) = (vec![0; BUFFER].into(), mark.map(|mark| (mark, 0)));
        Pipe { buf, start: 0, end: 0, eof: false, shut: false, bytes: 0, mark, marked: false, read: Instant::now() }
    }

    /// How far bytes may pass: up to the mark.
    fn bound(&mut self) -> usize {
        let Some((mark, seen)) = self.mark.filter(|_| !self.eof) else { return self.end };
        match mark.find(&self.buf[self.start..self.end]) {
            Ok(at) => {
                self.marked = true;
                self.start + at
            }
            Err(_) if seen > SEARCHED => {
                self.mark = None;
                self.end
            }
            Err(n) => self.start + n,
        }
    }

    /// Whether the mark has come and all before it has left. Bytes after it are more than a correct peer sends before it is
    /// answered.
    fn takes_mark(&mut self) -> Option<bool> {
        if !self.marked || self.bound() != self.start {
            return Some(false);
        }
        let alone = self.end - self.start == RelayMark::LEN;
        (self.mark, self.marked, self.start, self.end) = (None, false, 0, 0);
        alone.then_some(true)
    }

    fn wants(&self) -> bool {
        !self.eof && self.end < self.buf.len()
    }

    fn has(&self) -> bool {
        self.start < self.end
    }

    /// Whether some of it may pass.
    fn passes(&mut self) -> bool {
        self.start < self.bound()
    }

    /// Gives up looking for the mark where what seemed its beginning has been held for too long.
    fn give_up(&mut self, now: Instant) {
        let held = self.mark.is_some() && self.has() && !self.passes() && !self.marked;
        if held && now.duration_since(self.read) >= HELD {
            self.mark = None;
        }
    }

    fn pump(&mut self, from: &mut Stream, to: &mut Stream) -> Moved {
        let mut moved = Moved::No;
        if self.wants() {
            match from.try_read(&mut self.buf[self.end..]) {
                Ok(None) => {}
                Ok(Some(0)) => self.eof = true,
                Ok(Some(n)) => {
                    self.end += n;
                    if let Some((_, seen)) = &mut self.mark {
                        (*seen, self.read) = (*seen + n as u64, Instant::now());
                    }
                    moved = Moved::Yes;
                }
                Err(_) => return Moved::Gone,
            }
        }
        let bound = self.bound();
        if self.start < bound {
            match to.try_write(&self.buf[self.start..bound]) {
                Ok(None) => {}
                Ok(Some(n)) => {
                    self.start += n;
                    self.bytes += n as u64;
                    moved = Moved::Yes;
                }
                Err(_) => return Moved::Gone,
            }
            if !self.has() {
                (self.start, self.end) = (0, 0);
            }
        }
        if self.eof && !self.has() && !self.shut {
            self.shut = true;
            if to.finish().is_err() {
                return Moved::Gone;
            }
        }
        moved
    }
}

/// Relays between two streams until both have ended or one is gone. `a` was asked for, `b` leads on; `over` is what it takes to
/// go over to RDMA.
pub(super) fn run(a: Stream, b: Stream, over: Option<Over>, relay_slot: &WorkSlot, stats: &Stats, log: &Log) {
    let name = format!("{} > {}", a.interface(), b.interface());
    let mut told = RelayStats { stats, slot: stats.slot(&name, "relay", ""), tally: Tally::default() };
    told.tally.add(Counter::Open, 1);
    told.tally.add(Counter::Connections, 1);
    let (mut there, mut back) = (Pipe::new(over.as_ref().map(|o| o.mark)), Pipe::new(None));
    let mut ends = [Secured::new(a, None), Secured::new(b, None)];
    let (mut over, mut crossing, mut rails) = (over, None, None::<Rails>);
    let (mut since, mut idle) = (Instant::now(), 0u32);
    let mut hosts = [None; 2];
    let mut set = WaitSet::new();
    let gone = loop {
        let mut moved = false;
        // Where cards carry, the stream is looked at now and then: it costs system calls.
        let looks = rails.is_none() || idle % STREAM_EVERY == STREAM_EVERY - 1;
        if let Some(under_way) = &mut crossing {
            match Crossing::poll(under_way, &mut ends) {
                Ok(None) => {}
                Ok(Some(crossed)) => {
                    match crossed {
                        Ok(relay) => {
                            log.info(&format!("mesh: the stream on {name} is replaced by RDMA"));
                            rails = Some(Rails::new(relay, stats, &name));
                        }
                        Err(why) => log.info(&format!("mesh: the stream on {name} stays with TCP: {why}")),
                    }
                    (crossing, moved) = (None, true);
                }
                Err(why) => {
                    let doing = under_way.doing();
                    log.info(&format!("mesh: the stream on {name} ended {doing}: {}", chain(&why)));
                    break true;
                }
            }
        } else if looks {
            let [a, b] = &mut ends;
            let one = there.pump(&mut a.stream, &mut b.stream);
            let two = back.pump(&mut b.stream, &mut a.stream);
            if matches!(one, Moved::Gone) || matches!(two, Moved::Gone) {
                break true;
            }
            moved |= !matches!((one, two), (Moved::No, Moved::No));
            if there.shut && back.shut && rails.is_none() {
                break false;
            }
            match there.takes_mark() {
                Some(false) => {}
                Some(true) => {
                    let begun = over.take().map(|over| Crossing::new(over, &mut ends[1]));
                    match begun {
                        Some(Ok(begun)) => (crossing, moved) = (Some(begun), true),
                        Some(Err(why)) => {
                            log.info(&format!(
                                "mesh: the stream on {name} ended before RDMA was set up: {}",
                                chain(&why)
                            ));
                            break true;
                        }
                        None => break true,
                    }
                }
                None => break true,
            }
        }
        if let Some(joined) = &mut rails {
            match joined.relay.poll() {
                Ok(Poll::Active) => moved = true,
                Ok(Poll::Idle) => {}
                Err(down) => {
                    log.info(&format!("mesh: RDMA on {name} has ended: {}", chain(&down)));
                    (rails, moved) = (None, true);
                }
            }
        }
        if moved {
            relay_slot.shared.moved.fetch_add(1, Ordering::Relaxed);
        }
        if since.elapsed() >= TICK {
            since = Instant::now();
            told.pipes(&mut there, &mut back);
            there.give_up(since);
            // The other side must be told that this one is dead, which it cannot see. Where others tell of the host, those who are
            // relayed have another way; else this may be the only one, and is given up as late as a direct one.
            let shared = &relay_slot.shared;
            let around = |host| shared.known().database.heard_around(host, clock::now());
            let dead = |(end, host): (&Secured, &mut Option<u64>)| {
                // A host no longer tells of its end of a cable that is cut.
                *host = host.or_else(|| shared.host_at(end.stream.peer_addr().ip().to_canonical()));
                let info = end.stream.tcp_info();
                info.is_ok_and(|i| is_dead(&i) || is_stalled(&i) && host.is_some_and(around))
            };
            let ended = there.shut && back.shut;
            if !ended && ends.iter().zip(&mut hosts).any(dead) || relay_slot.shared.stop.load(Ordering::Relaxed) {
                break true;
            }
            if let Some(joined) = &mut rails {
                joined.report();
                if !joined.relay.look() {
                    log.info(&format!("mesh: RDMA on {name} moves no data any more"));
                    rails = None;
                }
            }
        }
        idle = if moved { 0 } else { idle + 1 };
        if moved || rails.is_some() && idle < IDLE_LOOKS {
            continue;
        }
        set.clear();
        let mut most = if crossing.is_some() { SETTING_UP } else { TICK };
        if let Some(joined) = &mut rails {
            match joined.relay.arm() {
                Some(fds) => fds.into_iter().for_each(|fd| {
                    set.add(fd);
                }),
                None => most = Duration::ZERO,
            }
        }
        let [a, b] = &ends;
        let wants = match &crossing {
            Some(under_way) => [0, 1].map(|end| end == under_way.reads()),
            None => [there.wants(), back.wants()],
        };
        for (end, reads, writes) in [(a, wants[0], back.passes()), (b, wants[1], there.passes())] {
            // A socket whose end was seen would wake us forever; its reset is found when something is sent to it.
            if reads || writes {
                let mut fd = end.stream.wait_fd(writes);
                fd.read = reads;
                set.add(fd);
            }
        }
        let _ = set.wait(Some(most));
        // The stream may be what woke it.
        idle = STREAM_EVERY - 1;
    };
    drop(rails);
    if gone {
        let [a, b] = ends;
        a.stream.cut();
        b.stream.cut();
        told.tally.add(Counter::Failures, 1);
    }
    told.pipes(&mut there, &mut back);
    told.end();
}

/// A record of what passes, and what it was not told yet.
struct RelayStats<'a> {
    stats: &'a Stats,
    slot: Option<Slot>,
    tally: Tally,
}

impl RelayStats<'_> {
    fn report(&mut self, there: u64, back: u64) {
        self.tally.add(Counter::TxBytes, there);
        self.tally.add(Counter::RxBytes, back);
        if let Some(slot) = self.slot {
            self.stats.report(slot, &mut self.tally);
        }
    }

    fn pipes(&mut self, there: &mut Pipe, back: &mut Pipe) {
        self.report(std::mem::take(&mut there.bytes), std::mem::take(&mut back.bytes));
    }

    fn end(&mut self) {
        self.tally.add(Counter::Open, u64::MAX); // minus one
        self.report(0, 0);
    }
}

/// Queue pairs that carry what the stream was to carry.
struct Rails<'a> {
    relay: Box<dyn Relay>,
    told: RelayStats<'a>,
    bytes: [u64; 2],
}

impl<'a> Rails<'a> {
    fn new(relay: Box<dyn Relay>, stats: &'a Stats, name: &str) -> Rails<'a> {
        let mut told = RelayStats { stats, slot: stats.slot(name, "rdma-hop", ""), tally: Tally::default() };
        told.tally.add(Counter::Open, 1);
        told.tally.add(Counter::Connections, 1);
        Rails { relay, told, bytes: [0; 2] }
    }

    fn report(&mut self) {
        let bytes = self.relay.bytes();
        let [there, back] = std::mem::replace(&mut self.bytes, bytes);
        self.told.report(bytes[0] - there, bytes[1] - back);
    }
}

impl Drop for Rails<'_> {
    fn drop(&mut self) {
        self.report();
        self.told.end();
    }
}

#[cfg(test)]
mod tests;
