use super::*;

const RULE: Rule = Rule { width: 0.06, least: 0.97 };

#[test]
fn ranks_are_those_of_the_tables_of_the_sign_test() {
    // Table of the binomial distribution with p = 1/2, two-sided at 5 %.
    for (n, rank) in
        [(5, None), (6, Some(1)), (9, Some(2)), (12, Some(3)), (20, Some(6)), (30, Some(10)), (100, Some(40))]
    {
        assert_eq!(outer_rank(n), rank, "{n} values");
    }
}

#[test]
fn interval_takes_the_ranks_from_both_ends_whatever_the_order() {
    let values: Vec<f64> = [3, 1, 2, 9, 7, 8, 4, 6, 5].map(f64::from).to_vec();
    assert_eq!(interval(&values), Some(Interval { median: 5.0, low: 2.0, high: 8.0 }));
    assert_eq!(interval(&values[..5]), None);
}

#[test]
fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
    assert_eq!(median(&[10.0, 1.0, 3.0, 2.0]), 2.5);
    assert_eq!(median(&[10.0, 1.0, 3.0]), 3.0);
    assert!(median(&[]).is_nan());
}

#[test]
fn a_loss_is_an_interval_wholly_below_the_bound() {
    let of = |low, high| verdict(Some(Interval { median: (low + high) / 2.0, low, high }), RULE);
    assert_eq!(of(0.90, 0.96), Verdict::Lost);
    // Also where it is too wide to know how much was lost.
    assert_eq!(of(0.50, 0.96), Verdict::Lost);
    assert_eq!(of(0.95, 0.98), Verdict::Kept);
    assert_eq!(of(1.20, 1.25), Verdict::Kept);
}

#[test]
fn an_interval_that_is_too_wide_decides_nothing() {
    let wide = Interval { median: 1.0, low: 0.96, high: 1.03 };
    assert_eq!(verdict(Some(wide), RULE), Verdict::Undecided);
    assert_eq!(verdict(Some(wide), Rule { width: 0.1, ..RULE }), Verdict::Kept);
    assert_eq!(verdict(None, RULE), Verdict::Undecided);
}
