//! What goes wrong without the connection being lost.

use super::bench::{check_poison, filled, poison, shapes};
use super::{Duo, Level, Side, SuiteMemory, Testbed, check_bytes};
use crate::{Error, MAX_GROUP, MAX_WAITING, OpError, Rail, Ticket};
use std::time::Duration;

/// A message longer than its receive is an error on both sides, with both sizes in it; nothing is written beyond
/// the receive, and the connection stays usable.
pub(super) fn sent_larger_than_posted<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for (sent, posted) in [(2, 1), (8192, 100), (8193, 8192), (100_000, 50_000), (1, 0)] {
            for early in [false, true] {
                truncation(&mut duo, sent, posted, early);
            }
        }
        duo.still_works();
    }
}

fn truncation<R: Rail>(duo: &mut Duo<'_, R>, sent: usize, posted: usize, early: bool) {
    let (src, dst) = (filled(sent, 1), SuiteMemory::new(posted + 64));
    poison(dst.slice(), 0xEE);
    let space_for = crate::Buf::sub(&dst.slice(), 0, posted as u64).expect("inside");
    let want = OpError::Truncated { sent: sent as u64, posted: posted as u64, tag: 77 };
    let is_it = |e: &Error| matches!(e, Error::Op(op) if *op == want);
    let mut recv = None;
    if !early {
        recv = Some(duo.recv(Side::B, &[(77, space_for)]));
        duo.rounds(100);
    }
    // The sender learns it from the post, from its operation, or from the next call after.
    let (mut told, mut send) = (0, None);
    duo.until("a send to be accepted or refused", |duo| {
        match duo.a.post_send(77, src.slice()) {
            Ok(ticket) => send = ticket,
            Err(e) if is_it(&e) => told += 1,
            Err(e) => panic!("truncation send: {e}"),
        }
        send.is_some() || told > 0
    });
    let recv = recv.unwrap_or_else(|| {
        duo.rounds(20);
        duo.recv(Side::B, &[(77, space_for)])
    });
    let mut received = None;
    let mut wait = super::bench::Wait::new();
    while received.is_none() || send.is_some() || told == 0 {
        if let Some(ticket) = send {
            match duo.a.test(ticket) {
                Ok(None) => {}
                Ok(Some(_)) => send = None,
                Err(e) if is_it(&e) => {
                    send = None;
                    told += 1;
                }
                Err(e) => panic!("truncation send: {e}"),
            }
        }
        if received.is_none() {
            match duo.b.test(recv) {
                Ok(None) => {}
                Ok(Some(n)) => panic!("a receive of {posted} bytes took {sent}, says {n}"),
                Err(e) => received = Some(e),
            }
        }
        match duo.a.progress() {
            Ok(_) => {}
            Err(e) if is_it(&e) => told += 1,
            Err(e) => panic!("progress after a truncation send: {e}"),
        }
        duo.b.progress().expect("progress of the receiver");
        duo.bed.pass();
        wait.round(duo.bed.patience(), "both sides to be told of the truncation message");
    }
    assert_eq!(told, 1, "the sender is told of it once");
    let error = received.expect("loop ends with it");
    assert!(is_it(&error), "the receiver says: {error}");
    let beyond = crate::Buf::sub(&dst.slice(), posted as u64, 64).expect("inside");
    check_poison(beyond, 0xEE, "beyond a receive that was too small");
}

/// A ticket reports once; then, and for numbers that never were tickets, the answer is an error without side effects.
pub(super) fn stale_tickets<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let (src, dst) = (filled(10, 1), SuiteMemory::new(10));
        let recv = duo.recv(Side::B, &[(1, dst.slice())]);
        let send = duo.send(Side::A, 1, src.slice());
        duo.done(Side::B, recv);
        duo.done(Side::A, send);
        let next = duo.recv(Side::B, &[(1, dst.slice())]);
        let stale = [recv, Ticket::from_u64(0), Ticket::from_u64(u64::MAX), Ticket::from_u64(500)];
        for ticket in stale {
            match duo.b.test(ticket) {
                Err(Error::Op(OpError::NoSuchOp)) => {}
                other => panic!("a stale ticket is answered with {other:?}"),
            }
        }
        let send = duo.send(Side::A, 1, src.slice());
        assert_eq!(duo.done(Side::B, next), 10, "the live one is unharmed");
        duo.done(Side::A, send);
        duo.still_works();
    }
}

/// Groups of no parts and of too many are refused by name.
pub(super) fn groups_of_a_wrong_size<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    let mut duo = Duo::new(bed, super::Want::PLAIN);
    let buf = SuiteMemory::new(8);
    for n in [0, MAX_GROUP + 1] {
        let parts = vec![(1, buf.slice()); n];
        match duo.a.post_recv(&parts) {
            Err(Error::Op(OpError::GroupSize(got))) if got == n => {}
            other => panic!("a group of {n} is answered with {other:?}"),
        }
    }
    duo.still_works();
}

/// A peer that never posts leaves its sender waiting, then busy, with bounded memory, and other tags unharmed.
pub(super) fn peer_that_never_posts<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let (small, large) = (filled(1000, 1), filled(100_000, 2));
        let (mut accepted, mut busy) = (Vec::new(), 0);
        for _ in 0..2000 {
            for (tag, src) in [(1, &small), (2, &large)] {
                match duo.a.post_send(tag, src.slice()).expect("post_send") {
                    Some(ticket) => accepted.push((tag, ticket)),
                    None => busy += 1,
                }
            }
            assert!(duo.a.waiting() <= MAX_WAITING);
            duo.round();
        }
        assert_eq!(duo.a.waiting(), MAX_WAITING);
        assert!(busy > 1000, "{} are accepted ahead of any receive", accepted.len());
        let left = accepted.len() - MAX_WAITING;
        assert!(left <= 64, "{left} KB sent ahead of any receive");
        // A receive with another tag gets its message through the crowd, large and small.
        for len in [100usize, 50_000] {
            duo.message(Side::A, 3, len, 5);
        }
        for (tag, send) in accepted {
            let (len, seed) = if tag == 1 { (1000, 1) } else { (100_000, 2) };
            let dst = SuiteMemory::new(len);
            let recv = duo.recv(Side::B, &[(tag, dst.slice())]);
            duo.done(Side::B, recv);
            check_bytes(dst.slice(), seed);
            duo.done(Side::A, send);
        }
    }
}

/// A peer that is stopped for long is waited for: no call fails, and everything goes on when it wakes.
pub(super) fn peer_that_stops<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let (src, dst) = (filled(1 << 20, 1), SuiteMemory::new(1 << 20));
        let (small, there) = (filled(64, 2), SuiteMemory::new(64));
        let recv = duo.recv(Side::B, &[(1, dst.slice()), (2, there.slice())]);
        duo.rounds(100);
        let first = duo.send(Side::A, 1, src.slice());
        let second = duo.send(Side::A, 2, small.slice());
        // Ten minutes, where the bed's clock is its own; a token of it elsewhere.
        let naps = match duo.bed.patience() {
            super::Patience::Rounds(_) => 600,
            super::Patience::Wall(_) => 10,
        };
        for _ in 0..naps {
            duo.a.progress().expect("progress while the peer sleeps");
            duo.bed.sleep(Duration::from_secs(1));
        }
        assert_eq!(duo.done(Side::B, recv), (1 << 20) + 64);
        check_bytes(dst.slice(), 1);
        check_bytes(there.slice(), 2);
        duo.done(Side::A, first);
        duo.done(Side::A, second);
        duo.still_works();
    }
}
