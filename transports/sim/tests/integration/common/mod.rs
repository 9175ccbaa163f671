//! Simulated links as the conformance suite drives them.

pub(crate) mod faulty;

use std::time::Duration;

use linkspan_sim::{End, Fault, LinkConfig, LinkId, SimRail, World};
use linkspan_transport::conformance::{Patience, Side, Testbed, Want};

/// Links of one kind in one world.
pub(crate) struct SimBed {
    /// The world.
    pub(crate) world: World,
    /// What every link is like.
    pub(crate) config: LinkConfig,
    /// Rounds the suite waits.
    pub(crate) patience: u64,
    /// Connections made.
    pub(crate) pairs: usize,
    /// Links of the last connection.
    links: Vec<LinkId>,
    stalled: Vec<LinkId>,
}

impl SimBed {
    /// Links like this.
    pub(crate) fn new(config: LinkConfig) -> SimBed {
        SimBed { world: World::new(1), config, patience: 2_000_000, pairs: 0, links: Vec::new(), stalled: Vec::new() }
    }

    /// Plain links.
    pub(crate) fn ordered() -> SimBed {
        SimBed::new(LinkConfig::default())
    }

    /// Chunks overtake control messages.
    pub(crate) fn unordered() -> SimBed {
        SimBed::new(LinkConfig { ordered: false, jitter: 100_000, ..LinkConfig::default() })
    }

    /// Everything in small pieces: chunks, queue, buffer, segments and polls.
    pub(crate) fn tight() -> SimBed {
        SimBed::new(LinkConfig {
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
}

fn end(side: Side) -> End {
    if side == Side::A { End::A } else { End::B }
}

impl Testbed for SimBed {
    type R = SimRail;

    fn rail(&mut self, want: Want, n: usize) -> (SimRail, SimRail) {
        if n == 0 {
            self.pairs += 1;
            self.links.clear();
        }
        // Unequal rails: each half as fast as the one before, and those that come later as the first.
        let speed = if n < want.rails { self.config.speed >> n } else { self.config.speed };
        let (a, b) = self.world.link(LinkConfig { speed, ..self.config });
        self.links.push(a.link());
        (a, b)
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

    fn kill(&mut self, side: Side) {
        for link in &self.links {
            let seen = self.world.below(1_000_000);
            self.world.plant(*link, Fault::Crash { at: end(side), seen });
        }
    }

    /// A few thousand bytes from now: less than a chunk, so that one is left half landed.
    fn stall(&mut self, side: Side, n: usize) {
        let (to, after, time) = (end(side), 1000 + self.world.below(6000), None);
        self.stalled.push(self.links[n]);
        self.world.plant(self.links[n], Fault::Stall { to, after, time });
    }

    fn release(&mut self) {
        for link in self.stalled.drain(..) {
            self.world.release(link);
        }
    }

    fn patience(&self) -> Patience {
        Patience::Rounds(self.patience)
    }
}
