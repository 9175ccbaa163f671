//! What the two devices of a cable offer. The kernel's own are here, those in software in [`crate::soft`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use linkspan_tbring::{Access, Completion, Error, Ring, RingMr, Stream};
use linkspan_transport::{Buf, MemSlice};

/// The ring driver's device: messages in order on channels, from and into registered memory. See [`Ring`], whose words
/// these are.
///
/// # Safety
/// An implementation touches memory of a region only for sends and receives that were put and have not completed, and no
/// longer than the region and the device live.
#[allow(unsafe_code)]
pub unsafe trait RingDevice: Send {
    /// Registered memory.
    type Region: Send + Sync + 'static;

    /// What registers dma-bufs with this open device.
    fn registrar(&self) -> Arc<dyn Registrar<Self::Region>>;

    /// Registers host memory.
    ///
    /// # Errors
    /// As [`Ring::register`].
    fn register(&mut self, mem: MemSlice, access: Access) -> Result<Self::Region, Error>;

    /// Opens a channel.
    ///
    /// # Errors
    /// As [`Ring::open_channel`].
    fn open_channel(&mut self, channel: u32) -> Result<(), Error>;

    /// Closes a channel.
    ///
    /// # Errors
    /// As [`Ring::close_channel`].
    fn close_channel(&mut self, channel: u32) -> Result<(), Error>;

    /// Puts a send of `length` bytes at `offset` of a region; false where the queue is full.
    ///
    /// # Errors
    /// As [`Ring::send`].
    fn send(
        &mut self,
        channel: u32,
        region: &Self::Region,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool, Error>;

    /// Puts a receive of one message of at most `length` bytes.
    ///
    /// # Errors
    /// As [`Ring::receive`].
    fn receive(
        &mut self,
        channel: u32,
        region: &Self::Region,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool, Error>;

    /// Hands over what was put and waits for so many completions, or for `wait`.
    ///
    /// # Errors
    /// As [`Ring::doorbell`].
    fn doorbell(&mut self, completions: u32, wait: Duration, poll: bool) -> Result<(), Error>;

    /// Whether something was put that the device has not taken.
    fn waiting(&self) -> bool;

    /// Takes a completion.
    ///
    /// # Errors
    /// As [`Ring::pop`].
    fn pop(&mut self) -> Result<Option<Completion>, Error>;

    /// Can be read as long as completions are there.
    fn wait_fd(&self) -> RawFd;
}

/// Registers dma-bufs with an open device, from any thread.
///
/// # Safety
/// As [`RingDevice`].
#[allow(unsafe_code)]
pub unsafe trait Registrar<R>: Send + Sync {
    /// Registers a dma-buf from `offset` (a multiple of the page size) on: `head` bytes, and behind them those of `mem`.
    ///
    /// # Errors
    /// As [`linkspan_tbring::Registrar::register_dmabuf`].
    fn register_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        head: u64,
        mem: MemSlice,
        access: Access,
    ) -> Result<R, Error>;
}

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl Registrar<RingMr> for linkspan_tbring::Registrar {
    fn register_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        head: u64,
        mem: MemSlice,
        access: Access,
    ) -> Result<RingMr, Error> {
        linkspan_tbring::Registrar::register_dmabuf(self, fd, offset, head + mem.len() as u64, access)
    }
}

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl RingDevice for Ring {
    type Region = RingMr;

    fn registrar(&self) -> Arc<dyn Registrar<RingMr>> {
        Arc::new(Ring::registrar(self))
    }

    fn register(&mut self, mem: MemSlice, access: Access) -> Result<RingMr, Error> {
        Ring::register(self, mem, access)
    }

    fn open_channel(&mut self, channel: u32) -> Result<(), Error> {
        Ring::open_channel(self, channel)
    }

    fn close_channel(&mut self, channel: u32) -> Result<(), Error> {
        Ring::close_channel(self, channel)
    }

    fn send(&mut self, channel: u32, region: &RingMr, offset: u64, length: u64, cookie: u64) -> Result<bool, Error> {
        Ring::send(self, channel, region, offset, length, cookie)
    }

    fn receive(&mut self, channel: u32, region: &RingMr, offset: u64, length: u64, cookie: u64) -> Result<bool, Error> {
        Ring::receive(self, channel, region, offset, length, cookie)
    }

    fn doorbell(&mut self, completions: u32, wait: Duration, poll: bool) -> Result<(), Error> {
        Ring::doorbell(self, completions, wait, poll).map(|_| ())
    }

    fn waiting(&self) -> bool {
        Ring::waiting(self) > 0
    }

    fn pop(&mut self) -> Result<Option<Completion>, Error> {
        Ring::pop(self)
    }

    fn wait_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// The kernel's stream device. See [`Stream`].
///
/// # Safety
/// An implementation touches memory within the call only.
#[allow(unsafe_code)]
pub(crate) unsafe trait StreamDevice: Send {
    /// Reads into `place` and behind that into `tail`; `Some(0)` is the end.
    ///
    /// # Errors
    /// The error of `readv(2)`, as EIO; EAGAIN is none.
    fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes pieces one behind the other.
    ///
    /// # Errors
    /// The error of `writev(2)`: `ENXIO` when the cable is gone or the other side has closed.
    fn write(&mut self, pieces: &[MemSlice]) -> io::Result<Option<usize>>;

    /// For poll(2).
    fn wait_fd(&self) -> RawFd;
}

#[allow(unsafe_code)]
// SAFETY: bytes are copied within the call.
unsafe impl StreamDevice for Stream {
    fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> io::Result<Option<usize>> {
        Stream::read(self, place, tail)
    }

    fn write(&mut self, pieces: &[MemSlice]) -> io::Result<Option<usize>> {
        Stream::write(self, pieces)
    }

    fn wait_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
