//! What a connection does when one of its rails is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use linkspan_proto::Kind;
use linkspan_sim::{Fault, LinkConfig, SimRail, World};
use linkspan_transport::{
    Busy, Conn, Down, Error, Head, Health, MemSlice, Poll, Rail, RailInfo, Sink, StaticBuf, WaitFd,
};

type Log = Rc<RefCell<Vec<(usize, String)>>>;

/// A rail that writes down what it sends and when it is dropped, and that can be told to have stopped carrying.
struct Logged {
    inner: SimRail,
    info: RailInfo,
    n: usize,
    log: Log,
    stalled: bool,
    heard: Option<Duration>,
    dead: bool,
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Rail for Logged {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        let kind = Kind::from_u8(head.kind).expect("sent by an engine");
        self.log.borrow_mut().push((self.n, format!("{kind:?}")));
        self.inner.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.inner.data(head, src)
    }

    fn taken(&self) -> u64 {
        self.inner.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.inner.flush()
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.inner.poll(sink)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None
    }

    fn health(&self) -> Health {
        Health { heard: self.heard, dead: self.dead, ..Health::default() }
    }

    fn stalled(&mut self) -> bool {
        self.stalled
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.log.borrow_mut().push((self.n, "dropped".into()));
    }
}

fn pair(world: &World, rails: usize, acked: bool) -> (Conn<Logged>, Conn<Logged>, Log) {
    let log = Log::default();
    let (a, b): (Vec<_>, Vec<_>) = (0..rails)
        .map(|n| {
            let (a, b) = world.link(LinkConfig::default());
            let logged = |inner: SimRail, n| {
                let info = inner.info().clone();
                Logged { inner, info, n, log: log.clone(), stalled: false, heard: None, dead: false }
            };
            (logged(a, n), logged(b, 100 + n))
        })
        .unzip();
    (Conn::new(a, acked), Conn::new(b, acked), log)
}

const LONG: u64 = 1_000_000_000;

#[test]
fn a_lost_rail_is_dropped_before_the_peer_is_told_of_its_loss() {
    let world = World::new(1);
    let (mut a, _b, log) = pair(&world, 2, true);
    a.give_up_rail(1, Down::PeerGone { path: "a path".into(), why: "given up by the test".into() }).unwrap();
    a.progress().unwrap();
    let log = log.borrow();
    assert_eq!(*log, [(1, "dropped".to_owned()), (0, "RailDown".to_owned())]);
}

#[test]
fn a_rail_that_the_peer_gave_up_is_dropped_in_the_round_that_says_so() {
    let world = World::new(1);
    let (mut a, mut b, log) = pair(&world, 2, true);
    // The end of the stream itself never comes.
    world.plant(world.link_id(1), Fault::Cut { a: Some(0), b: None });
    a.progress().unwrap();
    world.advance(LONG);
    b.progress().unwrap();
    assert_eq!(b.rails().count(), 1);
    assert!(log.borrow().contains(&(101, "dropped".to_owned())));
}

#[test]
fn what_had_arrived_is_read_where_sending_fails() {
    for chunk in [false, true] {
        let world = World::new(1);
        let (mut a, mut b, _) = pair(&world, 1, true);
        let len = if chunk { 100_000 } else { 100 };
        let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
        let recv = a.post_recv(&[(1, dst.slice())]).unwrap().expect("not busy");
        a.flush();
        world.advance(LONG);
        b.progress().unwrap();
        let send = b.post_send(1, src.slice()).unwrap();
        assert!(send.is_some());
        for _ in 0..20 {
            b.progress().unwrap();
        }
        drop(b);
        world.advance(LONG);
        // The other end has closed: nothing can be sent, and everything has arrived.
        while a.progress().is_ok() {}
        assert!(matches!(a.test(recv), Ok(Some(n)) if n == len as u64), "{len} bytes");
        assert!(matches!(a.progress(), Err(Error::Closed)), "its GOAWAY was read too");
    }
}

#[test]
fn operations_that_a_rail_had_taken_are_done_after_its_loss() {
    let world = World::new(1);
    let (mut a, _b, _) = pair(&world, 1, false);
    let src = StaticBuf::new(100);
    let send = a.post_send(1, src.slice()).unwrap().expect("not busy");
    a.progress().unwrap();
    world.plant(world.link_id(0), Fault::Cut { a: Some(0), b: Some(0) });
    assert!(a.progress().is_err());
    assert!(matches!(a.test(send), Ok(Some(100))), "it was done before the loss");
}

#[test]
fn a_rail_that_carries_nothing_is_given_up_only_beside_another_one() {
    for rails in [1, 2] {
        let world = World::new(1);
        let (mut a, _b, _) = pair(&world, rails, true);
        a.try_each_rail(|rail| {
            rail.stalled = rail.n == 0;
            Ok::<(), Error>(())
        })
        .unwrap();
        assert_eq!(a.stalled_rail().map(|s| s.0), (rails > 1).then_some(0));
    }
}

/// As when all cables are out for a while: each side would close all rails but one, and the last ones might be different ones.
#[test]
fn rails_are_given_up_beside_one_that_is_heard_of_alone_and_idle_ones_are_asked() {
    let world = World::new(1);
    let (mut a, mut b, log) = pair(&world, 3, true);
    let since = |a: &mut Conn<Logged>, heard: [u64; 3]| {
        a.try_each_rail(|rail| {
            (rail.stalled, rail.heard) = (rail.n != 2, Some(Duration::from_millis(heard[rail.n])));
            Ok::<(), Error>(())
        })
        .unwrap();
        log.borrow_mut().clear();
    };
    since(&mut a, [1500, 1400, 1400]);
    assert_eq!(a.stalled_rail(), None);
    assert_eq!(*log.borrow(), [(2, "Ack".to_owned())], "the idle one is given something to carry");
    for _ in 0..100 {
        a.progress().unwrap();
        b.progress().unwrap();
        world.pass();
    }
    since(&mut a, [1500, 1400, 100]);
    assert_eq!(a.stalled_rail().map(|s| s.0), Some(0));
    assert_eq!(*log.borrow(), []);
}

#[test]
fn who_looks_seldom_believes_what_was_heard_since_it_asked() {
    let world = World::new(1);
    let (mut a, _b, _log) = pair(&world, 2, true);
    let heard = |a: &mut Conn<Logged>, ms: u64| {
        a.try_each_rail(|rail| {
            (rail.stalled, rail.heard) = (rail.n == 0, Some(Duration::from_millis(ms)));
            Ok::<(), Error>(())
        })
        .unwrap();
    };
    heard(&mut a, 1100);
    assert_eq!(a.stalled_rail(), None, "it may be of before the outage");
    let asked = std::time::Instant::now();
    while asked.elapsed() < Duration::from_millis(1150) {
        std::thread::yield_now();
    }
    assert_eq!(a.stalled_rail().map(|s| s.0), Some(0), "of 50 ms after the question");
}

/// As after a cable was out: the stream that stands by for it is all that may be left. It may also have messages that no other has.
#[test]
fn a_stream_that_stands_by_is_given_up_when_it_is_dead_or_beside_one_that_is_heard_of_on_another_interface() {
    const HEARD: Option<Duration> = Some(Duration::from_millis(100));
    let world = World::new(1);
    let (mut a, _b, _) = pair(&world, 2, true);
    let cases = [
        (false, None, "lan0", false),
        (true, None, "lan0", true),
        (false, HEARD, "lan0", false),
        (true, HEARD, "lan0", true),
        (false, None, "lan1", false),
        (false, HEARD, "lan1", true),
    ];
    for (dead, heard, interface, gone) in cases {
        a.try_each_rail(|rail| {
            let standby = rail.n == 1;
            (rail.stalled, rail.dead, rail.info.standby) = (standby, standby && dead, standby);
            (rail.heard, rail.info.interface) = (heard, if standby { "lan0" } else { interface }.into());
            Ok::<(), Error>(())
        })
        .unwrap();
        assert_eq!(a.stalled_rail().map(|s| s.0), gone.then_some(1), "{dead} {heard:?} {interface}");
    }
}

#[test]
fn a_stream_that_stands_by_and_stays_keeps_no_other_stalled_rail() {
    let world = World::new(1);
    let (mut a, _b, _) = pair(&world, 3, true);
    a.try_each_rail(|rail| {
        (rail.stalled, rail.info.standby) = (rail.n != 0, rail.n == 1);
        rail.heard = (rail.n == 0).then_some(Duration::from_millis(100));
        rail.info.interface = ["lan0", "lan0", "lan1"][rail.n].into();
        Ok::<(), Error>(())
    })
    .unwrap();
    assert_eq!(a.stalled_rail().map(|s| s.0), Some(2));
}
