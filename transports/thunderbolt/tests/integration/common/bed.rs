//! Cables in software as the suite wants them.

use linkspan_transport::conformance::{Boxed, Rng, Side, Testbed, Want};

use super::Cables;

/// Several rails share a ring link, and each stream is one rail. Where the suite stalls or kills them, each rail has cables of
/// its own.
pub(crate) struct Thunderbolt {
    make: fn() -> Cables,
    cables: Vec<Cables>,
    rng: Rng,
}

impl Thunderbolt {
    pub(crate) fn new(make: fn() -> Cables) -> Thunderbolt {
        Thunderbolt { make, cables: Vec::new(), rng: Rng::new(0) }
    }
}

impl Testbed for Thunderbolt {
    type R = Boxed;

    fn rail(&mut self, want: Want, n: usize) -> (Boxed, Boxed) {
        if n == 0 {
            self.cables.clear();
        }
        if n == 0 || want.faults {
            self.cables.push((self.make)());
        }
        let (a, b) = self.cables.last().expect("pushed with the first rail").rails();
        (Boxed(a), Boxed(b))
    }

    fn rails(&self) -> usize {
        3
    }

    fn stall(&mut self, _: Side, n: usize) {
        let bytes = self.rng.below(64 << 10);
        self.cables[n].stall(Some(bytes));
    }

    fn release(&mut self) {
        self.cables.iter().for_each(|cables| cables.stall(None));
    }

    fn kill(&mut self, side: Side) {
        self.cables.iter().for_each(|cables| cables.kill(side as usize));
    }
}
