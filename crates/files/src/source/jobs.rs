//! The sender's work, done on any thread.

use std::io;
use std::sync::Arc;

use super::walk::{Found, left_out};
use super::{Load, Source};
use crate::engine::{Clock, LinkLost, Outlet, Stage};
use crate::fs::{Fs, Links, await_tick, read_full};
use crate::hash::{Value, value, whole};
use crate::wire::{Fault, Key, Known, LeftOut};

/// Work of the sender.
#[allow(missing_docs, private_interfaces, reason = "made and taken by the engine alone")]
pub enum Job<F: Fs> {
    Fill { key: Key, file: Arc<F::File>, size: u64, sparse: bool, first: u64, expect: Vec<Known>, slot: u16 },
    Pack { slot: u16, files: Vec<(Key, Arc<Found<F>>)> },
}

/// What came of it.
#[allow(missing_docs, reason = "made and taken by the engine alone")]
pub enum Done {
    Filled { key: Key, first: u64, count: u64, slot: u16, result: Result<Filled, LinkLost> },
    Packed { slot: u16, outcomes: Result<Vec<(Key, Outcome)>, LinkLost> },
}

/// What became of some chunks.
#[allow(missing_docs, reason = "made and taken by the engine alone")]
pub enum Filled {
    Data(Vec<Value>),
    Hole(Vec<Value>),
    Keep(Vec<Value>),
    Changed,
    Failed(Fault),
}

/// What became of a small file.
#[allow(missing_docs, reason = "made and taken by the engine alone")]
pub enum Outcome {
    Packed(u32, Value, Vec<LeftOut>),
    Changed,
    Failed(Fault),
}

impl<F: Fs> Source<F> {
    /// Does one job.
    pub fn work(load: &Load<F>, job: Job<F>, outlet: &mut impl Outlet, clock: &Clock) -> Done {
        match job {
            Job::Fill { key, file, size, sparse, first, expect, slot } => {
                let range = Range { size, sparse, first, expect: &expect, slot };
                let result = fill(load, &file, &range, outlet, clock);
                let result = match result {
                    Ok(filled) => Ok(filled),
                    Err(Trouble::Link(lost)) => Err(lost),
                    Err(Trouble::File(error)) => Ok(Filled::Failed(Fault::io("reading it", &error))),
                };
                Done::Filled { key, first, count: expect.len() as u64, slot, result }
            }
            Job::Pack { slot, files } => Done::Packed { slot, outcomes: pack(load, slot, &files, outlet, clock) },
        }
    }
}

enum Trouble {
    Link(LinkLost),
    File(io::Error),
}

struct Range<'a> {
    size: u64,
    sparse: bool,
    first: u64,
    expect: &'a [Known],
    slot: u16,
}

fn fill<F: Fs>(
    load: &Load<F>,
    file: &F::File,
    range: &Range<'_>,
    outlet: &mut impl Outlet,
    clock: &Clock,
) -> Result<Filled, Trouble> {
    let (fs, geometry) = (&*load.fs, &load.geometry);
    let count = range.expect.len() as u64;
    let (begin, end) = (range.first * geometry.chunk, range.size.min((range.first + count) * geometry.chunk));
    let hole = range.sparse
        && match fs.next_data(file, begin).map_err(Trouble::File)? {
            None => true,
            Some((data, _)) => data >= end,
        };
    let (mut values, mut at) = (Vec::with_capacity(range.expect.len()), 0);
    for index in range.first..range.first + count {
        let bytes = &mut outlet.staging()[at..at + geometry.chunk_len(range.size, index)];
        if hole {
            bytes.fill(0);
        } else {
            let read = || read_full(fs, file, index * geometry.chunk, bytes);
            if clock.time(Stage::Read, read).map_err(Trouble::File)? < bytes.len() {
                return Ok(Filled::Changed);
            }
        }
        values.push(clock.time(Stage::Hash, || value(index * geometry.chunk, bytes)));
        at += bytes.len();
    }
    if !hole && range.size >= load.large {
        fs.forget(file, begin, end - begin);
    }
    let same = range.expect.iter().zip(&values).all(|(known, value)| *known == Known::Content(*value));
    if same || hole {
        clock.count_kept(end - begin);
        return Ok(if same { Filled::Keep(values) } else { Filled::Hole(values) });
    }
    clock.time(Stage::Link, || outlet.write(range.slot, at)).map_err(Trouble::Link)?;
    clock.count_moved(end - begin);
    Ok(Filled::Data(values))
}

fn pack<F: Fs>(
    load: &Load<F>,
    slot: u16,
    files: &[(Key, Arc<Found<F>>)],
    outlet: &mut impl Outlet,
    clock: &Clock,
) -> Result<Vec<(Key, Outcome)>, LinkLost> {
    let (mut outcomes, mut at) = (Vec::with_capacity(files.len()), 0);
    for (key, found) in files {
        let staging = &mut outlet.staging()[at..];
        let outcome = match clock.time(Stage::Read, || read_small(load, found, staging)) {
            Ok(None) => Outcome::Changed,
            Err(error) => Outcome::Failed(Fault::io("reading it", &error)),
            Ok(Some((len, left_out))) => {
                let hash = clock.time(Stage::Hash, || whole(&staging[..len]));
                at += len;
                Outcome::Packed(len as u32, hash, left_out)
            }
        };
        outcomes.push((*key, outcome));
    }
    if outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Packed(..))) {
        clock.time(Stage::Link, || outlet.write(slot, at))?;
        clock.count_moved(at as u64);
    }
    Ok(outcomes)
}

/// The whole file; `None`: it is not what was offered.
fn read_small<F: Fs>(
    load: &Load<F>,
    found: &Found<F>,
    staging: &mut [u8],
) -> io::Result<Option<(usize, Vec<LeftOut>)>> {
    let fs = &*load.fs;
    let (file, before) = fs.open_read(&found.dir, &found.name, Links::Refuse)?;
    if before.ident() != found.stat.ident() {
        return Ok(None);
    }
    await_tick(fs, before.ctime);
    let len = before.size as usize;
    let have = read_full(fs, &file, 0, &mut staging[..len])?;
    let same = have == len && fs.stat_file(&file)?.ident() == before.ident();
    Ok(same.then(|| (len, left_out(load, &file))))
}
