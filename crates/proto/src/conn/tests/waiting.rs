//! Sends that are posted before their receives.

use super::super::{Cancel, EAGER_CREDIT, MAX_OPS, MAX_WAITING, OpError, Outcome, Refused};
use super::{Joined, Mem};
use crate::Kind;

/// A send that waits for its receive.
const LARGE: usize = 9000;

#[test]
fn both_ends_post_their_send_first_and_finish() {
    for acked in [false, true] {
        for size in [0, 8, 8192, 8193, 1 << 20] {
            let mut joined = Joined::new(1, acked);
            let mems = [0, 1].map(|end| (Mem::filled(size, end as u8 + 1), Mem::new(size)));
            let sends = [0, 1].map(|end| joined.send(end, 5, mems[end].0).expect("accepted"));
            joined.settle();
            assert_eq!(joined.wires[0].sent(Kind::Chunk), 0, "nothing large leaves without a receive");
            let recvs = [0, 1].map(|end| joined.recv(end, &[(5, mems[end].1)]));
            joined.settle();
            for end in [0, 1] {
                assert_eq!(joined.done(end, sends[end]), size as u64);
                assert_eq!(joined.done(end, recvs[end]), size as u64);
                assert!(mems[end].1.is_all(2 - end as u8));
            }
        }
    }
}

#[test]
fn a_small_send_waits_behind_a_large_one_with_its_tag_and_overtakes_those_with_others() {
    let mut joined = Joined::new(1, false);
    let large = joined.send(0, 1, Mem::filled(LARGE, 1)).unwrap();
    let behind = joined.send(0, 1, Mem::filled(8, 2)).unwrap();
    let other = joined.send(0, 2, Mem::filled(8, 3)).unwrap();
    joined.settle();
    assert_eq!((joined.ends[0].waiting(), joined.ends[0].moving()), (2, 1));
    assert_eq!(joined.done(0, other), 8, "it has left");
    let into = [Mem::new(LARGE), Mem::new(LARGE)];
    let recvs = into.map(|mem| joined.recv(1, &[(1, mem)]));
    joined.settle();
    assert_eq!(joined.ends[0].waiting(), 0);
    assert_eq!((joined.done(1, recvs[0]), joined.done(1, recvs[1])), (LARGE as u64, 8));
    assert!(into[0].is_all(1) && into[1].bytes()[..8] == [2; 8]);
    joined.done(0, large);
    joined.done(0, behind);
}

#[test]
fn small_sends_without_credit_wait_and_leave_in_the_order_of_their_posts() {
    let mut joined = Joined::new(1, false);
    let n = 2 * EAGER_CREDIT / 8000;
    // Of different tags, and the last ones would fit into what is left of the credit.
    let sizes: Vec<usize> = (0..n).map(|n| if n % 5 == 4 { 10 } else { 8000 }).collect();
    let sends: Vec<_> = (0..n).map(|n| joined.send(0, n as u32, Mem::filled(sizes[n], n as u8)).unwrap()).collect();
    joined.settle();
    let waiting = joined.ends[0].waiting();
    assert!(waiting > n / 3, "{waiting} of {n} wait");
    let first = n - waiting;
    assert_eq!(sizes[first], 8000);
    assert!(sizes[first..].contains(&10), "one that waits would fit");
    // One grant goes to the first that left, and gives back enough for the first that waits and its small neighbours.
    let mut recvs = vec![joined.recv(1, &[(0, Mem::new(8000))])];
    joined.settle();
    assert_eq!(joined.test(0, sends[first]), Outcome::Done(8000));
    assert!(joined.ends[0].waiting() < waiting);
    recvs.extend((1..n as u32).map(|tag| joined.recv(1, &[(tag, Mem::new(8000))])));
    joined.settle();
    for (n, (recv, send)) in recvs.into_iter().zip(sends).enumerate() {
        assert_eq!(joined.done(1, recv), sizes[n] as u64);
        if n != first {
            joined.done(0, send);
        }
    }
}

#[test]
fn a_new_small_send_does_not_take_the_credit_that_an_older_one_waits_for() {
    let mut joined = Joined::new(1, false);
    let mut full = 0;
    while joined.ends[0].waiting() == 0 {
        joined.send(0, full, Mem::new(8000)).unwrap();
        full += 1;
    }
    joined.send(0, 1000, Mem::new(8)).unwrap();
    assert_eq!(joined.ends[0].waiting(), 2);
    // Its receive is posted: it needs no credit and does not wait for the older one.
    let recv = joined.recv(1, &[(1000, Mem::new(LARGE))]);
    joined.settle();
    assert_eq!(joined.done(1, recv), 8);
    assert_eq!(joined.ends[0].waiting(), 1);
}

#[test]
fn small_sends_on_a_busy_rail_wait_and_leave_without_a_word_of_the_peer() {
    for acked in [false, true] {
        let mut joined = Joined::new(1, acked);
        joined.wires[0].depth = 2;
        let sends: Vec<_> = (0..10u8).map(|n| joined.send(0, 1, Mem::filled(8, n)).unwrap()).collect();
        assert_eq!(joined.ends[0].waiting(), 8);
        assert!(!joined.ends[0].settled());
        joined.wires[0].depth = 1000;
        joined.pump(0, false);
        assert_eq!(joined.ends[0].waiting(), 0);
        let into: Vec<_> = (0..10).map(|_| Mem::new(8)).collect();
        let recvs: Vec<_> = into.iter().map(|&mem| joined.recv(1, &[(1, mem)])).collect();
        joined.settle();
        for n in 0..10 {
            assert_eq!(joined.done(1, recvs[n]), 8);
            assert_eq!(joined.done(0, sends[n]), 8);
            assert!(into[n].is_all(n as u8));
        }
    }
}

#[test]
fn at_most_256_wait_and_receives_still_find_space() {
    let mut joined = Joined::new(1, false);
    let src = Mem::new(LARGE);
    let mut sends: Vec<_> = (0..MAX_WAITING).map(|_| joined.send(0, 1, src).unwrap()).collect();
    assert_eq!(MAX_WAITING, 256);
    assert_eq!(joined.send(0, 1, src), Err(Refused::Busy));
    assert_eq!(joined.send(0, 1, Mem::new(1)), Err(Refused::Busy), "it would have to wait too");
    let mut held: Vec<_> = (0..MAX_OPS - MAX_WAITING - 1).map(|_| joined.recv(0, &[(9, Mem::new(8))])).collect();
    // What need not wait is not held up by those that do.
    let passes = joined.send(0, 2, Mem::new(8)).unwrap();
    assert_eq!(joined.ends[0].waiting(), MAX_WAITING);
    joined.settle();
    joined.done(0, passes);
    for round in 0..3 {
        let recvs: Vec<_> = (0..MAX_WAITING).map(|_| joined.recv(1, &[(1, Mem::new(LARGE))])).collect();
        joined.settle();
        sends.drain(..).for_each(|send| assert_eq!(joined.done(0, send), LARGE as u64));
        recvs.into_iter().for_each(|recv| assert_eq!(joined.done(1, recv), LARGE as u64));
        if round < 2 {
            sends = (0..MAX_WAITING).map(|_| joined.send(0, 1, src).unwrap()).collect();
        }
    }
    let message = joined.send(1, 9, Mem::filled(8, 7)).unwrap();
    joined.settle();
    joined.done(1, message);
    assert_eq!(joined.done(0, held.remove(0)), 8);
}

#[test]
fn a_waiting_send_longer_than_its_receive_fails_with_both_sizes_on_both_sides() {
    let mut joined = Joined::new(1, true);
    let long = joined.send(0, 1, Mem::filled(LARGE, 1)).unwrap();
    let next = joined.send(0, 1, Mem::filled(100, 2)).unwrap();
    let dst = [Mem::new(100), Mem::new(100)];
    let recvs = dst.map(|mem| joined.recv(1, &[(1, mem)]));
    joined.settle();
    let error = OpError::Truncated { sent: LARGE as u64, posted: 100, tag: 1 };
    assert_eq!((joined.failed(0, long), joined.failed(1, recvs[0])), (error, error));
    assert_eq!((joined.done(0, next), joined.done(1, recvs[1])), (100, 100));
    assert!(dst[0].is_all(0) && dst[1].is_all(2));
    assert_eq!(joined.ends[0].late_error(), None, "it is told once");
}

#[test]
fn a_withdrawn_send_says_nothing_and_those_behind_it_move_up() {
    let mut joined = Joined::new(1, true);
    let gone = joined.send(0, 1, Mem::filled(LARGE, 1)).unwrap();
    let next = joined.send(0, 1, Mem::filled(100, 2)).unwrap();
    assert!(joined.wires[0].queues[0].is_empty());
    assert_eq!(joined.ends[0].cancel(gone), Cancel::Withdrawn);
    assert_eq!(joined.ends[0].cancel(gone), Cancel::UnderWay, "it is no more");
    assert_eq!(joined.failed(0, gone), OpError::NoSuchOp);
    joined.settle();
    assert_eq!(joined.ends[0].waiting(), 0, "the one behind it has left");
    assert_eq!(joined.ends[0].cancel(next), Cancel::UnderWay);
    let dst = Mem::new(LARGE);
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    assert_eq!((joined.done(0, next), joined.done(1, recv)), (100, 100));
    assert_eq!(dst.bytes()[..100], [2; 100]);
    // A message that is on its way cannot be withdrawn.
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, Mem::filled(LARGE, 3)).unwrap();
    assert_eq!(joined.ends[0].cancel(send), Cancel::UnderWay);
    joined.settle();
    assert_eq!((joined.done(0, send), joined.done(1, recv)), (LARGE as u64, LARGE as u64));
}

#[test]
fn sends_that_wait_outlive_the_rails_that_are_lost_meanwhile() {
    let mut joined = Joined::new(3, true);
    let send = joined.send(0, 1, Mem::filled(80_000, 1)).unwrap();
    let small = joined.send(0, 1, Mem::filled(8, 2)).unwrap();
    let dst = [Mem::new(80_000), Mem::new(8)];
    let recvs = dst.map(|mem| joined.recv(1, &[(1, mem)]));
    // The grants are on the rail that is lost.
    assert!(!joined.wires[1].queues[0].is_empty());
    assert!(joined.lose(0, 0));
    joined.settle();
    assert_eq!((joined.done(0, send), joined.done(0, small)), (80_000, 8));
    assert_eq!((joined.done(1, recvs[0]), joined.done(1, recvs[1])), (80_000, 8));
    assert!(dst[0].is_all(1) && dst[1].is_all(2));
}

#[test]
fn a_side_that_closes_sends_nothing_of_what_waits() {
    let mut joined = Joined::new(1, false);
    joined.send(0, 1, Mem::filled(LARGE, 1)).unwrap();
    joined.send(0, 1, Mem::filled(8, 2)).unwrap();
    let dst = Mem::new(LARGE);
    let recv = joined.recv(1, &[(1, dst)]);
    // Its grant is here, and not looked at yet.
    joined.deliver(1, 0).unwrap();
    joined.ends[0].goaway();
    joined.settle();
    assert!(joined.ends[1].peer_sent_goaway());
    assert_eq!(joined.test(1, recv), Outcome::Pending);
    assert_eq!(joined.wires[0].sent(Kind::Chunk) + joined.wires[0].sent(Kind::Eager), 0);
    assert!(dst.is_all(0));
}
