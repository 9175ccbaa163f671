use std::net::Ipv4Addr;
use std::time::Duration;

use linkspan_transport::{Buf, StaticBuf};

use super::wire::{extend, psn, rnr_time};
use super::*;
use crate::mock::MockNic;
use crate::{
    Access, Address, Completion, Cq, InitAttr, Mr, Nic, PostError, Qp, QpCaps, QpState, RecvWr, RtrAttr, RtsAttr,
    SendOp, SendWr, Status, What,
};

const CAPS: QpCaps = QpCaps { send: 64, recv: 64, sge: 4, inline: 64 };

struct End<N: Nic> {
    nic: N,
    cq: N::Cq,
    qp: N::Qp,
    buf: StaticBuf,
    mr: N::Mr,
}

/// How the two are joined.
#[derive(Clone, Copy)]
struct Set {
    access: Access,
    mtu: Mtu,
    retry: u8,
    rnr_retry: u8,
    psn: u32,
    depth: u32,
}

const SET: Set = Set { access: Access(7), mtu: Mtu::B1024, retry: 7, rnr_retry: 7, psn: 0xff_fff0, depth: 256 };

impl<N: Nic> End<N> {
    fn new(nic: N, access: Access, depth: u32) -> End<N> {
        let cq = nic.cq(depth).expect("a queue");
        let qp = nic.qp(&cq, CAPS).expect("a queue pair");
        let buf = StaticBuf::new(1 << 20);
        let mr = nic.register(buf.slice(), access).expect("a region");
        End { nic, cq, qp, buf, mr }
    }

    fn join(&mut self, set: Set, to: Address, qpn: u32) {
        self.qp.init(&InitAttr { port: 1, pkey_index: 0, access: set.access }).expect("init");
        let rtr = RtrAttr { to, qpn, psn: set.psn, mtu: set.mtu, port: 1, rd_atomic: 4, min_rnr: 12 };
        self.qp.ready_to_receive(&rtr).expect("rtr");
        let rts = RtsAttr { psn: set.psn, timeout: 8, retry: set.retry, rnr_retry: set.rnr_retry, rd_atomic: 4 };
        self.qp.ready_to_send(&rts).expect("rts");
    }

    fn recv(&mut self, id: u64, at: u64, len: u32) {
        let range = self.mr.keys().sge(self.mr.keys().addr() + at, len);
        self.qp.post_recv(&[RecvWr { id, range }]).expect("a receive");
    }

    fn wr(&self, id: u64, op: SendOp, at: u64, len: u32) -> SendWr {
        let range = self.mr.keys().sge(self.mr.keys().addr() + at, len).expect("inside");
        SendWr { signalled: true, ..SendWr::new(id, op, Some(range)) }
    }

    fn post(&mut self, wr: SendWr) {
        self.qp.post_send(&[wr]).expect("a send");
    }

    /// The next completion, while virtual time passes.
    fn next(&mut self, net: &SoftNet) -> Completion {
        for _ in 0..200_000 {
            let mut out = [Completion::NONE];
            if self.cq.poll(&mut out).expect("poll") == 1 {
                return out[0];
            }
            net.advance(Duration::from_micros(50));
        }
        panic!("no completion came");
    }

    fn none(&mut self, net: &SoftNet) {
        for _ in 0..100 {
            net.advance(Duration::from_millis(1));
            let mut out = [Completion::NONE];
            assert_eq!(self.cq.poll(&mut out).expect("poll"), 0, "{out:?}");
        }
    }
}

fn pair(net: &SoftNet, set: Set) -> (End<SoftNic>, End<SoftNic>) {
    let ip = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let mut a = End::new(net.nic(SoftConfig::roce("a", ip[0], 1)), Access(7), set.depth);
    let mut b = End::new(net.nic(SoftConfig::roce("b", ip[1], 1)), Access(7), set.depth);
    let to = |ip| Address::Gid { gid: Gid::v4(ip), index: 3, hops: 64, class: 0, lid: 0 };
    let (qa, qb) = (a.qp.number(), b.qp.number());
    assert_eq!(qa, qb, "each device numbers for itself");
    a.join(set, to(ip[1]), qb);
    b.join(set, to(ip[0]), qa);
    (a, b)
}

fn fill(end: &End<SoftNic>, at: u64, len: usize, seed: u8) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    assert!(end.buf.slice().fill(at, &bytes));
    bytes
}

fn bytes(end: &End<SoftNic>, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    assert!(end.buf.slice().read(at, &mut out));
    out
}

fn remote(end: &End<SoftNic>, at: u64) -> (u64, u32) {
    (end.mr.keys().addr() + at, end.mr.keys().rkey())
}

#[test]
fn sequence_numbers_wrap() {
    assert_eq!(psn(0xff_ffff, 1), 0);
    for near in [0u64, 5, 0xff_ffff, 1 << 24, 1 << 40] {
        for off in [-100i64, -1, 0, 1, 100] {
            let seq = near as i64 + off;
            if seq >= 0 {
                assert_eq!(extend(0xff_fff0, near, psn(0xff_fff0, seq as u64)), Some(seq as u64));
            }
        }
    }
    assert_eq!(extend(7, 0, 6), None);
}

#[test]
fn receiver_not_ready_times_are_those_of_the_table() {
    let us = |code| rnr_time(code) / 1000;
    assert_eq!([us(0), us(1), us(2), us(3), us(4), us(5), us(8)], [655_360, 10, 20, 30, 40, 60, 160]);
    assert_eq!([us(12), us(14), us(31)], [640, 1280, 491_520]);
}

#[test]
fn messages_of_every_size_arrive_over_a_bad_wire() {
    for (seed, faults) in [
        (1, Faults::default()),
        (2, Faults { loss: 50_000, ..Faults::default() }),
        (3, Faults { loss: 20_000, duplicate: 50_000, late: 100_000, delay: Duration::from_micros(300) }),
    ] {
        let net = SoftNet::in_virtual_time(seed);
        let (mut a, mut b) = pair(&net, SET);
        net.faults(faults);
        for (n, len) in [0usize, 1, 63, 1024, 1025, 4096, 70_000, 300_000].into_iter().enumerate() {
            let want = fill(&a, 0, len, n as u8);
            b.recv(n as u64, 512 << 10, 300_000);
            a.post(a.wr(100 + n as u64, SendOp::SendImm(n as u32), 0, len as u32));
            let got = b.next(&net);
            assert_eq!((got.id, got.status, got.what), (n as u64, Status::Success, What::Received), "seed {seed}");
            assert_eq!((got.bytes as usize, got.imm), (len, Some(n as u32)));
            assert!(bytes(&b, 512 << 10, len) == want, "seed {seed}, {len} bytes");
            assert_eq!(a.next(&net).id, 100 + n as u64);
        }
        let want = fill(&a, 0, 200_000, 9);
        let (addr, rkey) = remote(&b, 300_000);
        b.recv(7, 0, 0);
        a.post(a.wr(1, SendOp::Write { addr, rkey }, 0, 200_000));
        a.post(a.wr(2, SendOp::WriteImm { addr, rkey, imm: 77 }, 0, 10));
        let got = b.next(&net);
        assert_eq!((got.what, got.imm, got.bytes), (What::Written, Some(77), 10));
        assert!(bytes(&b, 300_000, 200_000) == want, "a write is there before what follows it");
        assert_eq!([a.next(&net).id, a.next(&net).id], [1, 2]);
        for n in 0..6 {
            a.post(a.wr(n, SendOp::Read { addr, rkey }, 500_000, 200_000));
        }
        for n in 0..6 {
            let got = a.next(&net);
            assert_eq!((got.id, got.status, got.what), (n, Status::Success, What::Read));
        }
        assert!(bytes(&a, 500_000, 200_000) == want);
        b.none(&net);
    }
}

#[test]
fn keys_bounds_and_rights_are_checked() {
    type Wrong = fn(&End<SoftNic>) -> (u64, u32);
    let wrong: [(&str, Access, Wrong); 5] = [
        ("a key that is not", Access(7), |b| (remote(b, 0).0, remote(b, 0).1 ^ 0x100)),
        ("beyond the end", Access(7), |b| (remote(b, (1 << 20) - 50).0, remote(b, 0).1)),
        ("before the beginning", Access(7), |b| (remote(b, 0).0 - 1, remote(b, 0).1)),
        ("around the end of memory", Access(7), |b| (u64::MAX - 10, remote(b, 0).1)),
        ("no right", Access::LOCAL_WRITE, |b| remote(b, 0)),
    ];
    for (what, access, wrong) in wrong {
        for read in [false, true] {
            let net = SoftNet::in_virtual_time(1);
            let (mut a, mut b) = pair(&net, Set { access, ..SET });
            b.recv(5, 0, 10);
            let (addr, rkey) = wrong(&b);
            let op = if read { SendOp::Read { addr, rkey } } else { SendOp::Write { addr, rkey } };
            a.post(a.wr(1, op, 0, 100));
            a.post(a.wr(2, SendOp::Send, 0, 5));
            assert_eq!(a.next(&net).status, Status::RemoteAccess, "{what}");
            assert_eq!(a.next(&net).status, Status::Flushed, "{what}");
            assert_eq!(b.next(&net).status, Status::Flushed, "{what}: the responder breaks too");
            assert_eq!(b.qp.state().expect("state"), QpState::Error);
            assert_eq!(b.nic.event().expect("events"), Some(AsyncEvent::QpError(b.qp.number())));
            assert!(bytes(&b, 0, 1 << 20).iter().all(|&x| x == 0), "{what}: nothing was written");
        }
    }
    // A region that was dropped.
    let net = SoftNet::in_virtual_time(1);
    let (mut a, b) = pair(&net, SET);
    let (addr, rkey) = remote(&b, 0);
    let End { nic, cq: _cq, qp: _qp, buf, mr } = b;
    drop(mr);
    let again = nic.register(buf.slice(), Access(7)).expect("a region");
    assert_ne!(again.keys().rkey(), rkey, "keys are not used again");
    a.post(a.wr(1, SendOp::Write { addr, rkey }, 0, 100));
    assert_eq!(a.next(&net).status, Status::RemoteAccess);
    // Local memory of another device.
    let net = SoftNet::in_virtual_time(2);
    let (mut a, b) = pair(&net, SET);
    a.post(b.wr(1, SendOp::Send, 0, 100));
    assert_eq!(a.next(&net).status, Status::LocalProtection);
}

#[test]
fn a_receiver_that_is_late_is_waited_for_and_one_that_never_comes_is_not() {
    let net = SoftNet::in_virtual_time(1);
    let (mut a, mut b) = pair(&net, SET);
    fill(&a, 0, 5000, 1);
    a.post(a.wr(1, SendOp::Send, 0, 5000));
    a.none(&net);
    b.recv(1, 0, 5000);
    assert_eq!((b.next(&net).bytes, a.next(&net).status), (5000, Status::Success));
    let net = SoftNet::in_virtual_time(2);
    let (mut a, _b) = pair(&net, Set { rnr_retry: 2, ..SET });
    a.post(a.wr(1, SendOp::Send, 0, 10));
    assert_eq!(a.next(&net).status, Status::RnrExceeded);
    assert_eq!(a.qp.state().expect("state"), QpState::Error);
}

#[test]
fn a_cut_cable_ends_in_retries_used_up() {
    let net = SoftNet::in_virtual_time(1);
    let (mut a, b) = pair(&net, SET);
    net.cable(&b.nic, false);
    assert_eq!(b.nic.event().expect("events"), Some(AsyncEvent::PortDown(1)));
    assert!(!b.nic.port(1).expect("port").active);
    let (addr, rkey) = remote(&b, 0);
    a.post(a.wr(1, SendOp::Write { addr, rkey }, 0, 100));
    // 4.096 us * 2^8 = 1 ms, seven retries.
    for _ in 0..7 {
        net.advance(Duration::from_millis(1));
    }
    assert_eq!(a.cq.poll(&mut [Completion::NONE]).expect("poll"), 0);
    assert_eq!(a.next(&net).status, Status::RetryExceeded);
    // A cable that comes back in time is no failure.
    let net = SoftNet::in_virtual_time(2);
    let (mut a, b) = pair(&net, SET);
    net.cable(&b.nic, false);
    let (addr, rkey) = remote(&b, 0);
    a.post(a.wr(1, SendOp::Write { addr, rkey }, 0, 100));
    net.advance(Duration::from_millis(3));
    net.cable(&b.nic, true);
    assert_eq!(a.next(&net).status, Status::Success);
}

#[test]
fn a_dropped_or_reset_responder_takes_nothing_any_more() {
    for how in 0..3 {
        let net = SoftNet::in_virtual_time(1);
        let (mut a, b) = pair(&net, Set { retry: 1, ..SET });
        let (addr, rkey) = remote(&b, 0);
        fill(&a, 0, 100_000, 1);
        net.faults(Faults { late: 1_000_000, delay: Duration::from_micros(500), ..Faults::default() });
        a.post(a.wr(1, SendOp::Write { addr, rkey }, 0, 100_000));
        net.advance(Duration::from_micros(200));
        let End { mut qp, buf, mr, cq, nic } = b;
        match how {
            0 => drop(qp),
            1 => qp.reset().expect("reset"),
            _ => qp.fail().expect("fail"),
        }
        let there = buf.slice().to_vec();
        assert_eq!(a.next(&net).status, Status::RetryExceeded, "{how}");
        assert!(buf.slice().to_vec() == there, "late bytes landed");
        drop((mr, cq, nic));
    }
}

#[test]
fn a_full_completion_queue_breaks_and_says_so() {
    let net = SoftNet::in_virtual_time(1);
    let (mut a, b) = pair(&net, Set { depth: 4, ..SET });
    let (addr, rkey) = remote(&b, 0);
    for n in 0..5 {
        a.post(a.wr(n, SendOp::Write { addr, rkey }, 0, 10));
    }
    net.advance(Duration::from_millis(1));
    assert!(a.cq.poll(&mut [Completion::NONE; 8]).is_err());
    assert_eq!(a.nic.event().expect("events"), Some(AsyncEvent::CqError));
    assert_eq!(a.qp.state().expect("state"), QpState::Error);
}

#[test]
fn queues_have_an_end_and_states_an_order() {
    let net = SoftNet::in_virtual_time(1);
    let nic = net.nic(SoftConfig::roce("a", Ipv4Addr::LOCALHOST, 1));
    let mut e = End::new(nic.clone(), Access(7), 256);
    assert_eq!(e.qp.post_recv(&[RecvWr { id: 0, range: None }]), Err(PostError { taken: 0, errno: libc::EINVAL }));
    assert_eq!(e.qp.post_send(&[e.wr(1, SendOp::Send, 0, 1)]), Err(PostError { taken: 0, errno: libc::EINVAL }));
    let to = Address::Gid { gid: Gid::v4(Ipv4Addr::LOCALHOST), index: 3, hops: 1, class: 0, lid: 0 };
    let rtr = RtrAttr { to, qpn: 0, psn: 0, mtu: Mtu::B4096, port: 1, rd_atomic: 1, min_rnr: 1 };
    assert_eq!(e.qp.ready_to_receive(&rtr).expect_err("from RESET").os(), Some(libc::EINVAL));
    e.qp.init(&InitAttr { port: 1, pkey_index: 0, access: Access(7) }).expect("init");
    assert!(e.qp.init(&InitAttr { port: 1, pkey_index: 0, access: Access(7) }).is_err(), "twice");
    let nowhere = Address::Gid { gid: Gid::default(), index: 9, hops: 1, class: 0, lid: 0 };
    assert!(e.qp.ready_to_receive(&RtrAttr { to: nowhere, ..rtr }).is_err(), "no such entry");
    let lid = Address::Lid { lid: 1, sl: 0 };
    assert!(e.qp.ready_to_receive(&RtrAttr { to: lid, ..rtr }).is_err(), "a LID on Ethernet");
    assert!(e.qp.ready_to_receive(&RtrAttr { psn: 1 << 24, ..rtr }).is_err(), "25 bits");
    e.qp.ready_to_receive(&rtr).expect("rtr");
    e.qp.ready_to_send(&RtsAttr { psn: 0, timeout: 14, retry: 7, rnr_retry: 7, rd_atomic: 1 }).expect("rts");
    let recvs = vec![RecvWr { id: 0, range: None }; 70];
    assert_eq!(e.qp.post_recv(&recvs), Err(PostError { taken: 64, errno: libc::ENOMEM }));
    let sends = vec![e.wr(1, SendOp::Send, 0, 1); 70];
    assert_eq!(e.qp.post_send(&sends), Err(PostError { taken: 64, errno: libc::ENOMEM }));
    assert!(nic.cq(1 << 20).is_err() && nic.qp(&e.cq, QpCaps { send: 1 << 20, ..CAPS }).is_err());
    // 256 queue pairs and 1,024 regions on one device.
    let pairs: Vec<_> = (0..256).map(|_| nic.qp(&e.cq, CAPS).expect("a queue pair")).collect();
    let regions: Vec<_> = (0..1024).map(|_| nic.register(e.buf.slice(), Access(7)).expect("a region")).collect();
    let mut numbers: Vec<u32> = pairs.iter().map(Qp::number).collect();
    let mut keys: Vec<u32> = regions.iter().map(|r| r.keys().rkey()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((numbers.len(), keys.len()), (256, 1024));
}

#[test]
fn infiniband_goes_by_lid_and_partition() {
    let net = SoftNet::in_virtual_time(1);
    for (keys, arrives) in
        [([0xffff, 0xffff], true), ([0xffff, 0x7fff], true), ([0x7fff, 0x7fff], false), ([0xffff, 0x8001], false)]
    {
        let lids = [net.nics() + 1, net.nics() + 2];
        let mut ends: Vec<_> = std::iter::zip(lids, keys)
            .map(|(lid, key)| {
                let config = SoftConfig { pkeys: vec![key], ..SoftConfig::infiniband("ib", lid) };
                End::new(net.nic(config), Access(7), 256)
            })
            .collect();
        let numbers: Vec<u32> = ends.iter().map(|e| e.qp.number()).collect();
        ends[0].join(Set { retry: 1, ..SET }, Address::Lid { lid: lids[1], sl: 0 }, numbers[1]);
        ends[1].join(Set { retry: 1, ..SET }, Address::Lid { lid: lids[0], sl: 0 }, numbers[0]);
        ends[1].recv(1, 0, 100);
        let wr = ends[0].wr(1, SendOp::Send, 0, 100);
        ends[0].post(wr);
        let want = if arrives { Status::Success } else { Status::RetryExceeded };
        assert_eq!(ends[0].next(&net).status, want, "{keys:x?}");
    }
}

#[test]
fn inline_bytes_are_free_at_once_and_an_armed_queue_rings() {
    let net = SoftNet::in_virtual_time(1);
    let (mut a, mut b) = pair(&net, SET);
    let want = fill(&a, 0, 50, 3);
    b.recv(1, 0, 50);
    b.cq.arm().expect("arm");
    let readable = |cq: &SoftCq| {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(cq.notifier(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    };
    assert!(!readable(&b.cq));
    a.post(SendWr { inline: true, ..a.wr(1, SendOp::Send, 0, 50) });
    fill(&a, 0, 50, 99);
    net.run();
    assert!(readable(&b.cq));
    b.cq.calm();
    assert!(!readable(&b.cq));
    b.next(&net);
    assert!(bytes(&b, 0, 50) == want);
    let long = SendWr { inline: true, ..a.wr(2, SendOp::Send, 0, 1000) };
    assert_eq!(a.qp.post_send(&[long]), Err(PostError { taken: 0, errno: libc::EINVAL }));
    net.remove(&a.nic);
    assert_eq!(a.nic.event().expect("events"), Some(AsyncEvent::DeviceGone));
    assert_eq!(a.nic.limits().expect_err("gone").os(), Some(libc::ENODEV));
}

#[test]
fn scripted_faults_strike_once_each() {
    let net = SoftNet::in_virtual_time(1);
    let nic = MockNic::new(net.nic(SoftConfig::roce("a", Ipv4Addr::LOCALHOST, 1)));
    nic.script().register = Some((1, libc::ENOMEM));
    let buf = StaticBuf::new(4096);
    let refused = nic.register(buf.slice(), Access(7)).err().expect("scripted");
    assert!(refused.to_string().starts_with("LS1204") && refused.to_string().contains("ulimit -l"), "{refused}");
    let mut e = End::new(nic.clone(), Access(7), 256);
    nic.script().modify = Some((1, libc::ETIMEDOUT));
    let init = InitAttr { port: 1, pkey_index: 0, access: Access(7) };
    assert_eq!(e.qp.init(&init).expect_err("scripted").os(), Some(libc::ETIMEDOUT));
    // To itself: a loop.
    let to = Address::Gid { gid: Gid::v4(Ipv4Addr::LOCALHOST), index: 3, hops: 1, class: 0, lid: 0 };
    let number = e.qp.number();
    e.join(SET, to, number);
    nic.script().partial = Some((1, 2, libc::ENOMEM));
    let (addr, rkey) = (e.mr.keys().addr(), e.mr.keys().rkey());
    let list = [1, 2, 3].map(|id| e.wr(id, SendOp::Write { addr, rkey }, 0, 0));
    assert_eq!(e.qp.post_send(&list), Err(PostError { taken: 2, errno: libc::ENOMEM }));
    e.qp.post_send(&list[2..]).expect("struck once");
    nic.script().hold = true;
    e.none(&net);
    {
        let mut script = nic.script();
        script.hold = false;
        script.twice = 1;
        script.spoil = Some((1, Status::RemoteOperation));
    }
    assert_eq!(e.next(&net).status, Status::RemoteOperation);
    assert_eq!(e.next(&net).id, 1, "the same again");
    assert_eq!([e.next(&net), e.next(&net)].map(|c| (c.id, c.status)), [(2, Status::Success), (3, Status::Success)]);
    let counts = nic.script().counts;
    assert_eq!((counts.doorbells, counts.sends, counts.signalled, counts.registrations), (2, 3, 3, 1));
}

#[test]
fn a_queue_pair_reaches_only_regions_of_its_own_protection_domain() {
    let ops: [fn(u64, u32) -> SendOp; 2] =
        [|addr, rkey| SendOp::Write { addr, rkey }, |addr, rkey| SendOp::Read { addr, rkey }];
    for op in ops {
        let net = SoftNet::in_virtual_time(1);
        let (mut a, b) = pair(&net, SET);
        let other = End::new(b.nic.isolated().expect("another domain"), Access(7), 16);
        assert_eq!(other.nic.name(), b.nic.name());
        fill(&a, 0, 100, 1);
        let (addr, rkey) = remote(&other, 0);
        a.post(a.wr(1, op(addr, rkey), 0, 100));
        assert_eq!(a.next(&net).status, Status::RemoteAccess);
        assert!(bytes(&other, 0, 100) == [0; 100]);
    }
    // Nor does the device on its behalf.
    let net = SoftNet::in_virtual_time(1);
    let (mut a, mut b) = pair(&net, SET);
    let other = End::new(a.nic.isolated().expect("another domain"), Access(7), 16);
    b.recv(1, 0, 100);
    a.post(other.wr(2, SendOp::Send, 0, 100));
    assert_eq!(a.next(&net).status, Status::LocalProtection);
    // Its own queue pairs do reach them.
    let (to, from) = (
        SoftConfig::roce("c", Ipv4Addr::new(10, 0, 0, 9), 1),
        net.nic(SoftConfig::roce("d", Ipv4Addr::new(10, 0, 0, 8), 1)),
    );
    let (mut c, mut d) =
        (End::new(net.nic(to).isolated().expect("a domain"), Access(7), 256), End::new(from, Access(7), 256));
    let gid = |last| Address::Gid { gid: Gid::v4(Ipv4Addr::new(10, 0, 0, last)), index: 3, hops: 64, class: 0, lid: 0 };
    let numbers = (c.qp.number(), d.qp.number());
    c.join(SET, gid(8), numbers.1);
    d.join(SET, gid(9), numbers.0);
    let want = fill(&d, 0, 100, 3);
    let (addr, rkey) = remote(&c, 0);
    d.post(d.wr(1, SendOp::Write { addr, rkey }, 0, 100));
    assert_eq!(d.next(&net).status, Status::Success);
    assert!(bytes(&c, 0, 100) == want);
}
