//! A stream device: frames in rings, as `thunderbolt_stream` has them, with what it loses.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use linkspan_tbring::Error;
use linkspan_transport::{Buf, MemSlice};

use super::Notifier;
use crate::device::StreamDevice;
use crate::tier::{CableAddress, OpenCable, OpenedCable};

const FRAME: usize = 4096;

/// `errno.h`: what the device says when the cable or its peer is gone.
const ENXIO: i32 = 6;

/// `errno.h`: it would block.
const EWOULDBLOCK: i32 = 11;

/// One end's rings. An empty frame is a close mark.
#[derive(Debug)]
struct End {
    open: bool,
    tx: VecDeque<Vec<u8>>,
    rx: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that were read.
    read: usize,
    closed: bool,
    notifier: Notifier,
}

#[derive(Debug)]
struct World {
    ends: [End; 2],
    /// Entries of the rings of each end.
    rings: [usize; 2],
    /// Frames that may be delivered yet; `None`: all.
    left: Option<usize>,
    unplugged: bool,
    lose_close: bool,
    overrun: usize,
}

/// A stream between two hosts: opened once on each.
#[derive(Clone, Debug)]
pub struct SoftStreamLink(Arc<Mutex<World>>);

/// A side of it that is not open.
#[derive(Debug)]
struct StreamEnd(SoftStreamLink, usize);

impl OpenCable for StreamEnd {
    fn open(&self, _: Duration) -> Result<OpenedCable, Error> {
        let taken = || Error::Open {
            path: format!("side{}", self.1).into(),
            source: io::Error::from_raw_os_error(EWOULDBLOCK),
            hint: "; another connection has it",
        };
        Ok(OpenedCable::Stream(Box::new(self.0.open(self.1).ok_or_else(taken)?)))
    }
}

/// One open end.
#[derive(Debug)]
pub struct SoftStream {
    link: SoftStreamLink,
    side: usize,
    fd: RawFd,
}

impl SoftStreamLink {
    /// With rings of so many entries.
    ///
    /// # Errors
    /// The error of `eventfd(2)`: EMFILE or ENFILE when no descriptor is left.
    pub fn new(ring: usize) -> io::Result<SoftStreamLink> {
        SoftStreamLink::with_rings([ring; 2])
    }

    /// With rings of so many entries at each end.
    ///
    /// # Errors
    /// As [`SoftStreamLink::new`].
    pub fn with_rings(rings: [usize; 2]) -> io::Result<SoftStreamLink> {
        let end = || -> io::Result<End> {
            let (tx, rx) = (VecDeque::new(), VecDeque::new());
            Ok(End { open: false, tx, rx, read: 0, closed: false, notifier: Notifier::new()? })
        };
        let ends = [end()?, end()?];
        let world = World { ends, rings, left: None, unplugged: false, lose_close: false, overrun: 0 };
        Ok(SoftStreamLink(Arc::new(Mutex::new(world))))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Entries of the rings of an end.
    pub fn ring(&self, side: usize) -> usize {
        self.lock().rings[side]
    }

    /// Where side 0 or 1 opens it.
    pub fn address(&self, side: usize) -> CableAddress {
        CableAddress::new(StreamEnd(self.clone(), side))
    }

    /// Opens side 0 or 1; `None` while it is open. Frames that had come before are forgotten, as Linux 7.2 does.
    pub fn open(&self, side: usize) -> Option<SoftStream> {
        let mut world = self.lock();
        let end = world.ends.get_mut(side).filter(|end| !end.open)?;
        (end.open, end.closed, end.read) = (true, false, 0);
        end.tx.clear();
        end.rx.clear();
        let fd = end.notifier.fd();
        Some(SoftStream { link: self.clone(), side, fd })
    }

    /// Delivers so many frames yet and then holds everything back; `None`: lets all go.
    pub fn stall(&self, after: Option<usize>) {
        let mut world = self.lock();
        world.left = after;
        world.step();
    }

    /// Closes a side, as the kernel does when its process is gone.
    pub fn kill(&self, side: usize) {
        self.lock().close(side);
    }

    /// Pulls the cable.
    pub fn unplug(&self) {
        let mut world = self.lock();
        world.unplugged = true;
        world.ends.iter_mut().for_each(|end| end.notifier.signal());
    }

    /// Loses the close mark of the closing side, as happens with full rings.
    pub fn lose_close(&self) {
        self.lock().lose_close = true;
    }

    /// Most frames that ever waited for a receive buffer, stalled times left out: what a writer that dies would have lost.
    pub fn overrun(&self) -> usize {
        self.lock().overrun
    }
}

impl World {
    fn step(&mut self) {
        if self.left == Some(0) || self.unplugged {
            return;
        }
        for side in 0..2 {
            // The peer's ring holds one frame less than its entries.
            while self.left != Some(0)
                && self.ends[1 - side].open
                && self.ends[1 - side].rx.len() < self.rings[1 - side] - 1
            {
                let Some(frame) = self.ends[side].tx.pop_front() else { break };
                self.left = self.left.map(|left| left - 1);
                self.ends[1 - side].rx.push_back(frame);
                self.ends[1 - side].notifier.signal();
            }
            self.overrun = self.overrun.max(self.ends[side].tx.len());
        }
    }
}

impl World {
    fn close(&mut self, side: usize) {
        if !self.ends[side].open {
            return;
        }
        self.step();
        if self.rings[side] - 1 > self.ends[side].tx.len() && !self.lose_close {
            self.ends[side].tx.push_back(Vec::new());
        }
        self.step();
        let end = &mut self.ends[side];
        end.open = false;
        end.tx.clear();
    }
}

#[allow(unsafe_code)]
// SAFETY: bytes are copied within the call.
unsafe impl StreamDevice for SoftStream {
    fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> io::Result<Option<usize>> {
        let mut world = self.link.lock();
        if world.unplugged {
            return Err(io::Error::from_raw_os_error(ENXIO));
        }
        let end = &mut world.ends[self.side];
        let want = place.len() + tail.len();
        let mut done = 0;
        while done < want && !end.closed {
            let Some(frame) = end.rx.front() else { break };
            if frame.is_empty() {
                if done > 0 {
                    break;
                }
                end.closed = true;
                break;
            }
            let from = &frame[end.read..];
            let n = from.len().min(if done < place.len() { place.len() - done } else { want - done });
            if done < place.len() {
                let inside = place.fill(done as u64, &from[..n]);
                debug_assert!(inside);
            } else {
                let at = done - place.len();
                tail[at..at + n].copy_from_slice(&from[..n]);
            }
            done += n;
            end.read += n;
            if end.read == frame.len() {
                end.rx.pop_front();
                end.read = 0;
            }
        }
        if end.closed && done == 0 {
            return Ok(Some(0));
        }
        if done == 0 {
            end.notifier.quiet();
        }
        world.step();
        Ok((done > 0).then_some(done))
    }

    fn write(&mut self, pieces: &[MemSlice]) -> io::Result<Option<usize>> {
        let mut world = self.link.lock();
        if world.unplugged || world.ends[self.side].closed || !world.ends[self.side].open {
            return Err(io::Error::from_raw_os_error(ENXIO));
        }
        let space = (world.rings[self.side] - 1).saturating_sub(world.ends[self.side].tx.len()) * FRAME;
        let mut taken = Vec::new();
        for piece in pieces {
            let part = piece.sub(0, piece.len().min(space - taken.len()) as u64);
            taken.extend_from_slice(&part.map(MemSlice::to_vec).unwrap_or_default());
        }
        let mut done = 0;
        for frame in taken.chunks(FRAME) {
            world.ends[self.side].tx.push_back(frame.to_vec());
            done += frame.len();
        }
        world.step();
        Ok((done > 0).then_some(done))
    }

    fn wait_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for SoftStream {
    fn drop(&mut self) {
        self.link.lock().close(self.side);
    }
}
