//! What can go wrong, each with a stable code.

use crate::engine::Violation;
use crate::wire::{Fault, Malformed, VERSION};

/// Why a request or a transfer failed as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection has ended.
    #[error("LS1801 the connection to the peer was lost: {0}; what has arrived is kept, run it again")]
    Lost(String),
    /// A pipe's connection has ended before the pipe.
    #[error("LS1820 the connection to the peer was lost before the service had ended: {0}; what has come is not all")]
    Cut(String),
    /// A pipe's connection has ended before there was a pipe.
    #[error(
        "LS1821 the peer closed the connection before its service answered: {0}; it may have too many connections of this peer open (see what it says there)"
    )]
    Unjoined(String),
    /// The peer has no place for one more connection; it may have one later.
    #[error("LS1854 the peer refused the connection: {0}")]
    Full(Fault),
    /// The peer speaks another version.
    #[error(
        "LS1802 the peer speaks version {0} of the file protocol and this program version {VERSION}: install the same release on both sides"
    )]
    Version(u16),
    /// The peer refused a request.
    #[error("{}", refused(.0))]
    Refused(Fault),
    /// Bytes that are no message.
    #[error("LS1804 the peer sent something that is no message: {0}")]
    Malformed(#[from] Malformed),
    /// A rule about names is none.
    #[error(transparent)]
    Rule(#[from] crate::BadRule),
    /// Two directories that are no mirror of each other.
    #[error(transparent)]
    Unmarked(#[from] crate::mirror::Unmarked),
    /// The peer broke the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The user asked to stop.
    #[error("LS1805 stopped; what has arrived is kept, run it again")]
    Stopped,
    /// A connection could not be made.
    #[error(transparent)]
    Link(#[from] linkspan::Error),
    /// Something of this machine failed.
    #[error("LS1811 {what}: {source}")]
    System {
        /// What was done.
        what: String,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
}

/// With one code: that of the peer, where its text has one.
fn refused(fault: &Fault) -> String {
    let digits = fault.text.strip_prefix("LS").and_then(|rest| rest.split_once(' ')).map(|(digits, _)| digits);
    match digits.is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit())) {
        true => fault.to_string(),
        false => format!("LS1803 {fault}"),
    }
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, source: std::io::Error) -> Error {
        Error::System { what: what.into(), source }
    }
}
