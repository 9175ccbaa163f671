use std::collections::BTreeSet;

use super::{FAULTS, PAIRS, chosen};

fn names(seed: u64) -> Vec<[&'static str; 2]> {
    chosen(seed).into_iter().map(|two| two.map(|fault| fault.name)).collect()
}

#[test]
fn a_seed_chooses_the_same_pairs_each_time_and_another_one_others() {
    assert_eq!(names(1), names(1));
    assert_ne!(names(1), names(2));
    assert_eq!(names(1).into_iter().collect::<BTreeSet<_>>().len(), PAIRS);
}

#[test]
fn every_name_in_the_table_is_that_of_a_fault() {
    let known: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    assert_eq!(known.len(), FAULTS.len());
    for fault in FAULTS {
        for name in fault.hides.iter().chain(fault.not_with) {
            assert!(known.contains(name), "{}: {name}", fault.name);
        }
    }
}
