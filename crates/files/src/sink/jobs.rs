//! The receiver's work, done on any thread.

use std::io;
use std::sync::Arc;

use super::commit::{commit, dress, give_name};
use super::extras::Gone;
use super::target::{Target, random};
use super::{DestDir, Sink};
use crate::engine::{Clock, SlotReader, Stage};
use crate::fs::{Fs, Stat, write_full};
use crate::hash::{Value, value, whole};
use crate::name::{Name, RelPath, partial};
use crate::wire::{Fault, FaultKind, FileInfo, Key, Known};

/// Bytes of a hole's edges: what is zero in units of this size gets no place on the disk.
const BLOCK: usize = 4096;

/// How much of a large file is written behind at a time.
const WRITE_BEHIND: u64 = 64 << 20;

/// One file of a pack.
pub struct Small<F: Fs> {
    pub(super) key: Key,
    pub(super) path: RelPath,
    pub(super) dir: Arc<F::Dir>,
    pub(super) info: FileInfo,
    pub(super) old: Option<Stat>,
    pub(super) at: usize,
    pub(super) hash: Value,
}

/// Work of the receiver.
#[allow(missing_docs, private_interfaces, reason = "made and taken by the engine alone")]
pub enum Job<F: Fs> {
    Know { key: Key, target: Arc<Target<F>>, first: u64, count: u16 },
    Land { key: Key, target: Arc<Target<F>>, first: u64, slot: u16, values: Vec<Value> },
    Hole { key: Key, target: Arc<Target<F>>, first: u64, count: u16 },
    Keep { key: Key, target: Arc<Target<F>>, first: u64, count: u16 },
    Unpack { slot: u16, files: Vec<Small<F>> },
    Commit { key: Key, target: Arc<Target<F>>, hash: Value },
    Finish { opened: Option<F::Dir>, gone: Vec<Gone> },
}

/// What came of it.
#[allow(missing_docs, private_interfaces, reason = "made and taken by the engine alone")]
pub enum Done {
    Known { key: Key, first: u64, known: Vec<Known> },
    Landed { key: Key, first: u64, result: Result<Vec<Value>, Fault> },
    Unpacked { slot: u16, results: Vec<(Key, RelPath, u64, Result<Value, Fault>)> },
    Committed { key: Key, hash: Value, result: Result<(), Fault> },
    Finished { result: Result<(), Fault>, gone: Vec<(Gone, Result<(), Fault>)> },
}

impl<F: Fs> Sink<F> {
    /// Does one job. `scratch` has the length of a chunk.
    pub fn work(place: &DestDir<F>, job: Job<F>, slots: &impl SlotReader, clock: &Clock, scratch: &mut [u8]) -> Done {
        match job {
            Job::Know { key, target, first, count } => {
                let know = |index| clock.time(Stage::Check, || target.know(place, index, scratch));
                let known = (first..first + u64::from(count)).map(know).collect();
                Done::Known { key, first, known }
            }
            Job::Land { key, target, first, slot, values } => {
                let result = land(place, &target, first, slot, &values, slots, clock, scratch);
                Done::Landed { key, first, result: result.map(|()| values) }
            }
            Job::Hole { key, target, first, count } => {
                let one = |index| hole(place, &target, index, clock, scratch);
                Done::Landed { key, first, result: (first..first + u64::from(count)).map(one).collect() }
            }
            Job::Keep { key, target, first, count } => {
                let one = |index| keep(place, &target, index, clock, scratch);
                Done::Landed { key, first, result: (first..first + u64::from(count)).map(one).collect() }
            }
            Job::Unpack { slot, files } => {
                Done::Unpacked { slot, results: unpack(place, slot, files, slots, clock, scratch) }
            }
            Job::Commit { key, target, hash } => {
                let result = clock.time(Stage::Write, || commit(place, &target));
                Done::Committed { key, hash, result }
            }
            Job::Finish { opened, gone } => clock.time(Stage::Write, || finish(place, opened, gone)),
        }
    }
}

/// What goes goes to the trash; then all names go onto the disk.
fn finish<F: Fs>(place: &DestDir<F>, opened: Option<F::Dir>, gone: Vec<Gone>) -> Done {
    let fs = &*place.fs;
    let mut told = Vec::with_capacity(gone.len());
    let opened = match opened {
        None if !gone.is_empty() && !place.no_fsync => fs.open_sync(&place.root).map(Some),
        opened => Ok(opened),
    };
    for one in gone {
        let whole = place.base.join_path(&one.path).map_err(|_| io::ErrorKind::InvalidFilename.into());
        let done = whole.and_then(|path| place.trash.discard(fs, &place.root, &path, false));
        told.push((one, done.map_err(|error| Fault::io("moving it to the trash", &error))));
    }
    place.trash.tidy(fs, &place.root);
    let synced = opened.and_then(|opened| opened.map_or(Ok(()), |opened| fs.sync_all(&opened)));
    Done::Finished { result: synced.map_err(|error| Fault::unwritten("syncfs", &error)), gone: told }
}

fn failed(error: io::Error) -> Fault {
    Fault::io("its partial file", &error)
}

#[allow(clippy::too_many_arguments, reason = "one caller")]
fn land<F: Fs>(
    place: &DestDir<F>,
    target: &Target<F>,
    first: u64,
    slot: u16,
    values: &[Value],
    slots: &impl SlotReader,
    clock: &Clock,
    scratch: &mut [u8],
) -> Result<(), Fault> {
    let geometry = &place.geometry;
    for (n, expected) in values.iter().enumerate() {
        let index = first + n as u64;
        let len = geometry.chunk_len(target.info.ident.size, index);
        let bytes = &mut scratch[..len];
        slots.read(slot, n * geometry.chunk as usize, bytes);
        if clock.time(Stage::Check, || value(index * geometry.chunk, bytes)) != *expected {
            return Err(Fault::wrong_data(&format!("chunk {index}")));
        }
        target.take_back(place, index)?;
        clock.time(Stage::Write, || store(place, target, index, bytes)).map_err(failed)?;
        note(place, target, index, expected);
        clock.count_moved(len as u64);
    }
    behind(place, target, first, values.len() as u64, clock)
}

/// Large files leave the page cache: the program that is to use it needs it more.
fn behind<F: Fs>(place: &DestDir<F>, target: &Target<F>, first: u64, count: u64, clock: &Clock) -> Result<(), Fault> {
    let (begin, end) = (first * place.geometry.chunk, (first + count) * place.geometry.chunk);
    let edge = end / WRITE_BEHIND * WRITE_BEHIND;
    if target.info.ident.size < place.large || edge <= begin || edge < 2 * WRITE_BEHIND {
        return Ok(());
    }
    let write = || place.fs.write_behind(&target.file, edge - 2 * WRITE_BEHIND, WRITE_BEHIND);
    clock.time(Stage::Write, write).map_err(|error| {
        // What the kernel could not write it reports once.
        target.spoil(place);
        Fault::unwritten("fdatasync", &error)
    })
}

/// Writes a chunk; of a sparse file only the blocks that are not zero.
fn store<F: Fs>(place: &DestDir<F>, target: &Target<F>, index: u64, bytes: &[u8]) -> io::Result<()> {
    let (fs, at) = (&*place.fs, index * place.geometry.chunk);
    if !target.info.sparse() {
        return write_full(fs, &target.file, at, bytes);
    }
    if target.resumed && fs.punch(&target.file, at, bytes.len() as u64).is_err() {
        return write_full(fs, &target.file, at, bytes);
    }
    let mut from = 0;
    while from < bytes.len() {
        let is_zero = |at: usize| bytes[at..bytes.len().min(at + BLOCK)].iter().all(|&b| b == 0);
        let mut to = from;
        while to < bytes.len() && !is_zero(to) {
            to += BLOCK;
        }
        let to = to.min(bytes.len());
        if to > from {
            write_full(fs, &target.file, at + from as u64, &bytes[from..to])?;
            from = to;
        } else {
            from += BLOCK;
        }
    }
    Ok(())
}

/// A journal that cannot be written costs a later run time, nothing else.
fn note<F: Fs>(place: &DestDir<F>, target: &Target<F>, index: u64, value: &Value) {
    if let Some(journal) = &target.journal {
        let _ = journal.put(&*place.fs, index, value);
    }
}

fn hole<F: Fs>(
    place: &DestDir<F>,
    target: &Target<F>,
    index: u64,
    clock: &Clock,
    scratch: &mut [u8],
) -> Result<Value, Fault> {
    let geometry = &place.geometry;
    let at = index * geometry.chunk;
    let zeros = &mut scratch[..geometry.chunk_len(target.info.ident.size, index)];
    zeros.fill(0);
    if target.resumed || !target.info.sparse() {
        target.take_back(place, index)?;
        clock
            .time(Stage::Write, || match place.fs.punch(&target.file, at, zeros.len() as u64) {
                Err(_) => write_full(&*place.fs, &target.file, at, zeros),
                done => done,
            })
            .map_err(failed)?;
    }
    let value = clock.time(Stage::Check, || value(at, zeros));
    note(place, target, index, &value);
    clock.count_kept(zeros.len() as u64);
    Ok(value)
}

/// A chunk that the receiver has: in the partial file, or in the old one, from where it is copied and then checked.
fn keep<F: Fs>(
    place: &DestDir<F>,
    target: &Target<F>,
    index: u64,
    clock: &Clock,
    scratch: &mut [u8],
) -> Result<Value, Fault> {
    let fs = &*place.fs;
    let geometry = &place.geometry;
    let len = geometry.chunk_len(target.info.ident.size, index);
    clock.count_kept(len as u64);
    let noted = target.journal.as_ref().and_then(|journal| journal.get(fs, index));
    if let Some((value, true)) = noted {
        return Ok(value);
    }
    let gone = || Fault::new(FaultKind::Changed, "the old file changed while it was compared; send it again");
    let in_part = target.resumed && (noted.is_some() || target.journal.is_none());
    if !in_part {
        let old = target.old_file.as_ref().ok_or_else(gone)?;
        target.take_back(place, index)?;
        clock
            .time(Stage::Write, || copy(fs, old, &target.file, index * geometry.chunk, len as u64, scratch))
            .map_err(failed)?;
    }
    let value = clock.time(Stage::Check, || target.hash_of(place, &target.file, index, scratch)).ok_or_else(gone)?;
    if in_part {
        note(place, target, index, &value);
    }
    // The old file is nobody's: somebody may have written to it since the source compared it. A later run compares it again.
    Ok(value)
}

fn copy<F: Fs>(fs: &F, from: &F::File, to: &F::File, offset: u64, len: u64, scratch: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match fs.copy_range(from, to, offset + done, len - done) {
            Ok(n) if n > 0 => done += n,
            _ => {
                let bytes = &mut scratch[..(len - done) as usize];
                let have = crate::fs::read_full(fs, from, offset + done, bytes)?;
                return write_full(fs, to, offset + done, &bytes[..have]);
            }
        }
    }
    Ok(())
}

/// Small files: all are written, then one sync, then all get their names, then one more.
fn unpack<F: Fs>(
    place: &DestDir<F>,
    slot: u16,
    files: Vec<Small<F>>,
    slots: &impl SlotReader,
    clock: &Clock,
    scratch: &mut [u8],
) -> Vec<(Key, RelPath, u64, Result<Value, Fault>)> {
    let fs = &*place.fs;
    let mut written = Vec::with_capacity(files.len());
    let begin = random();
    // Before the first write: what cannot be written from here on is told to this descriptor.
    let opened = match place.no_fsync {
        true => Ok(None),
        false => fs.open_sync(&place.root).map(Some).map_err(|error| Fault::io("the share", &error)),
    };
    for (n, small) in (0..).zip(files) {
        let bytes = &mut scratch[..small.info.ident.size as usize];
        slots.read(slot, small.at, bytes);
        let part = match clock.time(Stage::Check, || whole(bytes)) == small.hash {
            true => clock.time(Stage::Write, || {
                opened.as_ref().map_err(Fault::clone)?;
                let id = begin.as_ref().map_err(|error| Fault::io("random numbers", error))?;
                write_small(fs, &small, partial(id.wrapping_add(n)), bytes)
            }),
            false => Err(Fault::wrong_data("it")),
        };
        clock.count_moved(small.info.ident.size);
        written.push((small, part));
    }
    let sync = |fault: fn(&str, &io::Error) -> Fault| match &opened {
        Ok(Some(opened)) => clock.time(Stage::Write, || fs.sync_all(opened)).map_err(|error| fault("syncfs", &error)),
        _ => Ok(()),
    };
    let data = sync(Fault::unwritten);
    let mut named = Vec::with_capacity(written.len());
    for (small, part) in written {
        let result = part.and_then(|part| {
            let named = data.clone().and_then(|()| {
                clock.time(Stage::Write, || give_name(place, &small.dir, &part, &small.path, small.old.as_ref()))
            });
            if named.is_err() {
                let _ = fs.unlink(&small.dir, &part);
            }
            named
        });
        named.push((small, result));
    }
    let names = sync(Fault::unnamed);
    named
        .into_iter()
        .map(|(small, result)| {
            let result = result.and_then(|()| names.clone()).map(|()| small.hash);
            (small.key, small.path, small.info.ident.size, result)
        })
        .collect()
}

fn write_small<F: Fs>(fs: &F, small: &Small<F>, part: Name, bytes: &[u8]) -> Result<Name, Fault> {
    let file = fs.create(&small.dir, &part).map_err(failed)?;
    let done = fs
        .try_lock(&file)
        .and_then(|_| write_full(fs, &file, 0, bytes))
        .map_err(failed)
        .and_then(|()| dress(fs, &file, small.info.mode, &small.info.xattrs, small.info.mtime()));
    if done.is_err() {
        let _ = fs.unlink(&small.dir, &part);
    }
    done.map(|()| part)
}
