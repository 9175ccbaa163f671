//! What a rail that closes waits for.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::common::config;
use linkspan_proto::{Head, Kind};
use linkspan_transport::conformance::pattern;
use linkspan_transport::{Conn, MemSlice, Poll, Rail, Sink, Violation};
use linkspan_verbs::{Config, Domain, Setup, VerbsRail, join};
use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

type Mock = MockNic<SoftNic>;

/// Counts messages.
struct Counter(usize);

impl Sink for Counter {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.0 += 1;
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(None)
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

struct Pair {
    net: SoftNet,
    nics: [Mock; 2],
    rails: (VerbsRail<Mock>, VerbsRail<Mock>),
}

fn pair(timeout: u8, close_wait: Option<Duration>) -> Pair {
    let net = SoftNet::new(1);
    let nics = [1, 2].map(|last| MockNic::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1))));
    let config = Config { timeout, close_wait, ..config() };
    let side = |nic: &Mock| Setup::new(Domain::new(nic.clone()), config.clone()).unwrap();
    let rails = join(side(&nics[0]), side(&nics[1])).unwrap();
    Pair { net, nics, rails }
}

fn send(rail: &mut VerbsRail<Mock>) {
    let body = pattern(100, 1);
    let mut head = Head::new(Kind::Eager);
    head.len.set(100);
    rail.ctrl(&head, body.slice()).unwrap();
    rail.flush().unwrap();
}

#[test]
fn what_was_sent_last_and_is_lost_is_sent_again_before_the_queue_pair_goes() {
    // 134 ms until it is sent again.
    let Pair { net, nics: [here, there], rails: (mut a, mut b) } = pair(15, Some(Duration::from_secs(60)));
    net.cable(there.inner(), false);
    let before = here.script().counts.sends;
    send(&mut a);
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || drop(a));
        // The message and the last word.
        while here.script().counts.sends < before + 2 && !closing.is_finished() {
            std::thread::yield_now();
        }
        net.run();
        net.cable(there.inner(), true);
    });
    let mut counter = Counter(0);
    while b.poll(&mut counter).is_ok_and(|poll| poll == Poll::Active) {}
    assert_eq!(counter.0, 1, "the message was lost");
}

#[test]
fn a_rail_of_a_lost_connection_does_not_wait_long() {
    let Pair { net, nics: [_here, there], rails: (mut a, b) } = pair(31, Some(Duration::from_secs(60)));
    // Nobody answers, and the path looks well from here.
    net.cable(there.inner(), false);
    send(&mut a);
    let since = Instant::now();
    a.abandon();
    drop(a);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    drop(b);
}

#[test]
fn a_rail_that_the_peer_has_given_up_is_not_waited_for() {
    let Pair { net, nics, rails: (a, b) } = pair(31, Some(Duration::from_secs(60)));
    let side = |nic: &Mock| Setup::new(Domain::new(nic.clone()), config()).unwrap();
    let others = join(side(&nics[0]), side(&nics[1])).unwrap();
    let broken = b.qpn();
    let (mut a, mut b) = (Conn::new([a, others.0], false), Conn::new([b, others.1], false));
    net.destroy(nics[1].inner(), broken);
    let since = Instant::now();
    let lost = loop {
        b.progress().unwrap();
        a.progress().unwrap();
        if let Some(lost) = a.events() {
            break lost;
        }
        assert!(since.elapsed() < Duration::from_secs(20));
    };
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert!(lost.why.to_string().contains("given this rail up"), "{}", lost.why);
}

#[test]
fn a_rail_whose_path_is_known_to_be_dead_does_not_wait_long() {
    let Pair { net, nics: [here, _there], rails: (mut a, b) } = pair(31, Some(Duration::from_secs(60)));
    net.cable(here.inner(), false);
    send(&mut a);
    let since = Instant::now();
    drop(a);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    // It knows nothing of the cable, and its end would take all of its minute.
    std::mem::forget(b);
}
