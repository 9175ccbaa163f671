//! The suite of all rooms over encrypted rails.

use crate::common::V4;
use crate::common::sealed::sealed_rails;
use linkspan_tcp::{Options, SealedRail};
use linkspan_transport::conformance::{Room, Want};
use linkspan_transport::{Conn, conformance_suite};

/// Encrypted rails over loopback.
struct Encrypted;

impl Room for Encrypted {
    type R = SealedRail;

    fn pair(&mut self, want: Want) -> (Conn<SealedRail>, Conn<SealedRail>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| sealed_rails(V4, &Options::default())).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(SealedRail, SealedRail)> {
        Some(sealed_rails(V4, &Options::default()))
    }
}

conformance_suite!(encrypted, Encrypted);
