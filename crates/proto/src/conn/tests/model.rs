//! Matching against a reference: per direction and tag, a queue.

use proptest::prelude::*;
use std::collections::VecDeque;

use super::super::{Outcome, Refused, Ticket};
use super::{Joined, Mem};
use crate::Buf;

const TAGS: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { end: usize, tag: u32, size: usize },
    Recv { end: usize, tags: [u32; 3], parts: usize },
    Deliver { end: usize, rail: usize, most: usize },
    Pump { end: usize, busy: bool },
    Lose { end: usize, rail: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let tag = || 0..TAGS;
    let size = prop_oneof![Just(0usize), 1..200usize, 8190..8194usize, 9000..30_000usize];
    prop_oneof![
        4 => (0..2usize, tag(), size).prop_map(|(end, tag, size)| Step::Send { end, tag, size }),
        4 => (0..2usize, [tag(), tag(), tag()], 1..4usize)
            .prop_map(|(end, tags, parts)| Step::Recv { end, tags, parts }),
        8 => (0..2usize, 0..3usize, 1..6usize)
            .prop_map(|(end, rail, most)| Step::Deliver { end, rail, most }),
        4 => (0..2usize, any::<bool>()).prop_map(|(end, busy)| Step::Pump { end, busy }),
        1 => (0..2usize, 0..3usize).prop_map(|(end, rail)| Step::Lose { end, rail }),
    ]
}

/// One direction: what was sent and what was posted, per tag, in order.
#[derive(Default)]
struct DirectionModel {
    sent: [VecDeque<(u8, usize)>; TAGS as usize],
    posted: [VecDeque<Mem>; TAGS as usize],
    sends: Vec<(Ticket, Mem, usize)>,
    groups: Vec<(Ticket, Vec<(u32, Mem)>)>,
    count: u8,
}

fn play(steps: &[Step], rails: usize, acked: bool, depth: usize) {
    let mut joined = Joined::new(rails, acked);
    joined.wires.iter_mut().for_each(|w| w.depth = depth);
    let mut lanes = [DirectionModel::default(), DirectionModel::default()];
    let mut lost = 0;
    for &step in steps {
        match step {
            Step::Send { end, tag, size } => {
                let lane = &mut lanes[end];
                let src = Mem::filled(size, lane.count);
                match joined.send(end, tag, src) {
                    Ok(ticket) => {
                        lane.sends.push((ticket, src, size));
                        lane.sent[tag as usize].push_back((lane.count, size));
                        lane.count = lane.count.wrapping_add(1);
                    }
                    Err(Refused::Busy) => {}
                    Err(Refused::Failed(error)) => panic!("{error}"),
                }
            }
            Step::Recv { end, tags, parts } => {
                let parts: Vec<(u32, Mem)> = tags[..parts].iter().map(|&t| (t, Mem::filled(30_000, 0xEE))).collect();
                let ticket = joined.recv(end, &parts);
                let lane = &mut lanes[1 - end];
                parts.iter().for_each(|&(t, m)| lane.posted[t as usize].push_back(m));
                lane.groups.push((ticket, parts));
            }
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
            loop {
                let lane = &mut lanes[end];
                let (sent, posted) = (&lane.sent[tag as usize], &lane.posted[tag as usize]);
                if sent.len() > posted.len() {
                    let mem = Mem::filled(30_000, 0xEE);
                    let ticket = joined.recv(1 - end, &[(tag, mem)]);
                    lane.posted[tag as usize].push_back(mem);
                    lane.groups.push((ticket, vec![(tag, mem)]));
                } else if posted.len() > sent.len() {
                    joined.settle();
                    let src = Mem::filled(10, lane.count);
                    let ticket = joined.send(end, tag, src).expect("a receive is waiting");
                    lane.sends.push((ticket, src, 10));
                    lane.sent[tag as usize].push_back((lane.count, 10));
                    lane.count = lane.count.wrapping_add(1);
                } else {
                    break;
                }
            }
        }
    }
    joined.settle();
    for (end, lane) in lanes.iter_mut().enumerate() {
        for (ticket, src, size) in lane.sends.drain(..) {
            assert_eq!(joined.test(end, ticket), Outcome::Done(size as u64), "a send");
            src.set_all(0xDD);
        }
        for tag in 0..TAGS as usize {
            for ((value, size), mem) in lane.sent[tag].drain(..).zip(lane.posted[tag].drain(..)) {
                assert!(mem.sub(0, size as u64).unwrap().is_all(value), "tag {tag}, message {value}");
                let rest = mem.sub(size as u64, (30_000 - size) as u64).unwrap();
                assert!(rest.is_all(0xEE), "bytes behind message {value}");
            }
        }
        for (ticket, _) in lane.groups.drain(..) {
            assert!(matches!(joined.test(1 - end, ticket), Outcome::Done(_)), "a receive");
        }
    }
    assert_eq!(joined.ends[0].in_flight() + joined.ends[1].in_flight(), 0);
    assert_eq!((joined.ends[0].late_error(), joined.ends[1].late_error()), (None, None));
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
