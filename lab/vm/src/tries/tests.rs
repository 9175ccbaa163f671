use super::{Came, Nth, all};

/// `good` holds, `late` at the second try, `bad` never.
fn run(log: &mut Vec<(&'static str, Nth)>, once: bool) -> Vec<(&'static str, Came)> {
    all(&["late", "good", "bad"], once, |test, nth| {
        log.push((test, nth));
        match (test, nth) {
            ("good", _) | ("late", Nth::Second) => Ok(()),
            _ => Err(format!("{test} failed")),
        }
    })
}

#[test]
fn a_test_that_fails_is_run_once_more_after_the_others() {
    let mut log = Vec::new();
    let came = run(&mut log, false);
    let second = Came::Second { first: "late failed".to_owned() };
    assert_eq!(came, [("good", Came::Passed), ("late", second), ("bad", Came::Failed)]);
    let (first, again) = (Nth::First, Nth::Second);
    assert_eq!(log, [("late", first), ("good", first), ("bad", first), ("late", again), ("bad", again)]);
}

#[test]
fn with_once_nothing_is_run_again() {
    let mut log = Vec::new();
    let came = run(&mut log, true);
    assert_eq!(came, [("late", Came::Failed), ("good", Came::Passed), ("bad", Came::Failed)]);
    assert_eq!(log.len(), 3);
}
