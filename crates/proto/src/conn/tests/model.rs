//! Matching against a reference: per direction and tag, a queue of sends and one of receives. Sends of any size may be ahead of
//! their receives, are withdrawn at random, and may be longer than the receive that they meet.

use proptest::prelude::*;
use std::collections::VecDeque;

use super::super::{Cancel, OpError, Outcome, Refused, Ticket};
use super::{Joined, Mem};
use crate::Buf;

const TAGS: u32 = 3;

/// Bytes that a receive has space for: mostly enough for every message.
const SPACE: [usize; 6] = [30_000, 30_000, 30_000, 30_000, 10_000, 100];

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { end: usize, tag: u32, size: usize },
    Recv { end: usize, tags: [u32; 3], parts: usize, space: usize },
    Cancel { end: usize, nth: usize },
    Deliver { end: usize, rail: usize, most: usize },
    Pump { end: usize, busy: bool },
    Lose { end: usize, rail: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let tag = || 0..TAGS;
    let size = prop_oneof![Just(0usize), 1..200usize, 8190..8194usize, 9000..30_000usize];
    prop_oneof![
        4 => (0..2usize, tag(), size).prop_map(|(end, tag, size)| Step::Send { end, tag, size }),
        4 => (0..2usize, [tag(), tag(), tag()], 1..4usize, 0..SPACE.len())
            .prop_map(|(end, tags, parts, space)| Step::Recv { end, tags, parts, space: SPACE[space] }),
        1 => (0..2usize, any::<usize>()).prop_map(|(end, nth)| Step::Cancel { end, nth }),
        8 => (0..2usize, 0..3usize, 1..6usize)
            .prop_map(|(end, rail, most)| Step::Deliver { end, rail, most }),
        4 => (0..2usize, any::<bool>()).prop_map(|(end, busy)| Step::Pump { end, busy }),
        1 => (0..2usize, 0..3usize).prop_map(|(end, rail)| Step::Lose { end, rail }),
    ]
}

/// A send as the reference knows it; without a ticket where its post said that it is too long.
#[derive(Clone, Copy)]
struct Sent {
    ticket: Option<Ticket>,
    src: Mem,
    size: usize,
    value: u8,
}

/// One direction: what was sent and what was posted, per tag, in order.
#[derive(Default)]
struct DirectionModel {
    sent: [VecDeque<Sent>; TAGS as usize],
    posted: [VecDeque<Mem>; TAGS as usize],
    groups: Vec<(Ticket, Vec<Mem>)>,
    count: u8,
    withdrawn: usize,
    /// Times that the sender was told of a message that was too long.
    told: usize,
}

impl DirectionModel {
    fn send(&mut self, joined: &mut Joined, end: usize, tag: u32, size: usize) {
        let value = self.count;
        let src = Mem::filled(size, value);
        let ticket = match joined.send(end, tag, src) {
            Ok(ticket) => Some(ticket),
            Err(Refused::Failed(OpError::Truncated { .. })) => {
                self.told += 1;
                None
            }
            Err(other) => panic!("{other:?} with {} waiting", joined.ends[end].waiting()),
        };
        self.sent[tag as usize].push_back(Sent { ticket, src, size, value });
        self.count = self.count.wrapping_add(1);
    }

    fn recv(&mut self, joined: &mut Joined, end: usize, tags: &[u32], space: usize) {
        let parts: Vec<(u32, Mem)> = tags.iter().map(|&t| (t, Mem::filled(space, 0xEE))).collect();
        let ticket = joined.recv(1 - end, &parts);
        parts.iter().for_each(|&(t, m)| self.posted[t as usize].push_back(m));
        self.groups.push((ticket, parts.into_iter().map(|p| p.1).collect()));
    }

    /// Tries to withdraw one of all sends so far.
    fn cancel(&mut self, joined: &mut Joined, end: usize, nth: usize) {
        let total: usize = self.sent.iter().map(VecDeque::len).sum();
        let Some(mut nth) = nth.checked_rem(total) else { return };
        for lane in &mut self.sent {
            if nth >= lane.len() {
                nth -= lane.len();
                continue;
            }
            let Some(ticket) = lane[nth].ticket else { return };
            let waited = joined.ends[end].waiting();
            if joined.ends[end].cancel(ticket) == Cancel::Withdrawn {
                assert_eq!(joined.ends[end].waiting(), waited - 1);
                assert_eq!(joined.failed(end, ticket), OpError::NoSuchOp, "a ticket that was withdrawn is dead");
                // Free: whatever still reads it brings wrong bytes.
                lane[nth].src.set_all(0xDD);
                lane.remove(nth);
                self.withdrawn += 1;
            }
            return;
        }
    }
}

fn play(steps: &[Step], rails: usize, acked: bool, depth: usize) {
    let mut joined = Joined::new(rails, acked);
    joined.wires.iter_mut().for_each(|w| w.depth = depth);
    let mut lanes = [DirectionModel::default(), DirectionModel::default()];
    let mut lost = 0;
    for &step in steps {
        match step {
            Step::Send { end, tag, size } => lanes[end].send(&mut joined, end, tag, size),
            Step::Recv { end, tags, parts, space } => {
                lanes[1 - end].recv(&mut joined, 1 - end, &tags[..parts], space);
            }
            Step::Cancel { end, nth } => lanes[end].cancel(&mut joined, end, nth),
            Step::Deliver { end, rail, most } => {
                for _ in 0..most {
                    joined.deliver(end, rail % rails).expect("honest");
                }
                joined.obey();
            }
            Step::Pump { end, busy } => {
                joined.pump(end, busy);
                joined.obey();
            }
            Step::Lose { end, rail } => {
                if acked && lost + 1 < rails {
                    let rail = rail % rails;
                    if !joined.wires[end].dead[rail]
                        && joined.ends[1 - end].live_rails() == joined.ends[end].live_rails()
                    {
                        lost += 1;
                        joined.lose(end, rail);
                    }
                }
            }
        }
    }
    // Every send gets a receive, every receive a message; then all is checked in order.
    for end in [0, 1] {
        for tag in 0..TAGS {
            let lane = &mut lanes[end];
            while lane.sent[tag as usize].len() > lane.posted[tag as usize].len() {
                lane.recv(&mut joined, end, &[tag], 30_000);
            }
            while lane.posted[tag as usize].len() > lane.sent[tag as usize].len() {
                lane.send(&mut joined, end, tag, 10);
            }
        }
    }
    joined.settle();
    for (end, lane) in lanes.iter_mut().enumerate() {
        let mut too_long = Vec::new();
        for tag in 0..TAGS as usize {
            for (Sent { ticket, src, size, value }, mem) in lane.sent[tag].drain(..).zip(lane.posted[tag].drain(..)) {
                let whole = size <= mem.len();
                match ticket.map(|ticket| joined.test(end, ticket)) {
                    Some(Outcome::Done(n)) => assert_eq!(n, size as u64),
                    Some(Outcome::Failed(OpError::Truncated { sent, .. })) if !whole && sent == size as u64 => {
                        lane.told += 1;
                    }
                    None if !whole => {}
                    other => panic!("message {value} of {size} into {}: {other:?}", mem.len()),
                }
                src.set_all(0xDD);
                if !whole {
                    too_long.push(mem);
                    assert!(mem.is_all(0xEE), "message {value} is too long and was brought");
                    continue;
                }
                assert!(mem.sub(0, size as u64).unwrap().is_all(value), "tag {tag}, message {value}");
                let rest = mem.sub(size as u64, (mem.len() - size) as u64).unwrap();
                assert!(rest.is_all(0xEE), "bytes behind message {value}");
            }
        }
        for (ticket, mems) in lane.groups.drain(..) {
            let fails = mems.iter().any(|m| too_long.iter().any(|t| m.is(*t)));
            match joined.test(1 - end, ticket) {
                Outcome::Done(_) if !fails => {}
                Outcome::Failed(OpError::Truncated { .. }) if fails => {}
                other => panic!("a receive, too short: {fails}: {other:?}"),
            }
        }
        while let Some(error) = joined.ends[end].late_error() {
            assert!(matches!(error, OpError::Truncated { .. }));
            lane.told += 1;
        }
        assert_eq!(lane.told, too_long.len(), "the sender is told once of each message that is too long");
    }
    assert!(joined.ends.iter().all(|end| end.moving() + end.waiting() == 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_meet_receives_in_order(
        steps in prop::collection::vec(step(), 1..120),
        (rails, acked) in prop_oneof![Just((1usize, false)), Just((1, true)), Just((3, true))],
        depth in prop_oneof![Just(1usize), Just(3), Just(1000)],
    ) {
        play(&steps, rails, acked, depth);
    }
}
