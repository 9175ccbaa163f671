//! The suite that every room passes, over loopback, with payload that goes through a pipe wherever a connection allows it.

use crate::common::{V4, lending_rails};
use linkspan_tcp::{Lend, Options, TcpRail};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

struct Piped;

impl Room for Piped {
    type R = TcpRail;

    fn pair(&mut self, want: Want) -> (Conn<TcpRail>, Conn<TcpRail>) {
        // Without acknowledgements an operation is done when the rail has taken it, and its memory changes.
        let lend = if want.acked { Lend::Piped(4096) } else { Lend::Never };
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| lending_rails(V4, &Options::default(), lend)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(TcpRail, TcpRail)> {
        Some(lending_rails(V4, &Options::default(), Lend::Piped(4096)))
    }
}

linkspan_transport::conformance_suite!(piped, Piped);
