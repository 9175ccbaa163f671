//! A stream that io_uring receives: completions become the control messages that a device-memory socket would have brought, so that
//! everything behind is the same.
//!
//! The kernel lets one thread alone drive such a ring, and a rail goes from thread to thread. So each ring has a thread
//! ([`worker`]) that does nothing but enter the kernel; the rail itself reads completions and gives pages back in shared memory.

mod landing;
mod worker;

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use linkspan_gpu::devmem::{Arrivals, Fragment, PAGE, Refill, RequestState, Run, refills, tell};
use linkspan_net::{WaitPair, recv_mem};
use linkspan_netdev::{Harvest, Received, Source};
use linkspan_transport::{Buf, MemSlice, WaitFd};

use crate::Error;
use worker::{ARM, FLUSH, MARK, Shared};

/// Completions that wait to be taken: 8192 pages are 32 MiB.
const COMPLETIONS: u32 = 8192;

/// Of the area, what a peer may fill before it is read; the rest is for what the GPU still reads.
const WINDOW: u64 = 2;

/// Times that the kernel may find no page while none is in use: the refill ring may be on its way.
const IN_VAIN: u32 = 1000;

/// What a ring receives into, kept for as long as the kernel may write there.
pub(crate) struct Landing {
    /// The bytes of the area, whole pages; fragments' offsets count from its first.
    pub(crate) len: u64,
    /// As the kernel is told: a dma-buf, or host memory.
    pub(crate) area: AreaOf,
    /// What keeps the memory.
    pub(crate) keeps: Box<dyn Any + Send>,
}

/// What the kernel is told of the memory.
#[derive(Debug)]
pub(crate) enum AreaOf {
    /// A dma-buf.
    DmaBuf(OwnedFd),
    /// Host memory.
    Host(MemSlice),
}

/// The ring of one stream.
pub struct Ring {
    harvest: Harvest,
    arrivals: Arrivals,
    refill: Refill,
    /// The rest of a fragment of which the last call wanted a part.
    rest: Option<Fragment>,
    window: u32,
    /// Pages that the rail has; and whether some came back since the area was dry.
    held: u64,
    returned: bool,
    /// Times that it was dry in a row although no page was in use.
    in_vain: u32,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    group: WaitPair,
    // The kernel writes there until the thread has ended.
    _keeps: Box<dyn Any + Send>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring {{ {:?}, {} pages held }}", self.arrivals, self.held)
    }
}

impl Ring {
    /// Receives a connected stream from now on. What came before is still received by recv(2): this is not called in the middle
    /// of a call.
    ///
    /// # Errors
    /// [`Error::System`] and [`Error::Ring`], with the call that failed and the OS error.
    pub(crate) fn start(source: Source, landing: Landing, stream: BorrowedFd<'_>) -> Result<Ring, Error> {
        let system = |call| move |source| Error::System { call, source };
        let stream = stream.try_clone_to_owned().map_err(system("dup"))?;
        let shared = Arc::new(Shared::new().map_err(system("eventfd"))?);
        let group = WaitPair::new().map_err(system("epoll_create1"))?;
        let pages = landing.len / PAGE;
        let (thread, harvest) =
            worker::start(source, landing.area, landing.len, (COMPLETIONS, refills(pages)), stream, &shared)?;
        let window = u32::try_from(landing.len / WINDOW).unwrap_or(u32::MAX >> 1).max(PAGE as u32);
        shared.window.store(window, std::sync::atomic::Ordering::Relaxed);
        Ok(Ring {
            arrivals: Arrivals::new(MARK, landing.len, harvest.area(), harvest.id()),
            refill: Refill::new(harvest.refills(), usize::try_from(pages).unwrap_or(0)),
            rest: None,
            window,
            held: 0,
            returned: false,
            in_vain: 0,
            harvest,
            shared,
            thread: Some(thread),
            group,
            _keeps: landing.keeps,
        })
    }

    /// What fragments are told to belong to.
    pub(crate) fn id(&self) -> u32 {
        self.harvest.id()
    }

    /// As [`crate::Socket::receive`].
    pub(crate) fn receive(
        &mut self,
        stream: BorrowedFd<'_>,
        linear: MemSlice,
        control: &mut [u64],
    ) -> io::Result<Option<Received>> {
        // Before the look: what comes after it leaves the notifier signaled.
        self.shared.drain();
        let (mut bytes, mut used) = (0, 0);
        while bytes < linear.len() {
            let Some(fragment) = self.next()? else { break };
            let space = u32::try_from(linear.len() - bytes).unwrap_or(u32::MAX);
            let (part, rest) = fragment.split(space);
            if !tell(part, control, &mut used) {
                self.rest = Some(fragment);
                break;
            }
            if let Some(Fragment::Device { token, .. }) = rest {
                self.refill.parted(token);
            }
            self.rest = rest;
            self.held += 1;
            self.in_vain = 0;
            bytes += part.len() as usize;
        }
        if bytes > 0 {
            return Ok(Some(Received { bytes, control: used * 8 }));
        }
        match self.arrivals.state() {
            RequestState::Armed => self.shared.failure().map_or(Ok(None), Err),
            RequestState::Idle => {
                self.arm(0);
                Ok(None)
            }
            RequestState::Dry if self.held == 0 && self.in_vain == IN_VAIN => Err(io::ErrorKind::OutOfMemory.into()),
            RequestState::Dry => {
                self.refreshed();
                Ok(None)
            }
            RequestState::OnHost => {
                let got = recv_mem(stream, linear)?;
                match got {
                    Some(0) => self.arrivals.ended(),
                    _ => self.arrivals.resumed(),
                }
                Ok(got.map(|bytes| Received { bytes, control: 0 }))
            }
            RequestState::End => Ok(Some(Received { bytes: 0, control: 0 })),
            RequestState::Failed(error) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The next piece of the stream.
    fn next(&mut self) -> io::Result<Option<Fragment>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        while let Some(completion) = self.harvest.next() {
            if let Some(fragment) = self.arrivals.take(completion).map_err(io::Error::other)? {
                return Ok(Some(fragment));
            }
        }
        Ok(None)
    }

    /// Goes on where the area was dry, if it need not be any more.
    fn refreshed(&mut self) {
        if self.arrivals.state() == RequestState::Dry && (self.returned || self.held == 0) {
            self.in_vain = if self.held == 0 { self.in_vain + 1 } else { 0 };
            self.returned = false;
            self.arrivals.resumed();
            self.arm(FLUSH);
        }
    }

    fn arm(&mut self, also: u32) {
        self.arrivals.armed(self.window.into());
        self.shared.order(ARM | also);
    }

    /// As [`crate::Socket::give_back`]; `WouldBlock`: the refill ring is full, the kernel has been asked to take from it.
    pub(crate) fn give_back(&mut self, runs: &[Run]) -> io::Result<u64> {
        self.refill.kernel_at(self.harvest.taken()).map_err(io::Error::other)?;
        let (before, mut freed) = (self.refill.tail(), 0);
        'all: for run in runs {
            for page in (0..run.count).map(|n| run.start.wrapping_add(n)) {
                if self.refill.space() == 0 {
                    self.shared.order(FLUSH);
                    break 'all;
                }
                if let Some(slot) = self.refill.back(page).map_err(io::Error::other)? {
                    self.harvest.refill(slot, u64::from(page) * PAGE, PAGE as u32);
                }
                freed += 1;
            }
        }
        if self.refill.tail() != before {
            self.harvest.refilled(self.refill.tail());
            self.returned = true;
        }
        self.held = self.held.saturating_sub(freed);
        // Here too: a rail that waits for its notifier asks for nothing.
        self.refreshed();
        if freed == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(freed) }
    }

    /// As [`crate::Socket::wait`].
    pub(crate) fn wait(&mut self, stream: BorrowedFd<'_>, read: bool, write: bool) -> io::Result<WaitFd> {
        let came = WaitFd { fd: self.shared.came.as_fd().as_raw_fd(), read: true, write: false };
        let stream = WaitFd { fd: stream.as_raw_fd(), read: false, write };
        self.group.arm([read.then_some(came), write.then_some(stream)])
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.order(worker::STOP);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked holds nothing any more.
            let _ = thread.join();
        }
    }
}
