//! Lending payload memory to the kernel instead of copying it (MSG_ZEROCOPY), where that pays.

mod trial;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use linkspan_net::Gather;

use trial::Trial;

/// Which payloads are lent to the kernel instead of being copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopyPolicy {
    /// None.
    #[default]
    Never,
    /// Those of so many bytes and more.
    From(usize),
    /// Those of 64 KiB and more, if that is measured to cost the sender less: both ways take turns for the first 128.
    Measured,
}

/// Calls whose memory is lent at a time.
const CALLS: usize = 256;

/// linux: asm-generic/errno.h; the socket may pin no more memory (net.core.optmem_max, RLIMIT_MEMLOCK).
const ENOBUFS: i32 = 105;

/// Which payloads are lent, and which of them the kernel still holds.
pub(crate) struct ZeroCopy {
    /// Payloads from this length on are lent; `None`: never (any more).
    from: Option<usize>,
    /// Lending is being compared with copying.
    trial: Option<Trial>,
    /// Position of the first byte of each call, and whether its notice has come; slot = number modulo CALLS.
    calls: Box<[(u64, bool)]>,
    /// Calls ever made and ever settled in order.
    made: u32,
    settled: u32,
}

impl ZeroCopy {
    /// Never lends.
    pub(crate) fn off() -> ZeroCopy {
        ZeroCopy { from: None, trial: None, calls: Box::default(), made: 0, settled: 0 }
    }

    /// Lends on this socket what `zero_copy` says, where the kernel can.
    pub(crate) fn new(fd: BorrowedFd<'_>, zero_copy: ZeroCopyPolicy) -> ZeroCopy {
        let (from, trial) = match zero_copy {
            ZeroCopyPolicy::Never => return ZeroCopy::off(),
            ZeroCopyPolicy::From(from) => (from.max(1), None),
            ZeroCopyPolicy::Measured => (trial::LEAST, Some(Trial::default())),
        };
        if linkspan_net::enable_zerocopy(fd).is_err() {
            return ZeroCopy::off();
        }
        ZeroCopy { from: Some(from), trial, calls: vec![(0, false); CALLS].into(), ..ZeroCopy::off() }
    }

    /// Whether payloads that are to be lent still are.
    pub(crate) fn on(&self) -> bool {
        self.from.is_some()
    }

    /// Whether the next payload, of `len` bytes, goes this way. Asked once for each.
    pub(crate) fn wants(&mut self, len: usize) -> bool {
        if self.from.is_none_or(|from| len < from) {
            return false;
        }
        match self.trial.as_mut().map(Trial::next) {
            None => true,
            Some(Ok(zero_copy)) => zero_copy,
            Some(Err(cheaper)) => {
                self.trial = None;
                if !cheaper {
                    self.from = None;
                }
                cheaper
            }
        }
    }

    /// The time, while calls are to be timed.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.trial.is_some().then(Instant::now)
    }

    /// Calls for payload of one way took so long and moved so much.
    pub(crate) fn spent(&mut self, zero_copy: bool, took: Duration, bytes: usize) {
        if let Some(trial) = &mut self.trial {
            trial.spent(zero_copy, took, bytes);
        }
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
        if self.calls.is_empty() {
            return gather.send(fd);
        }
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
                (self.from, self.trial) = (None, None);
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
