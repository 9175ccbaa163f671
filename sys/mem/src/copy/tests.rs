use super::*;

#[test]
fn every_length_and_overlap_is_copied_and_nothing_else() {
    let src: Vec<u8> = (0..200).collect();
    for len in (0..40).chain([63, 64, 65, 100]) {
        for (from, to) in [(0, 100), (100, 0), (10, 17), (17, 10), (5, 5)] {
            let (mut bytes, mut want) = (src.clone(), src.clone());
            want.copy_within(from..from + len, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: both ranges lie inside of the vector, which nothing else accesses.
            unsafe { copy(base.add(from), base.add(to), len) };
            assert_eq!(bytes, want, "{len} bytes from {from} to {to}");
        }
        let (mut there, mut back) = (vec![0; 200], vec![0; len]);
        // SAFETY: inside of the vectors.
        unsafe { copy_in(&src[..len], there.as_mut_ptr().add(3)) };
        // SAFETY: as above.
        unsafe { copy_out(there.as_ptr().add(3), &mut back) };
        assert_eq!((&back[..], there[2], there[3 + len]), (&src[..len], 0, 0));
    }
}

/// Under Miri this is what a plain copy is caught at: both threads write, and one reads, at the same time.
#[test]
fn copies_may_race() {
    const LEN: usize = 64;
    struct Shared(*mut u8);
    // SAFETY: memory that outlives the threads, accessed by copies only.
    unsafe impl Sync for Shared {}
    let mut bytes = vec![0u8; LEN];
    let shared = Shared(bytes.as_mut_ptr());
    let shared = &shared;
    let rounds = if cfg!(miri) { 4 } else { 10_000 };
    std::thread::scope(|s| {
        for fill in [1u8, 2] {
            s.spawn(move || {
                for _ in 0..rounds {
                    // SAFETY: as long as the vector.
                    unsafe { copy_in(&[fill; LEN], shared.0) };
                }
            });
        }
        for _ in 0..rounds {
            let mut seen = [9; LEN];
            // SAFETY: as above.
            unsafe { copy_out(shared.0, &mut seen) };
            assert!(seen.iter().all(|b| *b < 3), "bytes that were there at some time");
        }
    });
}
