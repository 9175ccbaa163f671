//! Which way serves which pieces best on this device, measured as it works.

use std::time::Duration;

use super::{Batch, CopyMode};
use crate::Ability;

/// Batches of a class that each way is tried with; the quickest counts, for the first one warms up.
const TRIES: u32 = 3;

/// Classes by the mean length of their pieces, bytes: segments of 1448, pages, several pages, and more.
const CLASSES: [u64; 3] = [2 << 10, 8 << 10, 64 << 10];

const MODES: [CopyMode; 3] = [CopyMode::Kernel, CopyMode::D2d, CopyMode::Host];

/// What was measured of one way in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    times: u32,
    /// Least time, ns for a MiB.
    best: u64,
}

/// The choice for one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice([[Tried; MODES.len()]; CLASSES.len() + 1]);

fn class(batch: &Batch) -> usize {
    let mean = batch.bytes() / (batch.pieces().len() as u64).max(1);
    CLASSES.iter().position(|&edge| mean < edge).unwrap_or(CLASSES.len())
}

impl Choice {
    /// The way for this batch: one that has not been tried enough, else the quickest.
    pub(super) fn pick(&self, kernel: &Ability, batch: &Batch) -> CopyMode {
        let tried = &self.0[class(batch)];
        let can = |way: &CopyMode| *way != CopyMode::Kernel || kernel.yes();
        let open = MODES.into_iter().zip(tried).filter(|(way, _)| can(way)).find(|(_, t)| t.times < TRIES);
        let best = || MODES.into_iter().zip(tried).filter(|(way, _)| can(way)).min_by_key(|(_, t)| t.best);
        open.or_else(best).map_or(CopyMode::D2d, |(way, _)| way)
    }

    /// A batch took so long from its start until it was seen to be in place.
    pub(super) fn note(&mut self, way: CopyMode, class: Class, took: Duration) {
        let Some(tried) = MODES.iter().position(|&w| w == way).map(|at| &mut self.0[class.number][at]) else { return };
        let pace = (took.as_nanos() << 20).checked_div(u128::from(class.bytes)).unwrap_or(u128::MAX);
        let pace = u64::try_from(pace).unwrap_or(u64::MAX);
        tried.best = if tried.times == 0 { pace } else { tried.best.min(pace) };
        tried.times = tried.times.saturating_add(1);
    }
}

/// What has to be remembered of a batch until it is in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    number: usize,
    bytes: u64,
}

impl Class {
    pub(super) fn of(batch: &Batch) -> Class {
        Class { number: class(batch), bytes: batch.bytes() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn batch(len: u32) -> Batch {
        let mut batch = Batch::new(1 << 30, 1 << 30);
        for i in 0..4u64 {
            batch.push((3 - i) * 200_000, len, i * u64::from(len)).unwrap();
        }
        batch
    }

    /// Every way is tried, then the quickest is kept, for each class by itself.
    #[test]
    fn the_quickest_way_is_found_for_each_size() {
        let mut choice = Choice::default();
        let quickest =
            [(1448, CopyMode::Kernel), (4096, CopyMode::Kernel), (20_000, CopyMode::Host), (100_000, CopyMode::D2d)];
        for (len, best) in quickest {
            let batch = batch(len);
            let mut seen = Vec::new();
            for _ in 0..9 {
                let way = choice.pick(&Ability::Yes, &batch);
                seen.push(way);
                // The first of each is slow whatever it is: it warms up.
                let first = seen.iter().filter(|&&w| w == way).count() == 1;
                let micros = if first {
                    1000
                } else if way == best {
                    10
                } else {
                    30
                };
                choice.note(way, Class::of(&batch), Duration::from_micros(micros));
            }
            assert_eq!(MODES.map(|w| seen.iter().filter(|&&s| s == w).count()), [3, 3, 3], "{len}");
            assert_eq!(choice.pick(&Ability::Yes, &batch), best, "{len}");
        }
        let none = Ability::No("no kernel".into());
        assert_ne!(choice.pick(&none, &batch(4096)), CopyMode::Kernel);
    }
}
