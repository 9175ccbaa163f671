//! The helper threads: which there are, which rails each one serves, and where it runs.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linkspan_net::WaitSet;
use linkspan_transport::Rail;
use rtrb::RingBuffer;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::HelpedRail;
use super::queue::{BYTES, ITEMS, Sleeper, WorkerQueue};
use super::slot::{Ends, Turn, WorkerSlot};
use crate::TcpRail;

/// Most helper threads of a process. More than a few cards have faster links than one core can serve; eight of them
/// are as many cores as a job can spare.
pub const HELPERS_MAX: usize = 8;

/// How long a thread looks for work before it sleeps: what going to sleep and waking up cost (some 5 us each, more from
/// a deep idle state), a few times over.
const SPIN: Duration = Duration::from_micros(50);

/// Threads of this process, one bit for each number.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The helper threads of a fabric. A thread starts with the first rail that needs it and ends with its last one.
/// May be used from any thread.
#[derive(Debug)]
pub struct Helpers {
    per_card: usize,
    cards: Mutex<Vec<Card>>,
}

#[derive(Debug)]
struct Card {
    name: String,
    helpers: Vec<Weak<Helper>>,
}

/// A thread. Dropping it ends the thread and waits for that; it has no rail then.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) shared: Arc<WorkerShared>,
    thread: Option<JoinHandle<()>>,
    /// As in `linkspan-nic0 on CPUs 0-7`.
    about: String,
    process: u32,
}

/// What the thread and its callers share.
#[derive(Debug)]
pub(super) struct WorkerShared {
    /// The thread, which its callers wake.
    sleeper: Sleeper,
    stop: AtomicBool,
    /// There is something in `inbox`.
    mail: AtomicBool,
    /// Rails on their way to the thread; `None` when it has ended.
    inbox: Mutex<Option<Vec<WorkerSlot>>>,
}

impl std::fmt::Debug for WorkerSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerSlot")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkerShared {
    /// Wakes the thread where it sleeps, after something was changed that it looks at.
    pub(super) fn notify(&self) {
        self.sleeper.notify();
    }
}

impl Helpers {
    /// At most `per_card` threads for each network card, and [`HELPERS_MAX`] in the process.
    pub fn new(per_card: usize) -> Helpers {
        Helpers { per_card, cards: Mutex::default() }
    }

    /// Gives `rail` to a thread of `card`, the one with the fewest rails, which runs on those of `cpus` that this
    /// process may use (on any, where there are none).
    ///
    /// # Errors
    /// The rail, which works without a thread as before, and the reason as text for the log.
    pub fn take(&self, rail: TcpRail, card: &str, cpus: &[u32]) -> Result<HelpedRail, (Box<TcpRail>, String)> {
        match self.helper(card, cpus) {
            Ok(helper) => slot(rail, helper),
            Err(why) => Err((Box::new(rail), why)),
        }
    }

    fn helper(&self, card: &str, cpus: &[u32]) -> Result<Arc<Helper>, String> {
        let mut cards = locked(&self.cards);
        let at = cards.iter().position(|c| c.name == card).unwrap_or_else(|| {
            cards.push(Card { name: card.to_owned(), helpers: Vec::new() });
            cards.len() - 1
        });
        let helpers = &mut cards[at].helpers;
        helpers.retain(|h| h.strong_count() > 0);
        let there = helpers.iter().filter_map(Weak::upgrade).filter(|h| locked(&h.shared.inbox).is_some());
        // Ours is one of the references.
        let least = there.min_by_key(Arc::strong_count);
        if let Some(helper) = least.as_ref().filter(|h| Arc::strong_count(h) <= 1 || helpers.len() >= self.per_card) {
            return Ok(helper.clone());
        }
        match start(cpus) {
            Ok(helper) => {
                helpers.push(Arc::downgrade(&helper));
                Ok(helper)
            }
            Err(why) => least.ok_or(why),
        }
    }
}

fn slot(rail: TcpRail, helper: Arc<Helper>) -> Result<HelpedRail, (Box<TcpRail>, String)> {
    let made = rail.stream().as_fd().try_clone_to_owned().and_then(|probe| Ok((probe, WorkerQueue::new()?)));
    let (probe, queue) = match made {
        Ok(made) => made,
        Err(error) => return Err((Box::new(rail), error.to_string())),
    };
    let queue = Arc::new(queue);
    let mut info = rail.info().clone();
    info.reason = format!("{}; helper thread {}", info.reason, helper.about);
    let (posts, post_end) = RingBuffer::new(ITEMS);
    let (bodies, body_end) = RingBuffer::new(BYTES);
    let (answers, answer_end) = RingBuffer::new(1);
    let (arrival_end, arrivals) = RingBuffer::new(ITEMS);
    let (text_end, texts) = RingBuffer::new(BYTES);
    let ends = Ends { posts: post_end, bodies: body_end, answers: answer_end, arrivals: arrival_end, texts: text_end };
    let mut slot = WorkerSlot::new(rail, queue.clone(), ends);
    {
        let mut inbox = locked(&helper.shared.inbox);
        let Some(list) = &mut *inbox else {
            drop(inbox);
            let why = "the helper thread has ended".to_owned();
            return Err((Box::new(slot.vacate().expect("a new slot has its rail")), why));
        };
        list.push(slot);
        helper.shared.mail.store(true, Release);
    }
    helper.shared.notify();
    Ok(HelpedRail {
        info,
        queue,
        helper,
        posts,
        bodies,
        answers,
        arrivals,
        texts,
        whole: Vec::with_capacity(linkspan_proto::head::EAGER_MAX),
        probe: Some(probe),
        accepted: 0,
        seen: 0,
        posted: false,
        armed: false,
        end: None,
        process: std::process::id(),
    })
}

/// Those of `cpus` that this process may use.
fn allowed(cpus: &[u32]) -> Vec<u32> {
    let Ok(ours) = sched_getaffinity(None) else { return Vec::new() };
    cpus.iter().copied().filter(|&cpu| (cpu as usize) < CpuSet::MAX_CPU && ours.is_set(cpu as usize)).collect()
}

/// Ascending numbers in the kernel's list format, as in `0-3,8`.
fn list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(cpu, want)| *cpu == want).count();
        let last = rest[run - 1];
        let comma = if text.is_empty() { "" } else { "," };
        text += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
        rest = &rest[run..];
    }
    text
}

/// The number of a thread, its own as long as it lives.
struct Number(u32);

impl Number {
    fn take() -> Option<Number> {
        let free = |live: usize| live.trailing_ones();
        let more = |live| ((free(live) as usize) < HELPERS_MAX).then(|| live | 1 << free(live));
        LIVE.fetch_update(AcqRel, Relaxed, more).ok().map(|live| Number(free(live)))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        LIVE.fetch_and(!(1 << self.0), AcqRel);
    }
}

fn start(cpus: &[u32]) -> Result<Arc<Helper>, String> {
    let number = Number::take().ok_or_else(|| format!("this process has {HELPERS_MAX} helper threads already"))?;
    let cpus = allowed(cpus);
    let name = format!("linkspan-nic{}", number.0);
    let about = match cpus.as_slice() {
        [] => format!("{name}, not pinned"),
        cpus => format!("{name} on CPUs {}", list(cpus)),
    };
    let shared = WorkerShared {
        sleeper: Sleeper::new().map_err(|e| e.to_string())?,
        stop: AtomicBool::new(false),
        mail: AtomicBool::new(false),
        inbox: Mutex::new(Some(Vec::new())),
    };
    let shared = Arc::new(shared);
    let theirs = shared.clone();
    let work = move || {
        let _number = number;
        // The process's signal handlers run on its own threads.
        linkspan_net::block_signals();
        if !cpus.is_empty() {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu as usize));
            // It was allowed a moment ago; where it is not any more, the thread runs where it may.
            let _ = sched_setaffinity(None, &set);
        }
        serve(WorkerState { shared: theirs, slots: Vec::new() });
    };
    let thread = std::thread::Builder::new().name(name).spawn(work).map_err(|e| e.to_string())?;
    Ok(Arc::new(Helper { shared, thread: Some(thread), about, process: std::process::id() }))
}

impl Drop for Helper {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.process != std::process::id() {
            // A fork has the handle and not the thread.
            std::mem::forget(thread);
            return;
        }
        self.shared.stop.store(true, Release);
        self.shared.notify();
        // A panic there has ended its rails, which have said so.
        let _ = thread.map(JoinHandle::join);
    }
}

/// The rails of a thread, which it lets go of when it ends, however it ends.
struct WorkerState {
    shared: Arc<WorkerShared>,
    slots: Vec<WorkerSlot>,
}

impl Drop for WorkerState {
    fn drop(&mut self) {
        let late = locked(&self.shared.inbox).take();
        drop(late);
    }
}

fn serve(mut state: WorkerState) {
    let mut set = WaitSet::new();
    let mut idle: Option<Instant> = None;
    while !state.shared.stop.load(Acquire) {
        let mut active = false;
        if state.shared.mail.swap(false, AcqRel) {
            state.slots.extend(locked(&state.shared.inbox).iter_mut().flat_map(std::mem::take));
            active = true;
        }
        state.slots.retain_mut(|slot| match slot.turn() {
            Turn::Over => false,
            turn => {
                active |= turn == Turn::Active;
                true
            }
        });
        if active {
            idle = None;
        } else if idle.get_or_insert_with(Instant::now).elapsed() < SPIN {
            std::hint::spin_loop();
        } else if sleep(&mut state, &mut set) {
            idle = None;
        }
    }
}

/// Sleeps until there is something to do. False where there was already.
fn sleep(state: &mut WorkerState, set: &mut WaitSet) -> bool {
    let shared = &state.shared;
    shared.sleeper.arm();
    set.clear();
    set.add(shared.sleeper.wait_fd());
    let mut ready = !shared.stop.load(Acquire) && !shared.mail.load(Acquire);
    for slot in &mut state.slots {
        match slot.arm() {
            Ok(fd) => drop(fd.map(|fd| set.add(fd))),
            Err(()) => ready = false,
        }
    }
    if ready {
        // An interrupted or failed sleep is a short one.
        let _ = set.wait(None);
    }
    shared.sleeper.awake();
    ready
}

#[cfg(test)]
mod tests;
