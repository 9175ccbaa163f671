//! What one processor copies.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of working set at most, as for the buffers of a test.
const SET_MAX: usize = 256 << 20;

/// Copies messages of `size` bytes between two working sets of `window` messages each for about `time`, in slices as
/// the standard library copies them. Decimal GB/s.
pub fn memcpy(size: u64, window: u32, time: Duration) -> f64 {
    let size = usize::try_from(size).unwrap_or(SET_MAX).clamp(1, SET_MAX);
    let window = (window as usize).clamp(1, (SET_MAX / size).max(1));
    let (from, mut to) = (vec![0x5au8; size * window], vec![0xa5u8; size * window]);
    let mut copied = 0u64;
    let mut pass = || {
        for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
            black_box(to).copy_from_slice(black_box(from));
            copied += size as u64;
        }
    };
    pass();
    let start = Instant::now();
    while start.elapsed() < time {
        pass();
    }
    let ns = start.elapsed().as_nanos().max(1);
    (copied - (size * window) as u64) as f64 / ns as f64
}
