//! The suite that every room passes, over loopback.

use crate::common::{V4, rails};
use linkspan_tcp::{Options, TcpRail};
use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};

/// Rails over loopback at this address.
struct Tcp(&'static str);

impl Room for Tcp {
    type R = TcpRail;

    fn pair(&mut self, want: Want) -> (Conn<TcpRail>, Conn<TcpRail>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| rails(self.0, &Options::default())).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(TcpRail, TcpRail)> {
        Some(rails(self.0, &Options::default()))
    }
}

linkspan_transport::conformance_suite!(tcp, Tcp(V4));
