//! Registered memory under pressure: more ranges than are kept, and cards that refuse.

use std::net::Ipv4Addr;

use crate::common::{Ends, Verbs, config};
use linkspan_proto::{Head, Kind};
use linkspan_transport::conformance::{Duo, Side, Want, check_bytes, pattern};
use linkspan_transport::{Buf, Down, MemSlice, Rail, Sink, StaticBuf, Violation};
use linkspan_verbs::{Domain, Setup, join};
use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};

/// More than a domain keeps.
const MANY: u64 = 1500;

/// Every chunk lands at one place.
struct At(MemSlice);

impl Sink for At {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(Some(self.0))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

#[test]
fn a_granted_receive_stays_registered_whatever_else_is_and_no_longer_than_it_lasts() {
    for rails in [1, 2] {
        granted_over(rails);
    }
}

fn granted_over(rails: usize) {
    let mut transport = Verbs::new();
    let (_peer, mut other) = Verbs::rails(&transport);
    let nic = transport.b.nic().clone();
    let len = 8 << 20;
    // What is pushed out first is what lies first.
    let buf = StaticBuf::new(len + 64 * MANY as usize);
    let place = buf.slice().sub(0, len as u64).unwrap();
    let mut crowd = || (0..MANY).for_each(|n| other.prepare(buf.slice().sub(len as u64 + 64 * n, 32).unwrap(), true));
    let is_open = || nic.targets().iter().any(|keys| keys.covers(place.as_ptr() as u64, len as u64));
    let mut duo = Duo::new(&mut transport, Want { rails, ..Want::PLAIN });
    let (src, receive) = (pattern(len, 1), duo.recv(Side::B, &[(1, place)]));
    duo.rounds(20);
    assert!(is_open(), "the peer was to be told its place");
    crowd();
    assert!(is_open(), "the peer's key is not valid any more");
    let send = duo.send(Side::A, 1, src.slice());
    assert_eq!(duo.done(Side::B, receive), len as u64);
    duo.done(Side::A, send);
    check_bytes(place, 1);
    crowd();
    assert!(!is_open(), "it is kept although its receive has ended, over {rails} rails");
}

#[test]
fn a_card_that_registers_no_more_of_our_memory_is_not_the_peers_fault() {
    let net = SoftNet::new(1);
    let domain = |last| Domain::new(MockNic::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1))));
    let (here, there) = (domain(1), domain(2));
    let side = |d: &Domain<_>| Setup::new(d.clone(), config()).unwrap();
    let (mut a, mut b) = join(side(&here), side(&there)).unwrap();
    let (src, dst) = (pattern(4096, 1), StaticBuf::new(4096));
    there.nic().script().register = Some((100, 12));
    let mut head = Head::new(Kind::Chunk);
    head.len.set(4096);
    head.total.set(4096);
    assert!(a.data(&head, src.slice()).is_ok());
    a.flush().unwrap();
    let down = loop {
        if let Err(down) = b.poll(&mut At(dst.slice())) {
            break down;
        }
    };
    assert!(
        matches!(&down, Down::System { call: "ibv_reg_mr", source, .. } if source.to_string().contains("(ulimit -l)"))
    );
}

/// Of what may be locked the ring takes 1 MiB, and 16 MiB travel each way.
#[test]
fn where_little_memory_may_be_locked_chunks_wait_for_those_before_them() {
    for limited in [[true, false], [false, true], [true, true]] {
        let net = SoftNet::new(1);
        let domain = |n: usize| {
            let mut config = SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, n as u8 + 1), 1);
            config.locked = if limited[n] { 4 << 20 } else { u64::MAX };
            Domain::new(net.nic(config))
        };
        let mut transport = Verbs { a: domain(0), b: domain(1), net, ends: Ends::default() };
        let len = 16 << 20;
        let mut duo = Duo::new(&mut transport, Want::PLAIN);
        let (up, down) = (pattern(len, 1), pattern(len, 2));
        let (to_b, to_a) = (StaticBuf::new(len), StaticBuf::new(len));
        let there = (duo.recv(Side::B, &[(1, to_b.slice())]), duo.send(Side::A, 1, up.slice()));
        let back = (duo.recv(Side::A, &[(2, to_a.slice())]), duo.send(Side::B, 2, down.slice()));
        assert_eq!((duo.done(Side::B, there.0), duo.done(Side::A, back.0)), (len as u64, len as u64));
        duo.done(Side::A, there.1);
        duo.done(Side::B, back.1);
        check_bytes(to_b.slice(), 1);
        check_bytes(to_a.slice(), 2);
    }
}
