//! Numbers that run out: sequence numbers, generations, logs.

use super::super::{MAX_RECVS, OpError, Outcome, Ticket};
use super::{Joined, Mem};
use crate::{Head, Kind};

fn start_at(joined: &mut Joined, seq: u64) {
    for end in &mut joined.ends {
        end.control.start_at(seq);
    }
}

#[test]
fn control_numbers_wrap_at_32_bits() {
    for acked in [false, true] {
        let mut joined = Joined::new(1, acked);
        start_at(&mut joined, u64::from(u32::MAX) - 40);
        let dst = Mem::new(10);
        // Posted before the wrap, met long after it.
        let waits = joined.recv(1, &[(9, dst)]);
        for n in 0..200u8 {
            let to = Mem::new(3);
            let recv = joined.recv(1, &[(1, to)]);
            let send = joined.send(0, 1, Mem::filled(3, n)).unwrap();
            joined.settle();
            assert_eq!(joined.done(1, recv), 3);
            assert_eq!(joined.done(0, send), 3);
            assert!(to.is_all(n));
        }
        assert_eq!(joined.test(1, waits), Outcome::Pending);
        let send = joined.send(0, 9, Mem::filled(10, 7)).unwrap();
        joined.settle();
        assert_eq!(joined.done(1, waits), 10);
        assert_eq!(joined.done(0, send), 10);
        assert!(dst.is_all(7));
    }
}

#[test]
fn a_receive_that_waits_for_half_the_numbers_is_still_seen() {
    // Its grant is known to the sender; 2^31 messages later an early message of the same tag must not take it.
    let mut joined = Joined::new(1, true);
    let dst = Mem::new(20_000);
    let waits = joined.recv(1, &[(9, dst)]);
    joined.settle();
    for end in &mut joined.ends {
        end.control.start_at((1 << 31) + 100);
    }
    let large = joined.send(0, 9, Mem::filled(20_000, 1)).unwrap();
    // Its chunks are still on their way when the next message of this tag arrives.
    let chunks = std::mem::take(&mut joined.wires[0].queues[0]);
    let early = joined.send(0, 9, Mem::filled(5, 2)).unwrap();
    joined.deliver(0, 0).unwrap();
    assert_eq!(joined.test(1, waits), Outcome::Pending);
    joined.wires[0].queues[0] = chunks;
    joined.settle();
    assert_eq!(joined.done(1, waits), 20_000);
    assert!(dst.is_all(1));
    joined.done(0, large);
    let second = joined.recv(1, &[(9, dst)]);
    joined.settle();
    assert_eq!(joined.done(1, second), 5);
    joined.done(0, early);
}

#[test]
fn tickets_untested_for_half_the_numbers_still_report() {
    let mut joined = Joined::new(1, true);
    let send = joined.send(0, 1, Mem::new(4)).unwrap();
    joined.settle();
    for end in &mut joined.ends {
        end.control.start_at((1 << 31) + (1 << 30) + 5);
    }
    assert_eq!(joined.done(0, send), 4);
}

#[test]
fn slots_and_tickets_are_used_again_under_new_names() {
    let mut joined = Joined::new(1, true);
    let mut seen = std::collections::HashSet::new();
    let mut old: Vec<Ticket> = Vec::new();
    let one = Mem::new(1);
    for n in 0..3000u32 {
        let recv = joined.recv(1, &[(1, one)]);
        assert!(seen.insert(recv), "a ticket is given out twice");
        let send = joined.send(0, 1, one).unwrap();
        joined.settle();
        joined.done(1, recv);
        joined.done(0, send);
        old.push(recv);
        if n % 500 == 0 {
            for &ticket in &old {
                assert_eq!(joined.failed(1, ticket), OpError::NoSuchOp);
            }
        }
    }
    // A chunk for a slot of long ago has no place.
    let mut head = Head::new(Kind::Chunk);
    head.id.set(1 << 10);
    head.len.set(10);
    head.total.set(10);
    assert!(joined.ends[1].place(0, &head).unwrap().is_none());
}

#[test]
fn receive_generations_begin_again_and_never_at_zero() {
    let mut joined = Joined::new(1, false);
    for slot in &mut joined.ends[1].recvs.slots {
        slot.generation = (1 << 22) - 1;
    }
    for n in 0..MAX_RECVS / 100 {
        let to = Mem::new(9000);
        let recv = joined.recv(1, &[(1, to)]);
        joined.settle();
        let send = joined.send(0, 1, Mem::filled(9000, n as u8)).unwrap();
        joined.settle();
        assert_eq!(joined.done(1, recv), 9000);
        joined.done(0, send);
        assert!(to.is_all(n as u8));
    }
}

#[test]
fn region_keys_that_have_run_out_retire_their_slot() {
    use super::super::Access;
    let mut joined = Joined::new(1, true);
    let end = &mut joined.ends[1];
    let key = end.expose(Mem::new(8), Access::Write).unwrap();
    assert!(end.unexpose(key));
    end.onesided.regions[0].generation = (1 << 20) - 1;
    let last = end.expose(Mem::new(8), Access::Write).unwrap();
    assert_eq!(last >> 12, (1 << 20) - 1);
    assert!(end.unexpose(last));
    let next = end.expose(Mem::new(8), Access::Write).unwrap();
    assert_eq!(next, 1 << 12 | 1, "a new slot, not the old one from the start");
}

#[test]
fn acknowledgements_alone_do_not_fill_the_log() {
    // One side only receives chunks, so all it ever says is how many have landed.
    let mut joined = Joined::new(1, true);
    joined.wires[0].depth = 1;
    let len = 5000 * 4096;
    let recv = joined.recv(1, &[(1, Mem::new(len))]);
    joined.settle();
    let send = joined.send(0, 1, Mem::new(len)).unwrap();
    for _ in 0..6000 {
        for end in [0, 1] {
            while joined.deliver(end, 0).unwrap() {}
            joined.pump(end, true);
        }
    }
    joined.settle();
    assert_eq!(joined.done(1, recv), len as u64);
    assert_eq!(joined.done(0, send), len as u64);
}

#[test]
fn full_logs_on_both_sides_do_not_wait_for_each_other() {
    use super::super::{Access, RemoteSlice};
    let mut joined = Joined::new(1, true);
    joined.wires.iter_mut().for_each(|w| w.depth = 10_000);
    let keys = [0, 1].map(|e| joined.ends[e].expose(Mem::new(64), Access::ReadWrite).unwrap());
    let mut posted = 0;
    for end in [0, 1] {
        // Writes with notifications: two messages each, until the table of operations or the log is full.
        let to = RemoteSlice { key: keys[1 - end], offset: 0 };
        let src = Mem::new(32);
        while joined.write(end, src, to, Some(1)).is_ok() {
            posted += 1;
        }
    }
    joined.settle();
    for end in [0, 1] {
        let notified = std::iter::from_fn(|| joined.ends[end].take_notify()).count();
        assert_eq!(notified, posted / 2);
    }
}
