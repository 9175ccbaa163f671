//! One transfer between two simulated file systems, its messages and jobs in any order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::{Random, SimFs};
use crate::engine::{Clock, Engine, Event, Geometry, LinkLost, Outlet, SlotReader};
use crate::sink::{DestDir, Sink};
use crate::source::{Load, Source, Start};
use crate::wire::{Fault, Message, REMOTE_LEN};

/// Small enough that a file of a few KiB has many chunks.
pub(super) const GEOMETRY: Geometry = Geometry { chunk: 1024, per_slot: 2, slots: 3 };

/// The two ends of the link, in one process.
#[derive(Clone)]
struct Slots(Arc<Mutex<Vec<Vec<u8>>>>, Vec<u8>);

impl Slots {
    fn new() -> Slots {
        let slot = vec![0; GEOMETRY.slot() as usize];
        Slots(Arc::new(Mutex::new(vec![slot.clone(); usize::from(GEOMETRY.slots)])), slot)
    }
}

impl Outlet for Slots {
    fn staging(&mut self) -> &mut [u8] {
        &mut self.1
    }

    fn write(&mut self, slot: u16, len: usize) -> Result<(), LinkLost> {
        let mut slots = self.0.lock().unwrap_or_else(|e| e.into_inner());
        slots[usize::from(slot)][..len].copy_from_slice(&self.1[..len]);
        Ok(())
    }
}

impl SlotReader for Slots {
    fn read(&self, slot: u16, at: usize, out: &mut [u8]) {
        let slots = self.0.lock().unwrap_or_else(|e| e.into_inner());
        out.copy_from_slice(&slots[usize::from(slot)][at..at + out.len()]);
    }
}

/// What came of a run: what the user of the sender was told, and whether it went to its end.
#[derive(Default)]
pub(super) struct Run {
    pub(super) events: Vec<Event>,
    pub(super) complete: bool,
    /// What the receiver said at the end.
    pub(super) failed: Option<Fault>,
}

/// Runs it until it ends or an end dies. `judged` is set when the receiver has looked at what there is.
pub(super) fn transfer(
    random: &mut Random,
    load: Load<SimFs>,
    starts: Vec<Start<SimFs>>,
    place: DestDir<SimFs>,
    judged: &AtomicBool,
) -> Run {
    let mut run = Run::default();
    let (src, dst) = (load.fs.clone(), place.fs.clone());
    let load = Load { geometry: GEOMETRY, ..load };
    let mut place = place;
    place.geometry = GEOMETRY;
    let mut source = Source::new(load, Arc::new(Clock::default()), starts);
    let Ok(mut sink) = Sink::new(place, Arc::new(Clock::default())) else { return run };
    let slots = Slots::new();
    let (mut to_sink, mut to_source) = (VecDeque::new(), VecDeque::new());
    to_source.push_back(Message::Slots {
        remote: [0; REMOTE_LEN],
        size: GEOMETRY.slot() as u32,
        count: GEOMETRY.slots,
    });
    let (mut source_jobs, mut sink_jobs) = (Vec::new(), Vec::new());
    let mut scratch = vec![0; GEOMETRY.chunk as usize];
    let clock = Clock::default();
    for _ in 0..100_000 {
        if src.is_dead() || dst.is_dead() {
            return run;
        }
        source.pump();
        sink.pump();
        to_sink.extend(std::iter::from_fn(|| source.message()));
        to_source.extend(std::iter::from_fn(|| sink.message()));
        source_jobs.extend(std::iter::from_fn(|| source.job()));
        sink_jobs.extend(std::iter::from_fn(|| sink.job()));
        if !dst.is_dead() {
            // Told is what the user has seen before anybody died.
            run.events.extend(std::iter::from_fn(|| source.event()));
        }
        while sink.event().is_some() {}
        if source.is_over() && sink.is_over() {
            run.complete = true;
            run.failed = sink.failed().cloned();
            return run;
        }
        match random.below(4) {
            0 if !to_sink.is_empty() => {
                let Some(message) = to_sink.pop_front() else { continue };
                let judges = matches!(message, Message::Batch { .. });
                if sink.on(message).is_err() {
                    return run;
                }
                if judges {
                    judged.store(true, Relaxed);
                }
            }
            1 if !to_source.is_empty() => {
                let message = to_source.pop_front();
                if message.is_some_and(|message| source.on(message).is_err()) {
                    return run;
                }
            }
            2 if !source_jobs.is_empty() => {
                let job = source_jobs.swap_remove(random.below(source_jobs.len()));
                let load = source.load().clone();
                let done = Source::work(&load, job, &mut slots.clone(), &clock);
                if src.is_dead() || source.done(done).is_err() {
                    return run;
                }
            }
            3 if !sink_jobs.is_empty() => {
                let job = sink_jobs.swap_remove(random.below(sink_jobs.len()));
                let place = sink.place().clone();
                let done = Sink::work(&place, job, &slots, &clock, &mut scratch);
                if dst.is_dead() || sink.done(done).is_err() {
                    return run;
                }
            }
            _ => {}
        }
    }
    run
}
