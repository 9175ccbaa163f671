//! The ring under loom: every interleaving and every reordering the memory model allows.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Area, Consumer, Producer};
use crate::sync::AtomicU64;

/// Four one-byte cells, so that the ring wraps within few steps; loom reports any unordered access to a cell.
struct Cells {
    tail: AtomicU64,
    head: AtomicU64,
    cells: [UnsafeCell<u8>; 4],
}

#[derive(Clone)]
struct Shared(Arc<Cells>);

// SAFETY: indices are masked, so any position is inside; loom checks the accesses themselves.
unsafe impl Area for Shared {
    fn tail(&self) -> &AtomicU64 {
        &self.0.tail
    }
    fn head(&self) -> &AtomicU64 {
        &self.0.head
    }
    fn size(&self) -> u64 {
        4
    }
    unsafe fn put(&self, pos: u64, src: *const u8, len: usize) {
        for i in 0..len {
            // SAFETY: the caller's promise for `src`; the cell is checked by loom.
            self.0.cells[((pos + i as u64) % 4) as usize].with_mut(|c| unsafe { *c = *src.add(i) });
        }
    }
    unsafe fn get(&self, pos: u64, dst: *mut u8, len: usize) {
        for i in 0..len {
            // SAFETY: the caller's promise for `dst`; the cell is checked by loom.
            self.0.cells[((pos + i as u64) % 4) as usize].with(|c| unsafe { *dst.add(i) = *c });
        }
    }
}

fn ring() -> (Producer<Shared>, Consumer<Shared>) {
    let cells = Shared(Arc::new(Cells {
        tail: AtomicU64::new(0),
        head: AtomicU64::new(0),
        cells: std::array::from_fn(|_| UnsafeCell::new(0)),
    }));
    (Producer::new(cells.clone()), Consumer::new(cells))
}

#[test]
fn bytes_arrive_in_order_and_whole_around_the_end() {
    loom::model(|| {
        let (mut tx, mut rx) = ring();
        let writer = thread::spawn(move || {
            let mut next = 1u8;
            while next <= 6 {
                if tx.free(2).unwrap() >= 2 {
                    assert!(tx.put(0, &[next, next + 1]));
                    tx.publish(2);
                    next += 2;
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut want = 1u8;
        while want <= 6 {
            let n = rx.ready().unwrap();
            if n == 0 {
                thread::yield_now();
                continue;
            }
            assert_eq!(n % 2, 0, "a record is published whole");
            let mut got = [0; 2];
            assert!(rx.get(0, &mut got));
            assert_eq!(got, [want, want + 1]);
            rx.consume(2);
            rx.release();
            want += 2;
        }
        writer.join().unwrap();
    });
}
