//! Why a rail does not come up.

use crate::tier::Tier;

/// What can fail before a rail is up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No cable joins both hosts at a tier that both may use.
    #[error("LS1521 no Thunderbolt or USB4 cable that linkspan can use joins this host and the peer: {why}")]
    NoCable {
        /// What either side has.
        why: String,
    },
    /// This host's cables lead to others. Not reported to the user.
    #[error(
        "LS1528 the Thunderbolt and USB4 cables of this host and of the peer lead to other hosts, or its streams are set up with other HopIDs"
    )]
    Elsewhere,
    /// The peer's handshake is none.
    #[error("LS1522 the peer's cable offer is not valid: {0}")]
    BadOffer(String),
    /// The handshake did not end in time.
    #[error(
        "LS1523 the handshake over {path} did not end in {ms} ms; is the cable plugged in, and does the peer's program run?"
    )]
    Deadline {
        /// The path.
        path: String,
        /// The time it had.
        ms: u128,
    },
    /// What came over the cable is not what the peer said it sent.
    #[error("LS1524 {path} does not lead to the peer that logged in: {why}")]
    OtherPeer {
        /// The path.
        path: String,
        /// What came.
        why: String,
    },
    /// A word that names no tier.
    #[error("LS1525 {0:?} names no tier; it is one of auto, ring, stream, net, off")]
    NoTier(String),
    /// A tier was forced and cannot be had.
    #[error("LS1526 LINKSPAN_THUNDERBOLT_TIER={} cannot be used: {why}", tier.name())]
    Forced {
        /// The tier.
        tier: Tier,
        /// Why not.
        why: String,
    },
    /// Streams cannot be set up here.
    #[error("LS1529 no streams can be set up: {0}")]
    NoStreams(&'static str),
    /// The HopIDs of a stream are others than they should be.
    #[error(
        "LS1530 {file} of the stream {stream} is {is:?} and not {want} ({why}); choose others with --first-hop on both hosts"
    )]
    Hops {
        /// The stream.
        stream: String,
        /// Which of both.
        file: &'static str,
        /// What it should be.
        want: u16,
        /// What it is.
        is: String,
        /// The OS error.
        why: String,
    },
    /// A host that our driver does not see.
    #[error("LS1531 linkspan.ko sees no host {host} (it sees: {seen})")]
    NoHost {
        /// The UUID that was given.
        host: String,
        /// Those that there are.
        seen: String,
    },
    /// A host was named to our driver, which is not there.
    #[error(
        "LS1533 linkspan.ko is not loaded, and without it there is nothing to set for host {host}: kernel/README.md tells how to build and load it"
    )]
    NoModule {
        /// The UUID that was given.
        host: String,
    },
    /// A file that cannot be written.
    #[error("LS1532 {what} cannot be written: {source}; are you root?")]
    Up {
        /// Its path.
        what: String,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// The interface of a link that is not up has no address to be known by.
    #[error("LS1534 {link} gets no address: its link is not up ({state}); `lspan status` says why")]
    NoLink {
        /// Its device.
        link: String,
        /// What it is.
        state: String,
    },
    /// An interface that takes no address.
    #[error("LS1535 `{what}` failed: {why}; it is a program of iproute2, and needs root")]
    Interface {
        /// The command.
        what: String,
        /// What it said.
        why: String,
    },
    /// More than one thing was to be set up, and not all of it is.
    #[error("{first}{rest}")]
    Partly {
        /// What could not be.
        first: Box<Error>,
        /// What else could not be, and what is.
        rest: String,
    },
    /// No randomness.
    #[error("LS1527 the system gives no random numbers: {0}")]
    Random(String),
}

impl Error {
    /// Of errors, and of lines about what is set up all the same.
    pub(crate) fn partly(first: Error, others: &[Error], done: &[String]) -> Error {
        let mut rest: String = others.iter().map(|error| format!("; {error}")).collect();
        if !done.is_empty() {
            rest.push_str(&format!("; what is set up: {}", done.join(", ")));
        }
        if rest.is_empty() { first } else { Error::Partly { first: Box::new(first), rest } }
    }

    /// Itself, or the first of several.
    pub fn first(&self) -> &Error {
        match self {
            Error::Partly { first, .. } => first,
            error => error,
        }
    }
}
