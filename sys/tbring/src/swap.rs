//! The plain mode, for programs that want no queues: buffers of whole frames, mapped by the program and pinned once, that change
//! hands by a swap. No byte of a message longer than [`crate::abi::EAGER_BYTES`] is copied by a CPU, except for a last partial page at the receiver.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::abi;
use crate::device::Info;
use crate::error::{Error, Result};
use crate::ring::{Access, Completion, Map, Operation, Options, Ring, RingMr};

/// Buffers begin at a multiple of a frame, whatever a page of this system is, so that whole frames of them move without a copy.
const FRAME: usize = 4096;

/// Buffers in the map: two that are sent from, two that are received into.
const BUFFERS: usize = 4;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferState {
    /// With the program, or free.
    Ours,
    /// With the driver.
    Driver,
    /// Back, with a message of so many bytes.
    Full(u64),
}

/// One channel of a link with two buffers for each direction. One thread at a time.
///
/// Sending: [`Swap::front`] is to be filled, [`Swap::send`] gives it away and brings the other one to the front. Receiving:
/// [`Swap::receive`] shows a buffer with a message, which the next call gives back to be filled again; meanwhile the other one
/// takes what comes. Messages arrive whole and in order.
#[derive(Debug)]
pub struct Swap {
    // In this order: the device is closed, which ends all transfers, before the memory is unmapped.
    _regions: [RingMr; 2],
    ring: Ring,
    map: Map,
    channel: u32,
    bytes: u64,
    places: [BufferState; BUFFERS],
    front: usize,
    /// The receive buffer that the next message comes into.
    next: usize,
    /// The other side has closed: it takes nothing any more.
    deaf: bool,
    /// All that it had sent was taken, too.
    ended: bool,
    wait: Duration,
}

impl Swap {
    /// Opens `channel` of the device at `path` with buffers of `bytes` bytes, made whole frames (4096); waits for the link, and in
    /// [`Swap::send`] for a buffer, no longer than `wait`.
    ///
    /// # Errors
    /// Those of [`Ring::open`], [`Ring::register`] and [`Ring::open_channel`]; [`Error::Range`] for no bytes, or more than a
    /// message may have.
    pub fn open(path: &Path, channel: u32, bytes: u64, wait: Duration) -> Result<Swap> {
        if bytes == 0 || bytes > abi::MESSAGE_BYTES {
            return Err(Error::Range { offset: 0, length: bytes, region: abi::MESSAGE_BYTES });
        }
        let ring = Ring::open(path, Options { wait, submissions: 8, completions: 8, ..Options::default() })?;
        let each = (bytes as usize).next_multiple_of(FRAME);
        let map = Map::anonymous(BUFFERS * each)?;
        let address = |buffer: usize| (map.base().as_ptr().expose_provenance() + buffer * each) as u64;
        let half = 2 * each as u64;
        let regions =
            [ring.register_at(address(0), half, Access::Send)?, ring.register_at(address(2), half, Access::Receive)?];
        ring.open_channel(channel)?;
        let mut swap = Swap {
            _regions: regions,
            ring,
            map,
            channel,
            bytes: each as u64,
            places: [BufferState::Ours; BUFFERS],
            front: 0,
            next: 2,
            deaf: false,
            ended: false,
            wait,
        };
        swap.give(2)?;
        swap.give(3)?;
        swap.ring.submit()?;
        Ok(swap)
    }

    /// Bytes of each buffer, the longest message: whole frames.
    pub fn capacity(&self) -> u64 {
        self.bytes
    }

    /// What the device says about its link and the other host.
    ///
    /// # Errors
    /// [`Error::Refused`]: the driver refuses the question.
    pub fn peer(&self) -> Result<Info> {
        self.ring.info()
    }

    /// The buffer to be filled next. It holds what it held two messages ago. After a [`Swap::send`] that was late it waits on.
    ///
    /// # Errors
    /// As [`Swap::flush`].
    pub fn front(&mut self) -> Result<&mut [u8]> {
        self.free(self.front)?;
        let at = self.at(self.front);
        // SAFETY: of our own map, mapped for as long as `self` is, initialized by the system; with the program, as `free` has seen
        // to, so that the device does not touch it, and borrowed from `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), self.bytes as usize) })
    }

    /// Sends the first `length` bytes of the front buffer as one message, and waits until the other one is free to be the front. The
    /// last one may be on its way when this returns: [`Swap::flush`].
    ///
    /// # Errors
    /// [`Error::Range`]: the message is longer than the buffer. [`Error::Ended`]: the other side has closed
    /// the channel; what it sent before can still be received. [`Error::Late`]: the other side took nothing in time; the message is still being sent, and `front`
    /// or `flush` must wait for it before the next one. [`Error::Gone`], [`Error::Refused`].
    pub fn send(&mut self, length: u64) -> Result<()> {
        self.free(self.front)?;
        if length > self.bytes {
            return Err(Error::Range { offset: 0, length, region: self.bytes });
        }
        let front = self.front;
        let offset = front as u64 * self.bytes;
        self.put(|ring, region, channel| ring.send(channel, region, offset, length, front as u64), 0)?;
        self.places[front] = BufferState::Driver;
        self.front = 1 - front;
        self.ring.submit()?;
        self.free(self.front)
    }

    /// Waits until all that was sent has left, no longer than the `wait` of [`Swap::open`] for each message. To be called before the
    /// end: closing takes messages back that the other side has not asked for.
    ///
    /// # Errors
    /// As [`Swap::send`].
    pub fn flush(&mut self) -> Result<()> {
        self.free(1 - self.front)?;
        self.free(self.front)
    }

    /// Gives back the buffer that was shown last, and shows the next message; `None` where none comes within `wait`.
    ///
    /// # Errors
    /// [`Error::Ended`] where the other side has closed and all its messages were taken; [`Error::Long`] for a message longer than
    /// the buffers; [`Error::Gone`], [`Error::Refused`].
    pub fn receive(&mut self, wait: Duration) -> Result<Option<&[u8]>> {
        let next = self.next;
        for buffer in [next, 5 - next] {
            if self.places[buffer] == BufferState::Ours && !self.ended {
                self.give(buffer)?;
            }
        }
        if self.ring.waiting() > 0 {
            self.ring.submit()?;
        }
        let begun = Instant::now();
        loop {
            if let BufferState::Full(length) = self.places[next] {
                self.places[next] = BufferState::Ours;
                self.next = 5 - next;
                // SAFETY: as in `front`; the driver has given it back, and has it again only after the next call. The length is
                // that of a message that fitted, checked in `take`.
                return Ok(Some(unsafe { std::slice::from_raw_parts(self.at(next).as_ptr(), length as usize) }));
            }
            if self.ended {
                return Err(Error::Ended { channel: self.channel });
            }
            let left = wait.saturating_sub(begun.elapsed());
            if !self.step(left)? && left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The first byte of a buffer.
    fn at(&self, buffer: usize) -> NonNull<u8> {
        // SAFETY: `buffer` is less than BUFFERS: inside of the map.
        unsafe { self.map.base().add(buffer * self.bytes as usize) }
    }

    /// Puts an entry; there is space: there are fewer buffers than entries.
    fn put(&mut self, entry: impl Fn(&mut Ring, &RingMr, u32) -> Result<bool>, region: usize) -> Result<()> {
        let Swap { ring, _regions: regions, channel, .. } = self;
        if entry(ring, &regions[region], *channel)? {
            return Ok(());
        }
        Err(Error::Queues { what: "the queue has fewer entries than there are buffers" })
    }

    fn give(&mut self, buffer: usize) -> Result<()> {
        let (offset, length) = ((buffer - 2) as u64 * self.bytes, self.bytes);
        self.put(|ring, region, channel| ring.receive(channel, region, offset, length, buffer as u64), 1)?;
        self.places[buffer] = BufferState::Driver;
        Ok(())
    }

    /// Waits until a send buffer is free.
    fn free(&mut self, buffer: usize) -> Result<()> {
        let begun = Instant::now();
        while self.places[buffer] == BufferState::Driver {
            let left = self.wait.saturating_sub(begun.elapsed());
            if !self.step(left)? && left.is_zero() {
                return Err(Error::Late { channel: self.channel, seconds: self.wait.as_secs() });
            }
        }
        if self.deaf { Err(Error::Ended { channel: self.channel }) } else { Ok(()) }
    }

    /// Takes one completion, waiting for it; false where there is none.
    fn step(&mut self, wait: Duration) -> Result<bool> {
        let done = match self.ring.pop()? {
            Some(done) => done,
            None => {
                if !wait.is_zero() {
                    match self.ring.doorbell(1, wait, false) {
                        // A signal: a caller with time left waits on, so that no message is under way with an error.
                        Err(error) if error.errno() == Some(libc::EINTR) => {}
                        waited => _ = waited?,
                    }
                }
                match self.ring.pop()? {
                    Some(done) => done,
                    None => return Ok(false),
                }
            }
        };
        self.take(done)?;
        Ok(true)
    }

    fn take(&mut self, done: Completion) -> Result<()> {
        let buffer = done.cookie as usize;
        let sent = done.operation == Operation::Send;
        if buffer >= BUFFERS || sent != (buffer < 2) || self.places[buffer] != BufferState::Driver {
            return Err(Error::Queues { what: "a completion of nothing that was put" });
        }
        self.places[buffer] = BufferState::Ours;
        match done.result {
            Ok(()) if sent => Ok(()),
            Ok(()) if done.length <= self.bytes => {
                self.places[buffer] = BufferState::Full(done.length);
                Ok(())
            }
            Ok(()) => Err(Error::Queues { what: "a message longer than its buffer" }),
            // Of a send also while messages of the other side wait.
            Err(libc::EPIPE) => {
                self.deaf = true;
                self.ended |= !sent;
                Ok(())
            }
            Err(libc::ENODEV) => Err(Error::Gone),
            Err(libc::EMSGSIZE) => Err(Error::Long { length: done.length, bytes: self.bytes }),
            Err(errno) => {
                let source = std::io::Error::from_raw_os_error(errno);
                Err(Error::Refused { call: if sent { "sending" } else { "receiving" }, source, hint: "" })
            }
        }
    }
}

/// For `poll`: readable when a message, or a buffer that was sent, is back; hung up when the link was lost.
impl AsFd for Swap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[cfg(test)]
mod tests;
