//! The simulated room as the conformance suite drives it.

pub(crate) mod faulty;

use std::time::Duration;

use linkspan_sim::{Fault, LinkConfig, LinkId, SimRail, World};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Patience, Room, Want};

/// Links of one kind in one world.
pub(crate) struct SimRoom {
    /// The world.
    pub(crate) world: World,
    /// What every link is like.
    pub(crate) config: LinkConfig,
    /// Rounds the suite waits.
    pub(crate) patience: u64,
    /// Connections made.
    pub(crate) pairs: usize,
    stalled: Vec<LinkId>,
}

impl SimRoom {
    /// A room of links like this.
    pub(crate) fn new(config: LinkConfig) -> SimRoom {
        SimRoom { world: World::new(1), config, patience: 2_000_000, pairs: 0, stalled: Vec::new() }
    }

    /// The plain room.
    pub(crate) fn ordered() -> SimRoom {
        SimRoom::new(LinkConfig::default())
    }

    /// Chunks overtake control messages.
    pub(crate) fn unordered() -> SimRoom {
        SimRoom::new(LinkConfig { ordered: false, jitter: 100_000, ..LinkConfig::default() })
    }

    /// Everything in small pieces: chunks, queue, buffer, segments and polls.
    pub(crate) fn tight() -> SimRoom {
        SimRoom::new(LinkConfig {
            chunk: 16 << 10,
            queue: 3,
            buffer: 9000,
            segment: 3001,
            budget: 5000,
            latency: 1000,
            jitter: 5000,
            ..LinkConfig::default()
        })
    }

    /// Stalls a rail a few thousand bytes from now: less than a chunk, so that one is left half landed.
    pub(crate) fn stall_rail(&mut self, rail: &SimRail) {
        let (to, after, time) = (rail.end(), 1000 + self.world.below(6000), None);
        self.stalled.push(rail.link());
        let stall = Fault::Stall { to, after, time };
        self.world.plant(rail.link(), stall);
    }
}

impl Room for SimRoom {
    type R = SimRail;

    fn pair(&mut self, want: Want) -> (Conn<SimRail>, Conn<SimRail>) {
        self.pairs += 1;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for n in 0..want.rails {
            // Unequal rails: each half as fast as the one before.
            let speed = self.config.speed >> n;
            let (left, right) = self.world.link(LinkConfig { speed, ..self.config });
            a.push(left);
            b.push(right);
        }
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn pass(&mut self) {
        self.world.pass();
    }

    fn sleep(&mut self, time: Duration) {
        self.world.advance(time.as_nanos() as u64);
    }

    fn kill(&mut self, conn: Conn<SimRail>) {
        for (_, rail) in conn.rails() {
            let (at, seen) = (rail.end(), self.world.below(1_000_000));
            self.world.plant(rail.link(), Fault::Crash { at, seen });
        }
    }

    fn stall(&mut self, conn: &Conn<SimRail>, slot: usize) -> bool {
        let Some((_, rail)) = conn.rails().find(|(s, _)| *s == slot) else {
            return false;
        };
        self.stall_rail(rail);
        true
    }

    fn release(&mut self) {
        for link in self.stalled.drain(..) {
            self.world.release(link);
        }
    }

    fn extra_rail(&mut self) -> Option<(SimRail, SimRail)> {
        Some(self.world.link(self.config))
    }

    fn patience(&self) -> Patience {
        Patience::Rounds(self.patience)
    }
}
