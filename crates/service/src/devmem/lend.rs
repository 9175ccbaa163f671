//! A card set up and its queues lent, from the first change to the last one undone.

use std::path::{Path, PathBuf};
use std::time::Instant;

use linkspan_netdev::{Socket, starved};
use linkspan_topology::{Host, Interface, Roots};

use super::broker::{Allowed, DevmemBroker};
use super::card::{Card, KernelCard};
use super::journal::{Journal, Noted, Unopened};
use super::up::{Change, SetUp};
use super::watch::Watch;
use super::{Verdict, look, receive, up};

/// What is lent, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Receive queues that are kept for GPU memory: the last ones.
    pub queues: u32,
    /// Queues of each process, which shares them with no other.
    pub each: u32,
    /// Users whose processes may use them, beside root.
    pub users: Vec<u32>,
    /// Folder of socket and journal.
    pub folder: PathBuf,
}

/// Why a card's queues cannot be lent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unlent {
    /// Neither now nor after set-up.
    #[error("LS3201 {interface} cannot receive into GPU memory: {why}")]
    Never {
        /// The interface.
        interface: String,
        /// Why, and what can.
        why: String,
    },
    /// The capability is missing.
    #[error("LS3202 {interface} cannot be set up by this user: CAP_NET_ADMIN is missing (sudo)")]
    NotAllowed {
        /// The interface.
        interface: String,
    },
    /// Another process lends them.
    #[error("LS3203 the queues of {interface} are lent already, by `lspan devmem up` (Ctrl-C ends it) or linkspand")]
    Running {
        /// The interface.
        interface: String,
    },
    /// The card, the folder or the system.
    #[error("LS3204 {interface}: {why}")]
    Failed {
        /// The interface.
        interface: String,
        /// What failed.
        why: String,
    },
}

impl Unlent {
    fn failed(interface: &Interface, why: impl std::fmt::Display) -> Unlent {
        Unlent::Failed { interface: interface.name.clone(), why: why.to_string() }
    }
}

/// What is changed on an interface's card, and by whom; an error where it cannot receive into device memory.
pub type Cards = dyn Fn(&Interface) -> Result<Box<dyn Card>, Unlent> + Send + Sync;

/// The kernel's.
///
/// # Errors
/// [`Unlent::Never`], [`Unlent::NotAllowed`], [`Unlent::Failed`], by what kernel and driver say.
pub fn kernel_cards(interface: &Interface) -> Result<Box<dyn Card>, Unlent> {
    can(interface)?;
    Ok(Box::new(kernel_card(interface)))
}

fn kernel_card(interface: &Interface) -> KernelCard {
    KernelCard::new(interface.name.clone(), interface.index)
}

/// The journal of an interface, after what a process that was killed left there was undone, and whether there was anything.
fn journal(folder: &Path, interface: &Interface, card: &dyn Card) -> Result<(Journal, bool), Unlent> {
    Journal::open(folder, &interface.name, card).map_err(|why| match why {
        Unopened::Running => Unlent::Running { interface: interface.name.clone() },
        Unopened::No(why) => Unlent::failed(interface, why),
    })
}

/// Undoes what a process that was killed has left changed on a card: whether there was anything.
///
/// # Errors
/// [`Unlent::Running`]: the process runs. [`Unlent::Failed`]: not all could be undone.
pub fn restore(folder: &Path, interface: &Interface) -> Result<bool, Unlent> {
    journal(folder, interface, &kernel_card(interface)).map(|(_, found)| found)
}

/// What would be changed, for people. Changes nothing.
///
/// # Errors
/// As [`Lending::begin`].
pub fn plan(interface: &Interface, terms: &Terms) -> Result<String, Unlent> {
    can(interface)?;
    let (state, changes) = changes(interface, &kernel_card(interface), terms)?;
    Ok(up::text(&interface.name, &state, &changes, terms.queues))
}

/// Whether the card can receive into device memory, by what kernel and driver say.
fn can(interface: &Interface) -> Result<(), Unlent> {
    let mut socket = Socket::open().map_err(|error| Unlent::failed(interface, linkspan_fabric::chain(&error)))?;
    let kernel = Host::read(&Roots::default()).kernel;
    match receive(&kernel, &look(&mut socket, interface)) {
        Verdict::Never { why } => Err(Unlent::Never { interface: interface.name.clone(), why }),
        Verdict::AskAsRoot { .. } => Err(Unlent::NotAllowed { interface: interface.name.clone() }),
        Verdict::Yes | Verdict::After { .. } => Ok(()),
    }
}

fn changes(interface: &Interface, card: &dyn Card, terms: &Terms) -> Result<(up::CardState, Vec<Change>), Unlent> {
    let state = up::CardState::read(card).map_err(|why| Unlent::failed(interface, why))?;
    let changes = up::plan(&state, terms.queues).map_err(|why| Unlent::failed(interface, why))?;
    Ok((state, changes))
}

/// A card whose queues can be lent: nothing is changed yet but what was left of an earlier one, which is undone.
pub struct Lending {
    interface: Interface,
    card: Box<dyn Card>,
    journal: Journal,
    state: up::CardState,
    changes: Vec<Change>,
    terms: Terms,
    /// Whether changes of a process that was killed were undone.
    pub found: bool,
}

impl std::fmt::Debug for Lending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lending")
            .field("interface", &self.interface.name)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl Lending {
    /// Looks whether it can be done, and locks the card's journal.
    ///
    /// # Errors
    /// [`Unlent::Never`], [`Unlent::NotAllowed`], [`Unlent::Running`], [`Unlent::Failed`].
    pub fn begin(interface: &Interface, terms: Terms) -> Result<Lending, Unlent> {
        Lending::of(interface, terms, &kernel_cards)
    }

    /// The same with cards of another's making.
    ///
    /// # Errors
    /// As there.
    pub fn of(interface: &Interface, terms: Terms, cards: &Cards) -> Result<Lending, Unlent> {
        let card = cards(interface)?;
        let (journal, found) = journal(&terms.folder, interface, &*card)?;
        let (state, changes) = changes(interface, &*card, &terms)?;
        Ok(Lending { interface: interface.clone(), card, journal, state, changes, terms, found })
    }

    /// Sets the card up and lends its queues until `end` says so, which is asked several times a second; `ready` is called once processes
    /// can come, with a line for people, `say` with a line for each that comes or goes. Everything is undone at the end: whether all of it
    /// was, and what is to be said of that.
    ///
    /// # Errors
    /// [`Unlent::Failed`]: the card or the socket. What had been changed is undone.
    pub fn serve(
        &self,
        ready: impl FnOnce(&str),
        mut end: impl FnMut() -> bool,
        mut say: impl FnMut(&str),
    ) -> Result<(bool, String), Unlent> {
        let failed = |why: String| Unlent::failed(&self.interface, why);
        let name = &self.interface.name;
        let mut socket = Socket::open().map_err(|error| failed(linkspan_fabric::chain(&error)))?;
        let set_up = SetUp::make(&*self.card, &self.state, &self.changes, Some(&self.journal)).map_err(failed)?;
        let (first, last) = (self.state.queues - self.terms.queues, self.state.queues - 1);
        let allowed = Allowed::new(&self.terms.users);
        let broker = DevmemBroker::open(&self.terms.folder, name, allowed, (first..=last).collect(), self.terms.each)
            .map_err(failed)?;
        ready(&format!("queues {first} to {last} can be used through {}", broker.path().display()));
        let mut watch = Watch::new(first);
        let index = self.interface.index;
        let starving = |watch: &mut Watch, socket: &mut Socket| {
            let due = watch.due(Instant::now());
            due.then(|| starved(socket, index).ok().and_then(|found| watch.look(&found)))?
        };
        let told = std::cell::RefCell::new(&mut say);
        let mut over = || {
            if let Some(line) = starving(&mut watch, &mut socket) {
                told.borrow_mut()(&line);
            }
            end()
        };
        let noted = Noted { card: &*self.card, journal: &self.journal };
        let ended = broker.serve(&noted, &mut over, &mut |line: &str| told.borrow_mut()(line));
        let (restored, said) = set_up.end();
        ended.map_err(|why| failed(format!("{why}; {said}")))?;
        Ok((restored, said))
    }
}
