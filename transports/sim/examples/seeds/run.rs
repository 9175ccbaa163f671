//! One seed from beginning to end.

use std::collections::BTreeMap;

use linkspan_sim::{Fault, LinkId, Rng, SimRail, World};
use linkspan_transport::{Conn, Down, Error, OpError, Poll};

use super::model::{DirectionModel, Free, Message, Received, Sent, TAGS, check_message, poisoned};
use super::onesided::{Exposed, Onesided};
use super::plan::{Plan, Trouble};

/// Rounds after which a run counts as hung; the longest honest ones need a tenth of it.
const MAX_ROUNDS: u64 = 200_000;

/// Virtual time after which the liveness watch gives up a link that carries nothing any more, ns (30 s, as for a dead
/// host).
const LIVENESS: u64 = 30_000_000_000;

/// Which trouble met which state, how often.
pub(crate) type Met = BTreeMap<(&'static str, &'static str), u64>;

/// How a run ended.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) met: Met,
    pub(crate) messages: u64,
    /// One-sided writes and reads that were done.
    pub(crate) written: u64,
    pub(crate) read: u64,
    /// The plan allowed that the connection is lost, and it was.
    pub(crate) may_die: bool,
    pub(crate) died: bool,
    pub(crate) rails_lost: u64,
    pub(crate) rounds: u64,
}

struct Side {
    conn: Option<Conn<SimRail>>,
    lost: bool,
    stopped_until: u64,
    free: Free,
    exposed: Option<Exposed>,
    onesided: Onesided,
}

struct Run {
    seed: u64,
    rng: Rng,
    plan: Plan,
    world: World,
    sides: [Side; 2],
    /// Indexed by the side that sends.
    lanes: [DirectionModel; 2],
    /// Links to be given up by both sides, when.
    watch: Vec<(u64, LinkId)>,
    recovering: u64,
    closing: bool,
    report: Report,
}

/// Runs a seed.
///
/// # Panics
/// Something went wrong; the text says what.
pub(crate) fn run(seed: u64, trace: bool) -> Report {
    let mut rng = Rng::new(seed);
    let plan = Plan::new(&mut rng);
    let world = World::new(seed ^ 0x77);
    world.trace(trace);
    world.note(|| format!("{plan:#?}"));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for &config in &plan.links {
        let (left, right) = world.link(config);
        a.push(left);
        b.push(right);
    }
    let sides = [a, b].map(|rails| {
        let mut conn = Conn::new(rails, plan.acked);
        Side {
            exposed: plan.acked.then(|| Exposed::new(&mut conn)),
            conn: Some(conn),
            lost: false,
            stopped_until: 0,
            free: Free::default(),
            onesided: Onesided::default(),
        }
    });
    let mut run = Run {
        seed,
        rng,
        plan,
        world,
        sides,
        lanes: [DirectionModel::default(), DirectionModel::default()],
        watch: Vec::new(),
        recovering: 0,
        closing: false,
        report: Report::default(),
    };
    run.report.may_die = run.plan.may_die;
    run.traffic();
    run.end();
    run.report.written = run.sides.iter().map(|side| side.onesided.written).sum();
    run.report.read = run.sides.iter().map(|side| side.onesided.read).sum();
    run.report
}

impl Run {
    fn traffic(&mut self) {
        let mut troubles = std::mem::take(&mut self.plan.troubles).into_iter().peekable();
        let close_at = if self.plan.early_close { self.plan.messages * 2 / 3 } else { u64::MAX };
        for round in 0..MAX_ROUNDS {
            while let Some((_, trouble)) = troubles.next_if(|t| t.0 <= round) {
                self.meet(trouble);
            }
            self.report.rounds = round;
            self.liveness();
            let mut active = false;
            for side in [0, 1] {
                active |= self.step(side);
            }
            self.recovering = self.recovering.saturating_sub(1);
            let over = self.sides.iter().all(|s| s.lost || s.conn.is_none());
            let done = (0..2).all(|s| self.is_done(s));
            let early = self.lanes.iter().any(|l| l.delivered >= close_at);
            if over || early || (done && troubles.peek().is_none()) {
                return;
            }
            if !active {
                self.pass();
            }
        }
        let left = [0, 1].map(|s| {
            let l = &self.lanes[s];
            format!(
                "side {s}: sent {:?} posted {:?}, {} sends {} receives open, truncation {}/{}, one-sided done: {}, lost {}",
                l.sent, l.posted, l.sends.len(), l.recvs.len(), l.truncation_reported, l.truncation_sent,
                self.sides[s].onesided.is_done(), self.sides[s].lost
            )
        });
        panic!("hung: {left:#?}");
    }

    fn is_done(&self, side: usize) -> bool {
        self.lanes[side].is_done(self.plan.messages) && self.sides[side].onesided.is_done()
    }

    /// Lets time pass to the next thing that happens by itself or by plan.
    fn pass(&mut self) {
        if self.world.pass() {
            if self.rng.one_in(2) {
                self.world.advance(self.rng.below(200_000));
            }
            return;
        }
        let now = self.world.now();
        let wakes = self.sides.iter().map(|s| s.stopped_until);
        let next = wakes.chain(self.watch.iter().map(|w| w.0)).filter(|&t| t > now).min();
        if let Some(next) = next.filter(|_| self.rng.one_in(20)) {
            self.world.advance(next - now);
        }
    }

    /// What the run is in the middle of, for the report.
    fn phase(&self) -> &'static str {
        let conns = || self.sides.iter().filter_map(|s| s.conn.as_ref());
        let open = |large: bool| {
            let mut sends = self.lanes.iter().flat_map(|l| &l.sends);
            sends.any(|s| (s.message.len > 8192) == large)
        };
        if self.closing {
            "closing"
        } else if self.recovering > 0 {
            "after a rail was lost"
        } else if conns().any(|c| c.rails().any(|(_, r)| r.is_inside_chunk())) {
            "chunk half landed"
        } else if open(true) {
            "large message"
        } else if open(false) {
            "small message"
        } else if self.sides.iter().any(|s| !s.onesided.is_done()) {
            "one-sided"
        } else if self.lanes.iter().any(|l| !l.recvs.is_empty()) {
            "receive waiting"
        } else {
            "idle"
        }
    }

    fn meet(&mut self, trouble: Trouble) {
        let phase = self.phase();
        let name = match trouble {
            Trouble::Link(_, fault) => fault.name(),
            Trouble::Stop(..) => "peer stop",
            Trouble::Crash(_) => "peer crash",
            Trouble::GiveUp(..) => "rail given up",
            Trouble::Add => "rail added",
        };
        *self.report.met.entry((name, phase)).or_default() += 1;
        self.world.note(|| format!("{trouble:?} in phase {phase:?}"));
        match trouble {
            Trouble::Link(n, fault) => {
                let id = self.link(n);
                self.world.plant(id, fault);
                let silent = matches!(
                    fault,
                    Fault::Stall { time: None, .. } | Fault::Cut { a: None, .. } | Fault::Cut { b: None, .. }
                );
                if silent {
                    // One side sooner, by its own watch; the other by its own, later.
                    let soon = self.world.now() + self.rng.below(LIVENESS);
                    self.watch.push((soon, id));
                    self.watch.push((self.world.now() + LIVENESS, id));
                }
            }
            Trouble::Stop(side, time) => self.sides[side].stopped_until = self.world.now() + time,
            Trouble::Crash(side) => {
                let Some(mut conn) = self.sides[side].conn.take() else { return };
                for (_, rail) in conn.rails() {
                    let (at, seen) = (rail.end(), self.rng.below(2_000_000));
                    self.world.plant(rail.link(), Fault::Crash { at, seen });
                }
                conn.fail(gone("killed"));
            }
            Trouble::GiveUp(side, n) => {
                let id = self.link(n);
                self.give_up(side, id);
            }
            Trouble::Add => self.add_rail(),
        }
    }

    fn link(&self, n: usize) -> LinkId {
        self.world.link_id(n)
    }

    fn add_rail(&mut self) {
        let [a, b] = &mut self.sides;
        let (Some(a), Some(b)) = (&mut a.conn, &mut b.conn) else { return };
        let config = self.plan.links[0];
        let (left, right) = self.world.link(config);
        let id = a.next_rail_id().max(b.next_rail_id());
        let first = self.rng.one_in(2);
        // Either end may be too late, or never come up.
        if first || self.rng.one_in(2) {
            drop(a.add_rail(left, id));
        }
        if !first || self.rng.one_in(2) {
            drop(b.add_rail(right, id));
        }
    }

    fn give_up(&mut self, side: usize, id: LinkId) {
        let Some(conn) = &mut self.sides[side].conn else { return };
        let slot = conn.rails().find(|(_, r)| r.link() == id).map(|(slot, _)| slot);
        if let Some(slot) = slot
            && let Err(error) = conn.give_up_rail(slot, gone("given up"))
        {
            self.ended(side, &error);
        }
        self.recovering = 30;
    }

    fn liveness(&mut self) {
        let now = self.world.now();
        let due: Vec<LinkId> = self.watch.iter().filter(|w| w.0 <= now).map(|w| w.1).collect();
        self.watch.retain(|w| w.0 > now);
        for id in due {
            let last = !self.watch.iter().any(|w| w.1 == id);
            let side = self.rng.below(2) as usize;
            self.give_up(side, id);
            if last {
                self.give_up(1 - side, id);
            }
        }
    }

    fn step(&mut self, side: usize) -> bool {
        let now = self.world.now();
        if self.sides[side].conn.is_none() || self.sides[side].stopped_until > now {
            return false;
        }
        if !self.sides[side].lost {
            self.send(side);
            self.receive(side);
            self.one_sided(side);
        }
        self.test(side);
        let Some(conn) = &mut self.sides[side].conn else { return false };
        let result = conn.progress();
        while let Some(events) = conn.events() {
            self.report.rails_lost += 1;
            self.recovering = 30;
            self.world.note(|| format!("side {side} lost {}: {}", events.info.path, events.why));
        }
        match result {
            Ok(poll) => poll == Poll::Active,
            Err(error) => {
                self.ended(side, &error);
                false
            }
        }
    }

    /// A call failed: late news of a truncation message, or the end.
    fn ended(&mut self, side: usize, error: &Error) {
        match error {
            Error::Op(OpError::Truncated { .. }) => self.lanes[side].truncation_reported += 1,
            Error::Lost | Error::Closed => {
                if !self.sides[side].lost {
                    let why = self.sides[side].conn.as_ref().and_then(|c| c.lost().map(ToString::to_string));
                    self.world.note(|| format!("side {side} has lost the connection: {why:?}"));
                    assert!(
                        self.plan.may_die || self.closing,
                        "side {side} lost the connection although a rail was healthy: {why:?}"
                    );
                    if let Some(Down::Protocol { why, .. }) = self.sides[side].conn.as_ref().and_then(Conn::lost) {
                        // Only damage may look like this: an honest peer never breaks the protocol.
                        assert!(why.starts_with("LS000"), "side {side}: {why}");
                    }
                    self.report.died |= !self.closing;
                    self.sides[side].lost = true;
                    self.sides[side].onesided.forget();
                }
            }
            other => panic!("side {side}: {other}"),
        }
    }

    fn send(&mut self, side: usize) {
        let tag = self.rng.below(TAGS as u64) as usize;
        let lane = &mut self.lanes[side];
        let more = lane.total_sent() < self.plan.messages || lane.sent[tag] < lane.posted[tag];
        if !more || lane.sends.len() > 30 || self.rng.one_in(3) {
            return;
        }
        let message = Message::new(self.seed, side, tag as u32, lane.sent[tag]);
        let src = message.bytes();
        let Some(conn) = &mut self.sides[side].conn else { return };
        match conn.post_send(message.tag, src.slice()) {
            Ok(None) => {}
            Ok(Some(ticket)) => {
                lane.sent[tag] += 1;
                lane.truncation_sent += usize::from(message.truncation);
                lane.sends.push(Sent { ticket, message, src });
            }
            Err(Error::Op(OpError::Truncated { sent, tag: t, .. }))
                if message.truncation && sent == message.len as u64 && t == message.tag =>
            {
                // Refused on the spot: this message is over.
                lane.sent[tag] += 1;
                lane.truncation_sent += 1;
                lane.truncation_reported += 1;
            }
            Err(error) => self.ended(side, &error),
        }
    }

    fn receive(&mut self, side: usize) {
        let from = 1 - side;
        let lane = &mut self.lanes[from];
        let ahead = if lane.total_sent() < self.plan.messages { 2 } else { 0 };
        let mut posted = lane.posted;
        let mut parts = Vec::new();
        let most = self.rng.within(1, 8) as usize;
        if lane.recvs.len() > 20 || self.rng.one_in(2) {
            return;
        }
        for _ in 0..20 {
            let tag = self.rng.below(TAGS as u64) as usize;
            if parts.len() == most || posted[tag] >= lane.sent[tag] + ahead {
                continue;
            }
            let message = Message::new(self.seed, from, tag as u32, posted[tag]);
            if message.truncation && !parts.is_empty() {
                continue; // errors are told per request, so such a one is posted alone
            }
            posted[tag] += 1;
            parts.push((message, poisoned(message.capacity())));
            if message.truncation {
                break;
            }
        }
        if parts.is_empty() {
            return;
        }
        let posts: Vec<_> = parts.iter().map(|(m, b)| (m.tag, b.slice())).collect();
        let Some(conn) = &mut self.sides[side].conn else { return };
        match conn.post_recv(&posts) {
            Ok(None) => {}
            Ok(Some(ticket)) => {
                lane.posted = posted;
                lane.recvs.push(Received { ticket, parts });
            }
            Err(error) => self.ended(side, &error),
        }
    }

    fn one_sided(&mut self, side: usize) {
        if !self.plan.acked {
            return;
        }
        let [a, b] = &mut self.sides;
        let (me, peer) = if side == 0 { (a, b) } else { (b, a) };
        let (Some(conn), Some(exposed)) = (&mut me.conn, &mut me.exposed) else { return };
        while let Some(value) = conn.take_notify() {
            peer.onesided.notified(exposed, value);
        }
        exposed.turn(conn, &mut self.rng, &mut me.free);
        let busy = self.lanes[side].total_sent() < self.plan.messages;
        if let Some(theirs) = peer.exposed.as_ref().filter(|_| busy && self.rng.one_in(3))
            && let Err(error) = me.onesided.start(conn, theirs, &mut self.rng)
        {
            self.ended(side, &error);
        }
    }

    /// Tests everything open of a side, in an order of its own.
    fn test(&mut self, side: usize) {
        let [a, b] = &mut self.sides;
        let (me, peer) = if side == 0 { (a, b) } else { (b, a) };
        let Side { conn: Some(conn), free, onesided, .. } = me else { return };
        let lane = &mut self.lanes[side];
        let mut told = 0;
        lane.sends.retain_mut(|send| {
            match conn.test(send.ticket) {
                Ok(None) => return true,
                Ok(Some(n)) => assert_eq!(n, send.message.len as u64, "bytes sent"),
                Err(Error::Op(OpError::Truncated { .. })) => told += 1,
                Err(Error::Lost | Error::Closed) => {}
                Err(error) => panic!("a send failed: {error}"),
            }
            let src = std::mem::replace(&mut send.src, linkspan_transport::StaticBuf::new(0));
            free.add(src);
            false
        });
        lane.truncation_reported += told;
        let lane = &mut self.lanes[1 - side];
        let mut delivered = 0;
        lane.recvs.retain_mut(|recv| {
            let sizes = *conn.sizes(recv.ticket);
            let over = recv.parts[0].0.truncation || recv.parts.iter().any(|p| p.0.truncation);
            match conn.test(recv.ticket) {
                Ok(None) => return true,
                Ok(Some(_)) => {
                    assert!(!over, "a message longer than its receive was taken: {:?}", recv.parts[0].0);
                    for (i, (message, buf)) in recv.parts.iter().enumerate() {
                        check_message(message, buf, sizes[i]);
                    }
                    delivered += recv.parts.len() as u64;
                }
                Err(Error::Op(OpError::Truncated { .. })) if over => delivered += 1,
                Err(Error::Lost | Error::Closed) => {}
                Err(error) => panic!("a receive failed: {error}"),
            }
            recv.parts.drain(..).for_each(|(_, buf)| free.add(buf));
            false
        });
        lane.delivered += delivered;
        self.report.messages += delivered;
        onesided.test(conn, peer.exposed.as_ref(), free);
    }

    /// Closes both sides in a random order, with whatever is still under way; then nothing may change any more.
    fn end(&mut self) {
        self.closing = true;
        let first = self.rng.below(2) as usize;
        self.world.note(|| format!("side {first} closes"));
        let was_alive = self.sides.iter().all(|s| s.conn.is_some() && !s.lost);
        drop(self.sides[first].conn.take());
        self.reclaim(first);
        self.sides[1 - first].stopped_until = 0;
        if was_alive && self.rng.one_in(2) {
            let n = self.rng.below(self.plan.links.len() as u64) as usize;
            let trouble = Plan::at_close(n, &mut self.rng);
            self.meet(trouble);
        }
        for round in 0.. {
            if self.sides[1 - first].conn.is_none() || self.sides[1 - first].lost {
                break;
            }
            assert!(round < MAX_ROUNDS, "the other side never hears of the close");
            self.liveness();
            let active = self.step(1 - first);
            if !active {
                self.pass();
            }
        }
        self.test(1 - first);
        if was_alive && self.sides[1 - first].conn.is_some() {
            let lane = &self.lanes[first];
            assert!(lane.recvs.is_empty(), "receives that never report");
            assert!(self.lanes[1 - first].sends.is_empty(), "sends that never report");
        }
        drop(self.sides[1 - first].conn.take());
        self.reclaim(1 - first);
        for n in 0..self.world.links() {
            let id = self.link(n);
            self.world.release(id);
        }
        for _ in 0..50 {
            self.world.pass();
        }
        self.sides.iter().for_each(|s| s.free.check());
    }

    /// A side's connection was dropped: all its memory is its own again.
    fn reclaim(&mut self, side: usize) {
        let free = &mut self.sides[side].free;
        for send in self.lanes[side].sends.drain(..) {
            free.add(send.src);
        }
        for recv in self.lanes[1 - side].recvs.drain(..) {
            recv.parts.into_iter().for_each(|(_, buf)| free.add(buf));
        }
    }
}

fn gone(why: &str) -> Down {
    Down::PeerGone { path: "this link".into(), why: why.into() }
}
