//! A stream of the TCP transport as the payload stream of a rail.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linkspan_devmem::Owner;
use linkspan_stream::Stream;

/// What was sent over it still arrives when it is dropped, unless it is cut.
#[derive(Debug)]
pub(crate) struct Held {
    /// Always there, until it is dropped.
    stream: Option<Stream>,
    ends: (SocketAddr, SocketAddr),
    cut: bool,
}

impl Held {
    pub(crate) fn new(stream: Stream) -> Held {
        Held { ends: (stream.local_addr(), stream.peer_addr()), stream: Some(stream), cut: false }
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // `drop` alone takes it.
        self.stream.as_ref().expect("held until it is dropped").as_fd()
    }
}

impl Owner for Held {
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        self.ends
    }

    fn cut(&mut self) {
        self.cut = true;
        if let Some(stream) = &self.stream {
            stream.reset();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|_| !self.cut) {
            stream.leave();
        }
    }
}
