//! From fragments to the pieces of a message.

use super::Fragment;
use crate::unpack::{Batch, Misfit};

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is in the batch; its token is given back when the batch is in place, and not earlier. Without a batch: nobody
    /// wants it, and its token goes back at once.
    Device {
        /// The token.
        token: u32,
    },
    /// To be copied from the call's buffer to the message.
    Host {
        /// Offset in the call's buffer.
        from: usize,
        /// Offset in the message.
        to: u64,
        /// Bytes.
        len: u32,
    },
}

/// Why a fragment was not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// The batch is full: put it in place, clear it, and give this fragment again.
    Full,
    /// More bytes than the message has left. The stream's next message begins inside of this fragment, after so many bytes:
    /// see [`Fragment::split`].
    Beyond {
        /// Bytes that still belong to this message.
        left: u32,
    },
    /// Of another binding than ours.
    Foreign {
        /// Which.
        dmabuf: u32,
    },
    /// Outside of the dma-buf that we bound: the kernel and this process do not mean the same one.
    Outside {
        /// Its offset.
        offset: u64,
    },
}

/// Keeps the place in the stream's messages and in the call's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Assembly {
    dmabuf: u32,
    len: u64,
    next: u64,
    linear: usize,
}

impl Assembly {
    /// For a message of `len` bytes that arrives over the binding `dmabuf`.
    pub fn new(dmabuf: u32, len: u64) -> Assembly {
        Assembly { dmabuf, len, next: 0, linear: 0 }
    }

    /// The stream's next message, of `len` bytes, begins: also in the middle of a call.
    pub fn begin(&mut self, len: u64) {
        (self.len, self.next) = (len, 0);
    }

    /// Sets the binding from which fragments come from now on.
    pub fn bound(&mut self, dmabuf: u32) {
        self.dmabuf = dmabuf;
    }

    /// A new call of recvmsg begins: its buffer is filled from the start.
    pub fn call(&mut self) {
        self.linear = 0;
    }

    /// Bytes of the message that were placed.
    pub fn placed(&self) -> u64 {
        self.next
    }

    /// Bytes of the message that are missing.
    pub fn left(&self) -> u64 {
        self.len - self.next
    }

    /// Whether the message is complete.
    pub fn complete(&self) -> bool {
        self.next == self.len
    }

    /// Places the next fragment of the stream; without a batch, nowhere.
    ///
    /// # Errors
    /// [`Unplaced::Full`], [`Unplaced::Beyond`], [`Unplaced::Foreign`], [`Unplaced::Outside`]; nothing has changed
    /// then.
    pub fn place(&mut self, fragment: Fragment, batch: Option<&mut Batch>) -> Result<Placed, Unplaced> {
        let left = self.left();
        if u64::from(fragment.len()) > left {
            // Less than a fragment, so below 4 GiB.
            return Err(Unplaced::Beyond { left: left as u32 });
        }
        let to = self.next;
        let placed = match (fragment, batch) {
            (Fragment::Linear { len }, _) => {
                let from = self.linear;
                self.linear += len as usize;
                Placed::Host { from, to, len }
            }
            (Fragment::Device { dmabuf, .. }, _) if dmabuf != self.dmabuf => return Err(Unplaced::Foreign { dmabuf }),
            (Fragment::Device { token, .. }, None) => Placed::Device { token },
            (Fragment::Device { offset, len, token, .. }, Some(batch)) => match batch.push(offset, len, to) {
                Ok(()) => Placed::Device { token },
                Err(Misfit::Full) => return Err(Unplaced::Full),
                Err(Misfit::Source) => return Err(Unplaced::Outside { offset }),
                // The batch is for a shorter message than this assembly.
                Err(Misfit::Target) => return Err(Unplaced::Beyond { left: 0 }),
            },
        };
        self.next += u64::from(fragment.len());
        Ok(placed)
    }
}
