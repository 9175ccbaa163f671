//! What can go wrong.

use std::io;

use linkspan_fabric::keys::KeyError;
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
    /// Two directories that are no mirror of each other.
    #[error(transparent)]
    Unmarked(#[from] linkspan_files::mirror::Unmarked),
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

    /// Its causes as one line.
    pub fn text(&self) -> String {
        linkspan_fabric::chain(self)
    }
}
