//! Histories on the simulated file system, and the bugs that they must find.

use linkspan_files::sim::mirrors::{self, MIRROR_BUGS};
use linkspan_files::sim::{BUGS, history, requests};

/// Histories in `cargo test`; `LINKSPAN_HISTORIES=100000` is the full number.
fn count() -> u64 {
    std::env::var("LINKSPAN_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

#[test]
fn nothing_is_lost_mixed_or_wrongly_reported_in_any_history() {
    for seed in 0..count() {
        if let Err(why) = history::run(seed, None) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn what_somebody_wrote_before_a_name_was_exchanged_is_kept_whatever_fails_then() {
    for (seed, call) in (0..64).flat_map(|seed| (1..100).map(move |call| (seed, call))) {
        if let Err(why) = history::overtaken(seed, call) {
            panic!("seed {seed}, written before call {call}: {why}");
        }
    }
}

#[test]
fn bytes_that_the_disk_did_not_write_are_no_success_whoever_was_told_first() {
    for (len, call) in [500, 5000].into_iter().flat_map(|len| (1..80).map(move |call| (len, call))) {
        if let Err(why) = history::unwritten(len, call) {
            panic!("{len} bytes, lost before call {call}: {why}");
        }
    }
}

#[test]
fn a_file_that_changes_once_while_it_is_sent_is_sent_again() {
    for (seed, call) in (0..64).flat_map(|seed| (1..60).map(move |call| (seed, call))) {
        if let Err(why) = history::changes_once(seed, call) {
            panic!("seed {seed}, written before call {call}: {why}");
        }
    }
}

#[test]
fn a_partial_file_that_nobody_may_write_is_taken_up() {
    for call in 1..120 {
        if let Err(why) = history::protected(call) {
            panic!("killed at call {call}: {why}");
        }
    }
}

#[test]
fn what_a_killed_transfer_has_left_goes_after_a_month_without_what_is_in_use_or_anything_else() {
    let left = |call| history::abandoned(call).unwrap_or_else(|why| panic!("killed at call {call}: {why}"));
    let most = (1..200).map(left).max();
    assert!(most > Some(1), "no kill leaves small files: {most:?}");
    assert_eq!(left(10_000), 0, "without a kill");
}

#[test]
fn a_transfer_that_is_taken_up_after_one_of_another_source_has_the_content_of_its_own() {
    for seed in 0..count() {
        if let Err(why) = history::between(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn a_transfer_that_is_taken_up_after_somebody_wrote_to_the_old_file_has_the_content_of_its_source() {
    for seed in 0..count() {
        if let Err(why) = history::edited(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in BUGS {
        let found = (0..20_000).find_map(|seed| history::run(seed, Some(bug)).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} is not found in 20,000 histories"));
        println!("{bug:?}: seed {seed}: {why}");
    }
}

#[test]
fn a_mirror_loses_nothing_of_its_destination_and_becomes_its_source_in_any_history() {
    for seed in 0..count() {
        if let Err(why) = mirrors::run(seed, None) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn what_makes_way_in_a_mirror_is_never_lost_with_the_power() {
    for seed in 0..8 {
        for (killed, lost) in (1..60).flat_map(|killed| (1..60).map(move |lost| (killed, lost))) {
            if let Err(why) = mirrors::makes_way(seed, killed, lost) {
                panic!("seed {seed}, killed at call {killed}, no power at call {lost}: {why}");
            }
        }
    }
}

#[test]
fn of_names_that_the_destination_takes_for_one_the_second_is_refused_with_all_below_it_and_the_first_stays() {
    for seed in 0..count() {
        if let Err(why) = mirrors::folded(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn every_bug_planted_in_a_mirror_is_found() {
    for bug in MIRROR_BUGS {
        let found = (0..20_000).find_map(|seed| mirrors::run(seed, Some(bug)).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} is not found in 20,000 histories"));
        println!("{bug:?}: seed {seed}: {why}");
    }
}

#[test]
fn a_request_that_is_repeated_after_a_lost_connection_has_effect_once_in_any_history() {
    for seed in 0..count() {
        if let Err(why) = requests::run(seed, false) {
            panic!("seed {seed}: {why}");
        }
    }
    // Where the answers are forgotten with the connection, that is found.
    assert!((0..1000).any(|seed| requests::run(seed, true).is_err_and(|why| why.contains("effect twice"))));
}
