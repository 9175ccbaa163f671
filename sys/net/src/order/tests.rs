use linkspan_transport::StaticBuf;

use super::*;

#[test]
fn every_length_at_every_alignment_lands_exactly() {
    let src: Vec<u8> = (0..500u16).map(|i| i as u8 | 1).collect();
    for offset in (0..16).chain([112, 120, 127, 128, 129]) {
        for skew in [0, 1, 7] {
            for len in (0..40).chain(120..136).chain([255, 256, 300, 400]) {
                let buf = StaticBuf::new(600);
                assert!(fill_ascending(buf.slice(), offset, &src[skew..skew + len]));
                let mut want = vec![0; 600];
                want[offset..offset + len].copy_from_slice(&src[skew..skew + len]);
                assert_eq!(buf.slice().to_vec(), want, "offset {offset} skew {skew} len {len}");
            }
        }
    }
}

/// Which of the two the processor at hand takes, the test above has shown; here are both.
#[cfg(target_arch = "x86_64")]
#[test]
fn lines_of_narrow_and_of_wide_stores_are_the_same() {
    let src: Vec<u8> = (0..1025u16).map(|i| (i % 251) as u8).collect();
    let (lines, _) = src[1..].as_chunks::<LINE>();
    let (narrow, wide) = (StaticBuf::new(1100), StaticBuf::new(1100));
    // SAFETY: eight lines fit, and a StaticBuf begins at a page.
    unsafe {
        for (n, line) in lines.iter().enumerate() {
            one_line(narrow.slice().as_ptr().add(n * LINE), line);
        }
        if std::arch::is_x86_feature_detected!("avx") {
            x86::lines_32(wide.slice().as_ptr(), lines);
            assert_eq!(wide.slice().to_vec(), narrow.slice().to_vec());
        }
    }
    assert_eq!(narrow.slice().to_vec()[..1024], src[1..]);
    assert_eq!(narrow.slice().to_vec()[1024..], [0; 76]);
}

#[test]
fn what_does_not_fit_is_not_written() {
    let buf = StaticBuf::new(16);
    assert!(!fill_ascending(buf.slice(), 9, &[1; 8]));
    assert!(!fill_ascending(buf.slice(), usize::MAX, &[1; 8]));
    assert_eq!(buf.slice().to_vec(), vec![0; 16]);
    assert!(fill_ascending(buf.slice(), 16, &[]));
}

/// A second processor watches the first and the last word of a range that is written again and again: it must
/// never see the last word newer than the first. x86 only: there the order of stores is the order seen.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_observer_sees_low_addresses_first() {
    use std::sync::atomic::{AtomicBool, Ordering};
    const LEN: usize = 128;
    let buf = StaticBuf::new(LEN);
    let mem = buf.slice();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..200_000u64 {
                assert!(fill_ascending(mem, 0, &round.to_le_bytes().repeat(LEN / 8)));
            }
            stop.store(true, Ordering::Release);
        });
        let word = |offset: usize| {
            let mut bytes = [0; 8];
            assert!(mem.read(offset as _, &mut bytes));
            u64::from_le_bytes(bytes)
        };
        while !stop.load(Ordering::Acquire) {
            let last = word(LEN - 8);
            std::sync::atomic::fence(Ordering::Acquire);
            let first = word(0);
            assert!(first >= last, "flag {last} was visible before data {first}");
        }
    });
}
