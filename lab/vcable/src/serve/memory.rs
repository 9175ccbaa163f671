//! Guest memory as QEMU passes it: pieces of files, mapped here.

use std::fs::File;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{Bytes, FileOffset, VolatileMemory, VolatileSlice};

use crate::memory::{Access, DmaFault, GuestMemory};

struct Piece {
    iova: u64,
    writable: bool,
    region: MmapRegion,
}

/// The mappings of one guest; clones share them.
#[derive(Clone, Default)]
pub(super) struct Mapped(Arc<Mutex<Vec<Piece>>>);

impl Mapped {
    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn map(&self, iova: u64, len: u64, offset: u64, file: File, writable: bool) -> std::io::Result<()> {
        let len = usize::try_from(len).map_err(std::io::Error::other)?;
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let region = MmapRegionBuilder::new(len)
            .with_file_offset(FileOffset::new(file, offset))
            .with_mmap_prot(protection)
            .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
            .build()
            .map_err(std::io::Error::other)?;
        self.lock().push(Piece { iova, writable, region });
        Ok(())
    }

    pub(super) fn unmap(&self, iova: u64, len: u64) {
        let end = iova.saturating_add(len);
        self.lock().retain(|p| !(p.iova >= iova && p.iova.saturating_add(p.region.size() as u64) <= end));
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn with<R>(
        &self,
        addr: u64,
        len: usize,
        access: Access,
        call: impl FnOnce(VolatileSlice<'_>) -> Option<R>,
    ) -> Result<R, DmaFault> {
        let fault = DmaFault { addr, len: len as u64, access };
        let pieces = self.lock();
        let end = addr.checked_add(len as u64).ok_or(fault)?;
        let inside = |p: &&Piece| addr >= p.iova && end <= p.iova.saturating_add(p.region.size() as u64);
        let piece = pieces.iter().filter(inside).find(|p| p.writable || access == Access::Read).ok_or(fault)?;
        let slice = piece.region.get_slice((addr - piece.iova) as usize, len).map_err(|_| fault)?;
        call(slice).ok_or(fault)
    }
}

impl GuestMemory for Mapped {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        // What the driver wrote before its doorbell is seen after it.
        fence(Ordering::Acquire);
        self.with(addr, buf.len(), Access::Read, |slice| slice.read_slice(buf, 0).ok())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        self.with(addr, data.len(), Access::Write, |slice| slice.write_slice(data, 0).ok())
    }

    fn store(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        self.with(addr, 4, Access::Write, |slice| slice.store(value.to_le(), 0, Ordering::SeqCst).ok())
    }
}
