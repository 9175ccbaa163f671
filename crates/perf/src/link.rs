//! What the engines ask of a connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linkspan_gpu::MemoryName;
use linkspan_transport::{HostBuf, MemSlice};

/// An operation in flight; dead once [`Link::test`] has reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What a link is, for people and for the baselines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkDesc {
    /// Transport: `tcp`, `shm`, ...; several joined by `+`.
    pub transport: String,
    /// The path, as in `eth0 10.0.0.1:4000 -> 10.0.0.2:5000`.
    pub path: String,
    /// Why this path was taken.
    pub reason: String,
    /// Paths and reasons for people, a line for each rail.
    pub lines: Vec<String>,
    /// Where messages are on this side.
    pub memory: MemoryName,
    /// Address of this side on the path, where it has one; a link-local one means nothing without its scope.
    pub local: Option<SocketAddr>,
    /// Address of the peer on the path.
    pub peer: Option<SocketAddr>,
}

/// Why a link does not work any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer process ended or closed the connection.
    #[error("LS0701 the peer on {path} is gone: {why}")]
    PeerGone {
        /// The path.
        path: String,
        /// What proved it.
        why: String,
    },
    /// No answer, or the connection was refused.
    #[error("LS0702 no connection to {peer}: {why}")]
    NoPeer {
        /// Whom we looked for.
        peer: String,
        /// What happened.
        why: String,
    },
    /// The user interrupted the test.
    #[error("LS0709 interrupted; what was measured until then is printed")]
    Interrupted,
    /// Anything else that ended the link.
    #[error("LS0703 {what} failed on {path}")]
    Failed {
        /// What was done.
        what: &'static str,
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Longest that a test asks [`Link::wait`] to sleep, so that deadlines are kept.
pub const WAIT_MAX: Duration = Duration::from_millis(100);

/// Memory for messages. Dropping it gives it back.
#[allow(unsafe_code)]
pub trait MessageMemory: Send + std::fmt::Debug {
    /// All of it.
    ///
    /// # Safety
    /// Nothing uses the handle, a copy or a part of it once this is dropped; see [`MemSlice::new`].
    unsafe fn slice(&self) -> MemSlice;
}

#[allow(unsafe_code)]
impl MessageMemory for HostBuf {
    unsafe fn slice(&self) -> MemSlice {
        // SAFETY: the caller's promise.
        unsafe { HostBuf::slice(self) }
    }
}

/// Memory that operations of a link may still use although the test that posted them has ended.
#[derive(Clone, Debug, Default)]
pub struct Leftovers(Arc<Mutex<Vec<Box<dyn MessageMemory>>>>);

/// Memory of operations. What an operation still uses when this is dropped, as after a timeout, is left to the link.
#[derive(Debug)]
pub(crate) struct OpMemory {
    owner: Option<Box<dyn MessageMemory>>,
    /// Operations posted and not reported.
    used: u32,
    leftovers: Leftovers,
}

#[allow(unsafe_code)]
impl OpMemory {
    pub(crate) fn new<L: Link + ?Sized>(link: &L, owner: Box<dyn MessageMemory>) -> OpMemory {
        OpMemory { owner: Some(owner), used: 0, leftovers: link.leftovers() }
    }

    pub(crate) fn host<L: Link + ?Sized>(link: &L, len: usize) -> OpMemory {
        OpMemory::new(link, Box::new(HostBuf::new(len)))
    }

    /// A handle on all of it, for operations that are counted.
    pub(crate) fn slice(&self) -> MemSlice {
        // SAFETY: while an operation uses it the memory stays; this crate gives handles to its links alone.
        self.owner.as_ref().map_or(MemSlice::NONE, |owner| unsafe { owner.slice() })
    }

    /// An operation was posted.
    pub(crate) fn posted(&mut self) {
        self.used += 1;
    }

    /// One has reported.
    pub(crate) fn reported(&mut self) {
        self.used -= 1;
    }
}

impl Drop for OpMemory {
    fn drop(&mut self) {
        if self.used > 0 {
            self.leftovers.0.lock().unwrap_or_else(|e| e.into_inner()).extend(self.owner.take());
        }
    }
}

/// One connection to the peer process, driven by one thread at a time.
///
/// Messages of one tag match receives of that tag in order. Memory of a posted operation belongs to the link until
/// its ticket was reported or the link was dropped.
///
/// # Safety
/// An implementation touches memory of an operation until its ticket was reported or the link was dropped, and gives no
/// handle to anything that may touch it later.
#[allow(unsafe_code)]
pub unsafe trait Link {
    /// What this link is.
    fn describe(&self) -> LinkDesc;

    /// Where tests leave memory that this link may still touch. The same list each time; a link drops it after whatever touches memory.
    fn leftovers(&self) -> Leftovers;

    /// Memory for messages on this link: on the host, unless the link was made for a device's.
    ///
    /// # Errors
    /// [`LinkError::Failed`]: the device has no memory left.
    fn memory(&self, len: usize) -> Result<Box<dyn MessageMemory>, LinkError> {
        Ok(Box::new(HostBuf::new(len)))
    }

    /// Posts a send of all of `mem`. `None`: busy, progress and ask again.
    ///
    /// # Errors
    /// [`LinkError::PeerGone`], [`LinkError::Failed`]: the link is down.
    fn post_send(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError>;

    /// Posts a receive of at most `mem.len()` bytes. `None`: busy, progress and ask again.
    ///
    /// # Errors
    /// [`LinkError::PeerGone`], [`LinkError::Failed`]: the link is down.
    fn post_recv(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError>;

    /// Moves what can be moved. True when something happened.
    ///
    /// # Errors
    /// [`LinkError::PeerGone`], [`LinkError::Failed`]: the link is down.
    fn progress(&mut self) -> Result<bool, LinkError>;

    /// `Some` with the bytes of the message when the operation is done; the ticket is dead after that.
    ///
    /// # Errors
    /// [`LinkError::PeerGone`], [`LinkError::Failed`]: the link is down, or the operation was refused.
    fn test(&mut self, ticket: Ticket) -> Result<Option<usize>, LinkError>;

    /// Sleeps until something may have happened, for at most about `most`. May return early for no reason.
    ///
    /// # Errors
    /// [`LinkError::PeerGone`], [`LinkError::Failed`]: the link is down.
    fn wait(&mut self, most: Duration) -> Result<(), LinkError>;
}

/// Makes connections to one peer, for tests that need several.
pub trait Connector: Sync {
    /// The connections it makes.
    type Link: Link + Send;

    /// A new connection, up and authenticated.
    ///
    /// # Errors
    /// [`LinkError::NoPeer`]: the peer did not answer or refused. [`LinkError::PeerGone`], [`LinkError::Failed`]: the
    /// handshake failed.
    fn connect(&self) -> Result<Self::Link, LinkError>;
}
