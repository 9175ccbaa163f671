//! The suite that every room passes, over both tiers in software: the ring driver's device, streams with the ring that
//! Linux makes by default, and streams with the smallest that it makes.

use crate::common::Cables;
use linkspan_thunderbolt::CableRail;
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

/// Several rails share a ring link; each stream is one rail.
struct Thunderbolt {
    make: fn() -> Cables,
    cables: Cables,
}

impl Thunderbolt {
    fn new(make: fn() -> Cables) -> Thunderbolt {
        Thunderbolt { make, cables: make() }
    }
}

impl Room for Thunderbolt {
    type R = CableRail;

    fn pair(&mut self, want: Want) -> (Conn<CableRail>, Conn<CableRail>) {
        self.cables = (self.make)();
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.cables.rails()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(CableRail, CableRail)> {
        Some(self.cables.rails())
    }
}

mod ring {
    use super::*;
    linkspan_transport::conformance_suite!(tier1, Thunderbolt::new(Cables::ring));
}

mod stream {
    use super::*;
    linkspan_transport::conformance_suite!(tier2, Thunderbolt::new(|| Cables::streams(6, 256)));
}

mod narrow {
    use super::*;
    linkspan_transport::conformance_suite!(tier2, Thunderbolt::new(|| Cables::streams(6, 32)));
}
