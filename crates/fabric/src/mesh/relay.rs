//! One stream that passes through this host: two sockets, a buffer each way, a thread.
//!
//! Bytes leave as they come, nothing waits for the end of a message; a buffer that is full stops the reading, so the sender's
//! window closes as if the receiver were its neighbour, and memory is bounded by two buffers. An end or a reset on one
//! side is passed on to the other. What passes is not looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linkspan_net::WaitSet;
use linkspan_tcp::Stream;

use super::Shared;
use crate::stats::{Counter, Stats, Tally};

/// Bytes held each way.
pub(super) const BUFFER: usize = 256 << 10;

/// Most streams relayed at a time: 64 MiB of buffers.
pub(super) const RELAYS_MAX: usize = 128;

/// Retransmissions in a row that nothing answers, after which the far side is cut off: as the rails have it.
const TIMEOUTS: u8 = 3;

/// The same of probes, which begin 0.2 s apart and double: a peer whose window is full answers each.
const PROBES: u8 = 4;

/// Longest sleep: the counters are told and the paths looked at that often.
const TICK: Duration = Duration::from_millis(500);

struct Pipe {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    /// The source has ended.
    eof: bool,
    /// That was passed on.
    shut: bool,
    bytes: u64,
}

enum Moved {
    Yes,
    No,
    /// A side is gone.
    Gone,
}

impl Pipe {
    fn new() -> Pipe {
        Pipe { buf: vec![0; BUFFER].into(), start: 0, end: 0, eof: false, shut: false, bytes: 0 }
    }

    fn wants(&self) -> bool {
        !self.eof && self.end < self.buf.len()
    }

    fn has(&self) -> bool {
        self.start < self.end
    }

    fn pump(&mut self, from: &mut Stream, to: &mut Stream) -> Moved {
        let mut moved = Moved::No;
        if self.wants() {
            match from.try_read(&mut self.buf[self.end..]) {
                Ok(None) => {}
                Ok(Some(0)) => self.eof = true,
                Ok(Some(n)) => {
                    self.end += n;
                    moved = Moved::Yes;
                }
                Err(_) => return Moved::Gone,
            }
        }
        if self.has() {
            match to.try_write(&self.buf[self.start..self.end]) {
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

/// A seat among the relayed streams, given back when dropped.
pub(super) struct Seat(Arc<Shared>);

impl Seat {
    /// Takes one; `None` when all are taken.
    pub(super) fn take(shared: &Arc<Shared>) -> Option<Seat> {
        let taken =
            shared.relays.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < RELAYS_MAX).then_some(n + 1));
        taken.ok().map(|_| Seat(shared.clone()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.relays.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Relays between two streams until both have ended or one is gone. `a` was asked for, `b` leads on.
pub(super) fn run(mut a: Stream, mut b: Stream, seat: &Seat, stats: &Stats) {
    let slot = stats.slot(&format!("{} > {}", a.interface(), b.interface()), "relay");
    let mut tally = Tally::default();
    tally.add(Counter::Open, 1);
    tally.add(Counter::Connections, 1);
    let (mut there, mut back) = (Pipe::new(), Pipe::new());
    let mut told = Instant::now();
    let mut set = WaitSet::new();
    let gone = loop {
        let one = there.pump(&mut a, &mut b);
        let two = back.pump(&mut b, &mut a);
        if matches!(one, Moved::Gone) || matches!(two, Moved::Gone) {
            break true;
        }
        if there.shut && back.shut {
            break false;
        }
        if told.elapsed() >= TICK {
            told = Instant::now();
            tally.add(Counter::TxBytes, std::mem::take(&mut there.bytes));
            tally.add(Counter::RxBytes, std::mem::take(&mut back.bytes));
            if let Some(slot) = slot {
                stats.tell(slot, &mut tally);
            }
            // Whoever waits at the other side must hear that this one is dead.
            let dead = |s: &Stream| s.tcp_info().is_ok_and(|i| i.timeouts >= TIMEOUTS || i.probes >= PROBES);
            if dead(&a) || dead(&b) || seat.0.stop.load(Ordering::Relaxed) {
                break true;
            }
        }
        if matches!((&one, &two), (Moved::No, Moved::No)) {
            set.clear();
            for (stream, reads, writes) in [(&a, there.wants(), back.has()), (&b, back.wants(), there.has())] {
                // A socket whose end was seen would wake us for ever; its reset is found when something is sent to it.
                if reads || writes {
                    let mut fd = stream.wait_fd(writes);
                    fd.read = reads;
                    set.add(fd);
                }
            }
            let _ = set.wait(Some(TICK));
        } else {
            seat.0.moved.fetch_add(1, Ordering::Relaxed);
        }
    };
    if gone {
        a.cut();
        b.cut();
        tally.add(Counter::Failures, 1);
    }
    tally.add(Counter::TxBytes, there.bytes);
    tally.add(Counter::RxBytes, back.bytes);
    tally.add(Counter::Open, u64::MAX); // minus one
    if let Some(slot) = slot {
        stats.tell(slot, &mut tally);
    }
}
