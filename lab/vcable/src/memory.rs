//! What the host interface reads and writes in the guest: strictly what the guest mapped for it.

mod ram;

pub use ram::{Ram, Window};

/// Whether the device read or wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The device read guest memory.
    Read,
    /// The device wrote guest memory.
    Write,
}

/// An access outside what the guest mapped for the device; behind a strict IOMMU, a driver's bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error(
    "LS0901 DMA {access:?} of {len} bytes at {addr:#x}: not mapped for the device; \
         the driver posted an address before mapping it, after unmapping it, or with the wrong length"
)]
pub struct DmaFault {
    /// Bus address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Direction.
    pub access: Access,
}

/// Memory of one guest as one of its devices sees it: bus addresses, which are IOVAs behind a vIOMMU.
///
/// Every access must lie inside one mapping that allows it; nothing is read or written otherwise. Implementations
/// may be shared with the guest, which changes bytes at any time.
pub trait GuestMemory: Send {
    /// Copies `buf.len()` bytes out of the guest.
    ///
    /// # Errors
    /// [`DmaFault`]: the range is not mapped for reading.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault>;

    /// Copies `data` into the guest.
    ///
    /// # Errors
    /// [`DmaFault`]: the range is not mapped for writing.
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault>;

    /// Stores one aligned dword after everything written before it: the write-back of a descriptor.
    ///
    /// # Errors
    /// [`DmaFault`]: the range is not mapped for writing.
    fn store(&self, addr: u64, value: u32) -> Result<(), DmaFault>;
}

/// No memory at all: what a host interface has before its guest is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl GuestMemory for NoMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { addr, len: buf.len() as u64, access: Access::Read })
    }
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { addr, len: data.len() as u64, access: Access::Write })
    }
    fn store(&self, addr: u64, _value: u32) -> Result<(), DmaFault> {
        Err(DmaFault { addr, len: 4, access: Access::Write })
    }
}
