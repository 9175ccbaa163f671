//! The proof of life of a host: an idle connection that the kernel watches.

use std::os::fd::AsFd;
use std::time::Duration;

use linkspan_transport::{Down, WaitFd};

use crate::Stream;
use linkspan_transport::peer_gone;

/// Silence after which a host is dead: keepalive's own 10 s and 3 times 5 s.
pub const SILENCE: Duration = Duration::from_secs(25);

/// The one byte that may come: the sender ends this connection of its own will and lives.
const LEAVING: u8 = b'L';

/// How a keepalive connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer has said that it ends the connection and lives.
    Left,
    /// The peer's kernel has closed it, without a word before: the process is gone, or has dropped the connection.
    Closed,
    /// It was reset or fell silent, or carried an unknown byte: that proves nothing about the process.
    Broken,
}

/// A stream on which neither side sends before its end. Its keepalive tells a dead host within 25 s, and its end tells a dead
/// process at once, however full the windows of the rails beside it are: a stopped process stays alive forever,
/// because its kernel answers.
#[derive(Debug)]
pub struct Keepalive {
    stream: Stream,
    path: String,
    path_lost: bool,
    ended: Option<Ended>,
    /// We have said that we end it.
    said: bool,
}

impl Keepalive {
    /// Watches the peer of `stream`. Both sides keep one end each and send nothing.
    pub fn new(stream: Stream) -> Keepalive {
        let path = stream.path();
        // Keepalive waits while bytes of the login are unacknowledged; this bounds that too. On a stream without
        // data no full window can be mistaken for death, and where the option is missing keepalive remains.
        let _ = stream.socket().set_tcp_user_timeout(Some(SILENCE));
        Keepalive { stream, path, path_lost: false, ended: None, said: false }
    }

    /// Asks whether the peer is alive: one system call, so for every few milliseconds and not for every operation.
    ///
    /// # Errors
    /// [`Down::PeerGone`]: the stream ended, or the peer said that it leaves. [`Down::Protocol`]: the peer sent
    /// something else. [`Down::System`]: the OS error.
    pub fn check(&mut self) -> Result<(), Down> {
        use std::io::ErrorKind as K;
        let mut byte = [0; 1];
        match linkspan_net::recv(self.stream.as_fd(), &mut byte) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => {
                self.ended = Some(Ended::Closed);
                Err(Down::PeerGone { path: self.path.clone(), why: "end of stream".into() })
            }
            Ok(Some(_)) if byte[0] == LEAVING => {
                self.ended = Some(Ended::Left);
                Err(Down::PeerGone {
                    path: self.path.clone(),
                    why: "it has closed this path and is still running".into(),
                })
            }
            Ok(Some(_)) => {
                self.ended = Some(Ended::Broken);
                let why = "it sent bytes on the keepalive connection, which carries none".into();
                Err(Down::Protocol { path: self.path.clone(), why })
            }
            Err(source) => {
                let told = matches!(source.kind(), K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted);
                // A kernel that closes a socket with our byte unread in it resets the stream; the byte of a running peer would
                // have come first.
                self.ended = Some(if self.said && told { Ended::Closed } else { Ended::Broken });
                // A peer whose cable was away for longer than the kernel waits has given its end up, and answers ours with a reset
                // when the cable is back. It may live, and be reached over other paths.
                self.path_lost = self.ended == Some(Ended::Broken);
                Err(match peer_gone(&source) {
                    Some(why) => Down::PeerGone { path: self.path.clone(), why: why.into() },
                    None => Down::System { call: "recv", path: self.path.clone(), source },
                })
            }
        }
    }

    /// How it ended, once a check has failed.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Tells the peer that this side ends the connection of its own will and lives. The stream is empty, so the byte
    /// leaves at once where there is a path at all. To a peer that is gone it would be answered by a reset, so check first.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.said, true) {
            let _ = linkspan_net::send(self.stream.as_fd(), &[LEAVING]);
        }
    }

    /// Whether the last check found this path lost (the peer's host does not answer on it, or has given it up) rather than an end
    /// that the peer has told.
    pub fn path_lost(&self) -> bool {
        self.path_lost
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> std::net::SocketAddr {
        self.stream.peer_addr()
    }

    /// The descriptor that becomes ready when [`Keepalive::check`] has something to report.
    pub fn wait_fd(&self) -> WaitFd {
        self.stream.wait_fd(false)
    }
}
