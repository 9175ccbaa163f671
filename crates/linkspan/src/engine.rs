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
const LOOK: Duration = Duration::from_millis(1);

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
}

pub(crate) struct Engine {
    list: Mutex<Vec<Weak<dyn Serve>>>,
    notifier: Notifier,
    stop: AtomicBool,
}

impl Engine {
    /// Starts the thread; it ends when [`Engine::stop`] is called.
    pub(crate) fn start() -> Result<Arc<Engine>, Error> {
        let notifier = Notifier::new().map_err(Error::system("eventfd"))?;
        let engine = Arc::new(Engine { list: Mutex::default(), notifier, stop: AtomicBool::new(false) });
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
        self.list.lock().unwrap_or_else(|e| e.into_inner()).push(served);
        self.notifier.signal();
    }

    /// Makes the engine look at everything now.
    pub(crate) fn kick(&self) {
        self.notifier.signal();
    }

    fn run(&self) {
        let (mut fds, mut set): (Vec<WaitFd>, WaitSet) = (Vec::new(), WaitSet::new());
        let mut round: Vec<Arc<dyn Serve>> = Vec::new();
        while !self.stop.load(Ordering::SeqCst) {
            self.notifier.drain();
            fds.clear();
            {
                let mut list = self.list.lock().unwrap_or_else(|e| e.into_inner());
                list.retain(|s| s.upgrade().map(|s| round.push(s)).is_some());
            }
            let (now, mut most) = (Instant::now(), None::<Duration>);
            for served in round.drain(..) {
                let limit = match served.serve(&mut fds, now) {
                    Served::Driven => LOOK,
                    Served::Armed(limit) => limit,
                    Served::Again => Duration::ZERO,
                    Served::Over => continue,
                };
                most = Some(most.map_or(limit, |m| m.min(limit)));
            }
            set.clear();
            set.add(self.notifier.wait_fd());
            for fd in fds.iter() {
                set.add(*fd);
            }
            // An interrupted or failed sleep is a short one.
            let _ = set.wait(most);
        }
    }
}
