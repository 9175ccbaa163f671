//! One-sided traffic of one side: writes with notifications into its peer's cells, and reads of its peer's region
//! that is exposed and taken back again and again.

use linkspan_sim::{Rng, SimRail};
use linkspan_transport::conformance::{check_bytes, pattern};
use linkspan_transport::{Access, Buf, Conn, Error, MemSlice, OpError, RemoteSlice, StaticBuf, Ticket};

use super::model::{Free, poisoned};

const CELL: usize = 20_000;
const CELLS: usize = 6;
/// Bytes exposed for reading.
const SHOWN: usize = 50_000;

/// What one side exposes.
pub(crate) struct Exposed {
    cells: StaticBuf,
    pub(crate) cells_key: u32,
    /// Exposed for reading now, with the content.
    current: Option<(StaticBuf, u32, u64)>,
    /// Taken back, but not free yet.
    leaving: Vec<(StaticBuf, u32)>,
    epoch: u64,
}

impl Exposed {
    pub(crate) fn new(conn: &mut Conn<SimRail>) -> Exposed {
        let cells = StaticBuf::new(CELL * CELLS);
        let key = conn.expose(cells.slice(), Access::Write);
        Exposed { cells_key: key.expect("a free key"), cells, current: None, leaving: Vec::new(), epoch: 0 }
    }

    /// Changes what is exposed for reading, now and then.
    pub(crate) fn turn(&mut self, conn: &mut Conn<SimRail>, rng: &mut Rng, free: &mut Free) {
        self.leaving.retain_mut(|(buf, key)| {
            let gone = conn.unexpose(*key);
            if gone {
                free.add(std::mem::replace(buf, StaticBuf::new(0)));
            }
            !gone
        });
        if !rng.one_in(25) {
            return;
        }
        match self.current.take() {
            Some((buf, key, _)) => {
                if conn.unexpose(key) {
                    free.add(buf);
                } else {
                    self.leaving.push((buf, key));
                }
            }
            None => {
                self.epoch += 1;
                let buf = pattern(SHOWN, self.epoch);
                let key = conn.expose(buf.slice(), Access::Read).expect("a free key");
                self.current = Some((buf, key, self.epoch));
            }
        }
    }

    pub(crate) fn readable(&self) -> Option<(u32, u64)> {
        self.current.as_ref().map(|(_, key, epoch)| (*key, *epoch))
    }

    fn cell(&self, n: usize, len: usize) -> MemSlice {
        let at = (n * CELL) as u64;
        self.cells.slice().sub(at, len as u64).expect("inside")
    }
}

struct Write {
    ticket: Option<Ticket>,
    src: StaticBuf,
    cell: usize,
    value: u64,
    notified: bool,
}

struct Read {
    ticket: Ticket,
    dst: StaticBuf,
    epoch: u64,
    at: usize,
}

/// What one side does to its peer's memory.
#[derive(Default)]
pub(crate) struct Onesided {
    writes: Vec<Write>,
    reads: Vec<Read>,
    started: u64,
    next_notify: u64,
    /// Writes and reads that were done.
    pub(crate) written: u64,
    pub(crate) read: u64,
}

impl Onesided {
    pub(crate) fn is_done(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty()
    }

    pub(crate) fn start(&mut self, conn: &mut Conn<SimRail>, peer: &Exposed, rng: &mut Rng) -> Result<(), Error> {
        let cell = rng.below(CELLS as u64) as usize;
        if rng.one_in(2) && self.writes.iter().all(|w| w.cell != cell) {
            let len = *rng.choose(&[0, 10, 3000, 8192, 8193, CELL]);
            let value = self.started;
            let src = pattern(len, value ^ 0x5555);
            let to = RemoteSlice { key: peer.cells_key, offset: (cell * CELL) as u64 };
            if let Some(ticket) = conn.post_write(src.slice(), to, Some(value))? {
                self.started += 1;
                self.writes.push(Write { ticket: Some(ticket), src, cell, value, notified: false });
            }
        } else if let Some((key, epoch)) = peer.readable().filter(|_| self.reads.len() < 4) {
            let len = *rng.choose(&[0usize, 10, 9000, 40_000]);
            let at = rng.below((SHOWN - len) as u64) as usize;
            let dst = poisoned(len);
            let offset = at as u64;
            if let Some(ticket) = conn.post_read(dst.slice(), RemoteSlice { key, offset })? {
                self.reads.push(Read { ticket, dst, epoch, at });
            }
        }
        Ok(())
    }

    /// The peer has been notified: everything of that write must be there, in the order of the posts.
    pub(crate) fn notified(&mut self, peer: &Exposed, value: u64) {
        assert_eq!(value, self.next_notify, "order of notifications");
        self.next_notify += 1;
        let write = self.writes.iter_mut().find(|w| w.value == value);
        let write = write.expect("a notification for a write under way");
        check_bytes(peer.cell(write.cell, write.src.len()), value ^ 0x5555);
        write.notified = true;
        self.writes.retain(|w| w.ticket.is_some() || !w.notified);
    }

    /// Tests what is under way. Errors of lost connections free the memory too.
    pub(crate) fn test(&mut self, conn: &mut Conn<SimRail>, peer: Option<&Exposed>, free: &mut Free) {
        for write in &mut self.writes {
            let Some(ticket) = write.ticket else { continue };
            match conn.test(ticket) {
                Ok(None) => continue,
                Ok(Some(n)) => {
                    assert_eq!(n, write.src.len() as u64, "bytes written");
                    self.written += 1;
                }
                Err(Error::Lost | Error::Closed) => {}
                Err(error) => panic!("a write failed: {error}"),
            }
            write.ticket = None;
        }
        self.writes.retain(|w| w.ticket.is_some() || !w.notified);
        self.reads.retain_mut(|read| {
            match conn.test(read.ticket) {
                Ok(None) => return true,
                Ok(Some(n)) => {
                    assert_eq!(n, read.dst.len() as u64, "bytes read");
                    let whole = pattern(SHOWN, read.epoch);
                    let want = whole.slice().sub(read.at as u64, n).expect("inside");
                    assert!(want.to_vec() == read.dst.slice().to_vec(), "a read brought other bytes");
                    self.read += 1;
                }
                Err(Error::Op(OpError::RemoteAccess { .. })) => {
                    let shown = peer.and_then(Exposed::readable);
                    assert!(
                        shown.is_none_or(|(_, epoch)| epoch != read.epoch),
                        "a read of what is exposed was refused"
                    );
                }
                Err(Error::Lost | Error::Closed) => {}
                Err(error) => panic!("a read failed: {error}"),
            }
            free.add(std::mem::replace(&mut read.dst, StaticBuf::new(0)));
            false
        });
    }

    /// The connection is lost: nothing of it is awaited any more, though notifications may still arrive.
    pub(crate) fn forget(&mut self) {
        self.writes.iter_mut().for_each(|w| w.ticket = None);
    }
}
