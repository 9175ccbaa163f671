//! The sending half: the queue of the plain rail, drained into one record at a time.

use std::io;
use std::os::fd::BorrowedFd;

use linkspan_proto::Head;
use linkspan_proto::login::{RECORD_HEAD, RECORD_TAG, RecordError, Sealer};
use linkspan_transport::{Busy, MemSlice};

use crate::tx::Tx;
use crate::zerocopy::ZeroCopy;

/// Bytes of text in a full record. 128 KiB: the peer opens one while we seal the next, and the text stays in the
/// second-level cache on both sides. Processor time per byte (`sealed_bench`): 64 KiB a tenth more, 256 and 512 KiB no
/// less beyond the spread.
pub(super) const TEXT: usize = 128 << 10;

/// Most records of one call: 512 KiB, as much as the plain rail sends with one call.
const RECORDS: usize = 4;

/// Why nothing can be sent any more.
pub(super) enum Fault {
    /// The OS error.
    System(io::Error),
    /// No record can be made.
    Record(RecordError),
}

/// Items accepted and not yet taken by the kernel as records.
pub(super) struct SealedTx {
    queue: Tx,
    sealer: Sealer,
    /// `record[lo..hi]` is sealed and waits for the kernel.
    record: Box<[u8]>,
    lo: usize,
    hi: usize,
    /// Items whose last byte is in the record, and items whose last record is with the kernel.
    sealed: u64,
    taken: u64,
}

impl SealedTx {
    pub(super) fn new(sealer: Sealer) -> SealedTx {
        let record = vec![0; RECORD_HEAD + TEXT + RECORD_TAG].into();
        SealedTx { queue: Tx::new(ZeroCopy::off()), sealer, record, lo: 0, hi: 0, sealed: 0, taken: 0 }
    }

    pub(super) fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.queue.ctrl(head, body)
    }

    pub(super) fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.queue.data(head, src)
    }

    /// Number of the last item whose records the kernel has to the last byte.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether bytes wait for the kernel.
    pub(super) fn pending(&self) -> bool {
        self.lo != self.hi || self.queue.pending()
    }

    /// Seals what was accepted and hands the kernel what it takes now. Returns whether it took anything.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<bool, Fault> {
        let mut active = false;
        for _ in 0..RECORDS {
            if self.lo == self.hi {
                if !self.queue.pending() {
                    break;
                }
                self.seal().map_err(Fault::Record)?;
            }
            match linkspan_net::send(fd, &self.record[self.lo..self.hi]).map_err(Fault::System)? {
                Some(n) if n > 0 => self.lo += n,
                _ => break,
            }
            active = true;
            if self.lo != self.hi {
                break;
            }
            self.taken = self.sealed;
        }
        Ok(active)
    }

    /// Makes the next record of as many bytes as there are.
    fn seal(&mut self) -> Result<(), RecordError> {
        let len = self.queue.drain(&mut self.record[RECORD_HEAD..RECORD_HEAD + TEXT]);
        let end = RECORD_HEAD + len;
        let (head, tag) = self.sealer.seal(&mut self.record[RECORD_HEAD..end])?;
        self.record[..RECORD_HEAD].copy_from_slice(&head);
        self.record[end..end + RECORD_TAG].copy_from_slice(&tag);
        (self.lo, self.hi) = (0, end + RECORD_TAG);
        self.sealed = self.queue.taken();
        Ok(())
    }
}
