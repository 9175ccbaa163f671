//! Matching, sizes and order of two-sided messages.

use super::bench::{filled, poison, shapes};
use super::{Duo, Level, Rng, Side, SuiteMemory, Testbed, check_bytes};
use crate::{Cancel, MAX_GROUP, MemSlice, Rail, Ticket};
use linkspan_proto::head::EAGER_MAX;

/// Sizes around every threshold of the protocol and the bed.
fn edges<R: Rail>(duo: &Duo<'_, R>) -> Vec<usize> {
    let chunk = duo.a.rails().map(|(_, r)| Rail::info(r).caps.chunk).max().unwrap_or(1).min(4 << 20);
    let mut sizes = vec![1, 2, 7, 63, 64, 65, 4096];
    for edge in [EAGER_MAX, 64 << 10, chunk, 3 * chunk] {
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    sizes
}

/// The k-th send with a tag meets the k-th receive with it.
pub(super) fn ordering_per_tag<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let sizes = [40, 9000, 0, 8192, 200_000, 1, 8193, 300, 70_000, 2];
        let bufs: Vec<SuiteMemory> = sizes.iter().map(|_| SuiteMemory::new(200_000)).collect();
        let recvs: Vec<Ticket> = bufs.iter().map(|b| duo.recv(Side::B, &[(5, b.slice())])).collect();
        let srcs: Vec<SuiteMemory> = (0..).zip(sizes).map(|(i, n)| filled(n, i)).collect();
        let sends: Vec<Ticket> = srcs.iter().map(|s| duo.send(Side::A, 5, s.slice())).collect();
        for (i, recv) in recvs.into_iter().enumerate() {
            assert_eq!(duo.done(Side::B, recv), sizes[i] as u64, "message {i} of {want:?}");
            let got = bufs[i].slice();
            check_bytes(crate::Buf::sub(&got, 0, sizes[i] as u64).expect("inside"), i as u64);
        }
        for send in sends {
            duo.done(Side::A, send);
        }
    }
}

/// Receives of one tag wait while messages with others pass, in an order of their own.
pub(super) fn tags_with_others_in_between<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let tags = [7u32, 3, 9, 3, 7, 1, 9, 7];
        let len = |i: usize| if i.is_multiple_of(3) { 50_000 } else { 500 } + i;
        let bufs: Vec<SuiteMemory> = (0..tags.len()).map(|i| SuiteMemory::new(len(i))).collect();
        let recvs: Vec<Ticket> = (0..tags.len()).map(|i| duo.recv(Side::B, &[(tags[i], bufs[i].slice())])).collect();
        // By tag, last posted tag first; within a tag in order.
        let mut order: Vec<usize> = (0..tags.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(tags[i]));
        let srcs: Vec<SuiteMemory> = (0..tags.len()).map(|i| filled(len(i), i as u64)).collect();
        let mut sends = Vec::new();
        for &i in &order {
            sends.push((i, duo.send(Side::A, tags[i], srcs[i].slice())));
        }
        for (i, recv) in recvs.into_iter().enumerate() {
            assert_eq!(duo.done(Side::B, recv), len(i) as u64);
            check_bytes(bufs[i].slice(), i as u64);
        }
        for (i, send) in sends {
            assert_eq!(duo.done(Side::A, send), len(i) as u64);
        }
    }
}

/// Groups of 1 to 8 parts report once, with the size of every part.
pub(super) fn grouped_receives<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for n in 1..=MAX_GROUP {
            group(&mut duo, n, n as u64, false);
            group(&mut duo, n, 100 + n as u64, true);
        }
        // The same tag several times in one group: met in order.
        let bufs: Vec<SuiteMemory> = (0..4).map(|_| SuiteMemory::new(20_000)).collect();
        let parts: Vec<(u32, MemSlice)> = bufs.iter().map(|b| (4, b.slice())).collect();
        let recv = duo.recv(Side::B, &parts);
        let lens = [10usize, 20_000, 0, 300];
        let srcs: Vec<SuiteMemory> = (0..).zip(lens).map(|(i, len)| filled(len, i)).collect();
        let sends: Vec<Ticket> = srcs.iter().map(|s| duo.send(Side::A, 4, s.slice())).collect();
        for send in sends {
            duo.done(Side::A, send);
        }
        let sizes = group_done(&mut duo, recv, lens.iter().sum::<usize>() as u64);
        assert_eq!(sizes[..4], lens.map(|l| l as u64));
    }
}

fn group_done<R: Rail>(duo: &mut Duo<'_, R>, recv: Ticket, bytes: u64) -> [u64; MAX_GROUP] {
    // Sizes are asked for before the ticket dies, so the group must not be retired by a test before it is done.
    let mut sizes = [0; MAX_GROUP];
    duo.until("a group to report", |duo| {
        sizes = *duo.b.sizes(recv);
        match duo.b.test(recv).expect("a group fails") {
            None => false,
            Some(n) => {
                assert_eq!(n, bytes, "bytes of a group");
                true
            }
        }
    });
    sizes
}

fn group<R: Rail>(duo: &mut Duo<'_, R>, n: usize, seed: u64, sends_first: bool) {
    let mut rng = Rng::new(seed);
    let lens: Vec<usize> = (0..n)
        .map(|_| match rng.below(4) {
            0 => 0,
            1 => rng.below(100) as usize,
            2 if !sends_first => 8193 + rng.below(90_000) as usize,
            _ => rng.below(4096) as usize,
        })
        .collect();
    let srcs: Vec<SuiteMemory> = (0..n).map(|i| filled(lens[i], i as u64)).collect();
    let bufs: Vec<SuiteMemory> = (0..n).map(|i| SuiteMemory::new(lens[i] + 10)).collect();
    let parts: Vec<(u32, MemSlice)> = (0..n).map(|i| (1000 + i as u32, bufs[i].slice())).collect();
    let mut order: Vec<usize> = (0..n).collect();
    rng.shuffle(&mut order);
    let mut recv = None;
    if !sends_first {
        recv = Some(duo.recv(Side::B, &parts));
    }
    let mut sends = Vec::new();
    for &i in &order {
        sends.push(duo.send(Side::A, parts[i].0, srcs[i].slice()));
        if let Some(recv) = recv.filter(|_| sends.len() < n) {
            duo.rounds(2);
            assert!(
                duo.b.test(recv).expect("a group fails").is_none(),
                "a group of {n} reported after {} messages",
                sends.len()
            );
        }
    }
    let recv = match recv {
        Some(recv) => recv,
        None => duo.recv(Side::B, &parts),
    };
    let sizes = group_done(duo, recv, lens.iter().sum::<usize>() as u64);
    for i in 0..n {
        assert_eq!(sizes[i], lens[i] as u64, "size of part {i} of {n}");
        let got = bufs[i].slice();
        check_bytes(crate::Buf::sub(&got, 0, sizes[i]).expect("inside"), i as u64);
    }
    for send in sends {
        duo.done(Side::A, send);
    }
}

/// Groups are completed although messages for other receives, posted before and after, come in between.
pub(super) fn groups_with_unmatched_tags_in_between<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let bufs: Vec<SuiteMemory> = (0..9).map(|_| SuiteMemory::new(30_000)).collect();
        let part = |i: usize, tag: u32| (tag, bufs[i].slice());
        let first = duo.recv(Side::B, &[part(0, 1), part(1, 2), part(2, 3)]);
        let second = duo.recv(Side::B, &[part(3, 2), part(4, 9), part(5, 1)]);
        let single = duo.recv(Side::B, &[part(6, 3)]);
        // Tags 50 and 51 have no receive yet; the second of each tag belongs to the second group.
        let plan = [50u32, 2, 1, 51, 2, 1, 3, 9, 50, 3];
        let lens = [10usize, 30_000, 5, 0, 7, 20_000, 11, 300, 12, 13];
        let srcs: Vec<SuiteMemory> = (0..).zip(lens).map(|(i, n)| filled(n, i)).collect();
        let sends: Vec<Ticket> = (0..plan.len()).map(|i| duo.send(Side::A, plan[i], srcs[i].slice())).collect();
        let sizes = group_done(&mut duo, first, 5 + 30_000 + 11);
        assert_eq!(sizes[..3], [5, 30_000, 11]);
        assert_eq!(duo.done(Side::B, single), 13);
        let sizes = group_done(&mut duo, second, 7 + 300 + 20_000);
        assert_eq!(sizes[..3], [7, 300, 20_000]);
        let late = duo.recv(Side::B, &[part(7, 51), part(8, 50)]);
        let sizes = group_done(&mut duo, late, 10);
        assert_eq!(sizes[..2], [0, 10]);
        let last = duo.recv(Side::B, &[part(7, 50)]);
        assert_eq!(duo.done(Side::B, last), 12);
        for send in sends {
            duo.done(Side::A, send);
        }
    }
}

/// Messages of no bytes are messages.
pub(super) fn zero_length<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for _ in 0..3 {
            duo.message(Side::A, 1, 0, 1);
            duo.message(Side::B, 1, 0, 1);
        }
        // Into a large receive, and early.
        let (none, big) = (SuiteMemory::new(0), SuiteMemory::new(100_000));
        let send = duo.send(Side::A, 2, none.slice());
        duo.rounds(10);
        let recv = duo.recv(Side::B, &[(2, big.slice())]);
        assert_eq!(duo.done(Side::B, recv), 0);
        assert_eq!(duo.done(Side::A, send), 0);
        let recv = duo.recv(Side::B, &[(2, big.slice())]);
        duo.rounds(10);
        let send = duo.send(Side::A, 2, none.slice());
        assert_eq!(duo.done(Side::B, recv), 0);
        assert_eq!(duo.done(Side::A, send), 0);
        duo.still_works();
    }
}

/// The receive reports the size sent, and bytes beyond stay as they were.
pub(super) fn posted_larger_than_sent<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for (sent, posted) in [(1, 2), (100, 9000), (9000, 9001), (20_000, 1 << 20), (0, 64)] {
            let (src, dst) = (filled(sent, 3), SuiteMemory::new(posted));
            poison(dst.slice(), 0xEE);
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            let send = duo.send(Side::A, 1, src.slice());
            assert_eq!(duo.done(Side::B, recv), sent as u64);
            assert_eq!(duo.done(Side::A, send), sent as u64);
            let (whole, n) = (dst.slice(), sent as u64);
            check_bytes(crate::Buf::sub(&whole, 0, n).expect("inside"), 3);
            let rest = crate::Buf::sub(&whole, n, posted as u64 - n).expect("inside");
            super::bench::check_poison(rest, 0xEE, "beyond the message");
        }
    }
}

/// Small messages leave before their receives are posted, and are found by tag then.
pub(super) fn early_sends<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let lens = [0usize, 1, 100, 8000, 3, 64, 65, 1000];
        let srcs: Vec<SuiteMemory> = (0..).zip(lens).map(|(i, n)| filled(n, i)).collect();
        let sends: Vec<Ticket> =
            (0..lens.len()).map(|i| duo.send(Side::A, 10 + (i % 3) as u32, srcs[i].slice())).collect();
        duo.rounds(20);
        // Tags in another order; within a tag the order of the sends.
        for i in [2, 5, 0, 1, 3, 4, 7, 6] {
            let dst = SuiteMemory::new(lens[i]);
            let recv = duo.recv(Side::B, &[(10 + (i % 3) as u32, dst.slice())]);
            assert_eq!(duo.done(Side::B, recv), lens[i] as u64, "message {i}");
            check_bytes(dst.slice(), i as u64);
        }
        for send in sends {
            duo.done(Side::A, send);
        }
        duo.still_works();
    }
}

/// Both sides post their send first and their receive when both have been accepted, whatever the size: neither waits for the other.
pub(super) fn sends_before_receives<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    let several = super::bench::several(bed);
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for (round, len) in [0usize, 8, 8192, 8193, 16 << 20].into_iter().enumerate() {
            if len > 1 << 20 && want != several {
                continue; // one shape takes it where a message of this size takes long
            }
            let sides = [Side::A, Side::B];
            let seed = |side: Side| 2 * round as u64 + u64::from(side == Side::A);
            let srcs = sides.map(|side| filled(len, seed(side)));
            let sends = [0, 1].map(|n| {
                let send = duo.conn(sides[n]).post_send(1, srcs[n].slice()).expect("post_send");
                send.unwrap_or_else(|| panic!("a send of {len} bytes is not accepted before its receive"))
            });
            duo.rounds(20);
            let dsts = sides.map(|_| SuiteMemory::new(len));
            let recvs = [0, 1].map(|n| duo.recv(sides[n], &[(1, dsts[n].slice())]));
            for n in [0, 1] {
                assert_eq!(duo.done(sides[n], sends[n]), len as u64);
                assert_eq!(duo.done(sides[n], recvs[n]), len as u64);
                check_bytes(dsts[n].slice(), seed(sides[n].other()));
            }
        }
        assert_eq!((duo.a.waiting(), duo.b.waiting()), (0, 0));
    }
}

/// Sends of all sizes wait in front of their receives and meet them in order; those that are withdrawn are as if they had never been.
pub(super) fn waiting_sends_keep_their_order<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let len = |i: usize| [20_000, 8, 8193, 0, 300, 100_000][i % 6] + i % 6;
        let srcs: Vec<SuiteMemory> = (0..60).map(|i| filled(len(i), i as u64)).collect();
        let mut sends: Vec<(usize, Ticket)> = (0..60).map(|i| (i, duo.send(Side::A, 1, srcs[i].slice()))).collect();
        duo.rounds(20);
        assert_eq!(duo.a.waiting(), 60, "the first one is large, and all others are behind it");
        sends.retain(|&(i, ticket)| {
            let stays = i % 4 != 0;
            if !stays {
                assert_eq!(duo.a.cancel(ticket), Cancel::Withdrawn);
                poison(srcs[i].slice(), 0xEE);
            }
            stays
        });
        for (i, send) in sends {
            let dst = SuiteMemory::new(200_000);
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            assert_eq!(duo.done(Side::B, recv), len(i) as u64, "message {i}");
            check_bytes(crate::Buf::sub(&dst.slice(), 0, len(i) as u64).expect("inside"), i as u64);
            assert_eq!(duo.done(Side::A, send), len(i) as u64);
            assert_eq!(duo.a.cancel(send), Cancel::UnderWay, "it has reported");
        }
        duo.still_works();
    }
}

/// A sender that has used its credit up waits, and goes on when receives come.
pub(super) fn out_of_credit_then_recovers<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for round in 0..3u64 {
            let (len, count) = (4000, 60);
            let mut sends = Vec::new();
            for i in 0..count {
                let src = filled(len, round * 1000 + i);
                sends.push((duo.send(Side::A, 1, src.slice()), src));
                if i < 8 {
                    // What the peer gives back is on its way for as long as its medium likes.
                    duo.until("an early message to leave within the credit", |duo| duo.a.waiting() == 0);
                }
            }
            duo.rounds(20);
            let left = count as usize - duo.a.waiting();
            assert!(
                left * len <= 64 << 10,
                "{left} messages of {len} bytes left without a receive: more than the credit"
            );
            for i in 0..count {
                let dst = SuiteMemory::new(len);
                let recv = duo.recv(Side::B, &[(1, dst.slice())]);
                assert_eq!(duo.done(Side::B, recv), len as u64);
                check_bytes(dst.slice(), round * 1000 + i);
            }
            for (send, _) in sends {
                duo.done(Side::A, send);
            }
        }
    }
}

/// Operations may be tested in any order; none is lost or reported twice.
pub(super) fn tests_in_any_order<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let mut rng = Rng::new(1);
        let n = 40usize;
        let len = |i: usize| if i.is_multiple_of(5) { 40_000 } else { 100 } + i;
        let bufs: Vec<SuiteMemory> = (0..n).map(|i| SuiteMemory::new(len(i))).collect();
        let srcs: Vec<SuiteMemory> = (0..n).map(|i| filled(len(i), i as u64)).collect();
        let mut all: Vec<(Side, usize, Ticket)> = Vec::new();
        for (i, buf) in bufs.iter().enumerate() {
            all.push((Side::B, i, duo.recv(Side::B, &[(i as u32, buf.slice())])));
        }
        for (i, src) in srcs.iter().enumerate() {
            all.push((Side::A, i, duo.send(Side::A, i as u32, src.slice())));
        }
        rng.shuffle(&mut all);
        for (side, i, ticket) in all {
            assert_eq!(duo.done(side, ticket), len(i) as u64);
            if side == Side::B {
                check_bytes(bufs[i].slice(), i as u64);
            }
        }
        assert_eq!((duo.a.moving(), duo.b.moving()), (0, 0));
    }
}

/// From one byte to the largest of the level, and around every threshold.
pub(super) fn sizes<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let largest = level.pick(16 << 20, 1 << 30);
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let mut sizes = edges(&duo);
        sizes.extend((0..).map(|n| 1usize << n).take_while(|&n| n <= largest));
        // Of buffers on a device every fifth is on the host: with each end of a large message once.
        sizes.extend([16 << 20; 5]);
        for (i, len) in sizes.into_iter().filter(|&n| n <= largest).enumerate() {
            let side = if i % 2 == 0 { Side::A } else { Side::B };
            duo.message(side, 1, len, i as u64);
        }
    }
}

/// Both sides send and receive at once.
pub(super) fn both_directions<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in shapes(bed) {
        let mut duo = Duo::new(bed, want);
        for (round, len) in [0usize, 10, 8192, 8193, 300_000, 2 << 20].into_iter().enumerate() {
            let seed = round as u64 * 100;
            let mut open = Vec::new();
            for i in 0..4u64 {
                for (side, salt) in [(Side::A, 10), (Side::B, 20)] {
                    let dst = SuiteMemory::new(len);
                    let recv = duo.recv(side, &[(1, dst.slice())]);
                    let src = filled(len, seed + i + salt);
                    let send = duo.send(side.other(), 1, src.slice());
                    open.push((side, recv, send, src, dst, seed + i + salt));
                }
            }
            for (side, recv, send, _src, dst, seed) in open {
                assert_eq!(duo.done(side, recv), len as u64);
                check_bytes(dst.slice(), seed);
                assert_eq!(duo.done(side.other(), send), len as u64);
            }
        }
    }
}
