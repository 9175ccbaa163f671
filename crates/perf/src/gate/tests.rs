use std::thread;

use super::*;

const SHORT: Duration = Duration::from_millis(1);

#[test]
fn nobody_passes_before_all_wait_and_then_all_do_again_and_again() {
    let mut gates = Gate::all(3);
    for _ in 0..3 {
        assert!(!gates[0].passed(SHORT) && !gates[1].passed(SHORT) && !gates[0].passed(SHORT));
        assert!(gates.iter_mut().rev().all(|gate| gate.passed(SHORT)));
    }
}

#[test]
fn one_that_has_ended_keeps_no_other_back() {
    let mut gates = Gate::all(3);
    assert!(!gates[0].passed(SHORT) && !gates[1].passed(SHORT));
    // One that waits, and one that never came.
    gates.remove(1);
    assert!(!gates[0].passed(SHORT));
    gates.pop();
    assert!(gates[0].passed(SHORT) && gates[0].passed(SHORT));
}

#[test]
fn one_that_waits_is_woken() {
    let mut gates = Gate::all(2);
    let mut last = gates.remove(1);
    let waits = thread::spawn(move || gates[0].passed(Duration::from_secs(60)));
    assert!(last.passed(Duration::from_secs(60)) && waits.join().unwrap());
}
