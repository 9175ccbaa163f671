//! A small number of seeds with every test run; `examples/seeds` runs ten thousand.

#[path = "../../examples/seeds/model.rs"]
mod model;
#[path = "../../examples/seeds/onesided.rs"]
mod onesided;
#[path = "../../examples/seeds/plan.rs"]
mod plan;
#[path = "../../examples/seeds/run.rs"]
mod run;

#[test]
fn three_hundred_seeds() {
    let mut faults = std::collections::BTreeSet::new();
    let mut done = [0; 3];
    for seed in 0..300 {
        let result = std::panic::catch_unwind(|| run::run(seed, false));
        let report =
            result.unwrap_or_else(|_| panic!("again with: cargo run -p linkspan-sim --example seeds -- --seed {seed}"));
        faults.extend(report.met.keys().map(|k| k.0));
        done.iter_mut().zip([report.messages, report.written, report.read]).for_each(|(sum, n)| *sum += n);
    }
    assert!(done.iter().all(|&n| n > 100), "messages, writes and reads that were done: {done:?}");
    assert_eq!(faults.len(), 11, "some faults never happened: {faults:?}");
}

#[test]
fn a_seed_decides_everything() {
    for seed in [3, 14, 159] {
        let (first, second) = (run::run(seed, false), run::run(seed, false));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
