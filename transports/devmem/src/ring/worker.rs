//! The thread of a ring.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use linkspan_netdev::{Area, Harvest, Issuer, Notifier, Source, zero_copy};

use super::AreaOf;
use crate::Error;

/// Orders, as bits: make a request; have the kernel take the refill ring; end.
pub(super) const ARM: u32 = 1;
pub(super) const FLUSH: u32 = 2;
pub(super) const STOP: u32 = 4;

/// linux: asm-generic/errno-base.h.
const EIO: i32 = 5;

/// What requests carry.
pub(super) const MARK: u64 = 1;

/// What the rail and the thread tell each other.
#[derive(Debug)]
pub(super) struct Shared {
    orders: AtomicU32,
    pub(super) window: AtomicU32,
    /// Rung for the thread: by the kernel, and with orders.
    notifier: Arc<Notifier>,
    /// Signalled for the rail when completions have come; `signaled` says so without a system call, and later.
    pub(super) came: Notifier,
    signaled: AtomicBool,
    /// The error that ended the thread; 0: none.
    failed: AtomicI32,
}

impl Shared {
    pub(super) fn new() -> io::Result<Shared> {
        Ok(Shared {
            orders: AtomicU32::new(0),
            window: AtomicU32::new(0),
            notifier: Arc::new(Notifier::new(true)?),
            came: Notifier::new(false)?,
            signaled: AtomicBool::new(false),
            failed: AtomicI32::new(0),
        })
    }

    pub(super) fn order(&self, what: u32) {
        self.orders.fetch_or(what, Ordering::Release);
        self.notifier.signal();
    }

    /// Nothing is there: the rail's notifier may be silent until something comes. What comes between a look and this is found by
    /// the next look, for the notifier is drained only where the thread has said that it rang before.
    pub(super) fn drain(&self) {
        if self.signaled.swap(false, Ordering::AcqRel) {
            self.came.wait();
        }
    }

    pub(super) fn failure(&self) -> Option<io::Error> {
        let code = self.failed.load(Ordering::Acquire);
        (code != 0).then(|| io::Error::from_raw_os_error(code))
    }

    fn tell(&self) {
        self.came.signal();
        self.signaled.store(true, Ordering::Release);
    }
}

/// Starts it, and returns when the ring is made or is not.
pub(super) fn start(
    source: Source,
    area: AreaOf,
    len: u64,
    sizes: (u32, u32),
    stream: OwnedFd,
    shared: &Arc<Shared>,
) -> Result<(JoinHandle<()>, Harvest), Error> {
    let (tell, told) = mpsc::sync_channel(1);
    let shared = shared.clone();
    let work = move || {
        linkspan_net::block_signals();
        let place = match &area {
            AreaOf::DmaBuf(fd) => Area::DmaBuf(fd.as_fd(), len),
            AreaOf::Host(mem) => Area::Host(*mem),
        };
        let (issuer, harvest) = match zero_copy(source, place, sizes, &shared.notifier) {
            Ok(made) => made,
            Err(why) => return drop(tell.send(Err(why))),
        };
        // The kernel holds the dma-buf by itself.
        drop(area);
        if tell.send(Ok(harvest)).is_ok() {
            run(issuer, &stream, &shared);
        }
    };
    let system = |call| move |source| Error::System { call, source };
    // With the stack as it comes: glibc takes out of it what libraries keep for each thread, which can be a megabyte.
    let builder = std::thread::Builder::new().name("linkspan uring".into());
    let thread = builder.spawn(work).map_err(system("starting a thread"))?;
    match told.recv() {
        Ok(Ok(harvest)) => Ok((thread, harvest)),
        Ok(Err(why)) => {
            let _ = thread.join();
            Err(Error::Ring(why))
        }
        Err(_) => Err(system("a thread for io_uring")(io::ErrorKind::BrokenPipe.into())),
    }
}

fn run(mut issuer: Issuer, stream: &OwnedFd, shared: &Shared) {
    let mut seen = issuer.posted();
    loop {
        issuer.wait();
        let orders = shared.orders.swap(0, Ordering::AcqRel);
        if orders & STOP != 0 {
            break;
        }
        let did = orders_done(&mut issuer, orders, stream, shared);
        let posted = issuer.posted();
        if let Err(error) = &did {
            shared.failed.store(error.raw_os_error().unwrap_or(EIO), Ordering::Release);
        }
        if posted != seen || did.is_err() {
            seen = posted;
            shared.tell();
        }
        if did.is_err() {
            break;
        }
    }
    // The stream's end waits for its holders, and the area's owner for this thread.
    issuer.cancel();
}

fn orders_done(issuer: &mut Issuer, orders: u32, stream: &OwnedFd, shared: &Shared) -> io::Result<()> {
    if orders & FLUSH != 0 {
        // Kernels before 6.19 know no such call, and their cards take from the ring by themselves.
        let _ = issuer.flush();
    }
    if orders & ARM != 0 {
        issuer.receive(stream.as_fd(), shared.window.load(Ordering::Relaxed), MARK);
    }
    issuer.enter()
}
