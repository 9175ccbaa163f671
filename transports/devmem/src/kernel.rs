//! The kernel's stream.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use linkspan_gpu::Gpu;
use linkspan_gpu::devmem::Run;
use linkspan_net::{Sent, enable_zerocopy, send_mem, sent_notice};
use linkspan_netdev::{Received, give_back, receive, send_bound};
use linkspan_transport::MemSlice;

use crate::{Error, Lent, NotLent, Pool, Socket};

/// Who has the stream.
pub trait Owner: AsFd + Send + fmt::Debug {
    /// Our end and the peer's.
    fn ends(&self) -> (SocketAddr, SocketAddr);

    /// Resets the stream, whatever is under way. The descriptor stays.
    fn cut(&mut self);
}

/// Who binds device memory to network cards and steers streams to it. May be asked from any thread.
///
/// # Safety
/// An implementation names memory to a card no longer than the value lives that it returns.
#[allow(unsafe_code)]
pub unsafe trait Cards: Send + Sync + fmt::Debug {
    /// Memory of this GPU, bound to queues of the interface, to which the stream `peer` -> `local` is steered for as long as the
    /// pool lives. `stream` is its descriptor.
    ///
    /// # Errors
    /// A text for the log: which call of the kernel or the broker refused, and why.
    fn bind(
        &self,
        interface: &str,
        ends: (SocketAddr, SocketAddr),
        stream: BorrowedFd<'_>,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<Pool, String>;

    /// Has the interface's card send from this memory.
    ///
    /// # Errors
    /// [`NotLent`]: which call of the kernel refused and why, or that the memory's owner has not registered it.
    fn lend(&self, interface: &str, gpu: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, NotLent>;
}

/// A connected TCP stream of the kernel.
#[derive(Debug)]
pub struct KernelSocket<O> {
    owner: O,
    interface: String,
    path: String,
    cards: Arc<dyn Cards>,
    zerocopy: bool,
}

impl<O: Owner> KernelSocket<O> {
    /// The stream of `owner` over the interface of this name; `path` is what people see.
    pub fn new(owner: O, interface: String, path: String, cards: Arc<dyn Cards>) -> KernelSocket<O> {
        KernelSocket { owner, interface, path, cards, zerocopy: false }
    }
}

#[allow(unsafe_code)]
// SAFETY: memory is named to the kernel within the call, or until the notice of the send that names it.
unsafe impl<O: Owner> Socket for KernelSocket<O> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.owner.as_fd()
    }

    fn receive(&mut self, linear: MemSlice, control: &mut [u64]) -> io::Result<Option<Received>> {
        receive(self.owner.as_fd(), linear, control)
    }

    fn give_back(&mut self, runs: &[Run]) -> io::Result<u64> {
        give_back(self.owner.as_fd(), runs)
    }

    fn send(&mut self, mem: MemSlice) -> io::Result<Option<usize>> {
        send_mem(self.owner.as_fd(), mem)
    }

    fn send_lent(&mut self, binding: u32, offset: u64, len: usize) -> io::Result<Option<usize>> {
        send_bound(self.owner.as_fd(), binding, offset, len)
    }

    fn notice(&mut self) -> io::Result<Option<Sent>> {
        sent_notice(self.owner.as_fd())
    }

    fn bind(&mut self, gpu: &Arc<dyn Gpu>) -> Result<Pool, Error> {
        let not = |why| Error::NotBound { path: self.path.clone(), device: gpu.info().id(), why };
        let stream = self.owner.as_fd().try_clone_to_owned().map_err(|e| not(format!("another descriptor: {e}")))?;
        let bound = self.cards.bind(&self.interface, self.owner.ends(), self.owner.as_fd(), gpu);
        // The last descriptor that is closed gives the stream's pages back.
        bound.map(|pool| Pool { guard: Box::new((pool.guard, stream)), ..pool }).map_err(not)
    }

    fn lend(&mut self, gpu: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, Error> {
        let not = |NotLent { why, lasting }| {
            let (path, device) = (self.path.clone(), gpu.info().id());
            Error::NotLent { path, device, why, lasting }
        };
        if !self.zerocopy {
            let cannot = |e| not(NotLent { why: format!("SO_ZEROCOPY: {e}"), lasting: true });
            enable_zerocopy(self.owner.as_fd()).map_err(cannot)?;
            self.zerocopy = true;
        }
        self.cards.lend(&self.interface, gpu, mem).map_err(not)
    }

    fn cut(&mut self) {
        self.owner.cut();
    }

    fn path(&self) -> &str {
        &self.path
    }
}
