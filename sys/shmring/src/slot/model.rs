//! The transfer slot under loom: claims are exclusive, and a finished transfer is whole. What holds after a stop: `crate::revoke`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Words, claim, claim_some, finish, offer, open, runs, state, stop};
use crate::revoke::{enter, leave};
use crate::sync::{AtomicU64, Ordering};

const SLICES: u32 = 2;

#[derive(Default)]
struct Slot {
    cursor: AtomicU64,
    dest: AtomicU64,
    sent: AtomicU64,
    unsent: AtomicU64,
    unread: AtomicU64,
    /// What the sender's thread says of itself.
    inside: AtomicU64,
    /// The receiver's memory, one cell a slice: loom reports any unordered access.
    memory: [UnsafeCell<u32>; SLICES as usize],
}

impl Words for Slot {
    fn cursor(&self) -> &AtomicU64 {
        &self.cursor
    }
    fn dest(&self) -> &AtomicU64 {
        &self.dest
    }
    fn sent(&self) -> &AtomicU64 {
        &self.sent
    }
    fn unsent(&self) -> &AtomicU64 {
        &self.unsent
    }
    fn unread(&self) -> &AtomicU64 {
        &self.unread
    }
}

fn offered() -> Arc<Slot> {
    let slot = Arc::new(Slot::default());
    offer(&*slot, 1);
    slot
}

/// The sender's part: claim, enter, write, settle, leave.
fn push_one(slot: &Slot) -> bool {
    let Some(i) = claim(slot, 1, SLICES).unwrap() else {
        return false;
    };
    if enter(&slot.inside, 1, || runs(slot, 1)) {
        // SAFETY: loom checks the access.
        slot.memory[i as usize].with_mut(|m| unsafe { *m += 1 });
        slot.sent.store(slot.sent.load(Ordering::Relaxed) | 1 << i, Ordering::Release);
    }
    leave(&slot.inside);
    true
}

#[test]
fn both_copy_and_every_slice_is_copied_once() {
    loom::model(|| {
        let slot = offered();
        assert_eq!(open(&*slot, 1, 0, 0), Ok(true));
        let sender = {
            let slot = slot.clone();
            thread::spawn(move || while push_one(&slot) {})
        };
        let mut mine = 0u64;
        while let Some(slices) = claim_some(&*slot, 1, SLICES, 2).unwrap() {
            for i in slices {
                // SAFETY: loom checks the access.
                slot.memory[i as usize].with_mut(|m| unsafe { *m += 1 });
                mine |= 1 << i;
            }
        }
        while mine | slot.sent.load(Ordering::Acquire) != (1 << SLICES) - 1 {
            thread::yield_now();
        }
        assert_eq!(mine & slot.sent.load(Ordering::Acquire), 0);
        assert_eq!(finish(&*slot, 1), Ok(true));
        for m in &slot.memory {
            // SAFETY: loom checks that the sender's writes come before.
            m.with(|m| assert_eq!(unsafe { *m }, 1));
        }
        sender.join().unwrap();
    });
}

#[test]
fn of_finish_and_stop_one_is_first() {
    loom::model(|| {
        let slot = offered();
        assert_eq!(open(&*slot, 1, 0, SLICES), Ok(true));
        let sender = {
            let slot = slot.clone();
            thread::spawn(move || stop(&*slot))
        };
        let finished = finish(&*slot, 1).unwrap();
        assert_eq!(sender.join().unwrap(), finished, "the sender learns that it is done, or the receiver that not");
    });
}

#[test]
fn a_stop_before_the_opening_keeps_it_shut() {
    loom::model(|| {
        let slot = offered();
        let sender = {
            let slot = slot.clone();
            thread::spawn(move || stop(&*slot))
        };
        let opened = open(&*slot, 1, 0, 0).unwrap();
        sender.join().unwrap();
        assert!(state(&*slot, 1).unwrap().stopped);
        assert_eq!(claim(&*slot, 1, SLICES), Ok(None), "opened: {opened}");
    });
}
