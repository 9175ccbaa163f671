use super::*;

#[test]
fn pages_are_zero_aligned_and_writable_to_the_last_byte() {
    for len in [0, 1, 4096, 4097, 300_000, HUGE_FROM - 1, HUGE_FROM, HUGE_FROM + 1, 3 * HUGE + 12_345] {
        let pages = Pages::new(len).unwrap();
        assert!(pages.len() >= len && pages.len().is_multiple_of(page_size()) && !pages.is_empty());
        assert!(
            pages.as_ptr().addr().is_multiple_of(if pages.len() >= HUGE_FROM { HUGE } else { page_size() })
                || cfg!(miri)
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
    // Far more than another thread of this process maps for reading and writing in one piece; the allocator's reserve for a new thread,
    // which may take the place at once, is neither.
    let pages = Pages::new(64 * HUGE).unwrap();
    let (from, to) = (pages.as_ptr().addr(), pages.as_ptr().addr() + pages.len());
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let mut words = line.split(' ');
            let (span, rights) = (words.next().unwrap(), words.next().unwrap());
            let (low, high) = span.split_once('-').unwrap();
            let at = |text| usize::from_str_radix(text, 16).unwrap();
            rights.starts_with("rw") && at(low) <= from && at(high) >= to
        })
    };
    assert!(mapped());
    drop(pages);
    assert!(!mapped());
}
