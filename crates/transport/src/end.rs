//! The end of a rail, and what a socket's error says of the peer.

use std::io;

use crate::{Down, Violation};

/// Why a rail is down, in a form that can be told again and again: a rail keeps it and answers every later call with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer is gone, and what proved it.
    Gone(String),
    /// The system refused a call: its name and `errno`.
    System(&'static str, i32),
    /// The same of a library's call, with its error as text.
    Refused(&'static str, String),
    /// The peer broke the protocol, and how.
    Protocol(String),
    /// The device whose memory is moved failed: its error as text.
    Device(String),
}

impl End {
    /// What the error of a socket call means for the rail.
    pub fn of_call(call: &'static str, error: &io::Error) -> End {
        match (peer_gone(error), error.raw_os_error()) {
            (Some(why), _) => End::Gone(why.into()),
            (None, code) => End::System(call, code.unwrap_or(0)),
        }
    }

    /// The error for the callers of the rail at `path`.
    #[cold]
    pub fn down(&self, path: &str) -> Down {
        let path = path.to_owned();
        match self {
            End::Gone(why) => Down::PeerGone { path, why: why.clone() },
            End::System(call, code) => Down::System { call, path, source: io::Error::from_raw_os_error(*code) },
            End::Refused(call, why) => Down::System { call, path, source: io::Error::other(why.clone()) },
            End::Protocol(why) => Down::Protocol { path, why: why.clone() },
            End::Device(why) => Down::Device { path, why: why.clone() },
        }
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Protocol(violation.0)
    }
}

/// What an error says about the peer, if it says that the peer is gone.
pub fn peer_gone(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind as K;
    Some(match error.kind() {
        K::ConnectionReset => "connection reset",
        K::BrokenPipe => "the peer reads no more (broken pipe)",
        K::TimedOut => "the host no longer answers (connection timed out)",
        K::HostUnreachable => "the host is unreachable",
        K::NetworkUnreachable | K::NetworkDown => "the network is unreachable",
        K::ConnectionAborted => "connection aborted",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
