//! Ends: in good order, with work in flight, and by death.

use super::bench::{Wait, check_poison, filled, poison, shapes};
use super::{Duo, Level, Side, SuiteMemory, Testbed, Want, check_bytes};
use crate::{Conn, Down, Error, Poll, Rail, Ticket};

/// Drives one side alone until its operation reports or the connection ends.
fn alone<R: Rail>(bed: &mut dyn Testbed<R = R>, conn: &mut Conn<R>, ticket: Ticket, what: &str) -> Result<u64, Error> {
    let mut wait = Wait::new();
    loop {
        match conn.test(ticket) {
            Ok(None) => {}
            Ok(Some(bytes)) => return Ok(bytes),
            Err(error) => return Err(error),
        }
        if !matches!(conn.progress(), Ok(Poll::Active)) {
            bed.pass();
        }
        wait.round(bed.patience(), what);
    }
}

/// Drives one side alone until it has learnt that the peer is gone.
fn until_lost<R: Rail>(bed: &mut dyn Testbed<R = R>, conn: &mut Conn<R>) -> Error {
    let mut wait = Wait::new();
    loop {
        match conn.progress() {
            Ok(Poll::Active) => {}
            Ok(Poll::Idle) => bed.pass(),
            Err(error @ (Error::Lost | Error::Closed)) => return error,
            Err(error) => panic!("a peer that went away is told as: {error}"),
        }
        wait.round(bed.patience(), "news of the peer's end");
    }
}

/// A side that closes as soon as its receive has reported takes nothing from its peer: the send is done, not failed;
/// and a message sent just before a close arrives.
pub(super) fn last_message_then_close<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        for len in [100usize, 100_000] {
            // The receiver closes.
            let mut duo = Duo::new(bed, want);
            let (src, dst) = (filled(len, 1), SuiteMemory::new(len));
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            let send = duo.send(Side::A, 1, src.slice());
            duo.done(Side::B, recv);
            // Its acknowledgement is on its way when there is nothing left to do.
            for _ in 0..3 {
                duo.b.progress().expect("progress of the receiver");
            }
            let Duo { bed: r, mut a, b } = duo;
            drop(b);
            let sent = alone(r, &mut a, send, "a send whose receiver closed after it");
            assert!(matches!(sent, Ok(n) if n == len as u64), "a delivered send of {len}, {want:?}: {sent:?}");
            let end = until_lost(r, &mut a);
            assert!(matches!(end, Error::Closed), "an orderly close is told as: {end}");

            // The sender closes.
            let mut duo = Duo::new(r, want);
            let dst = SuiteMemory::new(len);
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            let send = duo.send(Side::A, 1, src.slice());
            duo.done(Side::A, send);
            let Duo { bed: r, a, mut b } = duo;
            drop(a);
            let got = alone(r, &mut b, recv, "a message whose sender closed after it");
            assert!(
                matches!(got, Ok(n) if n == len as u64),
                "a message of {len} sent before a close, {want:?}: {got:?}"
            );
            check_bytes(dst.slice(), 1);
        }
    }
}

/// One side closes with everything in flight: the other learns it, each of its operations reports, and calls after
/// it fail at once.
pub(super) fn close_with_operations_in_flight<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        for rounds in [0, 2, 7] {
            let mut duo = Duo::new(bed, want);
            let (src, dst) = (filled(3 << 20, 1), SuiteMemory::new(3 << 20));
            let (back, small) = (SuiteMemory::new(1 << 20), filled(64, 2));
            duo.recv(Side::B, &[(1, dst.slice())]);
            let never = duo.recv(Side::A, &[(2, back.slice())]);
            duo.rounds(70);
            let sends = [duo.start(Side::A, 1, src.slice()), duo.send(Side::A, 9, small.slice())];
            duo.rounds(rounds);
            let Duo { bed: r, mut a, b } = duo;
            drop(b);
            poison(dst.slice(), 0xEE);
            for send in sends {
                match alone(r, &mut a, send, "a send to a peer that closed") {
                    Ok(_) | Err(Error::Closed | Error::Lost) => {}
                    Err(error) => panic!("a send to a peer that closed: {error}"),
                }
            }
            match alone(r, &mut a, never, "a receive from a peer that closed") {
                Err(Error::Closed | Error::Lost) => {}
                other => panic!("a receive from a peer that closed: {other:?}"),
            }
            until_lost(r, &mut a);
            for _ in 0..2 {
                assert!(a.post_send(1, small.slice()).is_err(), "a post after the end");
                assert!(a.post_recv(&[(1, back.slice())]).is_err(), "a post after the end");
                assert!(a.progress().is_err(), "progress after the end");
            }
            check_poison(dst.slice(), 0xEE, "after its connection was dropped");
            drop(a);
        }
    }
}

/// Sends that wait end with the connection, whichever side closes it, and what waited is not sent: the bytes are their owner's.
pub(super) fn close_with_sends_that_wait<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        for peer_closes in [false, true] {
            let mut duo = Duo::new(bed, want);
            let (large, small) = (filled(1 << 20, 1), filled(100, 2));
            let sends = [duo.send(Side::A, 1, large.slice()), duo.send(Side::A, 1, small.slice())];
            duo.rounds(70);
            assert_eq!(duo.a.waiting(), 2);
            let dst = SuiteMemory::new(1 << 20);
            let poisoned = |mems: &[&SuiteMemory]| mems.iter().for_each(|mem| poison(mem.slice(), 0xEE));
            if peer_closes {
                let Duo { bed: r, mut a, b } = duo;
                drop(b);
                for send in sends {
                    match alone(r, &mut a, send, "a send that waits for a peer that closed") {
                        Err(Error::Closed | Error::Lost) => {}
                        other => panic!("a send that waits for a peer that closed: {other:?}"),
                    }
                }
                until_lost(r, &mut a);
                assert!(a.post_send(1, small.slice()).is_err(), "a post after the end");
                poisoned(&[&large, &small]);
                continue;
            }
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            poisoned(&[&dst]);
            // What the peer posts has not been looked at here.
            let Duo { bed: r, a, mut b } = duo;
            drop(a);
            poisoned(&[&large, &small]);
            match alone(r, &mut b, recv, "a receive whose send waited when the peer closed") {
                Err(Error::Closed | Error::Lost) => {}
                other => panic!("a receive whose send waited when the peer closed: {other:?}"),
            }
            check_poison(dst.slice(), 0xEE, "by a send that waited when its side closed");
        }
    }
}

/// Memory of operations in flight is the owner's again when the connection has been dropped.
pub(super) fn nothing_is_written_after_drop<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        for rounds in [1, 4, 9] {
            let mut duo = Duo::new(bed, want);
            let (src, dst) = (filled(8 << 20, 1), SuiteMemory::new(8 << 20));
            duo.recv(Side::B, &[(1, dst.slice())]);
            duo.rounds(2);
            let send = duo.start(Side::A, 1, src.slice());
            duo.rounds(rounds);
            let Duo { bed: r, mut a, b } = duo;
            drop(b);
            poison(dst.slice(), 0xEE);
            // The sender goes on for as long as it can, and its bytes go nowhere.
            let sent = alone(r, &mut a, send, "a send to a peer that was dropped");
            if let Err(error) = sent {
                assert!(matches!(error, Error::Closed | Error::Lost), "{error}");
            }
            drop(a);
            for _ in 0..50 {
                r.pass();
            }
            check_poison(dst.slice(), 0xEE, "after its connection was dropped");
        }
    }
}

/// A peer that dies at any step of a transfer is reported; every operation then reports, none as done that is not.
pub(super) fn death_at_every_step<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let steps = level.pick(8, 100);
    for want in shapes(bed).into_iter().map(|want| Want { faults: true, ..want }) {
        for step in 0..steps {
            let mut duo = Duo::new(bed, want);
            let (src, dst) = (filled(1 << 20, 1), SuiteMemory::new(1 << 20));
            let (small, there) = (filled(500, 2), SuiteMemory::new(500));
            let from_b = filled(200_000, 3);
            let at_a = SuiteMemory::new(200_000);
            let mut b_sends = 0;
            duo.b.post_recv(&[(1, dst.slice()), (2, there.slice())]).expect("post_recv");
            let recv = duo.recv(Side::A, &[(3, at_a.slice())]);
            let mut sends = Vec::new();
            let mut large = false;
            // One action a step; the peer dies after `step` of them.
            for n in 0..step {
                match n {
                    0 => sends.push(duo.send(Side::A, 2, small.slice())),
                    1 | 2 | 4 => duo.round(),
                    3 => {
                        let posted = duo.b.post_send(3, from_b.slice()).expect("post_send");
                        b_sends += usize::from(posted.is_some());
                    }
                    _ if !large => {
                        let posted = duo.a.post_send(1, src.slice()).expect("post_send");
                        large = posted.is_some();
                        sends.extend(posted);
                        duo.round();
                    }
                    _ => duo.round(),
                }
            }
            let Duo { bed: r, mut a, mut b } = duo;
            r.kill(Side::B);
            b.fail(Down::PeerGone { path: "this side".into(), why: "killed by the suite".into() });
            drop(b);
            for send in sends {
                match alone(r, &mut a, send, "a send to a peer that died") {
                    Ok(_) | Err(Error::Lost | Error::Closed) => {}
                    Err(error) => panic!("a send to a peer that died: {error}"),
                }
            }
            match alone(r, &mut a, recv, "a receive from a peer that died") {
                Ok(n) => {
                    assert!(b_sends > 0, "received what was never sent");
                    assert_eq!(n, 200_000);
                    check_bytes(at_a.slice(), 3);
                }
                Err(Error::Lost | Error::Closed) => {
                    // Free now, whatever had landed.
                    poison(at_a.slice(), 0xEE);
                }
                Err(error) => panic!("a receive from a peer that died: {error}"),
            }
            let end = until_lost(r, &mut a);
            assert!(matches!(end, Error::Lost), "a death is told as: {end}");
            assert!(a.lost().is_some(), "a death has a reason");
            assert!(a.rails().next().is_none(), "no rail is left");
            drop(a);
        }
    }
}
