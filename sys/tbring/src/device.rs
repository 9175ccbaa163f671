//! Opening the device, and what it says about its link.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::abi;
use crate::error::{Error, Result};

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The other host is not on the allow-list.
    Waiting,
    /// The other host has not answered.
    Login,
    /// Rings and paths are being set up.
    Starting,
    /// Ours are set up, the other host's are not known to be.
    Ready,
    /// Messages go both ways.
    Up,
    /// Unplugged or unloaded.
    Gone,
}

impl State {
    fn of(word: u32) -> State {
        match word {
            0 => State::Waiting,
            1 => State::Login,
            2 => State::Starting,
            3 => State::Ready,
            4 => State::Up,
            _ => State::Gone,
        }
    }

    /// Its name, as in sysfs.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Login => "login",
            State::Starting => "starting",
            State::Ready => "ready",
            State::Up => "up",
            State::Gone => "gone",
        }
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            State::Waiting => "; allow the other host: write 1 to its attribute `allowed` in /sys/class/linkspan",
            State::Login => "; load linkspan.ko on the other host and allow this one there",
            State::Gone => "; is the cable plugged in?",
            _ => "; try again in a moment",
        }
    }
}

/// What the device says about its link. Counters are since the module was loaded; speeds are negotiated ones.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// How far it is.
    pub state: State,
    /// The words of the device.
    pub raw: abi::Info,
}

/// Asks the device at `path`, without waiting for its link.
///
/// # Errors
/// [`Error::Open`]: the device cannot be opened. [`Error::Refused`]: the driver refuses the question.
pub fn info(path: &Path) -> Result<Info> {
    info_of(std::os::fd::AsFd::as_fd(&open(path)?))
}

pub(crate) fn open(path: &Path) -> Result<OwnedFd> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map(OwnedFd::from).map_err(|source| {
        let hint = match source.raw_os_error() {
            Some(libc::ENOENT) => "; is linkspan.ko loaded on both hosts, and the cable plugged in?",
            Some(libc::EACCES) => "; join the group linkspan, or log in at the machine",
            _ => "",
        };
        Error::Open { path: path.to_owned(), source, hint }
    })
}

pub(crate) fn info_of(fd: BorrowedFd<'_>) -> Result<Info> {
    let mut raw = abi::Info::default();
    call(fd, abi::IOC_INFO, &mut raw).map_err(|()| Error::call("asking for the state"))?;
    Ok(Info { state: State::of(raw.state), raw })
}

/// One call of the device; what failed is in `errno`.
#[inline]
pub(crate) fn call<T: Copy>(fd: BorrowedFd<'_>, number: u32, argument: &mut T) -> std::result::Result<(), ()> {
    debug_assert_eq!(number as usize >> 16 & 0x3fff, size_of::<T>());
    // SAFETY: the driver reads and writes as many bytes as the number says, which is the size of `T`; structures of the
    // interface are plain numbers.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(number) as _, std::ptr::from_mut(argument)) };
    if done < 0 { Err(()) } else { Ok(()) }
}
