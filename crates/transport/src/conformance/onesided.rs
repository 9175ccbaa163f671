//! Writes, reads and notifications.

use super::bench::{check_poison, filled, poison, several, shapes};
use super::{Duo, Level, Rng, Side, SuiteMemory, Testbed, Want, check_bytes};
use crate::{Access, Buf, Error, MemSlice, OpError, Rail, RemoteSlice, Ticket};

fn acked_shapes<R: Rail>(bed: &dyn Testbed<R = R>) -> Vec<Want> {
    shapes(bed).into_iter().filter(|w| w.acked).collect()
}

impl<R: Rail> Duo<'_, R> {
    fn write(&mut self, src: MemSlice, key: u32, offset: u64, notify: Option<u64>) -> Ticket {
        let mut ticket = None;
        self.until("a write to be accepted", |duo| {
            let to = RemoteSlice { key, offset };
            ticket = duo.a.post_write(src, to, notify).expect("post_write");
            ticket.is_some()
        });
        ticket.expect("until it is there")
    }

    fn read(&mut self, dst: MemSlice, key: u32, offset: u64) -> Ticket {
        let mut ticket = None;
        self.until("a read to be accepted", |duo| {
            let from = RemoteSlice { key, offset };
            ticket = duo.a.post_read(dst, from).expect("post_read");
            ticket.is_some()
        });
        ticket.expect("until it is there")
    }

    fn refused(&mut self, ticket: Ticket, key: u32, what: &str) {
        match self.outcome(Side::A, ticket) {
            Err(Error::Op(OpError::RemoteAccess { key: k })) if k == key => {}
            other => panic!("{what} is answered with {other:?}"),
        }
    }
}

const REGION: usize = 1 << 20;

/// Writes land where they should and nowhere else; reads bring what is there.
pub(super) fn write_and_read<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for want in acked_shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let len = level.pick(8 << 20, 256 << 20);
        let (region, back) = (SuiteMemory::new(len), SuiteMemory::new(len));
        let key = duo.b.expose(region.slice(), Access::ReadWrite).expect("a free key");
        for (offset, n) in [(0usize, 1usize), (13, 100), (5, 8192), (1000, 8193), (4096, 700_000), (0, len)] {
            poison(region.slice(), 0xEE);
            let src = filled(n, offset as u64);
            let write = duo.write(src.slice(), key, offset as u64, None);
            assert_eq!(duo.done(Side::A, write), n as u64, "bytes written");
            let whole = region.slice();
            let part = |at: usize, n: usize| whole.sub(at as u64, n as u64).expect("inside");
            check_bytes(part(offset, n), offset as u64);
            check_poison(part(0, offset), 0xEE, "before a write");
            check_poison(part(offset + n, len - offset - n), 0xEE, "behind a write");
            poison(back.slice(), 0xAA);
            let dst = back.slice().sub(0, n as u64).expect("inside");
            let read = duo.read(dst, key, offset as u64);
            assert_eq!(duo.done(Side::A, read), n as u64, "bytes read");
            check_bytes(dst, offset as u64);
            let rest = back.slice().sub(n as u64, (len - n) as u64).expect("inside");
            check_poison(rest, 0xAA, "behind a read");
        }
        duo.still_works();
    }
}

/// When a notification is there, so are all bytes of its write and of those before it; notifications come in order,
/// once each.
pub(super) fn notify_comes_after_its_bytes<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for want in acked_shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let region = SuiteMemory::new(REGION);
        let key = duo.b.expose(region.slice(), Access::Write).expect("a free key");
        for round in 0..level.pick(3, 30u64) {
            let lens = [300_000usize, 10, 100_000, 0, 8192, 9000];
            let mut at = 0;
            let mut places = Vec::new();
            let mut writes = Vec::new();
            for (i, len) in lens.into_iter().enumerate() {
                let seed = round * 10 + i as u64;
                let src = filled(len, seed);
                writes.push((duo.write(src.slice(), key, at, Some(seed)), src));
                places.push((at, len as u64, seed));
                at += len as u64;
            }
            let mut next = 0;
            duo.until("all notifications", |duo| {
                while let Some(value) = duo.b.take_notify() {
                    let (at, len, seed) = places[next];
                    assert_eq!(value, seed, "order of notifications");
                    check_bytes(region.slice().sub(at, len).expect("inside"), seed);
                    next += 1;
                }
                next == places.len()
            });
            for (write, src) in writes {
                assert_eq!(duo.done(Side::A, write), src.len() as u64);
            }
            duo.rounds(20);
            assert_eq!(duo.b.take_notify(), None, "a notification too many");
            poison(region.slice(), 0);
        }
    }
}

/// Nothing lands outside the region, and nothing against its rights, small or large; the writer is told, no notification
/// comes, and the connection stays usable.
pub(super) fn bounds_and_rights<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in acked_shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let memory = SuiteMemory::new(3 * REGION);
        poison(memory.slice(), 0xEE);
        let middle = memory.slice().sub(REGION as u64, REGION as u64).expect("inside");
        let both = duo.b.expose(middle, Access::ReadWrite).expect("a free key");
        let read_only = duo.b.expose(middle, Access::Read).expect("a free key");
        let write_only = duo.b.expose(middle, Access::Write).expect("a free key");
        let end = REGION as u64;
        for len in [1usize, 100, 8192, 8193, 300_000] {
            let src = filled(len, 1);
            for (key, offset) in
                [(both, end), (both, end - len as u64 + 1), (both, u64::MAX - len as u64), (read_only, 0)]
            {
                let write = duo.write(src.slice(), key, offset, Some(7));
                duo.refused(write, key, "a write outside its bounds or rights");
            }
            let dst = SuiteMemory::new(len);
            poison(dst.slice(), 0xAA);
            for (key, offset) in [(both, end), (both, end - len as u64 + 1), (write_only, 0)] {
                let read = duo.read(dst.slice(), key, offset);
                duo.refused(read, key, "a read outside its bounds or rights");
            }
            check_poison(dst.slice(), 0xAA, "by a refused read");
        }
        let src = filled(10, 1);
        match duo.a.post_write(src.slice(), RemoteSlice { key: both, offset: u64::MAX - 5 }, None) {
            Err(Error::Op(OpError::Range { .. })) => {}
            other => panic!("a write past the end of all addresses is answered with {other:?}"),
        }
        duo.rounds(50);
        assert_eq!(duo.b.take_notify(), None, "a refused write has notified");
        // Pieces of a large write that lie inside may have landed before the one that does not was refused.
        for at in [0, 2 * REGION as u64] {
            let outside = memory.slice().sub(at, REGION as u64).expect("inside");
            check_poison(outside, 0xEE, "by writes outside their region");
        }
        let guarded = SuiteMemory::new(REGION);
        poison(guarded.slice(), 0xEE);
        let key = duo.b.expose(guarded.slice(), Access::Read).expect("a free key");
        let src = filled(REGION, 2);
        let write = duo.write(src.slice(), key, 0, None);
        duo.refused(write, key, "a write to a region for reading");
        check_poison(guarded.slice(), 0xEE, "by a write to a region for reading");
        duo.still_works();
    }
}

/// A key that was taken back is always refused, also when its slot has a new owner.
pub(super) fn stale_keys<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in acked_shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let (old, new) = (SuiteMemory::new(REGION), SuiteMemory::new(REGION));
        let stale = duo.b.expose(old.slice(), Access::ReadWrite).expect("a free key");
        let src = filled(20_000, 1);
        let write = duo.write(src.slice(), stale, 0, None);
        duo.done(Side::A, write);
        assert!(duo.b.unexpose(stale), "nothing is arriving");
        poison(old.slice(), 0xEE);
        poison(new.slice(), 0xDD);
        let fresh = duo.b.expose(new.slice(), Access::ReadWrite).expect("a free key");
        assert_ne!(stale, fresh, "a key is given out twice");
        for len in [1usize, 8192, 20_000] {
            for key in [stale, 0, u32::MAX, fresh ^ 1 << 31] {
                let part = src.slice().sub(0, len as u64).expect("inside");
                let write = duo.write(part, key, 0, None);
                duo.refused(write, key, "a write with a stale key");
                let dst = SuiteMemory::new(len);
                let read = duo.read(dst.slice(), key, 0);
                duo.refused(read, key, "a read with a stale key");
            }
        }
        check_poison(old.slice(), 0xEE, "through a stale key");
        check_poison(new.slice(), 0xDD, "through a stale key");
        let write = duo.write(src.slice(), fresh, 0, None);
        assert_eq!(duo.done(Side::A, write), 20_000);
    }
}

/// Access may be taken back in the middle of writes and reads: when `unexpose` has said yes, not a byte of the memory
/// changes any more, no byte of its later content is read, and every operation reports.
pub(super) fn unexpose_during_traffic<R: Rail>(bed: &mut dyn Testbed<R = R>, level: Level) {
    for want in acked_shapes(bed) {
        let mut rng = Rng::new(9);
        let mut duo = Duo::new(bed, want);
        for round in 0..level.pick(8, 100u64) {
            let region = filled(4 << 20, round);
            let key = duo.b.expose(region.slice(), Access::ReadWrite).expect("a free key");
            let src = filled(2 << 20, round);
            let dst = SuiteMemory::new(2 << 20);
            poison(dst.slice(), 0xAA);
            let write = duo.write(src.slice(), key, 0, None);
            let read = duo.read(dst.slice(), key, 2 << 20);
            duo.rounds(rng.below(14) as usize);
            duo.until("access to be taken back", |duo| duo.b.unexpose(key));
            poison(region.slice(), 0xEE);
            let wrote = duo.outcome(Side::A, write);
            let got = duo.outcome(Side::A, read);
            for outcome in [&wrote, &got] {
                match outcome {
                    Ok(_) | Err(Error::Op(OpError::RemoteAccess { .. })) => {}
                    Err(error) => panic!("an operation on a region taken back: {error}"),
                }
            }
            // What was read is of the time before, whole or in part.
            let (bytes, whole) = (dst.slice().to_vec(), region_tail(round));
            if got.is_ok() {
                assert!(bytes == whole, "a read that was done brought other bytes");
            } else {
                let mut pairs = bytes.iter().zip(&whole);
                assert!(pairs.all(|(got, want)| got == want || *got == 0xAA), "a byte of a later time was read");
            }
            poison(dst.slice(), 0xBB);
            duo.rounds(30);
            check_poison(region.slice(), 0xEE, "after access was taken back");
            check_poison(dst.slice(), 0xBB, "after its read has reported");
        }
        duo.still_works();
    }
}

/// The second half of the pattern a region was filled with.
fn region_tail(seed: u64) -> Vec<u8> {
    let whole = filled(4 << 20, seed);
    let half = whole.slice().sub(2 << 20, 2 << 20).expect("inside");
    half.to_vec()
}

/// No bytes are still an operation, and still checked against the key.
pub(super) fn zero_length_one_sided<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    for want in acked_shapes(bed) {
        let mut duo = Duo::new(bed, want);
        let (region, none) = (SuiteMemory::new(64), SuiteMemory::new(0));
        let key = duo.b.expose(region.slice(), Access::ReadWrite).expect("a free key");
        for offset in [0, 64] {
            let write = duo.write(none.slice(), key, offset, Some(5));
            assert_eq!(duo.done(Side::A, write), 0);
            let read = duo.read(none.slice(), key, offset);
            assert_eq!(duo.done(Side::A, read), 0);
            assert_eq!(duo.b.take_notify(), Some(5));
        }
        let write = duo.write(none.slice(), key, 65, None);
        duo.refused(write, key, "an empty write outside");
        let read = duo.read(none.slice(), key, 65);
        duo.refused(read, key, "an empty read outside");
    }
}

/// A connection without acknowledgements says that it has no one-sided operations.
pub(super) fn one_sided_needs_acknowledgements<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    let mut duo = Duo::new(bed, Want::PLAIN);
    let buf = SuiteMemory::new(8);
    let to = RemoteSlice { key: 1 << 12, offset: 0 };
    for outcome in [duo.a.post_write(buf.slice(), to, None), duo.a.post_read(buf.slice(), to)] {
        match outcome {
            Err(Error::Op(OpError::NotAcked)) => {}
            other => panic!("a one-sided operation without acknowledgements: {other:?}"),
        }
    }
    duo.still_works();
}

/// As many reads as can be posted, all answered.
pub(super) fn many_reads<R: Rail>(bed: &mut dyn Testbed<R = R>, _: Level) {
    let want = if bed.rails() > 1 { several(bed) } else { Want::ACKED };
    let mut duo = Duo::new(bed, want);
    let region = filled(REGION, 4);
    let key = duo.b.expose(region.slice(), Access::Read).expect("a free key");
    let mut reads = Vec::new();
    // The peer does not look until no more can be posted, as far as the bed's own buffers reach.
    let mut busy = 0;
    while reads.len() < 600 && busy < 100 {
        let i = reads.len() as u64;
        let n = [100, 9000, 0, 1000][i as usize % 4];
        let dst = SuiteMemory::new(n);
        let at = i * 1000;
        let from = RemoteSlice { key, offset: at };
        match duo.a.post_read(dst.slice(), from).expect("post_read") {
            Some(ticket) => reads.push((ticket, dst, at)),
            None => {
                busy += 1;
                duo.a.progress().expect("progress of the reader");
                duo.bed.pass();
            }
        }
    }
    assert!(reads.len() > 2, "only {} reads at a time", reads.len());
    for (read, dst, at) in reads {
        let n = dst.len() as u64;
        assert_eq!(duo.done(Side::A, read), n);
        let want = region.slice().sub(at, n).expect("inside").to_vec();
        assert!(dst.slice().to_vec() == want, "read of {n} bytes at {at}");
    }
    duo.still_works();
}
