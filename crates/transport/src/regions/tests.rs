use super::*;
use crate::StaticBuf;

/// Regions of parts of one buffer, named by where they begin and how long they are.
struct Parts {
    buf: StaticBuf,
    regions: Regions<(u64, u64)>,
}

impl Parts {
    fn new() -> Parts {
        Parts { buf: StaticBuf::new(1000), regions: Regions::default() }
    }

    fn mem(&self, from: u64, len: u64) -> MemSlice {
        self.buf.slice().sub(from, len).expect("inside")
    }

    fn insert(&mut self, from: u64, len: u64, target: bool) {
        self.regions.insert(self.mem(from, len), Arc::new((from, len)), target);
    }

    fn find(&self, from: u64, len: u64, target: bool) -> Option<(u64, u64)> {
        self.regions.find(self.mem(from, len), target).map(|region| **region)
    }
}

#[test]
fn a_region_is_found_by_all_that_lies_in_it_and_by_nothing_else() {
    let mut parts = Parts::new();
    parts.insert(100, 100, true);
    parts.insert(300, 100, true);
    for (from, len, is) in [
        (100, 100, Some((100, 100))),
        (199, 1, Some((100, 100))),
        (150, 10, Some((100, 100))),
        (99, 2, None),
        (199, 2, None),
        (200, 1, None),
        (250, 100, None),
        (399, 1, Some((300, 100))),
    ] {
        assert_eq!(parts.find(from, len, true), is, "{len} at {from}");
    }
}

#[test]
fn a_longer_region_takes_the_place_of_those_inside_and_a_shorter_one_changes_nothing() {
    let mut parts = Parts::new();
    for (from, len) in [(100, 50), (160, 10), (140, 100)] {
        parts.insert(from, len, true);
    }
    parts.insert(100, 200, true);
    assert_eq!((parts.regions.count(), parts.find(290, 10, true)), (1, Some((100, 200))));
    for (from, len) in [(100, 50), (150, 150), (200, 10)] {
        parts.insert(from, len, true);
    }
    assert_eq!(
        (parts.regions.count(), parts.find(290, 10, true), parts.find(100, 1, true)),
        (1, Some((100, 200)), Some((100, 200)))
    );
}

#[test]
fn what_may_only_be_sent_from_is_no_target_and_is_preferred_for_sending() {
    let mut parts = Parts::new();
    parts.insert(0, 10, false);
    assert_eq!((parts.find(0, 10, true), parts.find(0, 10, false)), (None, Some((0, 10))));
    parts.insert(0, 20, true);
    assert_eq!((parts.find(0, 10, false), parts.find(0, 15, false)), (Some((0, 10)), Some((0, 20))));
}

#[test]
fn a_region_that_somebody_knows_is_not_dropped_for_space() {
    let mut parts = Parts::new();
    parts.insert(0, 10, true);
    let known = parts.regions.find(parts.mem(0, 1), true).expect("there").clone();
    parts.regions.drop_unused();
    assert_eq!(parts.regions.count(), 1);
    drop(known);
    parts.regions.drop_unused();
    assert_eq!(parts.regions.count(), 0);
}
