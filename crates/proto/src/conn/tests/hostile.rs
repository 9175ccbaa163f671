//! A peer that sends whatever it likes: no panic, no memory beyond bounds, no byte where none was granted, and none
//! after an operation has reported.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::{Access, Outcome, RemoteSlice, Ticket};
use super::{Joined, Mem};
use crate::head::EAGER_MAX;
use crate::{Buf, Head, Kind};

#[derive(Clone, Copy, Debug)]
struct Attack {
    kind: u8,
    rail: usize,
    len: u32,
    /// Added to the number that is due; mostly 0.
    seq: u32,
    ack: u32,
    tag: u32,
    id: u32,
    offset: u64,
    total: u64,
    /// What else happens: 0 to 2 land what is open, 3 loses the rail, 4 pumps, 5 tests, 6 posts.
    then: u8,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..20u64,
        2 => 8190..8195u64,
        2 => 0..40_000u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn attack() -> impl Strategy<Value = Attack> {
    let kind = prop_oneof![20 => 1..12u8, 12 => 32..34u8, 1 => any::<u8>()];
    let seq = prop_oneof![40 => Just(0u32), 1 => any::<u32>(), 1 => Just(u32::MAX)];
    let ack = prop_oneof![10 => 0..8u32, 1 => any::<u32>()];
    // Names of receives and regions in their first generations, rails, and anything.
    let id = prop_oneof![
        8 => (0..3u32, 0..6u32).prop_map(|(g, i)| g << 10 | i),
        8 => (0..3u32, 0..4u32).prop_map(|(g, i)| g << 12 | i),
        4 => 0..4u32,
        1 => any::<u32>(),
    ];
    let numbers = (number(), number(), number());
    (kind, 0..2usize, seq, ack, 0..5u32, id, numbers, 0..7u8).prop_map(
        |(kind, rail, seq, ack, tag, id, (len, offset, total), then)| Attack {
            kind,
            rail,
            len: len.min(40_000) as u32,
            seq,
            ack,
            tag,
            id,
            offset,
            total,
            then,
        },
    )
}

/// What the attacked side owns.
struct Victim {
    joined: Joined,
    /// Operations not reported yet, with their memory.
    open: Vec<(Ticket, Mem)>,
    /// Memory of operations that have reported: poisoned.
    free: Vec<Mem>,
    /// Never part of any operation, between those that are.
    fences: Vec<Mem>,
    /// Places the rails are writing to.
    places: [VecDeque<(Head, Option<Mem>)>; 2],
}

impl Victim {
    fn new() -> Victim {
        let mut victim = Victim {
            joined: Joined::new(2, true),
            open: Vec::new(),
            free: Vec::new(),
            fences: Vec::new(),
            places: [VecDeque::new(), VecDeque::new()],
        };
        for n in 0..3u32 {
            let region = victim.fenced(20_000);
            let access = [Access::ReadWrite, Access::Read, Access::Write][n as usize];
            victim.joined.ends[0].expose(region, access).unwrap();
        }
        (0..4).for_each(|_| victim.post());
        victim
    }

    fn fenced(&mut self, len: usize) -> Mem {
        let whole = Mem::filled(len + 128, 0xFE);
        let inside = whole.sub(64, len as u64).unwrap();
        inside.set_all(0);
        self.fences.push(whole.sub(0, 64).unwrap());
        self.fences.push(whole.sub(64 + len as u64, 64).unwrap());
        inside
    }

    fn post(&mut self) {
        let tag = self.open.len() as u32 % 4;
        let buf = self.fenced([10, 9000, 20_000][tag as usize % 3]);
        let Joined { ends, wires } = &mut self.joined;
        wires[0].queues.iter_mut().for_each(VecDeque::clear);
        if ends[0].live_rails() == 0 {
            return;
        }
        if let Ok(ticket) = self.joined.post(0, |end| end.post_recv(&[(tag, buf)])) {
            self.open.push((ticket, buf));
        }
        let buf = self.fenced(9000);
        let from = RemoteSlice { key: 5, offset: 0 };
        if let Ok(ticket) = self.joined.read(0, buf, from) {
            self.open.push((ticket, buf));
        }
        let src = self.fenced(100);
        if let Ok(ticket) = self.joined.send(0, tag, src) {
            self.open.push((ticket, src));
        }
    }

    fn test(&mut self) {
        let (joined, free) = (&mut self.joined, &mut self.free);
        self.open.retain(|&(ticket, mem)| {
            let over = joined.test(0, ticket) != Outcome::Pending;
            if over {
                mem.set_all(0xEE);
                free.push(mem);
            }
            !over
        });
    }

    /// A rail writes half of what it holds, at the worst of times.
    fn write_half(&self) {
        for (_, place) in self.places.iter().flatten() {
            if let Some(place) = place {
                let half = place.len() as u64 / 2;
                place.sub(0, half).unwrap().set_all(0xAB);
            }
        }
    }

    fn lose(&mut self, rail: usize) {
        self.places[rail].clear();
        self.joined.wires[0].dead[rail] = true;
        self.joined.wires[0].queues[rail].clear();
        self.joined.ends[0].rail_down(rail);
    }

    /// False: the engine has noticed.
    fn attack(&mut self, attack: Attack) -> bool {
        let Attack { rail, .. } = attack;
        if self.joined.wires[0].dead[rail] {
            return true;
        }
        let engine = &mut self.joined.ends[0];
        let payload = matches!(attack.kind, 32 | 33);
        let mut head = Head::new(Kind::Eager);
        head.kind = attack.kind;
        head.tag.set(attack.tag);
        head.id.set(attack.id);
        head.offset.set(attack.offset);
        head.total.set(attack.total);
        head.ack.set(attack.ack);
        let ok = if payload {
            head.len.set(attack.len);
            head.seq.set(engine.rails_landed(rail).wrapping_add(attack.seq));
            match engine.place(rail, &head) {
                Ok(place) => {
                    if let Some(place) = place {
                        assert_eq!(place.len(), attack.len as usize);
                    }
                    self.places[rail].push_back((head, place));
                    true
                }
                Err(_) => false,
            }
        } else {
            let len = attack.len.min(EAGER_MAX as u32 + 1);
            head.len.set(len);
            head.seq.set(engine.control.due().wrapping_add(attack.seq));
            engine.on_ctrl(rail, &head, &vec![0xCD; len as usize]).is_ok()
        };
        if !ok {
            assert!(engine.is_broken(), "an attack is seen and forgotten");
            return false;
        }
        self.write_half();
        match attack.then {
            0..=2 => {
                if let Some((head, place)) = self.places[rail].pop_front() {
                    if let Some(place) = place {
                        place.set_all(0xAB);
                    }
                    if self.joined.ends[0].landed(rail, &head).is_err() {
                        return false;
                    }
                }
            }
            3 => self.lose(rail),
            4 => {
                self.joined.wires[0].queues.iter_mut().for_each(VecDeque::clear);
                while let Some(rail) = self.joined.ends[0].peer_closed() {
                    self.lose(rail);
                }
                self.joined.pump(0, attack.tag == 0);
            }
            5 => self.test(),
            _ => self.post(),
        }
        true
    }

    fn check(&mut self) {
        self.test();
        self.write_half();
        // However it ended, the rails are dropped, with whatever was half landed on them.
        (0..2).for_each(|rail| self.lose(rail));
        self.test();
        assert!(self.fences.iter().all(|f| f.is_all(0xFE)), "a byte where none was granted");
        assert!(self.free.iter().all(|m| m.is_all(0xEE)), "a byte after the report");
        for (name, len, most) in self.joined.ends[0].held() {
            assert!(len <= most, "{len} {name}, the bound is {most}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_peer_can_do_harm(attacks in prop::collection::vec(attack(), 1..60)) {
        let mut victim = Victim::new();
        for attack in attacks {
            if !victim.attack(attack) {
                break;
            }
        }
        victim.check();
    }
}

/// Messages that an honest peer may send any number of, one at a time: a flood of each either ends the connection or
/// leaves memory bounded.
#[test]
fn floods_are_bounded() {
    for kind in 1..12u8 {
        // Notifications have the largest bound, 65536.
        let notifies = [Kind::Notify, Kind::InlinePutNotify].iter().any(|&notifies| kind == notifies as u8);
        let times = if notifies { 70_000 } else { 4000 };
        for id in [0, 1 << 10, 1 << 12, 5 << 12] {
            for (len, total) in [(0u32, 0u64), (0, 1), (64, 5)] {
                let mut victim = Victim::new();
                for n in 0..times {
                    let attack =
                        Attack { kind, rail: 0, len, seq: 0, ack: 0, tag: n % 7, id, offset: 0, total, then: 5 };
                    if !victim.attack(attack) {
                        break;
                    }
                }
                victim.check();
            }
        }
    }
}

/// A chunk that the peer acknowledges before the rail has taken it is still being read: neither the send nor the region
/// it comes from is free.
#[test]
fn an_acknowledgement_ahead_of_the_rail_frees_nothing() {
    let mut joined = Joined::new(1, true);
    let (src, region) = (Mem::filled(4096 * 3, 1), Mem::filled(4000, 2));
    let recv = joined.recv(1, &[(0, Mem::new(4096 * 3))]);
    joined.settle();
    let send = joined.send(0, 0, src).unwrap();
    let key = joined.ends[0].expose(region, Access::Read).unwrap();
    let dst = Mem::new(4000);
    joined.read(1, dst, RemoteSlice { key, offset: 0 }).unwrap();
    assert!(joined.deliver(1, 0).unwrap());
    joined.pump(0, true);
    let waiting = joined.wires[0].queues[0].iter().filter(|item| item.kind().is_payload()).count();
    assert_eq!(waiting, 4, "three chunks and the answer wait in the rail");
    let mut lie = Head::new(Kind::Ack);
    lie.total.set(4);
    lie.seq.set(joined.ends[0].control.due());
    joined.ends[0].on_ctrl(0, &lie, &[]).unwrap();
    joined.pump(0, true);
    assert_eq!(joined.test(0, send), Outcome::Pending);
    assert!(!joined.ends[0].unexpose(key), "the answer has not left");
    while joined.deliver(0, 0).unwrap() {
        joined.pump(0, true);
        assert_eq!(joined.ends[0].unexpose(key), joined.wires[0].queues[0].is_empty());
    }
    assert_eq!(joined.test(0, send), Outcome::Done(4096 * 3));
    assert_eq!(joined.test(1, recv), Outcome::Done(4096 * 3));
}
