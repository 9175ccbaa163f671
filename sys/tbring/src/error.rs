//! What can fail.

use std::io;
use std::path::PathBuf;

/// The outcome of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call to the device failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot be opened.
    #[error("LS1501 {} cannot be opened: {source}{hint}", path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// The OS error.
        #[source]
        source: io::Error,
        /// The way out, where there is one; begins with `; `.
        hint: &'static str,
    },
    /// The module is of another version.
    #[error(
        "LS1502 linkspan.ko has version {theirs} of its interface, this program version {ours}; update the older one"
    )]
    Version {
        /// The module's.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The peer has not logged in.
    #[error("LS1503 the link is not up ({state}){hint}")]
    NotUp {
        /// How far it is.
        state: &'static str,
        /// The way out; begins with `; `.
        hint: &'static str,
    },
    /// The link went down, or the module is being removed.
    #[error("LS1504 the link was lost (unplugged, unloaded, or restarted); open the device again")]
    Gone,
    /// Anything else that the module refuses.
    #[error("LS1505 {call} failed: {source}{hint}")]
    Refused {
        /// What was asked for.
        call: &'static str,
        /// The OS error.
        #[source]
        source: io::Error,
        /// The way out, where the error number tells one; begins with `; `.
        hint: &'static str,
    },
    /// A range that is not in the region.
    #[error("LS1506 {length} bytes at {offset} are not in a region of {region} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// Indices in the shared memory that a correct driver does not write.
    #[error(
        "LS1507 the queues of the device are inconsistent ({what}); the module that is loaded is not linkspan.ko of this version"
    )]
    Queues {
        /// What is wrong.
        what: &'static str,
    },
    /// The other side has closed the channel.
    #[error("LS1508 the other host has closed channel {channel}; open it again on both")]
    Ended {
        /// Its number.
        channel: u32,
    },
    /// A message that no buffer has space for.
    #[error(
        "LS1509 a message of {length} bytes waits, and the buffers hold {bytes}; open the channel with larger ones"
    )]
    Long {
        /// Its bytes.
        length: u64,
        /// Those of a buffer.
        bytes: u64,
    },
    /// The other side does not take what was sent.
    #[error("LS1510 the other host has taken nothing on channel {channel} for {seconds} s; does its program receive?")]
    Late {
        /// Its number.
        channel: u32,
        /// How long that was waited for.
        seconds: u64,
    },
}

impl Error {
    /// From the error number of a call.
    pub(crate) fn call(call: &'static str) -> Error {
        Error::of(call, io::Error::last_os_error())
    }

    pub(crate) fn of(call: &'static str, source: io::Error) -> Error {
        let hint = match source.raw_os_error() {
            Some(libc::ENODEV) => return Error::Gone,
            Some(libc::ENOMEM) => "; raise the limit of locked memory (ulimit -l) or register less",
            Some(libc::EBUSY) => "; it is in use",
            Some(libc::EOPNOTSUPP) => {
                "; the cable's controller cannot reach this dma-buf, or only through bounce buffers"
            }
            _ => "",
        };
        Error::Refused { call, source, hint }
    }

    /// The error number behind it, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Open { source, .. } | Error::Refused { source, .. } => source.raw_os_error(),
            Error::Gone => Some(libc::ENODEV),
            Error::NotUp { .. } => Some(libc::ENOTCONN),
            Error::Version { .. } => Some(libc::EPROTO),
            Error::Range { .. } => Some(libc::ERANGE),
            Error::Ended { .. } => Some(libc::EPIPE),
            Error::Long { .. } => Some(libc::EMSGSIZE),
            Error::Late { .. } => Some(libc::ETIMEDOUT),
            Error::Queues { .. } => None,
        }
    }
}
