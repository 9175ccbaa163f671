//! Rails over software NICs.

use std::net::Ipv4Addr;
use std::time::Duration;

use linkspan_transport::conformance::{Side, Testbed, Want};
use linkspan_verbs::{Config, Domain, Setup, VerbsRail, join};
use linkspan_verbs_sys::soft::{Faults, SoftConfig, SoftNet, SoftNic};

/// Two devices on one net.
pub(crate) struct Verbs {
    pub(crate) net: SoftNet,
    pub(crate) a: Domain<SoftNic>,
    pub(crate) b: Domain<SoftNic>,
    pub(crate) ends: Ends,
}

/// The queue pairs at both ends of each rail of the last connection.
#[derive(Default)]
pub(crate) struct Ends(Vec<[(SoftNic, u32); 2]>);

impl Ends {
    /// Rail `n` is made.
    pub(crate) fn made(&mut self, n: usize, a: &VerbsRail<SoftNic>, b: &VerbsRail<SoftNic>) {
        if n == 0 {
            self.0.clear();
        }
        self.0.push([a, b].map(|rail| (rail.domain().nic().clone(), rail.qpn())));
    }

    pub(crate) fn stall(&self, net: &SoftNet, side: Side, n: usize) {
        let (nic, qpn) = &self.0[n][side as usize];
        net.hold(nic, *qpn);
    }

    pub(crate) fn kill(&self, net: &SoftNet, side: Side) {
        for rail in &self.0 {
            let (nic, qpn) = &rail[side as usize];
            net.destroy(nic, *qpn);
        }
    }
}

/// Quick enough to see a dead peer in a test: 1 ms for an acknowledgement, seven retries.
pub(crate) fn config() -> Config {
    Config {
        timeout: 8,
        ask_after: Duration::from_millis(20),
        close_wait: Some(Duration::from_millis(20)),
        ..Config::default()
    }
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
        Verbs { net, a, b, ends: Ends::default() }
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
        Verbs { net, a, b, ends: Ends::default() }
    }

    pub(crate) fn rails(&self) -> (VerbsRail<SoftNic>, VerbsRail<SoftNic>) {
        let a = Setup::new(self.a.clone(), config()).expect("side A");
        let b = Setup::new(self.b.clone(), config()).expect("side B");
        join(a, b).expect("joined")
    }
}

impl Testbed for Verbs {
    type R = VerbsRail<SoftNic>;

    fn rail(&mut self, _: Want, n: usize) -> (Self::R, Self::R) {
        let (a, b) = Verbs::rails(self);
        self.ends.made(n, &a, &b);
        (a, b)
    }

    fn rails(&self) -> usize {
        2
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.ends.stall(&self.net, side, n);
    }

    fn release(&mut self) {
        self.net.release();
        self.net.run();
    }

    fn kill(&mut self, side: Side) {
        self.ends.kill(&self.net, side);
    }

    /// Polls move the card, so no other thread has to run: on a busy machine a yield costs milliseconds, in each of thousands of rounds.
    fn pass(&mut self) {}
}
