//! Memory as NCCL names it.

use std::os::fd::BorrowedFd;

use linkspan_transport::{MemSlice, MemoryDomain};

/// Where registered memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemKind {
    /// Host memory.
    Host,
    /// CUDA or HIP device memory, by its device address.
    Device,
}

/// A range that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mem {
    /// Host memory; NCCL keeps it mapped until the operation has reported, its registration is revoked or its comm
    /// is closed.
    Host(MemSlice),
    /// Device memory, which the CPU cannot read.
    Device(DeviceRange),
}

/// Device memory as NCCL names it: by its address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    addr: u64,
    len: usize,
}

impl DeviceRange {
    /// # Safety
    /// Device memory that NCCL keeps allocated until the operation has reported, its registration is revoked or its comm
    /// is closed.
    pub(crate) const unsafe fn new(addr: u64, len: usize) -> DeviceRange {
        DeviceRange { addr, len }
    }

    /// Device address.
    pub fn addr(self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether the range holds no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The range as memory of the device at `place`, which owns the address.
    pub fn at(self, place: MemoryDomain) -> MemSlice {
        // SAFETY: by the promise of `new`. A place that does not own the address makes its driver refuse the range.
        unsafe { MemSlice::on_device(place, self.addr, self.len) }
    }
}

impl Mem {
    /// Bytes in the range.
    pub fn len(&self) -> usize {
        match self {
            Mem::Host(slice) => linkspan_transport::Buf::len(slice),
            Mem::Device(range) => range.len,
        }
    }

    /// Whether the range holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range as host memory, if it is that.
    pub fn host(&self) -> Option<MemSlice> {
        match self {
            Mem::Host(slice) => Some(*slice),
            Mem::Device(_) => None,
        }
    }
}

/// A range to register.
#[derive(Debug)]
pub struct RegisterRange<'a> {
    /// The range. For a dma-buf, its kind and addresses are those that operations will name.
    pub mem: Mem,
    /// The dma-buf that holds it, and the offset of its first byte in there. NCCL closes the descriptor after the
    /// call: duplicate it to keep it.
    pub dma_buf: Option<(BorrowedFd<'a>, u64)>,
}

/// One buffer of a send, receive or flush.
#[derive(Debug)]
pub struct Part<'a, M> {
    /// The bytes. NCCL promises, and it is not checked here, that they lie inside of the registration.
    pub mem: Mem,
    /// Tag; 0 in a flush.
    pub tag: i32,
    /// The registration; `None` where NCCL passed none (host memory then).
    pub mr: Option<&'a M>,
}

impl<M> Clone for Part<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Part<'_, M> {}

/// What NCCL says about a receive beside its buffers (since v9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvHints {
    /// The receiver watches the memory itself (LL, LL128): the plugin may report the receive done early.
    pub completion_optional: bool,
    /// One of several requests that NCCL treats as one.
    pub multi: bool,
}
