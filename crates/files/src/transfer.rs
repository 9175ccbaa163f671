//! Drives an engine: its messages over the control connection, its jobs on a few threads.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::engine::{Clock, Engine, Event, Geometry};
use crate::fs::Fs;
use crate::link::{Control, Incoming, Line, Slots, Writer};
use crate::sink::{self, Sink};
use crate::source::{self, Finished, Source};
use crate::wire::{Fault, Message, Stages};
use crate::{Error, engine};

/// How often a stop is asked for while nothing arrives.
const TICK: Duration = Duration::from_millis(100);

/// What came of a transfer as a whole.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Thread time of both sides' stages.
    pub stages: Stages,
    /// Bytes of content that crossed the link.
    pub moved: u64,
    /// Bytes of content that did not have to.
    pub kept: u64,
    /// Names that the receiver has and the sender has not, and all names that were compared.
    pub extra: (u64, u64),
    /// What failed in the last sync of the receiver, or that more would have been deleted than may be.
    pub failed: Option<Fault>,
}

/// Who is told, and who is asked whether to go on.
pub trait Watcher {
    /// Something happened to an entry.
    fn event(&mut self, event: Event);
    /// Bytes moved and kept so far; whether to go on.
    fn tick(&mut self, moved: u64, kept: u64) -> bool;
}

/// Threads of one transfer: the hashing of one file takes as many.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8) + 1
}

struct Pool<J> {
    jobs: Option<Sender<J>>,
    threads: Vec<JoinHandle<()>>,
    line: Arc<Line>,
}

impl<J: Send + 'static> Pool<J> {
    /// One thread for each worker.
    fn start<W: FnMut(J) -> Incoming + Send + 'static>(
        line: &Arc<Line>,
        post: &SyncSender<Incoming>,
        workers: Vec<W>,
    ) -> Result<Pool<J>, Error> {
        let (jobs, queue) = channel();
        let queue: Arc<Mutex<Receiver<J>>> = Arc::new(Mutex::new(queue));
        let mut pool = Pool { jobs: Some(jobs), threads: Vec::new(), line: line.clone() };
        for mut work in workers {
            let (queue, post) = (queue.clone(), post.clone());
            let body = move || {
                let next = || queue.lock().unwrap_or_else(|e| e.into_inner()).recv();
                while let Ok(job) = next() {
                    if post.send(work(job)).is_err() {
                        return;
                    }
                }
            };
            let thread = thread::Builder::new().name("files".into()).spawn(body);
            pool.threads.push(thread.map_err(|error| Error::system("a thread", error))?);
        }
        Ok(pool)
    }

    /// Ends them. With `cut` what is under way on the link ends with it, and what arrives meanwhile is thrown away. Without it every
    /// job has reported, and what arrives is the peer's next request.
    fn stop(mut self, control: &Control, cut: bool) {
        self.jobs.take();
        if cut {
            self.line.close();
        }
        for thread in self.threads.drain(..) {
            // It may wait for space in the inbox.
            while cut && !thread.is_finished() {
                let _ = control.inbox.recv_timeout(Duration::from_millis(1));
            }
            let _ = thread.join();
        }
    }
}

fn drive<E: Engine>(
    engine: &mut E,
    control: &Control,
    pool: &Pool<E::Job>,
    done: impl Fn(Incoming) -> Option<E::Done>,
    clock: &Clock,
    watcher: &mut dyn Watcher,
) -> Result<(), Error>
where
    E::Job: 'static,
{
    loop {
        engine.pump();
        while let Some(message) = engine.message() {
            control.send(&message)?;
        }
        while let (Some(job), Some(jobs)) = (engine.job(), &pool.jobs) {
            if jobs.send(job).is_err() {
                return Err(Error::Lost("a thread of this program has ended".into()));
            }
        }
        while let Some(event) = engine.event() {
            watcher.event(event);
        }
        if engine.is_over() {
            return control.settle();
        }
        if !watcher.tick(clock.moved(), clock.kept()) {
            return Err(Error::Stopped);
        }
        match control.inbox.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Lost("its reader has ended".into())),
            Ok(Incoming::Message(message)) => engine.on(message)?,
            Ok(Incoming::Lost(why)) => return Err(Error::Lost(why)),
            Ok(Incoming::Malformed(malformed)) => return Err(malformed.into()),
            Ok(Incoming::Bulk(..)) => return Err(engine::Violation("it connects twice").into()),
            Ok(other) => {
                if let Some(done) = done(other)
                    && engine.done(done).is_err()
                {
                    return Err(Error::Lost("the path for data ended".into()));
                }
            }
        }
    }
}

/// Sends, over this bulk connection, into the slots of this message.
pub(crate) fn send<F: Fs>(
    mut engine: Source<F>,
    control: &Control,
    line: &Arc<Line>,
    slots: Message,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, Error> {
    let (load, clock) = (engine.load().clone(), engine.clock().clone());
    let writers = Writer::all(line, &slots, load.geometry, threads())?;
    engine.on(slots)?;
    let worker = |mut writer: Writer| {
        let (load, clock) = (load.clone(), clock.clone());
        move |job: source::Job<F>| Incoming::Sent(Source::work(&load, job, &mut writer, &clock))
    };
    let pool = Pool::start(line, &control.post, writers.into_iter().map(worker).collect())?;
    let done = |incoming| if let Incoming::Sent(done) = incoming { Some(done) } else { None };
    let result = drive(&mut engine, control, &pool, done, &clock, watcher);
    pool.stop(control, result.is_err());
    result?;
    let (theirs, extra, failed) = match engine.finished() {
        Some(Finished { stages, extra, result }) => (*stages, *extra, result.clone().err()),
        None => Default::default(),
    };
    Ok(Outcome { stages: clock.stages().plus(theirs), moved: clock.moved(), kept: clock.kept(), extra, failed })
}

/// Receives over this bulk connection.
pub(crate) fn receive<F: Fs>(
    place: sink::DestDir<F>,
    control: &Control,
    line: &Arc<Line>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, Error> {
    let geometry: Geometry = place.geometry;
    let (slots, message) = Slots::expose(line, geometry)?;
    let (slots, clock) = (Arc::new(slots), Arc::new(Clock::default()));
    let mut engine = Sink::new(place, clock.clone())?;
    control.send(&message)?;
    let worker = |_| {
        let (place, slots, clock) = (engine.place().clone(), slots.clone(), clock.clone());
        let mut scratch = vec![0; geometry.chunk as usize];
        move |job: sink::Job<F>| Incoming::Sunk(Sink::work(&place, job, &*slots, &clock, &mut scratch))
    };
    let pool = Pool::start(line, &control.post, (0..threads()).map(worker).collect())?;
    let done = |incoming| if let Incoming::Sunk(done) = incoming { Some(done) } else { None };
    let result = drive(&mut engine, control, &pool, done, &clock, watcher);
    pool.stop(control, result.is_err());
    result?;
    let (extra, failed) = (engine.extra(), engine.failed().cloned());
    Ok(Outcome { stages: clock.stages(), moved: clock.moved(), kept: clock.kept(), extra, failed })
}
