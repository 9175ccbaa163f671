use super::*;
use crate::Pages;

/// The list is the process's: one test at a time tells and reads.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn pages_tell_that_they_go_before_their_addresses_are_free() {
    let _alone = alone();
    let mut seen = 0;
    // Allocated, mapped, and mapped for huge pages.
    for len in [1, 1 << 20, 5 << 20] {
        let pages = Pages::new(len).unwrap();
        let (from, to) = (pages.as_ptr() as u64, pages.as_ptr() as u64 + pages.len() as u64);
        since(&mut seen, |_| {});
        let before = settled();
        drop(pages);
        assert_ne!(epoch(), before);
        let mut told = false;
        since(&mut seen, |range| told |= range == (from, to));
        assert!(told, "{len} bytes");
    }
}

#[test]
fn a_reader_that_is_far_behind_is_told_that_all_may_be_gone_and_then_what_goes() {
    let _alone = alone();
    let mut seen = 0;
    (0..=KEPT as u64).for_each(|at| tell((at, at + 1)));
    let mut told = Vec::new();
    since(&mut seen, |range| told.push(range));
    assert_eq!(told[0], ALL);
    tell((7, 8));
    told.clear();
    since(&mut seen, |range| told.push(range));
    assert!(told.contains(&(7, 8)), "{told:?}");
}

#[test]
fn a_promise_covers_what_lies_inside_its_range_until_that_is_told() {
    let _alone = alone();
    promise((1000, 2000));
    promise((2000, 3000));
    assert!(is_promised((1000, 2000)) && is_promised((1500, 1600)));
    assert!(!is_promised((999, 1001)) && !is_promised((1999, 2001)));
    tell((1000, 2000));
    assert!(!is_promised((1500, 1600)) && is_promised((2000, 3000)));
    tell((2000, 3000));
    assert!(!is_promised((2000, 3000)));
}

#[test]
fn the_number_is_odd_while_somebody_hears_and_another_one_afterwards() {
    let _alone = alone();
    let before = settled();
    let mut ranges = [(1, 2)].into_iter();
    hear(|| {
        assert!(!epoch().is_multiple_of(2));
        ranges.next()
    });
    assert!(settled() > before);
}
