//! Memory for tests: a vector of bytes behind windows that a driver maps and unmaps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Access, DmaFault, GuestMemory};

/// A range of bus addresses that the device may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First bus address.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte of the memory behind it.
    pub at: u64,
    /// Whether the device may write.
    pub writable: bool,
}

#[derive(Debug, Default)]
struct Inner {
    bytes: Vec<u8>,
    windows: Vec<Window>,
}

/// Shared test memory; clones see the same bytes and windows.
#[derive(Clone, Debug, Default)]
pub struct Ram(Arc<Mutex<Inner>>);

impl Ram {
    /// Memory of `len` zero bytes without any window.
    pub fn new(len: usize) -> Ram {
        Ram(Arc::new(Mutex::new(Inner { bytes: vec![0; len], windows: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a window.
    pub fn map(&self, window: Window) {
        self.lock().windows.push(window);
    }

    /// Closes every window that lies inside the range.
    pub fn unmap(&self, iova: u64, len: u64) {
        let end = iova.saturating_add(len);
        self.lock().windows.retain(|w| !(w.iova >= iova && w.iova.saturating_add(w.len) <= end));
    }

    /// What the processor does: reads without asking for windows. Out of range gives zeros.
    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let inner = self.lock();
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        match from.checked_add(len).and_then(|end| inner.bytes.get(from..end)) {
            Some(bytes) => bytes.to_vec(),
            None => vec![0; len],
        }
    }

    /// What the processor does: writes without asking for windows. Out of range is ignored.
    pub fn poke(&self, at: u64, data: &[u8]) {
        let mut inner = self.lock();
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(bytes) = from.checked_add(data.len()).and_then(|end| inner.bytes.get_mut(from..end)) {
            bytes.copy_from_slice(data);
        }
    }
}

impl Inner {
    fn find(&self, addr: u64, len: usize, access: Access) -> Result<usize, DmaFault> {
        let fault = DmaFault { addr, len: len as u64, access };
        let end = addr.checked_add(len as u64).ok_or(fault)?;
        let window = self
            .windows
            .iter()
            .find(|w| addr >= w.iova && end <= w.iova.saturating_add(w.len) && (w.writable || access == Access::Read))
            .ok_or(fault)?;
        let at = usize::try_from(window.at + (addr - window.iova)).map_err(|_| fault)?;
        if at.checked_add(len).is_none_or(|end| end > self.bytes.len()) {
            return Err(fault);
        }
        Ok(at)
    }
}

impl GuestMemory for Ram {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let inner = self.lock();
        let at = inner.find(addr, buf.len(), Access::Read)?;
        buf.copy_from_slice(&inner.bytes[at..at + buf.len()]);
        Ok(())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), DmaFault> {
        let mut inner = self.lock();
        let at = inner.find(addr, data.len(), Access::Write)?;
        inner.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn store(&self, addr: u64, value: u32) -> Result<(), DmaFault> {
        self.write(addr, &value.to_le_bytes())
    }
}
