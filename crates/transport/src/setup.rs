//! How rails come up that two hosts must agree on first: queue pairs, a cable. What both say to each other travels beside a stream that has
//! logged in; its bytes go in and out here.
//!
//! A refusal is text for people. An empty one is nothing to tell them: there is no such device here, or a cable leads to another host.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::BoxRail;

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

/// A transport whose rails come up beside a stream.
pub trait Provider: Send + Sync {
    /// Its name in settings, greetings and log lines.
    fn name(&self) -> &'static str;

    /// One stream asks for all rails to a host; else that of each pair of interfaces asks for its own.
    fn per_host(&self) -> bool {
        false
    }

    /// Whether rails can be joined on hosts between, which pass on what goes over them.
    fn relays(&self) -> bool {
        false
    }

    /// Opens its devices, which may take long: not in the middle of a login, which has a deadline.
    fn open(&self) {}

    /// What there is for rails here.
    ///
    /// # Errors
    /// Why there is nothing.
    fn offer(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String>;
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
    /// Why there are none.
    fn make(&self, n: usize, role: Role) -> Result<Vec<Box<dyn Setup>>, String>;
}

/// One side of one rail to be. Dropping it undoes all.
pub trait Setup: Send {
    /// Bytes for the peer.
    fn output(&self) -> &[u8];

    /// The first `n` bytes of [`Setup::output`] have left.
    fn wrote(&mut self, n: usize);

    /// Takes bytes from the peer. Returns how many belonged to the set-up.
    ///
    /// # Errors
    /// Why there will be no rail.
    fn input(&mut self, bytes: &[u8]) -> Result<usize, String>;

    /// Looks at the device and at the clock; to be called again and again until [`Setup::is_done`].
    ///
    /// # Errors
    /// Why there will be no rail.
    fn poll(&mut self, now: Instant) -> Result<(), String>;

    /// Whether both sides know of each other how it ended. What [`Setup::output`] still has must leave nevertheless.
    fn is_done(&self) -> bool;

    /// The rail, once [`Setup::is_done`].
    ///
    /// # Errors
    /// Why there is none where there need not be one, or it is not done.
    fn finish(self: Box<Self>) -> Result<BoxRail, String>;
}
