//! What a call can end with other than success.

use std::ffi::c_int;

use crate::abi;

/// A failure in NCCL's words. The plugin logs the reason; NCCL only sees the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fail {
    /// A CUDA or HIP call failed.
    #[error("LS0800 a GPU runtime call failed")]
    Gpu,
    /// The local system refused something.
    #[error("LS0801 a local system call failed")]
    System,
    /// A defect of ours.
    #[error("LS0802 internal error")]
    Internal,
    /// The caller passed something invalid.
    #[error("LS0803 invalid argument")]
    InvalidArgument,
    /// The caller called at the wrong time.
    #[error("LS0804 invalid usage")]
    InvalidUsage,
    /// The peer is lost.
    #[error("LS0805 the peer is lost")]
    Remote,
}

impl Fail {
    /// The result code that NCCL gets.
    pub const fn code(self) -> c_int {
        match self {
            Fail::Gpu => abi::UNHANDLED_CUDA_ERROR,
            Fail::System => abi::SYSTEM_ERROR,
            Fail::Internal => abi::INTERNAL_ERROR,
            Fail::InvalidArgument => abi::INVALID_ARGUMENT,
            Fail::InvalidUsage => abi::INVALID_USAGE,
            Fail::Remote => abi::REMOTE_ERROR,
        }
    }
}

/// A call that this crate refused before the plugin saw it, or a defect it stopped at the border.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A pointer that must point somewhere is null.
    #[error("LS0810 {0} is a null pointer; pass the address that the net interface asks for")]
    Null(&'static str),
    /// An object that this plugin did not make, or that was closed already.
    #[error("LS0811 {0} {1:#x} is not a live object of this plugin; it was closed before or belongs to another one")]
    Stranger(&'static str, usize),
    /// The number of parts in a receive or flush.
    #[error("LS0812 {0} parts in one call; between 1 and {max} are possible (maxRecvs)", max = crate::MAX_RECVS)]
    Count(c_int),
    /// A negative size.
    #[error("LS0813 size {0} is negative")]
    Size(c_int),
    /// A device that does not exist.
    #[error("LS0814 device {0} does not exist; devices() reported {1}")]
    Device(c_int, usize),
    /// A memory type that the interface does not know.
    #[error("LS0815 memory type {0} is unknown; host memory is 1 and device memory 2")]
    Kind(c_int),
    /// A call before init.
    #[error("LS0816 {0} was called before init, or after the last finalize")]
    NotReady(&'static str),
    /// A request that was done before, of another comm, or no request.
    #[error("LS0817 request {0:#x} is not in flight; it was reported done before or is none of ours")]
    Request(usize),
    /// The plugin panicked here, or earlier on this comm.
    #[error("LS0818 the plugin panicked: {0}; please report this")]
    Panic(String),
    /// The comm is unusable since an earlier panic.
    #[error("LS0819 this comm is unusable since the plugin panicked on it; see the earlier message")]
    Poisoned,
}

impl Misuse {
    /// The result code that NCCL gets.
    pub const fn fail(&self) -> Fail {
        match self {
            Misuse::NotReady(_) => Fail::InvalidUsage,
            Misuse::Panic(_) | Misuse::Poisoned => Fail::Internal,
            _ => Fail::InvalidArgument,
        }
    }
}

/// Why a shim returns no success.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The plugin said so, and has logged why.
    Plugin(Fail),
    /// This crate said so; logged on the way out.
    Misuse(Misuse),
}

impl From<Fail> for Refused {
    fn from(fail: Fail) -> Refused {
        Refused::Plugin(fail)
    }
}

impl From<Misuse> for Refused {
    fn from(misuse: Misuse) -> Refused {
        Refused::Misuse(misuse)
    }
}
