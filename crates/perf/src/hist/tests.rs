use super::*;

fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= want.abs() * 0.002, "{got} is not {want}");
}

#[test]
fn statistics_of_a_known_distribution() {
    let mut rec = Recorder::new();
    for ns in 1..=10_000u64 {
        rec.record(ns);
    }
    let got = rec.summary(1.0).unwrap();
    assert_eq!((got.count, got.min, got.max), (10_000, 1.0, 10_000.0));
    near(got.avg, 5000.5);
    near(got.stddev, 2886.75);
    near(got.p50, 5000.0);
    near(got.p90, 9000.0);
    near(got.p99, 9900.0);
    near(got.p999, 9990.0);
    near(got.p9999, 9999.0);
    near(got.jitter, 1.0);
}

#[test]
fn halves() {
    let mut rec = Recorder::new();
    (0..100).for_each(|_| rec.record(3000));
    let got = rec.summary(2.0).unwrap();
    assert_eq!(
        (got.min, got.avg, got.max, got.p50, got.stddev, got.jitter),
        (1500.0, 1500.0, 1500.0, 1500.0, 0.0, 0.0)
    );
}

#[test]
fn nothing_recorded_is_no_summary() {
    assert!(Recorder::new().summary(1.0).is_none());
    assert!(Recorder::new().steps(10, 1.0).is_empty());
}

#[test]
fn zero_and_beyond_the_range_are_kept() {
    let mut rec = Recorder::new();
    rec.record(0);
    rec.record(u64::MAX);
    let got = rec.summary(1.0).unwrap();
    assert_eq!((got.count, got.min, got.max), (2, 0.0, u64::MAX as f64));
}

#[test]
fn steps_hold_every_sample_once_and_rise() {
    let mut rec = Recorder::new();
    for ns in (100..100_000u64).step_by(7) {
        rec.record(ns);
    }
    rec.record(50_000_000);
    let steps = rec.steps(16, 2.0);
    assert_eq!(steps.len(), 16);
    assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), rec.count());
    assert!(steps.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(steps[15].0, 25_000_000.0, "the last edge is the largest sample");
}

#[test]
fn medians() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 3.0, 5.0]), Some(4.0));
}
