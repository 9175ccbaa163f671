//! Memory that is registered with a device ahead of the operations that use it.

use std::os::fd::BorrowedFd;

use crate::MemSlice;

/// A range that is registered; dropping it takes it back.
pub type Registration = Box<dyn Send + Sync>;

/// Why a device refused.
pub type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// How a card reaches device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectBy {
    /// By its dma-buf.
    DmaBuf,
    /// By its address, which a module of the GPU's driver translates for the card (nvidia_peermem, or amdgpu's own).
    PeerMemory,
}

impl DirectBy {
    /// As text for log lines.
    pub fn shown(self) -> &'static str {
        match self {
            DirectBy::DmaBuf => "by dma-buf",
            DirectBy::PeerMemory => "as peer memory",
        }
    }
}

/// What registers memory with the device under a rail. May be used from any thread, also after the rail.
pub trait Registrar: Send + Sync {
    /// Equal for registrars of one device and protection domain.
    fn id(&self) -> usize;

    /// Whether the device is gone, and with it all that was registered.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether it takes memory for sending alone, by [`Registrar::lend`].
    fn lends_only(&self) -> bool {
        false
    }

    /// Registers host memory, for the peer to write where `target`, else to send from. `None`: its rails register by themselves,
    /// what is used. It must be dropped before the memory is unmapped.
    ///
    /// # Errors
    /// The error of the device, as text: `ibv_reg_mr(3)` or the driver of a cable refused, as ENOMEM over RLIMIT_MEMLOCK.
    fn register(&self, mem: MemSlice, target: bool) -> Result<Option<Registration>, Refusal>;

    /// Registers device memory by its dma-buf, of which it lies at `offset`. `None`: it stays registered as long as the device.
    ///
    /// # Errors
    /// The error of the device, as text, as `ibv_reg_dmabuf_mr(3)` with EOPNOTSUPP; the memory is to be staged then.
    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        mem: MemSlice,
        target: bool,
    ) -> Result<Option<Registration>, Refusal>;

    /// Registers device memory by its address, which a module of the GPU's driver translates.
    ///
    /// # Errors
    /// The error of the device, as text: `ibv_reg_mr(3)` with EFAULT where no such module is loaded.
    fn register_peer(&self, mem: MemSlice, target: bool) -> Result<Registration, Refusal>;

    /// Device memory of which a dma-buf is at hand is sent from where it lies, as long as the value returned lives. `None`: it has no use for it.
    fn lend(&self, dmabuf: BorrowedFd<'_>, offset: u64, mem: MemSlice) -> Option<Registration> {
        let _ = (dmabuf, offset, mem);
        None
    }

    /// Forgets what rails have registered of this memory by themselves, before it is unmapped.
    fn invalidate(&self, mem: MemSlice);
}
