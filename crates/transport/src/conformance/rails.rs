//! Several rails under one connection, and what happens when they go.

use super::bench::{check_poison, filled, poison, several, slots};
use super::{Duo, Level, Rng, Side, SuiteMemory, Testbed, Want, check_bytes};
use crate::{Down, Poll, Rail};

fn gone() -> Down {
    Down::PeerGone { path: "this rail".into(), why: "given up by the suite".into() }
}

/// Large messages are cut over all rails and arrive whole, in both directions.
pub(super) fn striping<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let want = several(bed);
    let mut duo = Duo::new(bed, want);
    assert_eq!(slots(&duo.a).len(), want.rails);
    for (i, len) in [70_000, 1 << 20, level.pick(16 << 20, 1 << 30)].into_iter().enumerate() {
        duo.message(Side::A, 1, len, i as u64);
        duo.message(Side::B, 1, len, 10 + i as u64);
    }
}

/// One rail is given up by either side at a random point of traffic in both directions: nothing is lost, doubled or
/// late, and the connection goes on.
pub(super) fn rail_lost_at_any_point<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let want = several(bed);
    for seed in 0..level.pick(12, 400u64) {
        let mut rng = Rng::new(seed);
        let mut duo = Duo::new(bed, want);
        let len = 1 << 20;
        let mut open = Vec::new();
        for i in 0..3u64 {
            for side in [Side::A, Side::B] {
                let n = [len, 5000, 200_000][i as usize];
                let dst = SuiteMemory::new(n);
                let recv = duo.recv(side, &[(i as u32, dst.slice())]);
                let src = filled(n, i);
                let send = duo.start(side.other(), i as u32, src.slice());
                open.push((side, recv, send, src, dst, i));
            }
        }
        duo.rounds(rng.below(12) as usize);
        let side = if rng.below(2) == 0 { Side::A } else { Side::B };
        let slot = rng.below(want.rails as u64) as usize;
        duo.conn(side).give_up_rail(slot, gone()).expect("another rail is up");
        for (side, recv, send, src, dst, i) in open {
            assert_eq!(duo.done(side, recv), src.len() as u64, "seed {seed}");
            check_bytes(dst.slice(), i);
            poison(dst.slice(), 0xEE);
            assert_eq!(duo.done(side.other(), send), src.len() as u64);
            duo.rounds(5);
            check_poison(dst.slice(), 0xEE, "after its receive has reported");
        }
        duo.still_works();
        for side in [Side::A, Side::B] {
            duo.until("both sides to drop the rail", |duo| slots(duo.conn(side)).len() == want.rails - 1);
            let events = duo.conn(side).events().expect("a lost rail is news");
            assert_eq!(events.left, want.rails - 1);
            assert!(duo.conn(side).events().is_none(), "news come once");
        }
    }
}

/// Rails go one after another, from either side, in traffic, until one is left.
pub(super) fn rails_lost_one_after_another<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let want = several(bed);
    for seed in 0..level.pick(4, 100u64) {
        let mut rng = Rng::new(seed);
        let mut duo = Duo::new(bed, want);
        for n in 0..want.rails as u64 {
            let (src, dst) = (filled(2 << 20, n), SuiteMemory::new(2 << 20));
            let recv = duo.recv(Side::B, &[(1, dst.slice())]);
            let send = duo.start(Side::A, 1, src.slice());
            duo.rounds(rng.below(6) as usize);
            let side = if rng.below(2) == 0 { Side::A } else { Side::B };
            let up = slots(duo.conn(side));
            // Where the other side has not yet heard of the last loss, it may be a rail both still have.
            let both: Vec<usize> = up.iter().copied().filter(|s| slots(duo.conn(side.other())).contains(s)).collect();
            if both.len() > 1 {
                let slot = both[rng.below(both.len() as u64) as usize];
                duo.conn(side).give_up_rail(slot, gone()).expect("another rail is up");
            }
            assert_eq!(duo.done(Side::B, recv), 2 << 20, "seed {seed}");
            check_bytes(dst.slice(), n);
            duo.done(Side::A, send);
        }
        duo.still_works();
    }
}

/// A rail that comes later carries its part, and takes over when the first ones go.
pub(super) fn rail_added_later<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    let want = Want::ACKED;
    let mut duo = Duo::new(bed, want);
    let (src, dst) = (filled(4 << 20, 1), SuiteMemory::new(4 << 20));
    let recv = duo.recv(Side::B, &[(1, dst.slice())]);
    let send = duo.start(Side::A, 1, src.slice());
    duo.rounds(3);
    let (ra, rb) = duo.bed.rail(want, 1);
    let id = duo.a.next_rail_id();
    assert!(duo.a.add_rail(ra, id).is_ok(), "a free slot");
    duo.rounds(3);
    assert!(duo.b.add_rail(rb, id).is_ok(), "a free slot");
    duo.rounds(3);
    duo.a.give_up_rail(0, gone()).expect("another rail is up");
    assert_eq!(duo.done(Side::B, recv), 4 << 20);
    check_bytes(dst.slice(), 1);
    duo.done(Side::A, send);
    duo.still_works();
    // One end of a rail that the other side never brings up costs nothing.
    let (ra, rb) = duo.bed.rail(want, 2);
    let id = duo.a.next_rail_id();
    assert!(duo.a.add_rail(ra, id).is_ok(), "a free slot");
    let dst = SuiteMemory::new(4 << 20);
    let recv = duo.recv(Side::B, &[(1, dst.slice())]);
    let send = duo.start(Side::A, 1, src.slice());
    duo.rounds(10);
    drop(rb);
    assert_eq!(duo.done(Side::B, recv), 4 << 20);
    check_bytes(dst.slice(), 1);
    duo.done(Side::A, send);
    duo.still_works();
}

/// The revocation test of the design: a rail stalls in the middle of a chunk, the transfer is finished over the
/// others, the buffer is used again, and then the stalled rail lets go of what it held.
pub(super) fn revocation<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    let want = Want { faults: true, ..several(bed) };
    for round in 0..level.pick(9, 100usize) {
        let mut duo = Duo::new(bed, want);
        let (len, slot) = (4 << 20, round % want.rails);
        let (src, dst) = (filled(len, 1), SuiteMemory::new(len));
        let recv = duo.recv(Side::B, &[(1, dst.slice())]);
        let send = duo.start(Side::A, 1, src.slice());
        duo.rounds(round / want.rails);
        duo.bed.stall(Side::B, slot);
        duo.rounds(40);
        // The receiver revokes, or the sender asks it to.
        let side = if round % 2 == 0 { Side::B } else { Side::A };
        duo.conn(side).give_up_rail(slot, gone()).expect("another rail is up");
        assert_eq!(duo.done(Side::B, recv), len as u64);
        check_bytes(dst.slice(), 1);
        poison(dst.slice(), 0xEE);
        assert_eq!(duo.done(Side::A, send), len as u64);
        poison(src.slice(), 0xDD);
        // Used again: a shorter message into the same memory.
        let again = crate::Buf::sub(&dst.slice(), 0, 100_000).expect("inside");
        let other = filled(100_000, 2);
        let recv = duo.recv(Side::B, &[(2, again)]);
        let send = duo.start(Side::A, 2, other.slice());
        duo.bed.release();
        let mut idle = 0;
        while idle < 200 {
            let a = duo.a.progress().expect("progress of the sender");
            let b = duo.b.progress().expect("progress of the receiver");
            idle = if (a, b) == (Poll::Idle, Poll::Idle) { idle + 1 } else { 0 };
            duo.bed.pass();
        }
        assert_eq!(duo.done(Side::B, recv), 100_000);
        duo.done(Side::A, send);
        check_bytes(again, 2);
        let rest = crate::Buf::sub(&dst.slice(), 100_000, (len - 100_000) as u64);
        check_poison(rest.expect("inside"), 0xEE, "when a revoked rail was released");
    }
}
