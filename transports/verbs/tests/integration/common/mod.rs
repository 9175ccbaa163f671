//! Rails over software NICs.

use std::net::Ipv4Addr;
use std::time::Duration;

use linkspan_transport::Conn;
use linkspan_transport::conformance::{Room, Want};
use linkspan_verbs::{Config, Domain, Setup, VerbsRail, join};
use linkspan_verbs_sys::soft::{Faults, SoftConfig, SoftNet, SoftNic};

/// Two devices on one net.
pub(crate) struct Verbs {
    pub(crate) net: SoftNet,
    pub(crate) a: Domain<SoftNic>,
    pub(crate) b: Domain<SoftNic>,
}

/// Quick enough to see a dead peer in a test: 1 ms for an acknowledgement, seven retries.
pub(crate) fn config() -> Config {
    Config { timeout: 8, ask_after: Duration::from_millis(20), linger: Duration::from_millis(20), ..Config::default() }
}

impl Verbs {
    pub(crate) fn new() -> Verbs {
        Verbs::of(|_| {})
    }

    pub(crate) fn of(change: impl Fn(&mut SoftConfig)) -> Verbs {
        let net = SoftNet::new(1);
        let nic = |last| {
            let mut config = SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1);
            change(&mut config);
            net.nic(config)
        };
        let (a, b) = (Domain::new(nic(1)), Domain::new(nic(2)));
        Verbs { net, a, b }
    }

    pub(crate) fn lossy() -> Verbs {
        let verbs = Verbs::new();
        verbs.net.faults(Faults { loss: 2000, duplicate: 5000, late: 5000, delay: Duration::from_micros(200) });
        verbs
    }

    pub(crate) fn infiniband() -> Verbs {
        let net = SoftNet::new(1);
        let nic = |lid| net.nic(SoftConfig::infiniband("ib", lid));
        let (a, b) = (Domain::new(nic(1)), Domain::new(nic(2)));
        Verbs { net, a, b }
    }

    pub(crate) fn rails(&self) -> (VerbsRail<SoftNic>, VerbsRail<SoftNic>) {
        let a = Setup::new(self.a.clone(), config()).expect("side A");
        let b = Setup::new(self.b.clone(), config()).expect("side B");
        join(a, b).expect("joined")
    }
}

impl Room for Verbs {
    type R = VerbsRail<SoftNic>;

    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.rails()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        2
    }

    fn stall(&mut self, conn: &Conn<Self::R>, slot: usize) -> bool {
        let Some((_, rail)) = conn.rails().find(|r| r.0 == slot) else { return false };
        self.net.hold(rail.domain().nic(), rail.qpn());
        true
    }

    fn release(&mut self) {
        self.net.release();
        self.net.run();
    }

    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        Some(Verbs::rails(self))
    }
}
