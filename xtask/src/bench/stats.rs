//! The median of ratios, its interval, and what a figure comes to.

/// The middle of a sample and the bounds of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Median.
    pub(crate) median: f64,
    /// Lower bound.
    pub(crate) low: f64,
    /// Upper bound.
    pub(crate) high: f64,
}

/// What is asked of a figure: how narrow its interval must be, and below what it counts as slower. Both are ratios.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The interval must be narrower than this.
    pub(crate) width: f64,
    /// An interval that lies wholly below this is a loss.
    pub(crate) least: f64,
}

/// What a figure comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Known closely enough, and not shown to be slower.
    Kept,
    /// Slower.
    Lost,
    /// The interval is too wide to say.
    Undecided,
}

impl Verdict {
    /// What the table calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Lost => "LOST",
            Verdict::Undecided => "undecided",
        }
    }
}

/// Median and its 95 % interval by order statistics, which assumes nothing of the distribution; `None` below six values,
/// of which no two bound the median with that certainty.
pub(crate) fn interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let rank = outer_rank(n)?;
    Some(Interval { median: median(values), low: sorted[rank - 1], high: sorted[n - rank] })
}

/// The middle value, of an even number the mean of the two; not a number where there is none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0
}

/// The largest rank `k` (from 1) for which the median lies outside the `k`-th smallest and `k`-th largest of `n` values
/// with a chance of at most 5 %: twice the chance of fewer than `k` heads in `n` throws of a coin.
fn outer_rank(n: usize) -> Option<usize> {
    let mut chance = 0.5f64.powi(i32::try_from(n).ok()?);
    let (mut below, mut rank) = (0.0, None);
    for k in 1..=n / 2 {
        below += chance;
        if 2.0 * below > 0.05 {
            break;
        }
        rank = Some(k);
        chance *= (n - k + 1) as f64 / k as f64;
    }
    rank
}

/// Applies `rule`.
pub(crate) fn verdict(found: Option<Interval>, rule: Rule) -> Verdict {
    match found {
        Some(i) if i.high < rule.least => Verdict::Lost,
        Some(i) if i.high - i.low < rule.width => Verdict::Kept,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests;
