//! The last byte of a stream, left in the socket.
//!
//! Linux answers a read that empties a socket with an acknowledgement, unless data of its own carries it: on a stream
//! whose other direction is silent that is one packet for every small message, sent from within the read, 2 us before the
//! caller has the message (loopback). A read that leaves a byte sends none. The last byte of what has come is
//! always padding or part of a message that is not whole yet, so no reader waits for it. It is read, and with it all
//! acknowledged, once nothing new comes, or after a few messages: the peer may have ten packets under way before it
//! has heard anything (RFC 6928), and the kernel's own acknowledgement comes after 40 ms only.
//!
//! TCP_QUICKACK of 0 set again after each read, which asks the kernel for the same, is slower: 8 B to 0.75 of this speed, 64 KiB to
//! 0.91 (bench/records/2026-11-25-quickack.md).
//!
//! Where each message is answered, as in a ping-pong, the answer carries the acknowledgement, and Linux waits for it (it
//! calls such a session interactive). Then nothing has to be left, and the amount in the socket need not be queried.

use std::io;
use std::os::fd::BorrowedFd;

/// Reads in a row that leave a byte. Below the ten packets of a fresh congestion window.
const MOST: u32 = 8;

/// Such reads after which the byte is read at the first quiet moment.
const SOME: u32 = 4;

/// Looks in a row that found nothing new, after which it counts as a quiet moment: 1 to 2 us. Its acknowledgement then
/// does not meet the peer's answer on the way.
const QUIET: u32 = 6;

/// Looks in a row that found nothing new, after which a read looks for the end of the stream, which FIONREAD does not
/// tell, and reads what was left.
const END: u32 = 32;

/// Answered reads in a row after which the next is expected to be answered too.
const TURNS: u32 = 16;

/// What is left in the socket on purpose.
#[derive(Default)]
pub(crate) struct AckSuppressor {
    /// Reads in a row, each with something sent behind it; and whether that is so of the last one.
    turns: u32,
    answered: bool,
    /// Bytes left, 0 or 1.
    left: usize,
    /// Reads that left a byte since one that did not.
    reads: u32,
    /// Looks in a row that found nothing new.
    quiet: u32,
}

impl AckSuppressor {
    /// How many bytes to read at most, `None` if nothing is to be read.
    pub(crate) fn ask(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        if self.turns >= TURNS {
            return Ok(Some(self.all()));
        }
        let there = linkspan_net::queued(fd)?;
        if there <= self.left {
            self.quiet += 1;
            let look = self.quiet == END || self.quiet == QUIET && self.reads >= SOME;
            return Ok(look.then(|| self.all()));
        }
        self.quiet = 0;
        if there < 2 || self.reads == MOST {
            return Ok(Some(self.all()));
        }
        self.reads += 1;
        self.left = 1;
        Ok(Some(there - 1))
    }

    /// A message has come.
    pub(crate) fn came(&mut self) {
        self.turns = if std::mem::take(&mut self.answered) { (self.turns + 1).min(TURNS) } else { 0 };
    }

    /// Something was sent.
    pub(crate) fn answered(&mut self) {
        self.answered = true;
    }

    /// Whether a byte was left; the next look then has it read.
    pub(crate) fn hurry(&mut self) -> bool {
        self.quiet = END - 1;
        self.left > 0
    }

    /// The next read is to leave nothing.
    pub(crate) fn all(&mut self) -> usize {
        (self.left, self.reads) = (0, 0);
        if self.quiet == END {
            self.quiet = 0;
        }
        usize::MAX
    }
}
