//! Lending payload memory to the kernel instead of copying it (MSG_ZEROCOPY), where that pays.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use linkspan_net::Gather;

/// Which payloads are lent to the kernel instead of being copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopyPolicy {
    /// None.
    #[default]
    Never,
    /// Those of so many bytes and more.
    From(usize),
}

/// Calls whose memory is lent at a time.
const CALLS: usize = 256;

/// linux: asm-generic/errno.h; the socket may pin no more memory (net.core.optmem_max, RLIMIT_MEMLOCK).
const ENOBUFS: i32 = 105;

/// Which payloads are lent, and which of them the kernel still holds.
pub(crate) struct ZeroCopy {
    /// Payloads from this length on are lent; `None`: never (any more).
    from: Option<usize>,
    /// Position of the first byte of each call, and whether its notice has come; slot = number modulo CALLS.
    calls: Box<[(u64, bool)]>,
    /// Calls ever made and ever settled in order.
    made: u32,
    settled: u32,
}

impl ZeroCopy {
    /// Never lends.
    pub(crate) fn off() -> ZeroCopy {
        ZeroCopy { from: None, calls: Box::default(), made: 0, settled: 0 }
    }

    /// Lends on this socket what `zero_copy` says, where the kernel can.
    pub(crate) fn new(fd: BorrowedFd<'_>, zero_copy: ZeroCopyPolicy) -> ZeroCopy {
        let ZeroCopyPolicy::From(from) = zero_copy else { return ZeroCopy::off() };
        if linkspan_net::enable_zerocopy(fd).is_err() {
            return ZeroCopy::off();
        }
        ZeroCopy { from: Some(from.max(1)), calls: vec![(0, false); CALLS].into(), ..ZeroCopy::off() }
    }

    /// Whether payloads that are to be lent still are.
    pub(crate) fn on(&self) -> bool {
        self.from.is_some()
    }

    /// Whether a payload of `len` bytes goes this way.
    pub(crate) fn wants(&self, len: usize) -> bool {
        self.from.is_some_and(|from| len >= from)
    }

    /// Whether the kernel holds memory.
    pub(crate) fn lent(&self) -> bool {
        self.made != self.settled
    }

    /// Position of the first byte that the kernel still holds.
    pub(crate) fn first_lent(&self) -> Option<u64> {
        self.lent().then(|| self.calls[self.settled as usize % CALLS].0)
    }

    /// Sends `gather`, whose first byte has position `at`, without copying where the kernel agrees.
    pub(crate) fn send(&mut self, fd: BorrowedFd<'_>, gather: &Gather<'_>, at: u64) -> io::Result<Option<usize>> {
        if self.made.wrapping_sub(self.settled) as usize == CALLS {
            return Ok(None);
        }
        match gather.send_zerocopy(fd) {
            Ok(Some(n)) => {
                self.calls[self.made as usize % CALLS] = (at, false);
                self.made = self.made.wrapping_add(1);
                Ok(Some(n))
            }
            Err(e) if e.raw_os_error() == Some(ENOBUFS) => gather.send(fd),
            other => other,
        }
    }

    /// Takes the notices of a connection that was reset until all have come. What a card has taken already it sends within a millisecond;
    /// one that does not get on is not waited for.
    pub(crate) fn wait_given_back(&mut self, fd: BorrowedFd<'_>) {
        for _ in 0..100 {
            let found = self.collect(fd);
            if !self.lent() {
                return;
            }
            if !matches!(found, Ok(true)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Takes the notices that have come. Returns whether any did.
    pub(crate) fn collect(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut any = false;
        while self.lent() {
            let Some(sent) = linkspan_net::sent_notice(fd)? else {
                break;
            };
            any = true;
            if sent.copied {
                // Copied after all: then it costs the notice on top. For good, the device will not change.
                self.from = None;
            }
            // A notice of the kernel, checked against what was handed to it.
            let (mut number, open) = (sent.first, self.made.wrapping_sub(self.settled));
            loop {
                if number.wrapping_sub(self.settled) < open {
                    self.calls[number as usize % CALLS].1 = true;
                }
                if number == sent.last || number.wrapping_sub(sent.first) >= CALLS as u32 {
                    break;
                }
                number = number.wrapping_add(1);
            }
            while self.lent() && self.calls[self.settled as usize % CALLS].1 {
                self.settled = self.settled.wrapping_add(1);
            }
        }
        Ok(any)
    }
}
