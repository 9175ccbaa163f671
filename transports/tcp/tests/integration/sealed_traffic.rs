//! Encrypted rails: random traffic in both directions against a model, and what is on the wire meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::sealed::{open_all, record, sealed_rails, sealed_with_raw};
use crate::common::{Model, V4, V6, buf, head, pattern, until, wire};
use linkspan_proto::Kind;
use linkspan_proto::head::{HEAD_LEN, padding};
use linkspan_proto::login::{RECORD_HEAD, RECORD_TAG};
use linkspan_stream::Options;
use linkspan_tcp::{SEALED_CHUNK, SealedRail};
use linkspan_transport::{Buf, Poll, Rail, StaticBuf};
use proptest::prelude::*;

/// What one side does next.
#[derive(Clone, Debug)]
enum Step {
    Send(Kind, usize),
    Flush,
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let small = prop_oneof![3 => 0..64usize, 1 => Just(8192), 1 => 0..=8192usize];
    let chunk = prop_oneof![3 => 0..2000usize, 2 => 0..70_000usize, 1 => 250_000..=600_000usize];
    prop_oneof![
        6 => small.prop_map(|len| Step::Send(Kind::Eager, len)),
        2 => chunk.prop_map(|len| Step::Send(Kind::Chunk, len)),
        4 => Just(Step::Flush),
        4 => Just(Step::Poll),
    ]
}

/// One end, what it sent, and what it expects.
struct Side {
    rail: SealedRail,
    model: Model,
    sent: u32,
    last: u64,
    lent: Vec<(u64, StaticBuf)>,
}

impl Side {
    fn new(rail: SealedRail, drain: u32) -> Side {
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
        // What the rail has given back is ours: spoil it.
        self.lent.retain(|(item, mem)| {
            let keep = *item > taken;
            if !keep {
                assert!(mem.slice().fill(0, &vec![0xDD; mem.len()]));
            }
            keep
        });
        did
    }
}

fn settle(a: &mut Side, b: &mut Side) {
    until("all arrives", || {
        for side in [&mut *a, &mut *b] {
            side.flush();
            side.rail.poll(&mut side.model).unwrap();
        }
        (a.model.next == b.sent && b.model.next == a.sent).then_some(())
    });
}

fn play(at: &str, options: &Options, steps: &[(bool, Step)], drain: u32) {
    let (a, b) = sealed_rails(at, options);
    let (mut a, mut b) = (Side::new(a, drain), Side::new(b, drain));
    for (who, step) in steps {
        let side = if *who { &mut a } else { &mut b };
        match *step {
            Step::Send(kind, len) => drop(side.send(kind, len)),
            Step::Flush => drop(side.flush()),
            Step::Poll => drop(side.rail.poll(&mut side.model).unwrap()),
        }
    }
    settle(&mut a, &mut b);
    for side in [&mut a, &mut b] {
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

/// Bursts that fill the queue, and cross its end and the ends of records at many offsets.
#[test]
fn bursts_beyond_every_limit() {
    let (a, b) = sealed_rails(V4, &Options::default());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 0));
    for round in 0..40usize {
        // Lengths that divide neither the queue nor a record.
        let len = [0, 8, 4099, 8191][round % 4];
        while a.send(Kind::Eager, len) {}
        settle(&mut a, &mut b);
        // Leave the queue at an odd place, not empty.
        assert!(a.send(Kind::Eager, 1000 + round));
    }
    assert!(a.sent > 4096 * 10, "the list of items was never full: {}", a.sent);
}

/// Chunks whose ends, heads and neighbours come to lie around the ends of records.
#[test]
fn chunks_around_every_threshold() {
    let (a, b) = sealed_rails(V4, &Options::default());
    let (mut a, mut b) = (Side::new(a, 0), Side::new(b, 3));
    let record = SEALED_CHUNK / 2;
    let mut near = vec![0, 1, 16_383, 16_384, 16_385, 65_536, SEALED_CHUNK, 524_289, 1 << 20];
    for around in [record, 2 * record, 3 * record] {
        near.extend((around - 2 * HEAD_LEN - 1..=around + 1).step_by(3));
    }
    for len in near {
        for pause in [false, true] {
            assert!(a.send(Kind::Chunk, len) && a.send(Kind::Put, len / 3) && a.send(Kind::Notify, 0));
            if pause {
                settle(&mut a, &mut b);
            }
        }
    }
    settle(&mut a, &mut b);
}

#[test]
fn many_small_messages_leave_in_one_record_and_arrive_in_few_calls() {
    let (rail, mut raw) = sealed_with_raw();
    let mut a = Side::new(rail, 0);
    for _ in 0..1000 {
        assert!(a.send(Kind::Eager, 8));
    }
    assert_eq!(a.flush(), Poll::Active);
    assert_eq!(a.rail.taken(), 1000, "one call took all 56 KB");
    let mut bytes = vec![0; RECORD_HEAD + 56_000 + RECORD_TAG];
    raw.stream.read_exact(&mut bytes).unwrap();
    let (texts, rest) = open_all(&mut raw.opener, &bytes);
    assert_eq!((texts.len(), rest.len()), (1, 0), "one record");

    // A record each, 4000 of them: more than one read brings.
    let bytes: Vec<u8> = (0..4000).flat_map(|seq| record(&mut raw.sealer, &wire(Kind::Eager, seq, 8))).collect();
    let writer = std::thread::spawn(move || raw.stream.write_all(&bytes).map(|()| raw));
    let mut polls = 0;
    until("arrival", || {
        if a.rail.poll(&mut a.model).unwrap() == Poll::Active {
            polls += 1;
        }
        (a.model.next == 4000).then_some(())
    });
    writer.join().unwrap().unwrap();
    assert!(polls <= 100, "4000 records of 68 bytes took {polls} polls");
}

/// What is taken needs nothing of us any more: it can be opened from what the kernel has, whatever the kernel took.
#[test]
fn taken_means_that_the_kernel_has_the_whole_record() {
    for extra in 0..8 {
        let (rail, mut raw) = sealed_with_raw();
        let mut a = Side::new(rail, 0);
        let mut stuck = 0;
        while stuck < 20 {
            let _ = a.send(Kind::Chunk, 30_011 + extra);
            let _ = a.send(Kind::Eager, 100);
            stuck = if a.flush() == Poll::Active { 0 } else { stuck + 1 };
        }
        let taken = a.rail.taken();
        assert!(0 < taken && taken < a.last, "{taken} of {}", a.last);
        raw.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = Vec::new();
        let end = raw.stream.read_to_end(&mut bytes).unwrap_err();
        assert!(matches!(end.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{end}");
        let (texts, rest) = open_all(&mut raw.opener, &bytes);
        let (text, mut at, mut whole) = (texts.concat(), 0, 0);
        while let Some(head) = text.get(at..).and_then(<[u8]>::first_chunk) {
            let len = linkspan_transport::Head::decode(head).unwrap().0.len.get() as usize;
            at += HEAD_LEN + len + padding(len);
            whole += u64::from(at <= text.len());
        }
        assert_eq!(whole, taken, "{} bytes of the next record", rest.len());
    }
}

#[test]
fn nothing_that_is_sent_can_be_seen_on_the_wire() {
    let (mut rail, mut raw) = sealed_with_raw();
    let secret = buf(&b"a secret nobody sees".repeat(10_000));
    rail.ctrl(&head(Kind::Eager, 200, 0), secret.slice().sub(0, 200).unwrap()).unwrap();
    let last = rail.data(&head(Kind::Chunk, secret.len(), 1), secret.slice()).unwrap();
    raw.stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let mut n = 0;
    until("all bytes", || {
        rail.flush().unwrap();
        n += raw.stream.read(&mut bytes[n..]).unwrap_or(0);
        (rail.taken() == last && n > secret.len() + 280).then_some(())
    });
    let contains = |what: &[u8]| bytes[..n].windows(what.len()).any(|w| w == what);
    for what in [&b"secret"[..], &b"nobody"[..], head(Kind::Eager, 200, 0).as_wire()] {
        assert!(!contains(what));
    }
    assert!(rail.info().reason.contains("encrypted with AES-256-GCM") && rail.info().transport == "tcp");
    assert_eq!(rail.info().caps.chunk, SEALED_CHUNK);
}
