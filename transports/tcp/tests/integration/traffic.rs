//! Random traffic in both directions against a model.

use crate::common::{Model, V4, V6, buf, head, pattern, rails, until};
use linkspan_proto::Kind;
use linkspan_stream::Options;
use linkspan_tcp::TcpRail;
use linkspan_transport::{Buf, Poll, Rail, StaticBuf};
use proptest::prelude::*;

/// What one side does next.
#[derive(Clone, Debug)]
enum Step {
    Ctrl(usize),
    Chunk(usize),
    Flush,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let small = prop_oneof![3 => 0..64usize, 1 => Just(8192), 1 => 0..=8192usize];
    let chunk = prop_oneof![3 => 0..2000usize, 4 => 0..70_000usize, 2 => Just(4096usize), 1 => 500_000..=600_000usize];
    prop_oneof![
        6 => small.prop_map(Step::Ctrl),
        4 => chunk.prop_map(Step::Chunk),
        4 => Just(Step::Flush),
        4 => Just(Step::Poll),
    ]
}

/// One end, what it sent, and what it expects.
struct Side {
    rail: TcpRail,
    model: Model,
    sent: u32,
    last: u64,
    lent: Vec<(u64, StaticBuf)>,
}

impl Side {
    fn new(rail: TcpRail, drain: u32) -> Side {
        let mut model = Model::new();
        model.drain = drain;
        Side { rail, model, sent: 0, last: 0, lent: Vec::new() }
    }

    /// Returns whether there was space.
    fn send(&mut self, kind: Kind, len: usize) -> bool {
        let mem = buf(&pattern(self.sent, len));
        let head = head(kind, len, self.sent);
        let item = if kind.is_payload() {
            self.rail.data(&head, mem.slice())
        } else {
            let item = self.rail.ctrl(&head, mem.slice());
            // The body was copied: what happens to it now does not matter.
            assert!(mem.slice().fill(0, &vec![0xDD; len]));
            item
        };
        let Ok(item) = item else { return false };
        assert_eq!(item, self.last + 1, "items are numbered from 1 without gaps");
        self.last = item;
        self.sent += 1;
        if kind.is_payload() {
            self.lent.push((item, mem));
        }
        true
    }

    fn flush(&mut self) -> Poll {
        let before = self.rail.taken();
        let did = self.rail.flush().unwrap();
        let taken = self.rail.taken();
        assert!(before <= taken && taken <= self.last, "{before} <= {taken} <= {}", self.last);
        if did == Poll::Idle {
            assert_eq!(before, taken);
        }
        self.spoil();
        did
    }

    /// Overwrites what the rail has given back.
    fn spoil(&mut self) {
        let taken = self.rail.taken();
        self.lent.retain(|(item, mem)| {
            let keep = *item > taken;
            if !keep {
                assert!(mem.slice().fill(0, &vec![0xDD; mem.len()]));
            }
            keep
        });
    }
}

fn play(at: &str, options: &Options, steps: &[(bool, Step)], drain: u32) {
    let (a, b) = rails(at, options);
    let mut sides = [Side::new(a, drain), Side::new(b, drain)];
    for (who, step) in steps {
        let side = &mut sides[usize::from(*who)];
        match *step {
            Step::Ctrl(len) => drop(side.send(Kind::Eager, len)),
            Step::Chunk(len) => drop(side.send(Kind::Chunk, len)),
            Step::Flush => drop(side.flush()),
            Step::Poll => drop(side.rail.poll(&mut side.model).unwrap()),
        }
    }
    until("all arrives", || {
        for side in &mut sides {
            side.flush();
            side.rail.poll(&mut side.model).unwrap();
        }
        let [a, b] = &sides;
        (a.model.next == b.sent && b.model.next == a.sent).then_some(())
    });
    for side in &mut sides {
        assert_eq!(side.rail.taken(), side.last, "everything is taken when everything arrived");
        assert_eq!(side.rail.flush().unwrap(), Poll::Idle);
        assert!(side.lent.is_empty());
    }
}

fn tiny() -> Options {
    Options { send_buffer: Some(4096), recv_buffer: Some(4096), ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_once_in_order_and_in_place(
        steps in prop::collection::vec((any::<bool>(), step()), 0..120),
        drain in prop_oneof![Just(0u32), 1..4u32],
        v6 in any::<bool>(),
        tight in any::<bool>(),
    ) {
        let options = if tight { tiny() } else { Options::default() };
        play(if v6 { V6 } else { V4 }, &options, &steps, drain);
    }
}

/// Bursts that fill the ring and the list of items, and cross the ring's end at many offsets.
#[test]
fn bursts_beyond_every_limit() {
    let (a, b) = rails(V4, &Options::default());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 0));
    let mut refused = 0;
    for round in 0..40usize {
        // Lengths that do not divide the ring's size.
        let len = [0, 8, 4099, 8191][round % 4];
        while a.send(Kind::Eager, len) {}
        refused += 1;
        until("the burst arrives", || {
            a.flush();
            b.rail.poll(&mut b.model).unwrap();
            (b.model.next == a.sent).then_some(())
        });
        // Leave the ring at an odd place, not empty.
        assert!(a.send(Kind::Eager, 1000 + round));
    }
    assert_eq!(refused, 40);
    assert!(a.sent > 4096 * 10, "the list of items was never full: {}", a.sent);
}

/// Payload alone: chunks of every length around the sizes at which reading changes its way.
#[test]
fn chunks_around_every_threshold() {
    let (a, b) = rails(V4, &Options::default());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 0));
    let near =
        [0, 1, 1023, 1024, 1025, 1064, 3071, 3072, 3073, 4096, 65_535, 65_536, 524_287, 524_288, 524_289, 1 << 20];
    for len in near {
        for pause in [false, true] {
            assert!(a.send(Kind::Chunk, len) && a.send(Kind::Put, len / 3) && a.send(Kind::Notify, 0));
            if pause {
                until("arrival", || {
                    a.flush();
                    b.rail.poll(&mut b.model).unwrap();
                    (b.model.next == a.sent).then_some(())
                });
            }
        }
    }
    until("arrival", || {
        a.flush();
        b.rail.poll(&mut b.model).unwrap();
        (b.model.next == a.sent).then_some(())
    });
}

#[test]
fn many_small_messages_leave_in_one_call_and_arrive_in_few() {
    let (a, b) = rails(V4, &Options::default());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 0));
    for _ in 0..1000 {
        assert!(a.send(Kind::Eager, 8));
    }
    assert_eq!(a.flush(), Poll::Active);
    assert_eq!(a.rail.taken(), 1000, "one call took all 48 KB");
    let mut polls = 0;
    until("arrival", || {
        if b.rail.poll(&mut b.model).unwrap() == Poll::Active {
            polls += 1;
        }
        (b.model.next == 1000).then_some(())
    });
    assert!(polls <= 4, "48 KB of control messages took {polls} polls");
}

/// Pages of 16 KiB leave in batches: a system call for dozens of them on each side, where each took one.
#[test]
fn pages_leave_and_arrive_in_rows() {
    let options = Options { send_buffer: Some(4 << 20), recv_buffer: Some(4 << 20), ..Options::default() };
    for (len, drain) in [(16 << 10, 0), (16 << 10, 7), (4096, 0), (64 << 10, 2), (16_383, 0)] {
        let (a, b) = rails(V4, &options);
        let (mut a, mut b) = (Side::new(a, 0), Side::new(b, drain));
        let count = (1 << 20) / len;
        for n in 0..count {
            assert!(a.send(Kind::Put, len));
            if n == count / 2 {
                assert!(a.send(Kind::Notify, 0), "a message between them keeps its place");
            }
        }
        until("arrival", || {
            a.flush();
            b.rail.poll(&mut b.model).unwrap();
            (b.model.next == a.sent).then_some(())
        });
        assert_eq!(a.rail.taken(), a.last);
        assert!(a.send(Kind::Put, len), "one alone");
        until("arrival", || {
            a.flush();
            b.rail.poll(&mut b.model).unwrap();
            (b.model.next == a.sent).then_some(())
        });
    }
}

/// As many pages as a rail takes at a time, over and over, with a peer that reads only now and then.
#[test]
fn rows_beyond_every_limit() {
    let (a, b) = rails(V4, &tiny());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 5));
    for round in 0..3 {
        while a.send(Kind::Put, 4096 + round * 1111) {}
        assert!(a.sent as usize >= 1000 * (round + 1), "{}", a.sent);
        until("arrival", || {
            a.flush();
            b.rail.poll(&mut b.model).unwrap();
            (b.model.next == a.sent).then_some(())
        });
    }
}
