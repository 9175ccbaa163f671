//! Rails that come and go while messages about them cross.

use super::super::{Access, OpError, RemoteSlice};
use super::{CHUNK, Joined, Mem};
use crate::{Head, Kind};

fn numbers(len: usize) -> Mem {
    Mem::of(&(0..len).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>())
}

/// A message under way over two rails, with some chunks delivered on each.
fn half_way(rails: usize, delivered: usize) -> (Joined, [super::super::Ticket; 2], [Mem; 2]) {
    let mut joined = Joined::new(rails, true);
    let (src, dst) = (numbers(80_000), Mem::new(80_000));
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, src).unwrap();
    for n in 0..delivered {
        joined.deliver(0, n % rails).unwrap();
    }
    (joined, [send, recv], [src, dst])
}

fn finish(mut joined: Joined, [send, recv]: [super::super::Ticket; 2], [src, dst]: [Mem; 2]) {
    joined.settle();
    assert_eq!(joined.done(1, recv), 80_000);
    assert_eq!(joined.done(0, send), 80_000);
    assert_eq!(src.bytes(), dst.bytes());
    // And it still works, both ways.
    for end in [0, 1] {
        let to = Mem::new(9000);
        let recv = joined.recv(1 - end, &[(3, to)]);
        joined.settle();
        let send = joined.send(end, 3, Mem::filled(9000, 5)).unwrap();
        joined.settle();
        assert_eq!(joined.done(1 - end, recv), 9000);
        joined.done(end, send);
        assert!(to.is_all(5));
    }
}

#[test]
fn either_end_may_lose_either_rail_at_any_point() {
    for end in [0, 1] {
        for rail in [0, 1] {
            for delivered in 0..8 {
                let (mut joined, tickets, mems) = half_way(2, delivered);
                assert!(joined.lose(end, rail));
                finish(joined, tickets, mems);
            }
        }
    }
}

#[test]
fn a_rail_that_rests_is_given_no_chunk_and_leaves_the_window_to_the_other() {
    let mut joined = Joined::new(2, true);
    joined.ends[0].rail_rests(1, true);
    let (src, dst) = (numbers(80_000), Mem::new(80_000));
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, src).unwrap();
    let chunks = |joined: &Joined, rail: usize| {
        joined.wires[0].queues[rail].iter().filter(|item| item.kind().is_payload()).count()
    };
    assert_eq!([0, 1].map(|rail| chunks(&joined, rail)), [80_000usize.div_ceil(CHUNK), 0]);
    finish(joined, [send, recv], [src, dst]);
    // What no other rail may carry waits until it carries again.
    let mut joined = Joined::new(2, true);
    joined.ends[0].rail_rests(1, true);
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    assert!(joined.lose(0, 0));
    joined.pump(1, true);
    joined.lose(1, 0);
    let send = joined.send(0, 1, src).unwrap();
    joined.pump(0, true);
    assert_eq!(chunks(&joined, 1), 0);
    joined.ends[0].rail_rests(1, false);
    finish(joined, [send, recv], [src, dst]);
}

#[test]
fn both_ends_lose_the_same_rail_and_their_words_cross() {
    for rail in [0, 1] {
        let (mut joined, tickets, mems) = half_way(2, 3);
        assert!(joined.lose(0, rail));
        assert!(joined.lose(1, rail));
        joined.pump(0, true);
        joined.pump(1, true);
        finish(joined, tickets, mems);
    }
}

#[test]
fn both_ends_lose_different_rails_of_three() {
    for (a, b) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)] {
        let (mut joined, tickets, mems) = half_way(3, 4);
        assert!(joined.lose(0, a));
        assert!(joined.lose(1, b));
        // Each sees in the end that the other has closed.
        joined.pump(0, true);
        joined.pump(1, true);
        joined.lose(1, a);
        joined.lose(0, b);
        finish(joined, tickets, mems);
    }
}

#[test]
fn the_control_rail_is_lost_again_during_the_replay() {
    let mut joined = Joined::new(3, true);
    let bufs: Vec<Mem> = (0..50).map(|_| Mem::new(100)).collect();
    let recvs: Vec<_> = bufs.iter().map(|&b| joined.recv(1, &[(1, b)])).collect();
    let sends: Vec<_> = (0..50u8).map(|n| joined.send(0, 1, Mem::filled(100, n)).unwrap()).collect();
    for _ in 0..10 {
        joined.deliver(0, 0).unwrap();
    }
    assert!(joined.lose(0, 0));
    joined.wires[0].depth = 7; // the replay does not get through at once
    joined.pump(0, true);
    for _ in 0..3 {
        joined.deliver(0, 1).unwrap();
    }
    assert!(joined.lose(0, 1));
    joined.pump(0, true);
    joined.settle();
    for (n, (recv, send)) in recvs.into_iter().zip(sends).enumerate() {
        assert_eq!(joined.done(1, recv), 100);
        assert_eq!(joined.done(0, send), 100);
        assert!(bufs[n].is_all(n as u8), "message {n}");
    }
}

#[test]
fn a_chunk_half_landed_on_a_lost_rail_comes_again() {
    let (mut joined, _, _) = half_way(2, 0);
    let chunk = joined.wires[0].queues[1].pop_front().unwrap();
    joined.ends[1].place(1, &chunk.head).unwrap().unwrap();
    joined.lose(1, 1);
    // The transport has dropped the rail: nothing writes to the place any more, and the engine has forgotten it.
    assert!(joined.ends[1].landed(1, &chunk.head).is_err(), "it never began here");
    let (mut joined, tickets, mems) = half_way(2, 0);
    let chunk = joined.wires[0].queues[1].pop_front().unwrap();
    joined.ends[1].place(1, &chunk.head).unwrap().unwrap();
    joined.lose(1, 1);
    finish(joined, tickets, mems);
}

#[test]
fn a_rail_that_only_one_side_brought_up() {
    let mut joined = Joined::new(1, true);
    assert!(joined.ends[0].rail_up(1, 7, CHUNK));
    let (src, dst) = (numbers(80_000), Mem::new(80_000));
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, src).unwrap();
    assert!(!joined.wires[0].queues[1].is_empty(), "chunks wait on the new rail");
    assert!(joined.lose(0, 1));
    joined.wires[0].queues[1].clear();
    // The other side never had it, and says that nothing of it can land.
    finish(joined, [send, recv], [src, dst]);
}

#[test]
fn a_rail_given_up_before_it_came_up_here_never_comes_up() {
    let mut joined = Joined::new(1, true);
    assert!(joined.ends[0].rail_up(1, 7, CHUNK));
    assert!(joined.lose(0, 1));
    joined.settle();
    assert!(!joined.ends[1].rail_up(1, 7, CHUNK), "its peer has closed it");
    assert!(joined.ends[1].rail_up(1, 8, CHUNK));
    assert!(!joined.ends[1].rail_up(2, 8, CHUNK), "a number is used once at a time");
    assert!(!joined.ends[1].rail_up(2, u32::MAX, CHUNK), "reserved");
}

#[test]
fn of_rails_given_up_before_they_came_up_the_last_64_are_remembered() {
    let mut joined = Joined::new(1, true);
    for id in 1000..1065 {
        let mut head = Head::new(Kind::RailDown);
        head.id.set(id);
        head.seq.set(joined.ends[1].control.due());
        joined.ends[1].on_ctrl(0, &head, &[]).unwrap();
    }
    assert!(!joined.ends[1].rail_up(1, 1064, CHUNK), "the peer has closed it");
    assert!(!joined.ends[1].rail_up(1, 1001, CHUNK), "this one too");
    assert!(joined.ends[1].rail_up(1, 1000, CHUNK), "memory that a peer can fill has a bound");
}

#[test]
fn an_acknowledgement_overtaken_by_a_newer_one_changes_nothing() {
    let (mut joined, ..) = half_way(2, 4);
    for landed in [2, 1] {
        let mut head = Head::new(Kind::Ack);
        head.id.set(0);
        head.total.set(landed);
        head.seq.set(joined.ends[0].control.due());
        joined.ends[0].on_ctrl(0, &head, &[]).unwrap();
        joined.pump(0, true);
    }
    assert!(!joined.ends[0].is_broken() && joined.ends[0].moving() == 1, "most of it is under way");
}

#[test]
fn acknowledgements_of_rails_that_are_gone_are_ignored() {
    let (mut joined, tickets, mems) = half_way(2, 6);
    joined.pump(1, true); // its acknowledgements are on the way
    assert!(joined.lose(0, 1));
    finish(joined, tickets, mems);
}

#[test]
fn a_peer_cannot_acknowledge_what_was_not_sent() {
    for (id, landed) in [(0, 100), (0, u64::from(u32::MAX)), (0, 1 << 33), (1, 21)] {
        let (mut joined, ..) = half_way(2, 0);
        let mut head = Head::new(Kind::Ack);
        head.id.set(id);
        head.total.set(landed);
        head.seq.set(joined.ends[1].control.next());
        let seen = joined.ends[0].on_ctrl(0, &head, &[]);
        // Counts below what was acknowledged before are old news, not lies.
        assert!(seen.is_err() || landed > u64::from(u32::MAX) / 2, "{id} {landed}");
    }
    let (mut joined, ..) = half_way(2, 0);
    let mut head = Head::new(Kind::Ack);
    head.ack.set(1000);
    head.id.set(u32::MAX);
    assert!(joined.ends[0].on_ctrl(0, &head, &[]).is_err());
    assert!(joined.ends[0].is_broken());
}

#[test]
fn several_early_messages_too_long_are_each_told() {
    let mut joined = Joined::new(1, false);
    for _ in 0..3 {
        joined.send(0, 1, Mem::new(100)).unwrap();
    }
    let recvs: Vec<_> = (0..3).map(|_| joined.recv(1, &[(1, Mem::new(10))])).collect();
    joined.settle();
    let want = OpError::Truncated { sent: 100, posted: 10, tag: 1 };
    for recv in recvs {
        assert_eq!(joined.failed(1, recv), want);
    }
    for _ in 0..3 {
        assert_eq!(joined.ends[0].late_error(), Some(want));
    }
    assert_eq!(joined.ends[0].late_error(), None);
}

#[test]
fn the_last_acknowledgement_comes_after_its_rail_has_gone() {
    let mut joined = Joined::new(2, true);
    let (src, dst) = (numbers(16_000), Mem::new(16_000));
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, src).unwrap();
    for rail in [0, 1] {
        assert!(joined.wires[0].queues[rail].iter().any(|item| item.kind().is_payload()), "nothing on rail {rail}");
        while joined.deliver(0, rail).unwrap() {}
    }
    joined.pump(1, false);
    assert_eq!(joined.done(1, recv), 16_000);
    assert!(joined.lose(0, 1));
    while joined.deliver(1, 0).unwrap() {}
    // The peer has closed, so nothing is pumped any more.
    assert!(!joined.lose(0, 0));
    assert_eq!(joined.done(0, send), 16_000);
}

#[test]
fn full_logs_on_both_sides_survive_the_loss_of_the_acknowledgements_that_empty_them() {
    let mut joined = Joined::new(2, true);
    for end in [0, 1] {
        joined.wires[end].depth = 10_000;
        // As many numbered messages as a log keeps; these are about a rail that is gone.
        for _ in 0..2048 {
            let mut head = Head::new(Kind::Ack);
            head.id.set(99);
            joined.ends[end].control.queue(head);
        }
        joined.pump(end, true);
        assert!(joined.ends[end].control.is_quiet(), "all of them fit");
    }
    // The acknowledgements that would empty the logs leave without a number, and are lost.
    for from in [0, 1] {
        while joined.deliver(from, 0).unwrap() {}
    }
    for end in [0, 1] {
        joined.pump(end, true);
        assert_eq!(joined.wires[end].queues[0].len(), 1);
    }
    for end in [0, 1] {
        assert!(joined.lose(end, 0));
    }
    joined.settle();
    assert!(joined.ends.iter().all(|end| end.live_rails() == 1));
}

#[test]
fn an_answer_to_a_read_is_not_sent_again_from_a_region_that_was_withdrawn() {
    let mut joined = Joined::new(2, true);
    let (region, dst) = (Mem::filled(20_000, 1), Mem::new(20_000));
    let key = joined.ends[1].expose(region, Access::Read).unwrap();
    let read = joined.read(0, dst, RemoteSlice { key, offset: 0 }).unwrap();
    joined.deliver(0, 0).unwrap();
    joined.pump(1, true);
    assert_eq!(joined.wires[1].queues.iter().flatten().filter(|i| i.kind().is_payload()).count(), 5, "all of it");
    assert!(!joined.ends[1].unexpose(key), "chunks are being read from it");
    assert!(joined.lose(0, 1));
    joined.pump(0, true);
    for _ in 0..20 {
        if joined.ends[1].unexpose(key) {
            region.set_all(2);
        }
        joined.deliver(1, 0).unwrap();
        joined.pump(0, true);
        while joined.deliver(0, 0).unwrap() {}
        joined.obey();
        joined.pump(1, true);
    }
    assert!(joined.ends[1].unexpose(key));
    joined.settle();
    assert_eq!(joined.failed(0, read), OpError::RemoteAccess { key });
    assert!(!dst.bytes().contains(&2), "what the memory holds now was read");
}
