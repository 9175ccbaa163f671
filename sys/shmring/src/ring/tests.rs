use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::{Area, Consumer, CorruptIndex, Producer};
use crate::layout::Side;
use crate::map::{Map, RingView};

fn ring() -> (Arc<Map>, Producer<RingView>, Consumer<RingView>) {
    let map = Arc::new(Map::create(64 << 10).expect("a map"));
    let tx = Producer::new(RingView::new(&map, Side::A));
    let rx = Consumer::new(RingView::new(&map, Side::A));
    (map, tx, rx)
}

#[test]
fn a_full_ring_takes_nothing_more_and_an_empty_one_gives_nothing() {
    let (_map, mut tx, mut rx) = ring();
    assert_eq!(rx.ready(), Ok(0));
    assert!(!rx.get(0, &mut [0]));
    let all = vec![7u8; 64 << 10];
    assert_eq!(tx.free(all.len()), Ok(all.len()));
    assert!(tx.put(0, &all));
    assert!(!tx.put(1, &all), "one byte over the end");
    assert!(!tx.put(usize::MAX, &[1]), "an offset that overflows");
    tx.publish(all.len());
    assert_eq!(tx.free(1), Ok(0));
    assert!(!tx.put(0, &[1]));
    assert_eq!(rx.ready(), Ok(all.len()));
    let mut out = vec![0; all.len()];
    assert!(rx.get(0, &mut out));
    assert!(!rx.get(1, &mut out));
    assert_eq!(out, all);
    rx.consume(all.len());
    assert_eq!(tx.free(1), Ok(0), "consumed, not yet released");
    assert_eq!(rx.release(), all.len() as u64);
    assert_eq!(tx.free(1), Ok(all.len()));
}

#[test]
fn a_producer_that_lies_is_found() {
    for lie in [(64 << 10) + 1, u64::MAX, 1 << 63] {
        let (_map, _tx, mut rx) = ring();
        rx.area.tail().store(lie, Ordering::Relaxed);
        assert_eq!(rx.ready(), Err(CorruptIndex { ours: 0, theirs: lie }));
        assert!(!rx.get(0, &mut [0]), "and nothing of it is believed");
    }
    let (_map, mut tx, mut rx) = ring();
    assert!(tx.free(8).is_ok() && tx.put(0, &[1; 8]));
    tx.publish(8);
    assert_eq!(rx.ready(), Ok(8));
    rx.consume(8);
    rx.area.tail().store(3, Ordering::Relaxed);
    assert_eq!(rx.ready(), Err(CorruptIndex { ours: 8, theirs: 3 }), "backwards");
}

#[test]
fn a_consumer_that_lies_is_found() {
    let (_map, mut tx, _rx) = ring();
    for lie in [1, u64::MAX, 1 << 63] {
        tx.area.head().store(lie, Ordering::Relaxed);
        assert_eq!(tx.free(usize::MAX), Err(CorruptIndex { ours: 0, theirs: lie }));
    }
    tx.area.head().store(0, Ordering::Relaxed);
    assert!(tx.free(8).is_ok() && tx.put(0, &[1; 8]));
    tx.publish(8);
    tx.area.head().store(8, Ordering::Relaxed);
    assert_eq!(tx.free(64 << 10), Ok(64 << 10));
    tx.area.head().store(7, Ordering::Relaxed);
    assert_eq!(tx.free(usize::MAX), Err(CorruptIndex { ours: 8, theirs: 7 }), "backwards");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of writes and reads of any sizes gives the bytes written, in order.
    #[test]
    fn any_sizes_in_any_rhythm(steps in proptest::collection::vec((any::<bool>(), 1usize..40_000), 1..200)) {
        let (_map, mut tx, mut rx) = ring();
        let (mut wrote, mut read) = (0u64, 0u64);
        let byte = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        for (write, len) in steps {
            if write {
                let free = tx.free(len).unwrap();
                let real = (64 << 10) - (wrote - read) as usize;
                prop_assert!(free <= real && free.min(len) == real.min(len), "{free} of {real} for {len}");
                let n = len.min(free);
                let bytes: Vec<u8> = (0..n as u64).map(|i| byte(wrote + i)).collect();
                prop_assert!(tx.put(0, &bytes));
                tx.publish(n);
                wrote += n as u64;
            } else {
                let n = len.min(rx.ready().unwrap());
                let mut out = vec![0; n];
                prop_assert!(rx.get(0, &mut out));
                for (i, b) in out.iter().enumerate() {
                    prop_assert_eq!(*b, byte(read + i as u64));
                }
                rx.consume(n);
                rx.release();
                read += n as u64;
            }
        }
    }
}
