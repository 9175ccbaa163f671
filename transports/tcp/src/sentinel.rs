//! The proof of life of a host: an idle connection that the kernel watches.

use std::os::fd::AsFd;
use std::time::Duration;

use linkspan_transport::{Down, WaitFd};

use crate::Stream;
use crate::endpoint::gone;

/// Silence after which a host is dead: keepalive's own 10 s and 3 times 5 s.
const SILENCE: Duration = Duration::from_secs(25);

/// A stream on which nobody ever sends. Its keepalive tells a dead host within 25 s, and its end tells a dead
/// process at once, however full the windows of the rails beside it are: a stopped process stays alive for ever,
/// because its kernel answers.
#[derive(Debug)]
pub struct Sentinel {
    stream: Stream,
    path: String,
    silent: bool,
}

impl Sentinel {
    /// Watches the peer of `stream`. Both sides keep one end each and send nothing.
    pub fn new(stream: Stream) -> Sentinel {
        let path = stream.path();
        // Keepalive waits while bytes of the login are unacknowledged; this bounds that too. On a stream without
        // data no full window can be mistaken for death, and where the option is missing keepalive remains.
        let _ = stream.socket().set_tcp_user_timeout(Some(SILENCE));
        Sentinel { stream, path, silent: false }
    }

    /// Asks whether the peer is alive: one system call, so for every few milliseconds and not for every operation.
    ///
    /// # Errors
    /// It is gone, or it sent something.
    pub fn check(&mut self) -> Result<(), Down> {
        use std::io::ErrorKind as K;
        match linkspan_net::recv(self.stream.as_fd(), &mut [0; 1]) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => Err(Down::PeerGone { path: self.path.clone(), why: "end of stream".into() }),
            Ok(Some(_)) => {
                let why = "it sent bytes on the sentinel connection, which carries none".into();
                Err(Down::Protocol { path: self.path.clone(), why })
            }
            Err(source) => {
                let told = matches!(source.kind(), K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted);
                self.silent = !told;
                Err(match gone(&source) {
                    Some(why) => Down::PeerGone { path: self.path.clone(), why: why.into() },
                    None => Down::System { call: "recv", path: self.path.clone(), source },
                })
            }
        }
    }

    /// Whether the last check ended in silence (the peer's host does not answer on this path) rather than in an end
    /// that the peer's kernel told.
    pub fn silent(&self) -> bool {
        self.silent
    }

    /// What to wait for before the next [`Sentinel::check`].
    pub fn wait_fd(&self) -> WaitFd {
        self.stream.wait_fd(false)
    }
}
