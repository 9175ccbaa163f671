//! What one processor copies.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of working set at most, as for the buffers of a test.
const SET_MAX: usize = 256 << 20;

/// Two working sets.
#[derive(Debug)]
pub struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
    size: usize,
}

impl Memcpy {
    /// Two working sets of `window` messages of `size` bytes each, backed by memory.
    pub fn new(size: u64, window: u32) -> Memcpy {
        let size = usize::try_from(size).unwrap_or(SET_MAX).clamp(1, SET_MAX);
        let window = (window as usize).clamp(1, (SET_MAX / size).max(1));
        Memcpy { from: vec![0x5a; size * window], to: vec![0xa5; size * window], size }
    }

    /// Copies message by message for about `time`, as the standard library copies slices. Decimal GB/s.
    pub fn round(&mut self, time: Duration) -> f64 {
        let (start, mut copied) = (Instant::now(), 0u64);
        while copied == 0 || start.elapsed() < time {
            for (from, to) in self.from.chunks_exact(self.size).zip(self.to.chunks_exact_mut(self.size)) {
                black_box(to).copy_from_slice(black_box(from));
            }
            copied += self.from.len() as u64;
        }
        copied as f64 / start.elapsed().as_nanos().max(1) as f64
    }
}
