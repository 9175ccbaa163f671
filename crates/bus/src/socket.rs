//! A connection over which the bus passes no descriptors: the last close(2) of one takes as long as whoever sent it wants, as with a
//! socket that has SO_LINGER, and nothing of ours is asked for by one.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::Address;
use zbus::address::Transport;
use zbus::address::transport::UnixSocket;
use zbus::connection::Builder;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;
use zbus::fdo::ConnectionCredentials;

/// The system bus, which passes no descriptors to this connection where it listens at a path.
///
/// # Errors
/// [`zbus::Error`]: the address cannot be read, or nothing listens there.
pub async fn system_bus() -> zbus::Result<Builder<'static>> {
    let address = Address::system()?;
    match address.transport() {
        Transport::Unix(unix) => match unix.path() {
            UnixSocket::File(path) => Ok(Builder::socket(Bytes(UnixStream::connect(path).await?))),
            _ => Builder::address(address),
        },
        _ => Builder::address(address),
    }
}

/// A stream, or half of it, that says that it passes no descriptors.
#[derive(Debug)]
struct Bytes<T>(T);

impl Socket for Bytes<UnixStream> {
    type ReadHalf = Bytes<OwnedReadHalf>;
    type WriteHalf = Bytes<OwnedWriteHalf>;

    fn split(self) -> Split<Self::ReadHalf, Self::WriteHalf> {
        let (read, write) = self.0.into_split();
        Split::new(Bytes(read), Bytes(write))
    }
}

#[async_trait]
impl ReadHalf for Bytes<OwnedReadHalf> {
    async fn recvmsg(&mut self, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.0.recvmsg(buf).await
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        self.0.peer_credentials().await
    }
}

#[async_trait]
impl WriteHalf for Bytes<OwnedWriteHalf> {
    async fn sendmsg(&mut self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.sendmsg(buf, fds).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.close().await
    }

    async fn peer_credentials(&mut self) -> io::Result<ConnectionCredentials> {
        self.0.peer_credentials().await
    }
}
