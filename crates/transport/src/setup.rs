//! How rails come up that two hosts must agree on first: queue pairs, a cable. What both say to each other travels beside a stream that has
//! logged in; its bytes go in and out here.
//!
//! A refusal is text for people. An empty one is nothing to tell them: there is no such device here, or a cable leads to another host.

use std::any::Any;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{BoxRail, Down, Poll, Refusal, WaitFd};

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that connected, which chooses.
    Caller,
    /// The one that was connected to.
    Answerer,
}

/// Where rails are to come up.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Our end of the stream.
    pub local: SocketAddr,
    /// Only over this plug of our host: a rail that was lost there ([`crate::RailInfo::plug`]).
    pub plug: Option<&'a str>,
    /// Other hosts pass on what goes over the rails; which, as the reason of the path.
    pub relayed: Option<&'a str>,
    /// The settings name this transport: people are told why there is no rail, whatever the reason.
    pub forced: bool,
    /// IP traffic class.
    pub class: u8,
    /// How long the rails may take to come up.
    pub limit: Duration,
}

/// A transport whose rails come up beside a stream. A process lists those that it has, best first, and gives the list to its fabric,
/// which knows none by name.
pub trait Provider: Any + Send + Sync {
    /// Its name in `LINKSPAN_PATH`, greetings, log lines and [`crate::RailInfo::transport`].
    fn name(&self) -> &'static str;

    /// What people call a path of it, as in "TCP in place of RDMA".
    fn title(&self) -> &'static str;

    /// Takes its settings: `setting` has the values by the names of the parameters, of those that are set. `watch`: callers need not
    /// say when they unmap memory that was posted. Called once, before all else.
    ///
    /// # Errors
    /// An error whose text names the parameter, the value, and what it takes.
    fn configure(&mut self, setting: &dyn Fn(&str) -> Option<String>, watch: bool) -> Result<(), Refusal> {
        let _ = (setting, watch);
        Ok(())
    }

    /// One stream asks for all rails to a host; else that of each pair of interfaces asks for its own.
    fn per_host(&self) -> bool {
        false
    }

    /// Its own settings ask for a path of it or nothing.
    fn insists(&self) -> bool {
        false
    }

    /// Whether its devices reach many hosts and there is one here; opens them. Connections are then expected to take it.
    fn is_present(&self) -> bool {
        false
    }

    /// What joins two of its rails on a host between; `None`: they end at a neighbour.
    fn relayer(&self) -> Option<&dyn Relayer> {
        None
    }

    /// Opens its devices, which may take long: not in the middle of a login, which has a deadline.
    fn open(&self) {}

    /// Over what connections may take it on this machine. Opens the devices.
    ///
    /// # Errors
    /// A text for people: what this machine lacks, as a device, a driver or a library.
    fn support(&self) -> Result<String, String>;

    /// What there is for rails here.
    ///
    /// # Errors
    /// A text for the log: what this site lacks, as a port or cable at the interface, or the setting that forbids it; empty where people
    /// need not be told.
    fn offer(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String>;

    /// Why a cable on which this interface lies has no rails of this transport; `None` where it has some, or could not have any. Asked of
    /// each stream of a connection, for transports that are offered once [per host](Provider::per_host).
    fn lacks(&self, interface: &str) -> Option<String> {
        let _ = interface;
        None
    }
}

/// Joins rails on a host between two others, which passes on what goes over them.
pub trait Relayer {
    /// What there is for one rail that is to be joined: no memory of this host's own connections is within its reach.
    ///
    /// # Errors
    /// A text for the log, as of [`Provider::offer`].
    fn hop(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String>;

    /// Joins two rails of such offers.
    ///
    /// # Errors
    /// A text for the log: a rail is not of this transport.
    fn join(&self, rails: [BoxRail; 2]) -> Result<Box<dyn Relay>, String>;
}

/// Two rails, joined. Dropping it drops both.
pub trait Relay {
    /// Passes on what has arrived, without blocking.
    ///
    /// # Errors
    /// [`Down`] of the side that ended. It is to be dropped then.
    fn poll(&mut self) -> Result<Poll, Down>;

    /// Prepares for sleep: what to wait for, or `None` when there is work already.
    fn arm(&mut self) -> Option<[WaitFd; 2]>;

    /// Looks whether the paths still carry; to be called now and then, also while nothing moves. False: one does not.
    fn look(&mut self) -> bool;

    /// Bytes passed on from the first side to the second, and back.
    fn bytes(&self) -> [u64; 2];
}

/// What this host has for rails beside a stream to a peer.
pub trait Offer: Send {
    /// The transport, as in [`crate::RailInfo::transport`].
    fn name(&self) -> &'static str;

    /// How many rails the side that connected asks for.
    fn wanted(&self) -> usize;

    /// This side of `n` rails to be.
    ///
    /// # Errors
    /// A text for the log: what the device refused, as memory, a queue pair or a ring.
    fn make(&self, n: usize, role: Role) -> Result<Vec<Box<dyn Setup>>, String>;
}

/// One side of one rail to be. Dropping it undoes all.
pub trait Setup: Send {
    /// Bytes for the peer that were not taken yet. They must reach it, in their order.
    fn output(&mut self) -> Vec<u8>;

    /// Takes bytes from the peer. Returns how many belonged to the set-up.
    ///
    /// # Errors
    /// A text for the log: the peer's bytes are malformed, or say that the two sides do not fit. There will be no rail.
    fn input(&mut self, bytes: &[u8]) -> Result<usize, String>;

    /// Looks at the device and at the clock; to be called again and again until [`Setup::is_done`].
    ///
    /// # Errors
    /// A text for the log: the device failed, or the peer did not answer in time. There will be no rail.
    fn poll(&mut self, now: Instant) -> Result<(), String>;

    /// Whether both sides know of each other how it ended. There may be [`Setup::output`] nevertheless.
    fn is_done(&self) -> bool;

    /// The rail, once [`Setup::is_done`].
    ///
    /// # Errors
    /// A text for the log: both sides agreed that there is no rail, or the set-up is not done.
    fn finish(self: Box<Self>) -> Result<BoxRail, String>;
}
