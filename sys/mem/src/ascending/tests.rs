use super::*;

/// Bytes that begin where a line does.
#[repr(C, align(128))]
struct Lines<const N: usize>([u8; N]);

#[test]
fn every_length_at_every_alignment_lands_exactly() {
    let src: Vec<u8> = (0..500u16).map(|i| i as u8 | 1).collect();
    for offset in (0..16).chain([112, 120, 127, 128, 129]) {
        for skew in [0, 1, 7] {
            for len in (0..40).chain(120..136).chain([255, 256, 300, 400]) {
                let mut dst = Lines([0; 600]);
                // SAFETY: both ranges lie inside of their arrays.
                unsafe { copy_ascending(src.as_ptr().add(skew), dst.0[offset..].as_mut_ptr(), len) };
                let mut want = [0; 600];
                want[offset..offset + len].copy_from_slice(&src[skew..skew + len]);
                assert_eq!(dst.0, want, "offset {offset} skew {skew} len {len}");
            }
        }
    }
}

/// A second processor watches the first and the last word of a range that is written again and again: it must
/// never see the last word newer than the first. x86 only: there the order of stores is the order seen.
#[cfg(any(target_arch = "x86_64", miri))]
#[test]
fn an_observer_sees_low_addresses_first() {
    use std::sync::atomic::{AtomicBool, Ordering, fence};
    const LEN: usize = 1024;
    struct Shared(*mut u8);
    // SAFETY: memory that outlives the threads, accessed by copies only.
    unsafe impl Sync for Shared {}
    let mut lines = Lines([0; LEN]);
    let shared = &Shared(lines.0.as_mut_ptr());
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..if cfg!(any(miri, loom)) { 20 } else { 200_000u64 } {
                let bytes = round.to_le_bytes().repeat(LEN / 8);
                // SAFETY: as long as the lines.
                unsafe { copy_ascending(bytes.as_ptr(), shared.0, LEN) };
            }
            stop.store(true, Ordering::Release);
        });
        let word = |offset: usize| {
            let mut bytes = [0; 8];
            // SAFETY: inside of the lines.
            unsafe { crate::copy_out(shared.0.add(offset), &mut bytes) };
            u64::from_le_bytes(bytes)
        };
        while !stop.load(Ordering::Acquire) {
            let last = word(LEN - 8);
            fence(Ordering::Acquire);
            let first = word(0);
            assert!(first >= last, "flag {last} was visible before data {first}");
        }
    });
}
