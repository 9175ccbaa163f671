//! What can go wrong.

use std::io;
use std::time::Duration;

use linkspan_fabric::keys::KeyError;
use linkspan_perf::PerfError;
use linkspan_service::pairing::PairError;
use linkspan_service::rendezvous::RendezvousError;

/// Why something was not done. Its text has one error code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that cannot be meant.
    #[error("LS1812 {0}")]
    Usage(String),
    /// Not for this user, or for nobody.
    #[error("{0}")]
    Refused(String),
    /// Files.
    #[error(transparent)]
    Files(#[from] linkspan_files::Error),
    /// Connections.
    #[error(transparent)]
    Fabric(#[from] linkspan_fabric::Error),
    /// The library.
    #[error(transparent)]
    Link(#[from] linkspan::Error),
    /// The way to a peer.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// Keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A measurement.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// Pairing.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// Too many at a time.
    #[error("{0}")]
    Limit(String),
    /// There is no such thing.
    #[error("LS1844 {0}")]
    Absent(String),
    /// A peer did not answer in time.
    #[error(
        "LS1851 the peer did not answer within {0:?}, and may yet do what it was asked for: see there whether its program is stopped or its disk does not answer, then ask again"
    )]
    Silent(Duration),
    /// It came to its end, but not all of it is as it should be.
    #[error("{0}")]
    Incomplete(String),
    /// A directory at which nothing can be mounted.
    #[error(
        "LS1824 cannot mount at {dir} (needs /dev/fuse, and fusermount3 of fuse3 where you are not root): {source}"
    )]
    Mount {
        /// The directory.
        dir: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// What the process of a mount said.
    #[error("{0}")]
    Mounting(String),
    /// The system.
    #[error("LS1831 {what}: {source}")]
    System {
        /// What was done to what.
        what: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Error {
        Error::System { what: what.into(), source }
    }

    /// Whether it may be otherwise when the peer is there again.
    pub fn passes(&self) -> bool {
        use linkspan_files::Error as Files;
        match self {
            Error::Silent(_) | Error::Files(Files::Full(_)) => true,
            Error::Files(Files::Lost(_) | Files::Cut(_) | Files::Unjoined(_)) => true,
            Error::Files(Files::Link(linkspan::Error::Connect(_))) | Error::Link(linkspan::Error::Connect(_)) => true,
            Error::Rendezvous(error) => matches!(
                error,
                RendezvousError::Name { .. } | RendezvousError::NoPeer { .. } | RendezvousError::Cable { .. }
            ),
            _ => false,
        }
    }

    /// Its causes as one line.
    pub fn text(&self) -> String {
        let own = self.to_string();
        // Some say it themselves.
        match std::error::Error::source(self) {
            Some(cause) if !own.ends_with(&cause.to_string()) => linkspan_fabric::chain(self),
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let files = linkspan_files::Error::System { what: "a".into(), source: missing() };
        for error in
            [Error::system("a", missing()), Error::from(files), Error::Mount { dir: "a".into(), source: missing() }]
        {
            let text = error.text();
            assert_eq!(text.matches(&missing().to_string()).count(), 1, "{text}");
        }
    }
}
