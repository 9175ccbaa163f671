//! The process's side of the local socket.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use super::wire::{ANSWER_MAX, BrokerReply, BrokerRequest};

/// Where the sockets are; of root alone to make.
pub const FOLDER: &str = "/run/linkspan";

/// Longest wait for an answer: binding restarts queues, which takes some cards seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The socket of an interface's `lspan devmem up` in this folder.
pub fn path(folder: &Path, interface: &str) -> PathBuf {
    folder.join(format!("devmem-{interface}.sock"))
}

/// A process's part of an interface. What it bound and steered ends when this is dropped, also where a child of fork() has the socket
/// too.
#[derive(Debug)]
pub struct Session {
    fd: OwnedFd,
    /// The process that opened it.
    process: u32,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.end();
        }
    }
}

impl Session {
    /// Connects to the broker (`lspan devmem up`) at `path`.
    ///
    /// # Errors
    /// A text for the log: no broker listens at `path`, or its process belongs to neither root nor this user.
    pub fn open(path: &Path) -> Result<Session, String> {
        let no = |call: &str, e: Errno| format!("{call} {}: {e}", path.display());
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| no("socket", e))?;
        let addr = SocketAddrUnix::new(path).map_err(|e| no("the name", e))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE)).map_err(|e| no("SO_RCVTIMEO", e))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(PATIENCE)).map_err(|e| no("SO_SNDTIMEO", e))?;
        rustix::net::connect(&fd, &addr).map_err(|e| no("connect to", e))?;
        // The process that binds our memory can let any stream write it.
        let (them, _) =
            linkspan_net::peer_of(fd.as_fd()).map_err(|e| format!("SO_PEERCRED of {}: {e}", path.display()))?;
        if them != 0 && them != rustix::process::geteuid().as_raw() {
            return Err(format!("{} belongs to user {them}, neither root nor us", path.display()));
        }
        Ok(Session { fd, process: std::process::id() })
    }

    /// The broker takes back what it gave, and every later question fails.
    fn end(&self) {
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Whether the broker has hung up; not to be asked while it owes an answer.
    pub(super) fn is_over(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(rustix::net::recv(&self.fd, &mut [0u8][..], flags), Err(Errno::AGAIN))
    }

    fn ask(&self, question: BrokerRequest, with: Option<BorrowedFd<'_>>) -> Result<u32, String> {
        let no = |call: &str, e: Errno| format!("lspan devmem up does not answer: {call}: {e}");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = with.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err("no space for a descriptor".into());
        }
        let bytes = question.encode();
        let bytes = [std::io::IoSlice::new(&bytes)];
        // A signal interrupts both calls, for they have a time limit (signal(7)).
        match retry_on_intr(|| rustix::net::sendmsg(&self.fd, &bytes, &mut control, SendFlags::NOSIGNAL)) {
            // Who is refused is told so and hung up on, maybe before it has asked: the words are there to be read.
            Ok(_) | Err(Errno::PIPE) => {}
            Err(e) => return Err(no("sendmsg", e)),
        }
        let mut answer = [0; ANSWER_MAX];
        let (n, _) = retry_on_intr(|| rustix::net::recv(&self.fd, &mut answer[..], RecvFlags::empty()))
            // An answer that comes later would be taken for that of the next question.
            .inspect_err(|_| self.end())
            .map_err(|e| no("recv", e))?;
        if n == 0 {
            return Err("lspan devmem up has ended this session: it prints why".into());
        }
        let answer = BrokerReply::decode(&answer[..n]).ok_or("the answer of lspan devmem up has an unknown format")?;
        answer.0
    }

    /// Asks the broker to bind a dma-buf of `len` bytes to queues. Returns the number of the binding.
    ///
    /// # Errors
    /// The broker's refusal, or that the session ended, as text for the log.
    pub fn bind(&self, dmabuf: BorrowedFd<'_>, len: u64) -> Result<u32, String> {
        self.ask(BrokerRequest::Bind { len }, Some(dmabuf))
    }

    /// Has the stream `peer` -> `local`, whose socket is `stream`, steered to them: the rule's number. The broker keeps the
    /// socket for as long, so the stream ends with the rule or by its peer.
    ///
    /// # Errors
    /// The broker's refusal, or that the session ended, as text for the log.
    pub fn steer(&self, local: SocketAddr, peer: SocketAddr, stream: BorrowedFd<'_>) -> Result<u32, String> {
        self.ask(BrokerRequest::Steer { local, peer }, Some(stream))
    }

    /// Removes a steering rule.
    ///
    /// # Errors
    /// The broker's refusal, or that the session ended, as text for the log.
    pub fn release(&self, rule: u32) -> Result<(), String> {
        self.ask(BrokerRequest::Release { rule }, None).map(|_| ())
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
