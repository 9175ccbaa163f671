//! Ranges never overlap, whatever is asked for, and nothing is lost.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::{Gpu, SimConfig, SimGpu};

#[test]
fn ranges_never_overlap_and_all_memory_comes_back() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
    let mut arena = Arena::new(&gpu, 16 * ALIGN, 12).unwrap();
    let base = arena.memory.mem().as_ptr() as usize;
    let (mut out, mut x, mut waits) = (VecDeque::<(usize, usize)>::new(), 7u64, 0);
    for _ in 0..20_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = 1 + (x >> 33) as usize % (if x & 7 == 0 { 16 * ALIGN } else { 5 * ALIGN });
        while arena.take(len).map(|m| out.push_back((m.as_ptr() as usize - base, m.len()))).is_none() {
            assert!(!out.is_empty(), "{len} bytes fit into an empty arena of {}", 16 * ALIGN);
            out.pop_front();
            arena.give();
            waits += 1;
        }
        let &(at, n) = out.back().unwrap();
        assert!(n == len && at.is_multiple_of(ALIGN) && at + n <= 16 * ALIGN);
        let apart = out.iter().take(out.len() - 1).all(|&(a, l)| at + n <= a || a + l <= at);
        assert!(apart, "{len} bytes at {at} among {out:?}");
    }
    assert!(waits > 1000);
    while out.pop_front().is_some() {
        arena.give();
    }
    assert_eq!(arena.used(), 0);
    assert!(arena.fits(16 * ALIGN) && !arena.fits(16 * ALIGN + 1));
}
