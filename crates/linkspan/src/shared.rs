//! A transport as its threads share it: the lock, who drives, and how the others wait.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use linkspan_fabric::WaitFd;
use linkspan_net::{Notifier, WaitSet};

use crate::Error;
use crate::engine::{LOOK, Serve, Served};
use crate::memory::Hold;
use crate::ops::{Leftovers, Numbered, OpId};
use crate::state::{Driver, TransportState};

/// How long a blocking call spins before it sleeps: ten times what a sleep and a wake-up cost, so that it loses little where it
/// sleeps after all, and an answer within a network's round trip finds it awake.
const SPIN: Duration = Duration::from_micros(50);

/// How long it spins before it yields the processor between two looks at the clock: where no thread wants it, a yield costs 0.2 us, as
/// much as a message over shared memory takes; where one does, it is mostly the one whose answer is waited for.
const YIELD_AFTER: Duration = Duration::from_micros(2);

/// Steps between two looks at the clock (25 ns each) and at other threads.
const CLOCK_STEPS: u32 = 8;

/// Steps that moved something between two looks at the clock: a copy of many MiB keeps its timeout too.
const ACTIVE_STEPS: u32 = 8;

/// Operations done without the peer between two looks at the clock.
const ALONE: u32 = 16;

/// Longest sleep of a thread that waits for another one's driving; it is woken when anything has happened.
const FOLLOW: Duration = Duration::from_millis(100);

/// How often a waiting thread asks whether it shall stop: soon enough for a key pressed by a person.
const ASK: Duration = Duration::from_millis(100);

/// Steps of one question whether an operation has reported: as many as a receive takes that comes in several parts.
const ASKED_STEPS: usize = 16;

/// How often the engine thread looks at a transport whose driver sleeps and wakes it when it leaves.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// Steps of one service by the engine thread, so that it gets to its other transports.
const SERVICE: usize = 256;

// Two transports that lie beside each other are driven by two threads: with a cache line in common, turns over shared memory took twice as long.
// Processors fetch lines of 64 bytes in pairs.
#[repr(align(128))]
pub(crate) struct Shared {
    own: Weak<Shared>,
    state: Mutex<TransportState>,
    cond: Condvar,
    /// Wakes the driver out of its sleep.
    notifier: Notifier,
    sleeper: Mutex<(Vec<WaitFd>, WaitSet)>,
    /// Threads that want the lock.
    wants: AtomicU32,
    /// Blocking calls so far.
    calls: AtomicU32,
    /// Of these, what the engine thread has seen.
    calls_seen: AtomicU32,
    /// A blocking call drives.
    driving: AtomicBool,
    /// Operations are asked after, by a thread that so drives them.
    asked: AtomicBool,
    /// The engine is to drive although blocking calls have lately.
    urgent: AtomicBool,
    /// Rung for every report, for foreign event loops; one for all transports of an endpoint.
    event: Arc<OnceLock<Notifier>>,
    /// Asked now and then by threads that wait in blocking calls: whether they shall stop waiting.
    stop: OnceLock<Box<Stop>>,
}

type Stop = dyn Fn() -> bool + Send + Sync;

pub(crate) type Guard<'a> = MutexGuard<'a, TransportState>;

impl Shared {
    pub(crate) fn new(state: TransportState) -> Result<Arc<Shared>, Error> {
        Shared::with_notifier(state, Arc::default())
    }

    pub(crate) fn with_notifier(state: TransportState, event: Arc<OnceLock<Notifier>>) -> Result<Arc<Shared>, Error> {
        let ctx = state.ctx.clone();
        let notifier = Notifier::new().map_err(Error::system("eventfd"))?;
        let shared = Arc::new_cyclic(|own| Shared {
            own: own.clone(),
            state: Mutex::new(state),
            cond: Condvar::new(),
            notifier,
            sleeper: Mutex::default(),
            wants: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            calls_seen: AtomicU32::new(0),
            driving: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            urgent: AtomicBool::new(false),
            event,
            stop: OnceLock::new(),
        });
        let served: Arc<dyn Serve> = shared.clone();
        ctx.serve(Arc::downgrade(&served));
        Ok(shared)
    }

    /// The lock. A driver that holds it is asked to release it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.wants.fetch_add(1, Ordering::Relaxed);
        let guard = self.state.lock().unwrap_or_else(|e| e.into_inner());
        self.wants.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Opens the lock and does what must not be done under it.
    #[inline]
    pub(crate) fn unlock(&self, mut guard: Guard<'_>) {
        let news = guard.ops.finished != 0;
        guard.ops.finished = 0;
        let left = if guard.ops.left.is_empty() { None } else { Some(std::mem::take(&mut guard.ops.left)) };
        let followers = news && guard.followers > 0;
        let events = if guard.news { guard.queue() } else { None };
        drop(guard);
        if news && let Some(event) = self.event.get() {
            event.signal();
        }
        if let (Some(events), Some(own)) = (events, self.own.upgrade()) {
            events.push(own);
        }
        if followers {
            self.cond.notify_all();
        }
        if let Some(Leftovers { wakers, holds }) = left {
            wakers.into_iter().for_each(std::task::Waker::wake);
            drop(holds);
        }
    }

    /// After an operation was submitted without waiting: makes sure that a thread drives it.
    pub(crate) fn see_to_it(&self, mut guard: Guard<'_>) {
        guard.pump();
        if let Some(ch) = guard.channel() {
            ch.flush();
        }
        let driver = guard.driver;
        let ctx = (driver == Driver::Nobody).then(|| guard.ctx.clone());
        self.unlock(guard);
        if driver == Driver::Asleep {
            self.notifier.signal();
        }
        if let Some(ctx) = ctx {
            self.urgent.store(true, Ordering::SeqCst);
            ctx.kick();
        }
    }

    /// After an operation was submitted whose caller drives it soon, unless another thread sleeps as the driver.
    pub(crate) fn leave(&self, guard: Guard<'_>) {
        match guard.driver {
            Driver::Asleep => self.see_to_it(guard),
            _ => self.unlock(guard),
        }
    }

    /// After an operation was submitted that its thread waits for later. A thread that asks after its operations drives them; the engine is
    /// woken for those of others, but for one that was done at once.
    pub(crate) fn begun<'a>(&'a self, mut guard: Guard<'a>) {
        if guard.driver != Driver::Nobody {
            return self.see_to_it(guard);
        }
        let asked = self.asked.load(Ordering::Relaxed);
        if asked {
            guard = self.enter(guard);
        }
        let alone = guard.ops.alone;
        guard.pump();
        if !asked {
            if guard.ops.alone == alone {
                return self.see_to_it(guard);
            }
            guard = self.enter(guard);
        }
        if let Some(ch) = guard.channel() {
            ch.flush();
        }
        look_after(&mut guard, alone);
        self.unlock(guard);
    }

    /// Whether an operation has reported, the notification that it was given, and its memory; moves things on where nobody does.
    pub(crate) fn ask(&self, id: OpId) -> (Option<Result<u64, Error>>, Option<Numbered>, Option<Hold>) {
        let mut guard = self.lock();
        if !guard.ops.is_reported(id) && guard.driver == Driver::Nobody {
            // The engine looks after those that are to be woken; a step ends the sleep that it has prepared.
            if guard.ops.woken_later == 0 {
                guard = self.enter(guard);
                self.asked.store(true, Ordering::Relaxed);
            } else {
                self.disarm(&mut guard);
            }
            for _ in 0..ASKED_STEPS {
                if !guard.step() || guard.ops.is_reported(id) {
                    break;
                }
            }
            if !guard.ops.is_reported(id) {
                guard.after_sleep();
                guard.expire(Instant::now());
            }
        }
        let given = guard.ops.given(id);
        let (report, hold) = guard.ops.take(id).unzip();
        let report = report.map(|result| result.map_err(|fail| guard.error(fail)));
        self.unlock(guard);
        (report, given, hold.flatten())
    }

    /// Wakes everybody: something was ended from outside.
    pub(crate) fn wake_all(&self, guard: Guard<'_>) {
        let ctx = guard.ctx.clone();
        self.unlock(guard);
        self.notifier.signal();
        self.cond.notify_all();
        self.urgent.store(true, Ordering::SeqCst);
        ctx.kick();
    }

    /// Drives until the operation has reported.
    pub(crate) fn run(&self, guard: Guard<'_>, id: OpId) -> Result<u64, Error> {
        let mut guard = self.enter(guard);
        let arrival = guard.ops.is_arrival(id);
        if arrival && !guard.ops.is_reported(id) {
            guard.unanswered();
        }
        let (mut asked, alone) = (None::<Instant>, guard.ops.alone);
        let (result, hold): (_, Option<Hold>) = loop {
            guard.pump();
            if let Some(report) = guard.ops.take(id) {
                break report;
            }
            let (sleeps, stop) = (guard.sleeps, self.stop.get());
            guard = match guard.driver {
                Driver::Nobody => {
                    self.drive(guard, |state| state.ops.is_reported(id) || (stop.is_some() && state.sleeps != sleeps))
                }
                other => {
                    // It may be this thread, in a waker: a call whose time is up does not wait for it.
                    guard.expire(Instant::now());
                    if guard.ops.is_reported(id) {
                        // What it sleeps on may have ended too.
                        self.notifier.signal();
                        guard
                    } else {
                        self.follow(guard, other)
                    }
                }
            };
            if let Some(stop) = stop
                && !guard.ops.is_reported(id)
                && asked.get_or_insert_with(Instant::now).elapsed() >= ASK
            {
                self.unlock(guard);
                if stop() {
                    self.leave_off(&mut self.lock());
                    self.forget(id);
                    return Err(Error::Aborted);
                }
                asked = Some(Instant::now());
                guard = self.lock();
            }
        };
        if guard.driver == Driver::Nobody {
            look_after(&mut guard, alone);
        }
        self.leave_off(&mut guard);
        let result = result.map_err(|fail| guard.error(fail));
        if arrival {
            guard.handed_over();
        }
        if guard.member.as_ref().is_some_and(|member| member.events.is_awaited()) {
            self.leave_to_engine();
            guard.ctx.kick();
        }
        self.unlock(guard);
        drop(hold);
        result
    }

    /// Ends an operation whose report will not be taken: nothing of it touches local memory when this returns.
    pub(crate) fn forget(&self, id: OpId) {
        let mut guard = self.lock();
        let (unread, in_use) = guard.drop_op(id);
        if in_use {
            guard.revoke("an operation under way was dropped", Instant::now());
            guard.ops.drop_now(id);
        }
        if let Some((number, value)) = unread {
            guard.give_back(number, value);
        }
        // What has ended with it may be waited for by a thread that sleeps.
        if in_use || guard.ops.finished != 0 { self.see_to_it(guard) } else { self.unlock(guard) }
    }

    /// What waiting threads ask; the first one stays.
    pub(crate) fn stop_when(&self, stop: Box<Stop>) {
        let _ = self.stop.set(stop);
    }

    /// Drives until `done` says so or `until` is over. True: it was done.
    pub(crate) fn run_until(&self, until: Instant, mut done: impl FnMut(&mut TransportState) -> bool) -> bool {
        let mut guard = self.enter(self.lock());
        let done = loop {
            if done(&mut guard) {
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
            guard = match guard.driver {
                Driver::Nobody => self.drive(guard, |state| done(state) || Instant::now() >= until),
                other => self.follow(guard, other),
            };
        };
        self.leave_off(&mut guard);
        self.unlock(guard);
        done
    }

    /// A blocking call begins: the engine thread leaves this transport alone for a while.
    #[inline]
    fn enter<'a>(&'a self, mut guard: Guard<'a>) -> Guard<'a> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(member) = &guard.member {
            member.events.note_driven();
        }
        self.disarm(&mut guard);
        guard
    }

    /// The engine thread sleeps on the descriptors of this transport no more.
    #[inline]
    fn disarm(&self, guard: &mut Guard<'_>) {
        if std::mem::replace(&mut guard.armed, false) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            guard.ctx.kick();
        }
    }

    /// A call has ended: the engine thread looks again at what it has left alone beside its driver, where that has gone.
    fn leave_off(&self, guard: &mut Guard<'_>) {
        if guard.left_alone && guard.driver == Driver::Nobody {
            guard.left_alone = false;
            self.calls.fetch_add(1, Ordering::SeqCst);
            guard.ctx.kick();
        }
    }

    /// The engine thread drives from here on, although blocking calls have lately; once it was kicked.
    pub(crate) fn leave_to_engine(&self) {
        self.urgent.store(true, Ordering::SeqCst);
    }

    /// Waits until the driver has something to tell, or leaves.
    fn follow<'a>(&'a self, mut guard: Guard<'a>, driver: Driver) -> Guard<'a> {
        if driver == Driver::Asleep {
            // What this thread has posted may want other descriptors.
            if let Some(ch) = guard.channel() {
                ch.flush();
            }
            self.notifier.signal();
        }
        guard.followers += 1;
        let waited = self.cond.wait_timeout(guard, FOLLOW);
        let mut guard = waited.unwrap_or_else(|e| e.into_inner()).0;
        guard.followers -= 1;
        guard
    }

    /// Drives until `done`, spinning first and sleeping then.
    fn drive<'a>(&'a self, mut guard: Guard<'a>, mut done: impl FnMut(&mut TransportState) -> bool) -> Guard<'a> {
        guard.driver = Driver::Awake;
        self.driving.store(true, Ordering::Relaxed);
        // While this thread waited for another driver, the engine may have armed it.
        self.disarm(&mut guard);
        let (mut steps, mut active, mut idle_since) = (0u32, 0u32, None::<Instant>);
        while !done(&mut guard) {
            if guard.step() {
                idle_since = None;
                active += 1;
                if active.is_multiple_of(ACTIVE_STEPS) {
                    guard.expire(Instant::now());
                }
                if guard.followers > 0 || !guard.ops.left.is_empty() {
                    guard = self.breathe(guard, false);
                }
                continue;
            }
            steps += 1;
            if !steps.is_multiple_of(CLOCK_STEPS) {
                continue;
            }
            let now = Instant::now();
            guard.expire(now);
            let idle = now - *idle_since.get_or_insert(now);
            if idle > SPIN {
                if done(&mut guard) {
                    break;
                }
                guard = self.sleep(guard);
                idle_since = None;
            } else if idle > YIELD_AFTER || self.wants.load(Ordering::Relaxed) > 0 {
                guard = self.breathe(guard, idle > YIELD_AFTER);
            }
        }
        guard.driver = Driver::Nobody;
        self.driving.store(false, Ordering::Relaxed);
        if guard.followers > 0 {
            self.cond.notify_all();
        } else if guard.ops.woken_later > 0 {
            self.urgent.store(true, Ordering::SeqCst);
            guard.ctx.kick();
        }
        guard
    }

    /// Lets others have the lock, and with `yields` the processor.
    fn breathe<'a>(&'a self, guard: Guard<'a>, yields: bool) -> Guard<'a> {
        self.unlock(guard);
        if yields {
            std::thread::yield_now();
        }
        for _ in 0..64 {
            if self.wants.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn sleep<'a>(&'a self, mut guard: Guard<'a>) -> Guard<'a> {
        let mut sleeper = self.sleeper.lock().unwrap_or_else(|e| e.into_inner());
        let (fds, set) = &mut *sleeper;
        fds.clear();
        set.clear();
        self.notifier.drain();
        let now = Instant::now();
        let Some(most) = guard.arm(fds, now) else { return guard };
        set.add(self.notifier.wait_fd());
        for fd in fds.iter() {
            set.add(*fd);
        }
        (guard.driver, guard.asleep) = (Driver::Asleep, now);
        self.unlock(guard);
        let most = if self.stop.get().is_some() { most.min(ASK) } else { most };
        // An interrupted or failed sleep is a short one.
        let _ = set.wait(Some(most));
        let mut guard = self.lock();
        guard.driver = Driver::Awake;
        guard.sleeps = guard.sleeps.wrapping_add(1);
        guard.after_sleep();
        guard.expire(Instant::now());
        guard
    }

    /// Rung whenever an operation has reported; made at the first call.
    pub(crate) fn event(&self) -> Result<&Notifier, Error> {
        made(&self.event)
    }

    /// Moves what can move, without waiting. True where something did.
    pub(crate) fn poll(&self) -> bool {
        let mut guard = self.lock();
        // One that an endpoint's transports share is the endpoint's to drain.
        if let (Some(event), None) = (self.event.get(), &guard.member) {
            event.drain();
        }
        let mut active = false;
        if guard.driver == Driver::Nobody {
            guard.armed = false;
            for _ in 0..SERVICE {
                if !guard.step() {
                    break;
                }
                active = true;
            }
            guard.expire(Instant::now());
        }
        self.see_to_it(guard);
        active
    }
}

/// What rings for foreign event loops, made at the first call.
pub(crate) fn made(place: &OnceLock<Notifier>) -> Result<&Notifier, Error> {
    if let Some(notifier) = place.get() {
        return Ok(notifier);
    }
    let made = Notifier::new().map_err(Error::system("eventfd"))?;
    let notifier = place.get_or_init(|| made);
    // Reports and events of before are told too.
    notifier.signal();
    Ok(notifier)
}

/// After a call that may have done operations without the peer, `alone` before: nobody has driven the path for these, and a thread that makes
/// them one after the other keeps the engine thread from it, too.
#[inline]
fn look_after(state: &mut TransportState, alone: u32) {
    if state.ops.alone == alone {
        return;
    }
    state.step();
    if state.ops.alone.is_multiple_of(ALONE) {
        state.after_sleep();
        state.expire(Instant::now());
    }
}

impl Serve for Shared {
    fn serve(&self, fds: &mut Vec<WaitFd>, now: Instant) -> Served {
        if self.driving.load(Ordering::Relaxed) {
            // Not by the lock that a driver who is awake is asked to open.
            return match self.state.try_lock() {
                Ok(mut guard)
                    if guard.driver == Driver::Asleep && now.saturating_duration_since(guard.asleep) >= LOOK =>
                {
                    guard.left_alone = true;
                    Served::Armed(LEFT_ALONE)
                }
                _ => Served::Driven,
            };
        }
        let calls = self.calls.load(Ordering::Relaxed);
        let driven = self.calls_seen.swap(calls, Ordering::Relaxed) != calls;
        let urgent = self.urgent.swap(false, Ordering::SeqCst);
        if driven && !urgent {
            return Served::Driven;
        }
        let mut guard = self.lock();
        if guard.driver != Driver::Nobody {
            return Served::Driven;
        }
        self.asked.store(false, Ordering::Relaxed);
        guard.after_sleep();
        guard.unanswered();
        let mut left = SERVICE;
        while left > 0 && guard.step() {
            left -= 1;
        }
        guard.expire(now);
        let served = if guard.is_over() {
            Served::Over
        } else if left == 0 {
            Served::Again
        } else {
            let before = fds.len();
            match guard.arm(fds, now) {
                Some(most) => {
                    guard.armed = true;
                    Served::Armed(most)
                }
                None => {
                    fds.truncate(before);
                    Served::Again
                }
            }
        };
        self.unlock(guard);
        served
    }

    fn is_changed(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
            || self.calls.load(Ordering::SeqCst) != self.calls_seen.load(Ordering::Relaxed)
    }
}
