//! Random traffic against a model: for each direction and tag, a queue of what was sent.

use std::collections::HashMap;

use super::bench::{Wait, check_poison, filled, poison, shapes};
use super::{Duo, Level, Side, SuiteMemory, Testbed, check_bytes};
use crate::{Buf, MAX_GROUP, MemSlice, Poll, Rail, Ticket};

/// A small seeded generator (splitmix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence that belongs to this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x6C69_6E6B_7370_616E)
    }

    /// 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// Whether one of `n` cases has come up.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

struct Sent {
    ticket: Ticket,
    src: SuiteMemory,
}

struct Part {
    tag: u32,
    /// How many receives with this tag were posted before it.
    nth: u64,
    buf: SuiteMemory,
}

struct Received {
    ticket: Ticket,
    parts: Vec<Part>,
}

/// What the model knows of one direction.
#[derive(Default)]
struct DirectionModel {
    /// Per tag: messages sent and parts posted so far.
    sent: HashMap<u32, u64>,
    posted: HashMap<u32, u64>,
    sends: Vec<Sent>,
    recvs: Vec<Received>,
    /// Buffers whose receive has reported, poisoned.
    free: Vec<SuiteMemory>,
    done: u64,
}

/// Length of the n-th message with a tag: known to both ends without being told.
fn length(seed: u64, tag: u32, nth: u64) -> usize {
    let mut rng = Rng::new(seed ^ u64::from(tag) << 32 ^ nth);
    match rng.below(10) {
        0 => 0,
        1..=4 => rng.below(300) as usize,
        5..=6 => 8180 + rng.below(24) as usize,
        7..=8 => rng.below(70_000) as usize,
        _ => rng.below(400_000) as usize,
    }
}

fn content(seed: u64, tag: u32, nth: u64) -> u64 {
    seed ^ u64::from(tag).wrapping_mul(0x1_0001) ^ nth << 40
}

/// Random tags, sizes, groups and test orders in both directions; content, order and sizes are checked against the
/// model, memory is poisoned once free and watched.
pub(super) fn random_soak<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for (i, want) in shapes(bed).into_iter().enumerate() {
        let mut duo = Duo::new(bed, want);
        let messages = level.pick(400, 20_000);
        soak(&mut duo, 40 + i as u64, messages);
        duo.still_works();
    }
}

fn soak<R: Rail>(duo: &mut Duo<'_, R>, seed: u64, messages: u64) {
    const TAGS: u64 = 5;
    let mut rng = Rng::new(seed);
    let mut lanes = [DirectionModel::default(), DirectionModel::default()];
    let mut wait = Wait::new();
    while lanes.iter().any(|l| !l.finished(messages)) {
        for (lane, from) in lanes.iter_mut().zip([Side::A, Side::B]) {
            let lane_seed = seed * 2 + u64::from(from == Side::A);
            // Either side may run ahead by about 60 messages.
            let tag = rng.below(TAGS) as u32;
            if lane.may_send(tag, messages) && lane.sends.len() < 60 && rng.below(3) > 0 {
                let nth = *lane.sent.entry(tag).or_default();
                let src = filled(length(lane_seed, tag, nth), content(lane_seed, tag, nth));
                let posted = duo.conn(from).post_send(tag, src.slice()).expect("post_send");
                if let Some(ticket) = posted {
                    *lane.sent.entry(tag).or_default() += 1;
                    lane.sends.push(Sent { ticket, src });
                }
            }
            if rng.below(3) > 0 {
                receive(duo, lane, from.other(), lane_seed, messages, &mut rng);
            }
            lane.test(duo, from, lane_seed, &mut rng);
        }
        let a = duo.a.progress().expect("progress");
        let b = duo.b.progress().expect("progress");
        if (a, b) == (Poll::Idle, Poll::Idle) {
            duo.bed.pass();
        }
        wait.round(duo.bed.patience(), "the soak to end");
    }
    for lane in &lanes {
        for buf in &lane.free {
            check_poison(buf.slice(), 0xEE, "after its receive has reported");
        }
    }
    duo.until("every operation to be retired", |duo| {
        let lanes = &mut lanes;
        lanes[0].test(duo, Side::A, seed * 2 + 1, &mut rng);
        lanes[1].test(duo, Side::B, seed * 2, &mut rng);
        [&duo.a, &duo.b].iter().all(|conn| conn.moving() + conn.waiting() == 0)
    });
}

/// Posts a group that mostly follows what was sent, so that tags meet, and sometimes runs ahead of it.
fn receive<R: Rail>(
    duo: &mut Duo<'_, R>,
    lane: &mut DirectionModel,
    to: Side,
    seed: u64,
    messages: u64,
    rng: &mut Rng,
) {
    // Receives that no message will ever meet must not be posted, and large messages wait for theirs: so receives
    // for a tag go up to its count of sends, and beyond it only while messages are still to come and will have to be.
    let sent: u64 = lane.sent.values().sum();
    let mut owed: Vec<u32> = Vec::new();
    for tag in 0..5u32 {
        let (sent_here, posted) = lane.counts(tag);
        let ahead = if sent < messages { 2 } else { 0 };
        owed.extend((posted..sent_here + ahead).map(|_| tag));
    }
    rng.shuffle(&mut owed);
    owed.truncate(1 + rng.below(MAX_GROUP as u64) as usize);
    if owed.is_empty() {
        return;
    }
    let mut counts = lane.posted.clone();
    let parts: Vec<Part> = owed
        .into_iter()
        .map(|tag| {
            let nth = counts.entry(tag).or_default();
            *nth += 1;
            let buf = SuiteMemory::new(length(seed, tag, *nth - 1) + 64);
            poison(buf.slice(), 0xEE);
            Part { tag, nth: *nth - 1, buf }
        })
        .collect();
    let posts: Vec<(u32, MemSlice)> = parts.iter().map(|p| (p.tag, p.buf.slice())).collect();
    if let Some(ticket) = duo.conn(to).post_recv(&posts).expect("post_recv") {
        lane.posted = counts;
        lane.recvs.push(Received { ticket, parts });
    }
}

impl DirectionModel {
    fn counts(&self, tag: u32) -> (u64, u64) {
        let of = |m: &HashMap<u32, u64>| m.get(&tag).copied().unwrap_or(0);
        (of(&self.sent), of(&self.posted))
    }

    /// After the last message only receives that are still open are served.
    fn may_send(&self, tag: u32, messages: u64) -> bool {
        let (sent, posted) = self.counts(tag);
        self.sent.values().sum::<u64>() < messages || sent < posted
    }

    fn finished(&self, messages: u64) -> bool {
        let even = |tag| self.counts(tag).0 == self.counts(tag).1;
        self.done >= messages && self.recvs.is_empty() && (0..5).all(even)
    }

    fn test<R: Rail>(&mut self, duo: &mut Duo<'_, R>, from: Side, seed: u64, rng: &mut Rng) {
        for _ in 0..4 {
            if !self.sends.is_empty() {
                let at = rng.below(self.sends.len() as u64) as usize;
                let send = &self.sends[at];
                if let Some(n) = duo.conn(from).test(send.ticket).expect("a send") {
                    assert_eq!(n, send.src.len() as u64, "size of a send");
                    // Its memory is free: whatever happens to it must not reach the peer.
                    poison(send.src.slice(), 0xDD);
                    self.sends.swap_remove(at);
                }
            }
            if self.recvs.is_empty() {
                continue;
            }
            let at = rng.below(self.recvs.len() as u64) as usize;
            let ticket = self.recvs[at].ticket;
            let sizes = *duo.conn(from.other()).sizes(ticket);
            let Some(n) = duo.conn(from.other()).test(ticket).expect("a receive") else {
                continue;
            };
            let recv = self.recvs.swap_remove(at);
            let mut total = 0;
            for (i, part) in recv.parts.into_iter().enumerate() {
                let len = length(seed, part.tag, part.nth) as u64;
                assert_eq!(sizes[i], len, "message {} of tag {}", part.nth, part.tag);
                let whole = part.buf.slice();
                check_bytes(whole.sub(0, len).expect("inside"), content(seed, part.tag, part.nth));
                check_poison(whole.sub(len, 64).expect("inside"), 0xEE, "behind a message");
                poison(whole, 0xEE);
                self.free.push(part.buf);
                if self.free.len() > 40 {
                    let old = self.free.swap_remove(rng.below(40) as usize);
                    check_poison(old.slice(), 0xEE, "after its receive has reported");
                }
                total += len;
                self.done += 1;
            }
            assert_eq!(n, total, "bytes of a group");
        }
    }
}
