//! Recording times and saying what they were.

use hdrhistogram::Histogram;

/// Longest time told apart from longer ones: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;

/// Records times of single operations. All memory is taken by [`Recorder::new`]; recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Recorder {
    hist: Histogram<u64>,
    min: u64,
    max: u64,
    sum: f64,
    squares: f64,
    jitter: f64,
    last: Option<u64>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// An empty recorder: three significant figures from 1 ns to 100 s.
    pub fn new() -> Recorder {
        let hist = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Recorder { hist, min: u64::MAX, max: 0, sum: 0.0, squares: 0.0, jitter: 0.0, last: None }
    }

    /// Records one time, ns.
    pub fn record(&mut self, ns: u64) {
        self.hist.saturating_record(ns.max(1));
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += ns as f64;
        self.squares += (ns as f64) * (ns as f64);
        // RFC 3550, 6.4.1: J += (|D| - J) / 16.
        if let Some(last) = self.last {
            self.jitter += (ns.abs_diff(last) as f64 - self.jitter) / 16.0;
        }
        self.last = Some(ns);
    }

    /// Times recorded.
    pub fn count(&self) -> u64 {
        self.hist.len()
    }

    /// What was recorded, every time divided by `parts` (2 turns round trips into one-way times). `None` when nothing
    /// was.
    pub fn summary(&self, parts: f64) -> Option<Summary> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let n = count as f64;
        let mean = self.sum / n;
        let at = |quantile: f64| self.hist.value_at_quantile(quantile).clamp(self.min, self.max) as f64 / parts;
        Some(Summary {
            count,
            min: self.min as f64 / parts,
            avg: mean / parts,
            max: self.max as f64 / parts,
            stddev: (self.squares / n - mean * mean).max(0.0).sqrt() / parts,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            jitter: self.jitter / parts,
        })
    }

    /// The distribution in at most `rows` steps of equal ratio: upper edge (ns, divided by `parts`) and count.
    pub fn steps(&self, rows: usize, parts: f64) -> Vec<(f64, u64)> {
        if self.count() == 0 || rows == 0 {
            return Vec::new();
        }
        // The long tail gets the last row; the others share what lies up to p99.9.
        let low = self.min.max(1) as f64;
        let high = (self.hist.value_at_quantile(0.999) as f64).max(low * 1.001);
        let ratio = (high / low).powf(1.0 / rows as f64);
        let mut steps: Vec<(f64, u64)> = (1..=rows).map(|row| (low * ratio.powi(row as i32), 0)).collect();
        for value in self.hist.iter_recorded() {
            let ns = value.value_iterated_to() as f64;
            let row = steps.iter().position(|(edge, _)| ns <= *edge).unwrap_or(rows - 1);
            steps[row].1 += value.count_since_last_iteration();
        }
        steps[rows - 1].0 = steps[rows - 1].0.max(self.max as f64);
        steps.into_iter().map(|(edge, count)| (edge / parts, count)).collect()
    }
}

/// Statistics of one measurement, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub avg: f64,
    /// Largest.
    pub max: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// Smoothed difference of neighbouring samples (RFC 3550).
    pub jitter: f64,
}

/// The median of some numbers; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mid = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[mid]),
        _ => Some((sorted[mid - 1] + sorted[mid]) / 2.0),
    }
}

#[cfg(test)]
mod tests;
