//! The engine thread: one for all transports of a context. It drives those that no call drives, and sleeps when there
//! is nothing to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use linkspan_fabric::WaitFd;
use linkspan_net::{Notifier, WaitSet};

use crate::Error;

/// How often the engine looks at transports that blocking calls have driven since its last look. It takes one over when a
/// look finds that no call has driven it; until then its descriptors are left to the callers.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// What came of a service.
pub(crate) enum Served {
    /// Others drive it: look again soon.
    Driven,
    /// It sleeps on the descriptors it added, at most so long.
    Armed(Duration),
    /// There is more to do.
    Again,
    /// Nothing will ever be to do.
    Over,
}

/// What the engine drives.
pub(crate) trait Serve: Send + Sync {
    fn serve(&self, fds: &mut Vec<WaitFd>, now: Instant) -> Served;

    /// Whether another thread has changed it since it was served.
    fn is_changed(&self) -> bool {
        false
    }
}

/// One of them, as it was last served.
struct Entry {
    served: Weak<dyn Serve>,
    fds: Vec<WaitFd>,
    /// Place of the first of these in the set.
    at: usize,
    /// When it is to be served whatever happens; where the thread is awake, from half of that time on, so that one wake-up serves many.
    until: Option<Instant>,
    early: Option<Instant>,
}

impl Entry {
    fn new(served: Weak<dyn Serve>) -> Entry {
        let mut entry = Entry { served, fds: Vec::new(), at: 0, until: None, early: None };
        entry.again(Instant::now(), Some(Duration::ZERO));
        entry
    }

    /// It is to be served within this time.
    fn again(&mut self, now: Instant, limit: Option<Duration>) {
        (self.until, self.early) = (limit.map(|limit| now + limit), limit.map(|limit| now + limit / 2));
    }

    fn is_due(&self, set: &WaitSet, now: Instant) -> bool {
        self.early.is_some_and(|early| now >= early) || (self.at..self.at + self.fds.len()).any(|at| set.woke(at))
    }
}

pub(crate) struct Engine {
    added: Mutex<Vec<Weak<dyn Serve>>>,
    notifier: Notifier,
    stop: AtomicBool,
}

impl Engine {
    /// Starts the thread; it ends when [`Engine::stop`] is called.
    pub(crate) fn start() -> Result<Arc<Engine>, Error> {
        let notifier = Notifier::new().map_err(Error::system("eventfd"))?;
        let engine = Arc::new(Engine { added: Mutex::default(), notifier, stop: AtomicBool::new(false) });
        let own = engine.clone();
        let spawned = std::thread::Builder::new().name("linkspan".into()).spawn(move || own.run());
        spawned.map_err(Error::system("spawning the engine thread"))?;
        Ok(engine)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.notifier.signal();
    }

    pub(crate) fn add(&self, served: Weak<dyn Serve>) {
        self.added.lock().unwrap_or_else(|e| e.into_inner()).push(served);
        self.notifier.signal();
    }

    /// Makes the engine look at what has changed now.
    pub(crate) fn kick(&self) {
        self.notifier.signal();
    }

    /// Serves those whose descriptors woke it, whose time has come or that were changed: a message of one of many peers costs nothing for
    /// the others but their places in the set.
    fn run(&self) {
        let (mut entries, mut set): (Vec<Entry>, WaitSet) = (Vec::new(), WaitSet::new());
        let mut blind = false;
        loop {
            // Before the look at what it may have been rung for: the ring of a stop after that look is kept for the sleep.
            self.notifier.drain();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let added = std::mem::take(&mut *self.added.lock().unwrap_or_else(|e| e.into_inner()));
            entries.extend(added.into_iter().map(Entry::new));
            let now = Instant::now();
            entries.retain_mut(|entry| {
                let Some(served) = entry.served.upgrade() else { return false };
                if blind || entry.is_due(&set, now) || served.is_changed() {
                    entry.fds.clear();
                    let limit = match served.serve(&mut entry.fds, now) {
                        Served::Driven => Some(LOOK),
                        Served::Armed(limit) => Some(limit),
                        Served::Again => Some(Duration::ZERO),
                        Served::Over => None,
                    };
                    entry.again(now, limit);
                }
                true
            });
            set.clear();
            set.add(self.notifier.wait_fd());
            let mut next = None::<Instant>;
            for entry in &mut entries {
                let places = entry.fds.iter().map(|fd| set.add(*fd));
                entry.at = places.reduce(|first, _| first).unwrap_or_default();
                next = [next, entry.until].into_iter().flatten().min();
            }
            // An interrupted sleep is a short one; after one that failed nobody knows who was woken.
            blind = set.wait(next.map(|next| next.saturating_duration_since(Instant::now()))).is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    struct Counted {
        notifier: Notifier,
        served: AtomicU32,
        changed: AtomicBool,
    }

    impl Serve for Counted {
        fn serve(&self, fds: &mut Vec<WaitFd>, _now: Instant) -> Served {
            self.changed.store(false, Ordering::SeqCst);
            self.notifier.drain();
            fds.push(self.notifier.wait_fd());
            self.served.fetch_add(1, Ordering::SeqCst);
            Served::Armed(Duration::from_secs(3600))
        }

        fn is_changed(&self) -> bool {
            self.changed.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn whoever_is_woken_or_changed_is_served_and_nobody_else() {
        let engine = Engine::start().unwrap();
        let all: Vec<Arc<Counted>> = (0..3)
            .map(|_| {
                let (notifier, changed) = (Notifier::new().unwrap(), AtomicBool::new(false));
                Arc::new(Counted { notifier, served: AtomicU32::new(0), changed })
            })
            .collect();
        for one in &all {
            let served: Arc<dyn Serve> = one.clone();
            engine.add(Arc::downgrade(&served));
        }
        let until = |wanted: [u32; 3]| {
            let now = || [0, 1, 2].map(|n: usize| all[n].served.load(Ordering::SeqCst));
            let begun = Instant::now();
            while now() != wanted {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?} in place of {wanted:?}", now());
                std::thread::yield_now();
            }
        };
        until([1, 1, 1]);
        all[1].notifier.signal();
        until([1, 2, 1]);
        all[2].changed.store(true, Ordering::SeqCst);
        engine.kick();
        until([1, 2, 2]);
        // One that has gone is forgotten; the others keep their places.
        let mut all = all.into_iter();
        let first = all.next().unwrap();
        drop(all.next());
        let last = all.next().unwrap();
        engine.kick();
        last.notifier.signal();
        let begun = Instant::now();
        while last.served.load(Ordering::SeqCst) != 3 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(first.served.load(Ordering::SeqCst), 1);
        engine.stop();
    }

    #[test]
    fn a_stop_at_any_moment_ends_the_thread() {
        for _ in 0..50 {
            let engines: Vec<Arc<Engine>> = (0..100).map(|_| Engine::start().unwrap()).collect();
            engines.iter().for_each(|engine| engine.kick());
            engines.iter().for_each(|engine| engine.stop());
            let begun = Instant::now();
            while engines.iter().any(|engine| Arc::strong_count(engine) > 1) {
                assert!(begun.elapsed() < Duration::from_secs(60), "one sleeps on");
                std::thread::yield_now();
            }
        }
    }
}
