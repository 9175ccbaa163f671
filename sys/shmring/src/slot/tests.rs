use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CorruptSlot, SlotState, Words, claim, claim_some, finish, offer, open, state, stop};
use crate::layout::Side;
use crate::map::{Map, Slots};

fn slots() -> Slots {
    Slots::new(&Arc::new(Map::create(64 << 10).expect("a map")), Side::A)
}

#[test]
fn a_transfer_from_offer_to_finish() {
    let all = slots();
    let w = all.get(3).unwrap();
    offer(&w, 7);
    assert_eq!(state(&w, 7), Ok(SlotState { open: false, stopped: false, done: false, next: 0 }));
    assert_eq!(claim(&w, 7, 2), Ok(None), "not open yet");
    assert_eq!(open(&w, 7, 0x1000, 0), Ok(true));
    assert_eq!(w.dest().load(Ordering::Relaxed), 0x1000);
    assert_eq!((claim(&w, 7, 2), claim(&w, 7, 2), claim(&w, 7, 2)), (Ok(Some(0)), Ok(Some(1)), Ok(None)));
    assert_eq!(finish(&w, 7), Ok(true));
    assert!(state(&w, 7).unwrap().done);
    assert!(stop(&w), "a later stop learns that it had finished");
}

#[test]
fn several_slices_are_claimed_at_once_and_none_beyond_the_last() {
    let all = slots();
    let w = all.get(1).unwrap();
    offer(&w, 3);
    assert_eq!(claim_some(&w, 3, 5, 2), Ok(None), "not open yet");
    assert_eq!(open(&w, 3, 0, 0), Ok(true));
    assert_eq!(claim_some(&w, 3, 5, 3), Ok(Some(0..3)));
    assert_eq!(claim_some(&w, 3, 5, 3), Ok(Some(3..5)));
    assert_eq!(claim_some(&w, 3, 5, 3), Ok(None));
    w.place(0).store(7, Ordering::Relaxed);
    assert_eq!(all.get(2).unwrap().place(0).load(Ordering::Relaxed), 0, "places of another slot");
}

#[test]
fn slots_do_not_touch_each_other() {
    let all = slots();
    for i in 0..crate::SLOTS {
        offer(&all.get(i).unwrap(), i as u32 + 1);
    }
    for i in 0..crate::SLOTS {
        let w = all.get(i).unwrap();
        assert!(state(&w, i as u32 + 1).is_ok());
        w.sent().store(u64::MAX, Ordering::Relaxed);
        w.unsent().store(u64::MAX, Ordering::Relaxed);
        w.unread().store(u64::MAX, Ordering::Relaxed);
        w.dest().store(u64::MAX, Ordering::Relaxed);
    }
    for i in 0..crate::SLOTS {
        assert!(state(&all.get(i).unwrap(), i as u32 + 1).is_ok());
    }
    assert!(all.get(crate::SLOTS).is_none());
}

#[test]
fn a_stopped_transfer_neither_opens_nor_finishes() {
    let all = slots();
    let w = all.get(0).unwrap();
    offer(&w, 1);
    assert!(!stop(&w));
    assert_eq!(open(&w, 1, 1, 0), Ok(false));
    offer(&w, 2);
    assert_eq!(open(&w, 2, 1, 0), Ok(true));
    assert!(!stop(&w));
    assert_eq!(claim(&w, 2, 4), Ok(None));
    assert_eq!(finish(&w, 2), Ok(false));
}

#[test]
fn a_corrupt_cursor_is_found_or_harmless() {
    let all = slots();
    let w = all.get(0).unwrap();
    offer(&w, 9);
    w.cursor().store(u64::MAX, Ordering::Relaxed);
    assert_eq!(state(&w, 9), Err(CorruptSlot));
    assert_eq!(claim(&w, 9, 4), Err(CorruptSlot));
    assert_eq!(open(&w, 9, 0, 0), Err(CorruptSlot));
    assert_eq!(finish(&w, 9), Err(CorruptSlot));
    for word in 0..1u64 << 19 {
        w.cursor().store(9 << 32 | word, Ordering::Relaxed);
        if let Some(slice) = claim(&w, 9, 1000).unwrap() {
            assert!(slice < super::MAX_SLICES);
        }
    }
}
