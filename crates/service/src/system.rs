//! What the system service knows and does, whoever asks: cables and hosts, events, statistics, admissions, lent queues. Every call may
//! block for as long as files of sysfs take.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{self, ProcessStats};
use linkspan_net::LineLimit;
pub use linkspan_thunderbolt::Error as LinkError;
use linkspan_thunderbolt::find::Root;
use linkspan_topology::{Interface, Roots};

use crate::admission::{AdmissionError, Admissions, Host};
use crate::devmem::{self, Cards, Lending, Terms, Unlent};
use crate::events::{Event, EventLog, now_us};
use crate::observe::{CableWatch, JobWatch, Look};

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The machine: `sys` and `proc` are below it.
    pub root: PathBuf,
    /// Hosts that are let in.
    pub allowed: PathBuf,
    /// Statistics pages.
    pub statistics: PathBuf,
    /// Sockets and journals of lent queues.
    pub devmem: PathBuf,
}

/// A line for the log, and whether it warns.
pub type Tell = Box<dyn Fn(bool, &str) + Send + Sync>;

/// Lines in a minute about processes that come to lent queues: less than the log takes about the machine.
const LENDING_LINES: usize = 30;

/// For how long statistics that were read are read no second time, however many watch them.
const FRESH: Duration = Duration::from_millis(200);

/// The state.
pub struct System {
    places: Places,
    roots: Roots,
    admissions: Admissions,
    state: Mutex<State>,
    /// Queues that are lent, or are about to be.
    lent: Mutex<BTreeMap<String, LentQueues>>,
    /// No more are lent; set under the lock of `lent`.
    over: AtomicBool,
    pages: Mutex<Pages>,
    tell: Arc<Tell>,
    /// Of what is told of processes that come to lent queues: any user's may, as often as it wants.
    lines: Arc<Mutex<LineLimit>>,
    cards: Arc<Cards>,
}

/// Statistics pages as they were read last.
#[derive(Default)]
struct Pages {
    /// When; `None` in it: they could not be read.
    read: Option<(Instant, Option<Arc<Vec<ProcessStats>>>)>,
    /// Why they cannot be, as the log has it.
    unreadable: Option<String>,
}

struct State {
    look: Look,
    hosts: Vec<Host>,
    cables: CableWatch,
    jobs: JobWatch,
    log: EventLog,
}

/// Queues that are lent by a thread.
struct LentQueues {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(bool, String), Unlent>>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("places", &self.places).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl System {
    /// Knows nothing yet: [`System::look`] and [`System::read_jobs`] do.
    pub fn new(places: Places, events: usize, tell: Tell) -> System {
        let state = State {
            look: Look::default(),
            hosts: Vec::new(),
            cables: CableWatch::default(),
            jobs: JobWatch::default(),
            log: EventLog::new(events),
        };
        System {
            roots: Roots::under(&places.root),
            admissions: Admissions::new(&places.allowed, &places.root),
            places,
            state: Mutex::new(state),
            lent: Mutex::default(),
            over: AtomicBool::new(false),
            pages: Mutex::default(),
            tell: Arc::new(tell),
            lines: Arc::new(Mutex::new(LineLimit::new(LENDING_LINES))),
            cards: Arc::new(devmem::kernel_cards),
        }
    }

    /// With these in place of the kernel's network cards.
    pub fn with_cards(self, cards: Arc<Cards>) -> System {
        System { cards, ..self }
    }

    /// Writes a line to the log; `warns` as in [`Tell`].
    pub fn say(&self, warns: bool, line: &str) {
        (self.tell)(warns, line);
    }

    /// Keeps so many events from now on.
    pub fn keep_events(&self, most: usize) {
        locked(&self.state).log.keep(most);
    }

    /// Looks at cables and hosts, and lets those in that are remembered. What has happened since; `removed` as
    /// [`CableWatch::look`] wants it.
    pub fn look(&self, removed: &BTreeSet<String>) -> Vec<Event> {
        let look = Look::take(&self.roots);
        for told in self.admissions.apply(&look) {
            match told {
                Ok(uuid) => (self.tell)(false, &format!("the host {uuid} is let in, as remembered")),
                Err(error) => (self.tell)(true, &error.to_string()),
            }
        }
        let hosts = self.admissions.hosts(&look);
        let state = &mut *locked(&self.state);
        let events = state.cables.look(&look.cables, removed);
        (state.look, state.hosts) = (look, hosts);
        let now = now_us();
        events.into_iter().map(|event| state.log.push(event, now).clone()).collect()
    }

    /// Reads the jobs' statistics. What has happened since; nothing where they cannot be read, for jobs that are not seen have not ended.
    pub fn read_jobs(&self) -> Vec<Event> {
        let Some(pages) = self.read_pages() else { return Vec::new() };
        let state = &mut *locked(&self.state);
        let now = now_us();
        state.jobs.look(&pages).into_iter().map(|event| state.log.push(event, now).clone()).collect()
    }

    /// What the last look has seen.
    pub fn seen(&self) -> (Look, Vec<Host>) {
        let state = locked(&self.state);
        (state.look.clone(), state.hosts.clone())
    }

    /// As [`EventLog::after`].
    pub fn events(&self, after_us: u64, uid: Option<u32>) -> Vec<Event> {
        locked(&self.state).log.after(after_us, uid)
    }

    /// Pages of all users' jobs, read at most 200 ms ago. Empty where they cannot be read, of which the log has a line.
    pub fn statistics(&self) -> Arc<Vec<ProcessStats>> {
        self.read_pages().unwrap_or_default()
    }

    fn read_pages(&self) -> Option<Arc<Vec<ProcessStats>>> {
        let pages = &mut *locked(&self.pages);
        if let Some((_, found)) = pages.read.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return found.clone();
        }
        // Not beside the new ones: what other users write may be some 40 MiB.
        pages.read = None;
        let (found, why) = match stats::read(&self.places.statistics) {
            Ok(found) => (Some(Arc::new(found)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(why) = why.as_ref().filter(|why| pages.unreadable.as_ref() != Some(why)) {
            let folder = self.places.statistics.display();
            (self.tell)(true, &format!("{folder} cannot be read ({why}): nothing is known of jobs until it can"));
        }
        pages.unreadable = why;
        pages.read = Some((Instant::now(), found.clone()));
        found
    }

    /// As [`Admissions::allow`], by a look of now.
    ///
    /// # Errors
    /// [`AdmissionError::NoUuid`], [`AdmissionError::ThisHost`], [`AdmissionError::NoHost`], [`AdmissionError::Full`],
    /// [`AdmissionError::Folder`], [`AdmissionError::Driver`].
    pub fn allow(&self, uuid: &str) -> Result<Vec<String>, AdmissionError> {
        self.admissions.allow(&Look::take(&self.roots), uuid)
    }

    /// As [`Admissions::forget`].
    ///
    /// # Errors
    /// [`AdmissionError::NoUuid`], [`AdmissionError::NotAllowed`], [`AdmissionError::Folder`], [`AdmissionError::Driver`].
    pub fn forget(&self, uuid: &str) -> Result<Vec<String>, AdmissionError> {
        self.admissions.forget(uuid)
    }

    /// Sets every cable up, a line for each thing that was done.
    ///
    /// # Errors
    /// As [`Root::up`].
    pub fn set_up(&self, streams: u16, first_hop: u16) -> Result<Vec<String>, LinkError> {
        Root(self.places.root.clone()).up(streams, first_hop)
    }

    fn interface(&self, name: &str) -> Result<Interface, Unlent> {
        let found = linkspan_topology::interfaces(&self.roots, &[]).into_iter().find(|i| i.name == name);
        let name: String = name.chars().take(32).collect();
        found.ok_or(Unlent::Failed { interface: name, why: "there is no such interface".into() })
    }

    /// Lends queues of a card until [`System::end_lending`]. A line that says which, and where.
    ///
    /// # Errors
    /// [`Unlent::Never`], [`Unlent::NotAllowed`], [`Unlent::Running`], [`Unlent::Failed`].
    pub fn lend(&self, interface: &str, queues: u32, each: u32, users: Vec<u32>) -> Result<String, Unlent> {
        let found = self.interface(interface)?;
        let failed = |why: &str| Unlent::Failed { interface: interface.to_owned(), why: why.to_owned() };
        let terms = Terms { queues, each, users, folder: self.places.devmem.clone() };
        let (stop, tell, cards) = (Arc::new(AtomicBool::new(false)), self.tell.clone(), self.cards.clone());
        let lines = self.lines.clone();
        let (ready, is_ready) = mpsc::channel();
        let (stopped, own) = (stop.clone(), stop.clone());
        // A card's journal and rules are one thread's.
        let run = move || {
            let name = found.name.clone();
            let ended = Lending::of(&found, terms, &*cards).and_then(|lending| {
                let say = |line: &str| {
                    let Some(left_out) = locked(&lines).admit("", Instant::now()) else { return };
                    if left_out > 0 {
                        tell(true, &format!("{left_out} more lines about lent queues were left out"));
                    }
                    tell(false, &format!("{name}: {line}"));
                };
                let told = |line: &str| drop(ready.send(line.to_owned()));
                lending.serve(told, || stopped.load(Ordering::Relaxed), say)
            });
            if let Ok((false, said)) = &ended {
                tell(true, &format!("{name}: {said}"));
            }
            ended
        };
        // From its first change on the end of the service knows of it.
        let mut lent = locked(&self.lent);
        if lent.get(interface).is_some_and(|lent| !lent.thread.is_finished()) {
            return Err(Unlent::Running { interface: interface.to_owned() });
        }
        if self.over.load(Ordering::Relaxed) {
            return Err(failed("the service is ending"));
        }
        let spawned = thread::Builder::new().name(format!("lend-{interface}")).spawn(run);
        let thread = spawned.map_err(|e| failed(&e.to_string()))?;
        lent.insert(interface.to_owned(), LentQueues { stop, thread });
        drop(lent);
        is_ready.recv().map_err(|_| {
            // It has ended before it was ready. Whoever ended it has taken it, and another call may have begun the next one.
            let mut lent = locked(&self.lent);
            let is_ours = lent.get(interface).is_some_and(|lent| Arc::ptr_eq(&lent.stop, &own));
            let taken = is_ours.then(|| lent.remove(interface)).flatten();
            drop(lent);
            let why = taken.and_then(|lent| ended(interface, lent.thread).err());
            why.unwrap_or_else(|| panicked(interface))
        })
    }

    /// Ends the lending of a card's queues and undoes its set-up, also that which a service that was killed has left. A line that says how it went.
    ///
    /// # Errors
    /// [`Unlent::Failed`]: not all could be undone.
    pub fn end_lending(&self, interface: &str) -> Result<String, Unlent> {
        let lent = locked(&self.lent).remove(interface);
        match lent {
            // Also where the interface is gone, or has another name now.
            Some(lent) => {
                lent.stop.store(true, Ordering::Relaxed);
                ended(interface, lent.thread).map(|(_, said)| said)
            }
            None => match devmem::restore(&self.places.devmem, &self.interface(interface)?)? {
                true => Ok("all settings are restored".into()),
                false => Ok("nothing is lent".into()),
            },
        }
    }

    /// Interfaces whose queues are lent, or are about to be.
    pub fn lent(&self) -> Vec<String> {
        let lent = locked(&self.lent);
        lent.iter().filter(|(_, lent)| !lent.thread.is_finished()).map(|(name, _)| name.clone()).collect()
    }

    /// Undoes what a service that was killed has left changed on cards.
    pub fn restore(&self) {
        let names = Roots::under(&self.places.devmem).names("/");
        let cards = names.iter().filter_map(|name| name.strip_prefix("devmem-")?.strip_suffix(".journal"));
        for name in cards {
            let left = std::fs::metadata(self.places.devmem.join(format!("devmem-{name}.journal")));
            if !left.is_ok_and(|meta| meta.len() > 0) {
                continue;
            }
            match self.interface(name).and_then(|interface| devmem::restore(&self.places.devmem, &interface)) {
                Ok(true) => {
                    (self.tell)(false, &format!("{name}: changes left by a lending that was killed are undone"))
                }
                // `lspan devmem up` runs, or there was nothing.
                Ok(false) | Err(Unlent::Running { .. }) => {}
                Err(error) => (self.tell)(true, &error.to_string()),
            }
        }
    }

    /// Ends every lending, and lets none begin.
    pub fn end(&self) {
        {
            let _lent = locked(&self.lent);
            self.over.store(true, Ordering::Relaxed);
        }
        for name in self.lent() {
            if let Err(error) = self.end_lending(&name) {
                (self.tell)(true, &error.to_string());
            }
        }
    }
}

fn panicked(interface: &str) -> Unlent {
    Unlent::Failed { interface: interface.to_owned(), why: "the thread that lends its queues has ended".into() }
}

fn ended(interface: &str, thread: JoinHandle<Result<(bool, String), Unlent>>) -> Result<(bool, String), Unlent> {
    thread.join().unwrap_or_else(|_| Err(panicked(interface)))
}

#[cfg(test)]
mod tests;
