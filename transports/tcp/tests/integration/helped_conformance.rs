//! The suite of all rooms over rails with helper threads.

use crate::common::V4;
use crate::common::helpers::helped_rails;
use linkspan_tcp::{HelpedRail, Helpers};
use linkspan_transport::conformance::{Room, Want};
use linkspan_transport::{Conn, conformance_suite};

/// Rails over loopback, all served by so many threads.
struct Helped(Helpers);

impl Room for Helped {
    type R = HelpedRail;

    fn pair(&mut self, want: Want) -> (Conn<HelpedRail>, Conn<HelpedRail>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| helped_rails(&self.0, V4)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(HelpedRail, HelpedRail)> {
        Some(helped_rails(&self.0, V4))
    }
}

conformance_suite!(helped_suite, Helped(Helpers::new(1)));
