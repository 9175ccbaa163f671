//! What can fail.

use std::io;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no libibverbs.
    #[error("LS1201 {library} cannot be loaded: {why}; install it (Debian: libibverbs1 and ibverbs-providers)")]
    NoLibrary {
        /// Its name.
        library: &'static str,
        /// The error text of the dynamic linker.
        why: String,
    },
    /// The library is too old or is not what its name says.
    #[error("LS1202 {library} has no function {name}: it is too old, version 1.8 of the interface is needed")]
    NoFunction {
        /// Its name.
        library: &'static str,
        /// The function.
        name: &'static str,
    },
    /// No device of this name.
    #[error("LS1203 there is no RDMA device {name}; there are: {have}")]
    NoDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        have: String,
    },
    /// The device or the kernel refused.
    #[error("LS1204 {call} on {device} failed: {source}{hint}")]
    System {
        /// The verb.
        call: &'static str,
        /// The device.
        device: String,
        /// The OS error.
        #[source]
        source: io::Error,
        /// The way out, where the error number tells one; begins with `; `.
        hint: &'static str,
    },
    /// More was asked for than the device has.
    #[error("LS1205 {what} of {asked} on {device}: it takes at most {max}")]
    Limit {
        /// What of.
        what: &'static str,
        /// Asked for.
        asked: u64,
        /// The device's limit.
        max: u64,
        /// The device.
        device: String,
    },
    /// The library or device cannot do this at all.
    #[error("LS1206 {what} cannot be done by {device}: {why}")]
    Unsupported {
        /// What.
        what: &'static str,
        /// The device.
        device: String,
        /// Why.
        why: &'static str,
    },
}

impl Error {
    pub(crate) fn system(call: &'static str, device: &str, source: io::Error) -> Error {
        let hint = match source.raw_os_error() {
            Some(libc::ENOMEM) => "; raise the limit of locked memory (ulimit -l) or register less",
            Some(libc::ETIMEDOUT) => "; the address does not answer: check cable, address and GID index of both ends",
            Some(libc::EPERM | libc::EACCES) => "; the device nodes in /dev/infiniband must be open to this user",
            Some(libc::EINVAL) if call == "ibv_modify_qp" => "; a GID, MTU or state that the device does not have",
            _ => "",
        };
        Error::System { call, device: device.to_owned(), source, hint }
    }

    /// The device or the kernel refused `call` with this error number.
    pub fn errno(call: &'static str, device: &str, code: i32) -> Error {
        Error::system(call, device, io::Error::from_raw_os_error(code))
    }

    /// The system's error number, if it was the system that refused.
    pub fn os(&self) -> Option<i32> {
        match self {
            Error::System { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// A list of work requests was not taken to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// How many were taken: these run, the others do not.
    pub taken: usize,
    /// The error number for the first that was not taken; ENOMEM when the queue is full.
    pub errno: i32,
}
