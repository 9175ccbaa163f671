//! Opening the device, and what it says about its link.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::abi;
use crate::error::{Error, Result};

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingState {
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
    /// Up, in the mode network: its rings are those of the driver's network interface.
    Network,
    /// The other host is in the other mode.
    Modes,
}

impl RingState {
    fn of(word: u32) -> RingState {
        match word {
            0 => RingState::Waiting,
            1 => RingState::Login,
            2 => RingState::Starting,
            3 => RingState::Ready,
            4 => RingState::Up,
            6 => RingState::Network,
            7 => RingState::Modes,
            _ => RingState::Gone,
        }
    }

    /// Its name; that in sysfs begins with the same word.
    pub fn name(self) -> &'static str {
        match self {
            RingState::Waiting => "waiting",
            RingState::Login => "login",
            RingState::Starting => "starting",
            RingState::Ready => "ready",
            RingState::Up => "up",
            RingState::Gone => "gone",
            RingState::Network => "network",
            RingState::Modes => "refused",
        }
    }

    /// The way out; begins with `; `.
    pub fn hint(self) -> &'static str {
        match self {
            RingState::Waiting => "; the other host waits to be allowed: `lspan link allow`",
            RingState::Login => "; load linkspan.ko on the other host and allow this one there",
            RingState::Gone => "; is the cable plugged in?",
            RingState::Network => {
                "; its rings carry the network interface: `lspan link mode direct` on both hosts gives them to programs"
            }
            RingState::Modes => {
                "; one host has it in mode direct, the other in mode network: `lspan link mode` on one of them"
            }
            _ => "; try again in a moment",
        }
    }
}

/// What the device says about its link. Counters are since the module was loaded; speeds are negotiated ones.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// How far it is.
    pub state: RingState,
    /// The words of the device.
    pub raw: abi::Info,
}

/// Why a ring pair is in use or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState {
    /// The link is not up.
    Down,
    /// It carries data.
    Up,
    /// The driver's parameter `ring_pairs` leaves it out.
    Limit,
    /// The host interface has no ring pair left for it.
    NoRing,
    /// The cable has no HopID left to receive on.
    NoHopId,
    /// The connection manager refused its path, with this `errno`.
    Refused(i32),
    /// Its path was enabled and carried nothing.
    Silent,
    /// The other host leaves it out.
    Peer,
    /// For a reason that a newer driver knows.
    Unknown(u32),
}

impl fmt::Display for PairState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairState::Down => write!(f, "the link is not up"),
            PairState::Up => write!(f, "up"),
            PairState::Limit => write!(f, "left out by the driver's parameter ring_pairs"),
            PairState::NoRing => write!(f, "left out: the host interface has no ring pair left"),
            PairState::NoHopId => write!(f, "left out: the cable has no HopID left"),
            PairState::Refused(errno) => {
                write!(f, "left out: its path was refused, {}", std::io::Error::from_raw_os_error(*errno))
            }
            PairState::Silent => write!(f, "left out: its path was enabled and carried nothing"),
            PairState::Peer => write!(f, "left out by the other host"),
            PairState::Unknown(word) => write!(f, "in a state that a newer driver knows, {word}"),
        }
    }
}

/// A ring pair of a link.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Whether it is in use.
    pub state: PairState,
    /// The words of the device.
    pub raw: abi::PairInfo,
}

/// All ring pairs that the link at `path` could have, in the order of their numbers.
///
/// # Errors
/// [`Error::Open`]: the device cannot be opened. [`Error::Refused`]: the driver refuses the question, as one does that is
/// older than this library (`ENOTTY`).
pub fn pairs(path: &Path) -> Result<[Pair; abi::PAIRS]> {
    let fd = open(path)?;
    let mut raw = abi::Pairs::default();
    call(std::os::fd::AsFd::as_fd(&fd), abi::IOC_PAIRS, &mut raw).map_err(|()| Error::call("asking for ring pairs"))?;
    Ok(raw.pair.map(|raw| Pair {
        state: match raw.state {
            abi::pair::DOWN => PairState::Down,
            abi::pair::UP => PairState::Up,
            abi::pair::LIMIT => PairState::Limit,
            abi::pair::NO_RING => PairState::NoRing,
            abi::pair::NO_HOPID => PairState::NoHopId,
            abi::pair::REFUSED => PairState::Refused(-raw.error),
            abi::pair::SILENT => PairState::Silent,
            abi::pair::PEER => PairState::Peer,
            word => PairState::Unknown(word),
        },
        raw,
    }))
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
    Ok(Info { state: RingState::of(raw.state), raw })
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
