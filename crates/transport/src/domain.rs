//! Where memory is: the host, or one of the devices that made themselves known.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::MemSlice;

/// Where a range of memory is. Places are numbered in the order in which devices registered and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryDomain(u16);

impl MemoryDomain {
    /// Host memory.
    pub const HOST: MemoryDomain = MemoryDomain(0);

    #[inline]
    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// The reverse of [`MemoryDomain::number`].
    #[inline]
    pub(crate) const fn numbered(number: u16) -> MemoryDomain {
        MemoryDomain(number)
    }
}

/// Memory that the processor cannot reach by address, as far as the protocol needs it: small messages travel inside
/// of control messages and are copied at once. Both calls wait for the copy, which takes some microseconds.
///
/// # Safety
/// An implementation touches the range within the call only, and keeps no handle on it.
#[allow(unsafe_code)]
pub unsafe trait DeviceMemory: Send + Sync {
    /// Copies `bytes` to `to`, which has as many. False: the device failed or does not know the range.
    fn write(&self, to: MemSlice, bytes: &[u8]) -> bool;

    /// Copies `from` to `out`, which has as many bytes. False: as above.
    fn read(&self, from: MemSlice, out: &mut [u8]) -> bool;
}

/// Devices a process can make known. A machine has at most some tens; simulated ones come and go in tests.
const MOST: usize = 4096;

static DEVICES: [OnceLock<Weak<dyn DeviceMemory>>; MOST] = [const { OnceLock::new() }; MOST];
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// Makes a device known for as long as it lives. `None`: more than 4096 were.
pub fn register_device(device: Weak<dyn DeviceMemory>) -> Option<MemoryDomain> {
    let index = KNOWN.fetch_add(1, Ordering::Relaxed);
    DEVICES.get(index)?.set(device).ok()?;
    u16::try_from(index + 1).ok().map(MemoryDomain)
}

fn device(place: MemoryDomain) -> Option<Arc<dyn DeviceMemory>> {
    DEVICES.get(usize::from(place.0).checked_sub(1)?)?.get()?.upgrade()
}

pub(crate) fn write(to: MemSlice, bytes: &[u8]) -> bool {
    bytes.is_empty() || device(to.place()).is_some_and(|d| d.write(to, bytes))
}

pub(crate) fn read(from: MemSlice, out: &mut [u8]) -> bool {
    out.is_empty() || device(from.place()).is_some_and(|d| d.read(from, out))
}
