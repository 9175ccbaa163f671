//! Many of everything.

use super::bench::{filled, shapes};
use super::{Duo, Level, Rng, Side, SuiteMemory, Testbed, Want, check_bytes};
use crate::{Conn, MAX_GROUP, MemSlice, Poll, Rail, Ticket};

/// NCCL's most: 32 requests of 8 parts in flight, and their 256 sends.
pub(super) fn requests_32_by_8<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for round in 0..level.pick(2, 20) {
            let mut rng = Rng::new(round);
            let len = |r: usize, p: usize| [0, 8, 700, 8192, 12_000][(r * 3 + p) % 5];
            let bufs: Vec<SuiteMemory> = (0..32 * MAX_GROUP).map(|_| SuiteMemory::new(12_000)).collect();
            let recvs: Vec<Ticket> = (0..32)
                .map(|r| {
                    let parts: Vec<(u32, MemSlice)> =
                        (0..MAX_GROUP).map(|p| (p as u32, bufs[r * MAX_GROUP + p].slice())).collect();
                    duo.recv(Side::B, &parts)
                })
                .collect();
            let mut sends = Vec::new();
            for r in 0..32 {
                let mut order: Vec<usize> = (0..MAX_GROUP).collect();
                rng.shuffle(&mut order);
                for p in order {
                    let src = filled(len(r, p), (r * MAX_GROUP + p) as u64);
                    sends.push((duo.send(Side::A, p as u32, src.slice()), src));
                }
            }
            let mut order: Vec<usize> = (0..32).collect();
            rng.shuffle(&mut order);
            for r in order {
                let total: usize = (0..MAX_GROUP).map(|p| len(r, p)).sum();
                assert_eq!(duo.done(Side::B, recvs[r]), total as u64, "request {r}");
                for p in 0..MAX_GROUP {
                    let got = bufs[r * MAX_GROUP + p].slice();
                    let got = crate::Buf::sub(&got, 0, len(r, p) as u64).expect("inside");
                    check_bytes(got, (r * MAX_GROUP + p) as u64);
                }
            }
            for (send, _) in sends {
                duo.done(Side::A, send);
            }
        }
    }
}

/// Connections of one process do not see each other.
pub(super) fn many_connections<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let n = level.pick(16, 200);
    let mut open: Vec<_> = (0..n).map(|i| bed.pair(if i % 2 == 0 { Want::PLAIN } else { Want::ACKED })).collect();
    let mut work = Vec::new();
    for (i, (a, b)) in open.iter_mut().enumerate() {
        let len = if i % 3 == 0 { 30_000 } else { 300 };
        let (src, dst) = (filled(len, i as u64), SuiteMemory::new(len));
        let recv = b.post_recv(&[(1, dst.slice())]).expect("post_recv").expect("not busy");
        let _ = a.progress().expect("progress");
        work.push((recv, None::<Ticket>, src, dst));
    }
    let mut wait = super::bench::Wait::new();
    let mut left = n * 2;
    while left > 0 {
        let mut active = false;
        for (i, (a, b)) in open.iter_mut().enumerate() {
            active |= a.progress().expect("progress") == Poll::Active;
            active |= b.progress().expect("progress") == Poll::Active;
            let (recv, send, src, dst) = &mut work[i];
            match *send {
                None => *send = a.post_send(1, src.slice()).expect("post_send"),
                Some(ticket) if ticket.to_u64() != 0 => {
                    if a.test(ticket).expect("a send").is_some() {
                        *send = Some(Ticket::from_u64(0));
                        left -= 1;
                    }
                }
                Some(_) => {}
            }
            if recv.to_u64() != 0 && b.test(*recv).expect("a receive").is_some() {
                *recv = Ticket::from_u64(0);
                check_bytes(dst.slice(), i as u64);
                left -= 1;
            }
        }
        if !active {
            bed.pass();
        }
        wait.round(bed.patience(), "many connections to finish");
    }
}

/// Connecting and closing again and again.
pub(super) fn connects<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for i in 0..level.pick(24, 3000) {
        let want = if i % 2 == 0 { Want::PLAIN } else { Want::ACKED };
        let mut duo = Duo::new(bed, want);
        duo.message(Side::A, 1, 10, i);
    }
}

/// Connections driven by threads of their own.
///
/// # Panics
/// The behaviour does not hold.
pub fn threads<R: Rail + Send>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let pairs: Vec<_> = (0..level.pick(3, 16)).map(|_| bed.pair(Want::PLAIN)).collect();
    std::thread::scope(|scope| {
        for (i, (a, b)) in pairs.into_iter().enumerate() {
            let seed = i as u64 * 1000;
            scope.spawn(move || half(a, seed, true));
            scope.spawn(move || half(b, seed, false));
        }
    });
}

/// One end of a connection in a thread of its own: sends or receives in order, then acknowledges with one message.
///
/// The receiver closes when its acknowledgement is out, and the sender may learn of that in the call that brings the
/// acknowledgement or even the end of its last send: so the tests of the operations decide, not the progress, and the
/// acknowledgement is waited for from the start.
fn half<R: Rail>(mut conn: Conn<R>, seed: u64, sends: bool) {
    let since = std::time::Instant::now();
    let drive = |conn: &mut Conn<R>| {
        assert!(since.elapsed().as_secs() < 120, "a thread waits for its peer");
        if matches!(conn.progress(), Ok(Poll::Idle) | Err(_)) {
            std::thread::yield_now();
        }
    };
    let last = SuiteMemory::new(1);
    let mut end = None;
    while sends && end.is_none() {
        end = conn.post_recv(&[(2, last.slice())]).expect("post_recv");
        drive(&mut conn);
    }
    for i in 0..60u64 {
        let len = [10, 3000, 8192, 9000, 400_000][i as usize % 5];
        let buf = if sends { filled(len, seed + i) } else { SuiteMemory::new(len) };
        let mut ticket = None;
        while ticket.is_none() {
            ticket = if sends {
                conn.post_send(1, buf.slice()).expect("post_send")
            } else {
                conn.post_recv(&[(1, buf.slice())]).expect("post_recv")
            };
            drive(&mut conn);
        }
        while conn.test(ticket.expect("posted")).expect("an operation").is_none() {
            drive(&mut conn);
        }
        if !sends {
            check_bytes(buf.slice(), seed + i);
        }
    }
    while end.is_none() {
        end = conn.post_send(2, last.slice()).expect("post_send");
        drive(&mut conn);
    }
    while conn.test(end.expect("posted")).expect("the last message").is_none() {
        drive(&mut conn);
    }
}
