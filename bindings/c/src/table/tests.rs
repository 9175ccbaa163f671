use std::collections::HashSet;
use std::sync::Arc;

use super::{CHUNKS, FIRST_BITS, Table, place};

#[test]
fn slots_fill_their_chunks_without_gaps() {
    let mut want = (0, 0);
    for slot in 0..5000 {
        assert_eq!(place(slot), want, "slot {slot}");
        want.1 += 1;
        if want.1 == 1 << (want.0 as u32 + FIRST_BITS) {
            want = (want.0 + 1, 0);
        }
    }
    assert!(place((1 << 24) - 1 - 64).0 < CHUNKS);
}

#[test]
fn a_handle_names_its_object_until_it_is_removed() {
    let table = Table::new(0xA1, "thing");
    let handles: Vec<u64> = (0..1000).map(|n| table.insert(Arc::new(n)).unwrap()).collect();
    assert_eq!(handles.iter().collect::<HashSet<_>>().len(), 1000);
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(*table.get(*handle).unwrap(), n);
    }
    assert_eq!(*table.remove(handles[7]).unwrap(), 7);
    assert!(table.get(handles[7]).is_err() && table.remove(handles[7]).is_err());
    let fresh = table.insert(Arc::new(5000)).unwrap();
    assert_eq!(fresh as u32 & 0xFF_FFFF, handles[7] as u32 & 0xFF_FFFF, "the slot is used again");
    assert!(table.get(handles[7]).is_err(), "under another handle");
    assert_eq!(*table.get(fresh).unwrap(), 5000);
}

#[test]
fn foreign_handles_are_refused() {
    let (one, two) = (Table::new(0xA1, "one"), Table::new(0xA2, "two"));
    let handle = one.insert(Arc::new(())).unwrap();
    two.insert(Arc::new(())).unwrap();
    assert!(two.get(handle).is_err());
    for made_up in [0, 1, 0x7fff_ffff_f000, u64::MAX, handle + 1, handle ^ 1 << 24, handle | 0xFF_FFFF] {
        assert!(one.get(made_up).is_err(), "{made_up:#x}");
    }
}

#[test]
fn a_suspended_handle_is_no_ones_until_it_is_resumed() {
    let table = Table::new(0xA1, "thing");
    let handle = table.insert(Arc::new(1)).unwrap();
    table.suspend(handle).unwrap();
    assert!(table.get(handle).is_err() && table.suspend(handle).is_err());
    assert_ne!(table.insert(Arc::new(2)).unwrap(), handle);
    table.resume(handle, Arc::new(3)).unwrap();
    assert_eq!(*table.get(handle).unwrap(), 3);
}

#[test]
fn threads_may_open_and_close_at_the_same_time() {
    let table = Table::new(0xA1, "thing");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                for n in 0..2000 {
                    let value = thread << 32 | n;
                    let handle = table.insert(Arc::new(value)).unwrap();
                    assert_eq!(*table.get(handle).unwrap(), value);
                    assert_eq!(*table.remove(handle).unwrap(), value);
                    assert!(table.get(handle).is_err());
                }
            });
        }
    });
}
