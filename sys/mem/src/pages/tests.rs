use super::*;

#[test]
fn pages_are_zero_aligned_and_writable_to_the_last_byte() {
    for len in [0, 1, 4096, 4097, 300_000, HUGE_FROM - 1, HUGE_FROM, HUGE_FROM + 1, 3 * HUGE + 12_345] {
        let pages = Pages::new(len).unwrap();
        assert!(pages.len() >= len && pages.len().is_multiple_of(page()) && !pages.is_empty());
        assert!(
            pages.as_ptr().addr().is_multiple_of(if pages.len() >= HUGE_FROM { HUGE } else { page() }) || cfg!(miri)
        );
        let last = pages.as_ptr().wrapping_add(pages.len() - 1);
        // SAFETY: the last byte of a mapping that is ours.
        let (before, after) = unsafe {
            let before = last.read();
            last.write(7);
            (before, last.read())
        };
        assert_eq!((before, after), (0, 7));
    }
}

#[cfg(not(miri))]
#[test]
fn dropped_pages_are_not_mapped_any_more() {
    // So many that no other thread's mapping takes the place of all of them meanwhile.
    let pages = Pages::new(64 * HUGE).unwrap();
    let (at, len) = (pages.as_ptr(), pages.len());
    // SAFETY: asks whether addresses are mapped.
    let mapped = || unsafe { libc::msync(at.cast(), len, libc::MS_ASYNC) } == 0;
    assert!(mapped());
    drop(pages);
    assert!(!mapped());
}
