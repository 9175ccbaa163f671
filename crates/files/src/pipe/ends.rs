//! What a pipe is joined to on one host: standard input and output, a socket, or a program.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal};

/// What is read and sent, and where what comes is written.
#[derive(Debug)]
pub struct Ends {
    pub(super) reader: File,
    pub(super) writer: Option<File>,
    pub(super) tail: Tail,
}

/// How an end is ended.
#[derive(Debug)]
pub(super) enum Tail {
    /// By closing its descriptors.
    Plain,
    Socket(TcpStream),
    /// A running program.
    Program(OwnedFd),
}

impl Ends {
    /// Two descriptors. Nobody else may hold the second, or whoever reads there sees no end.
    pub fn of(input: OwnedFd, output: OwnedFd) -> Ends {
        Ends { reader: input.into(), writer: Some(output.into()), tail: Tail::Plain }
    }

    /// A connection. From here on it ends properly only when both directions have: if this process ends before, however it does,
    /// the other side of the socket sees a reset.
    ///
    /// # Errors
    /// The error of setsockopt(2) or fcntl(2), as EMFILE.
    pub fn of_socket(socket: TcpStream) -> io::Result<Ends> {
        // socket(7): with SO_LINGER of zero seconds closing a connection resets it, also when the kernel closes it.
        rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
        socket.set_nodelay(true)?;
        let (reader, writer) = (OwnedFd::from(socket.try_clone()?).into(), OwnedFd::from(socket.try_clone()?).into());
        Ok(Ends { reader, writer: Some(writer), tail: Tail::Socket(socket) })
    }

    /// A program whose standard input and output are pipes.
    pub(super) fn of_program(child: &mut Child) -> io::Result<Ends> {
        let missing = || io::Error::other("its standard input and output are no pipes");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let pid = rustix::process::Pid::from_child(child);
        let program = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let (reader, writer) = (OwnedFd::from(output).into(), OwnedFd::from(input).into());
        Ok(Ends { reader, writer: Some(writer), tail: Tail::Program(program) })
    }
}

impl Tail {
    pub(super) fn is_socket(&self) -> bool {
        matches!(self, Tail::Socket(_))
    }

    /// Both directions are over.
    pub(super) fn finish(&self) {
        if let Tail::Socket(socket) = self {
            let _ = rustix::net::sockopt::set_socket_linger(socket, None);
        }
        self.wake_reader();
    }

    /// It is not over, and is never to look as if it were: a program is killed before its input ends, a socket stays one that
    /// closing resets.
    pub(super) fn cut(&self) {
        if let Tail::Program(program) = self {
            // It may have ended already.
            let _ = rustix::process::pidfd_send_signal(program, Signal::KILL);
        }
        self.wake_reader();
    }

    /// Ends a read that waits, and says nothing to the other side.
    fn wake_reader(&self) {
        if let Tail::Socket(socket) = self {
            let _ = socket.shutdown(Shutdown::Read);
        }
    }
}

/// Says that nobody is left who waits for it.
pub(super) type Over<'a> = &'a dyn Fn() -> bool;

/// Time between two looks whether that is so.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Writes all of it, also where the descriptor is a non-blocking one; for such a one it waits until it is over.
pub(super) fn put(to: &mut File, mut bytes: &[u8], over: Option<Over<'_>>) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) => again(to, PollFlags::OUT, error, over)?,
        }
    }
    Ok(())
}

/// After a failure to read or write: waits until that can be tried again, or until it is over.
pub(super) fn again(file: &File, until: PollFlags, error: io::Error, over: Option<Over<'_>>) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => match poll(&mut [PollFd::new(file, until)], over.map(|_| &LOOK)) {
            Ok(0) if over.is_some_and(|over| over()) => Err(error),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        },
        _ => Err(error),
    }
}

/// Passes the end of the stream on.
pub(super) fn end(writer: Option<File>) {
    if let Some(writer) = writer {
        // Standard output may be the same socket as standard input, and closing it then ends nothing.
        let _ = rustix::net::shutdown(&writer, rustix::net::Shutdown::Write);
    }
}
