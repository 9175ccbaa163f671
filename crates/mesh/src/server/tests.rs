//! What a relaying thread has to stand on.

use std::hint::black_box;

use super::thread;

/// KiB that are used here: as much as may be left where a program keeps most of a MiB for each thread.
const DEPTH: usize = 1024;

fn deep(left: usize) -> usize {
    let slice = black_box([left as u8; 1024]);
    // What a frame takes beside its slice depends on the optimizer: addresses tell.
    let here = black_box(slice.as_ptr()).addr();
    if left == 0 { here } else { deep(left - 1) }
}

#[test]
fn the_stack_is_large_enough_for_what_libraries_take_out_of_it() {
    let begun = thread("a test").spawn(|| {
        let top = black_box([0u8; 1]);
        let top = top.as_ptr().addr();
        let steps = (0..).find(|&steps| top - deep(steps) >= DEPTH << 10);
        steps.is_some()
    });
    assert!(begun.unwrap().join().unwrap());
}
