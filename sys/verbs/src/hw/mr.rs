//! Regions.

use std::sync::Arc;

use super::ProtectionDomain;
use crate::{Keys, Mr, abi};

/// A region of a real device.
pub struct HwMr {
    pd: Arc<ProtectionDomain>,
    raw: *mut abi::IbvMr,
    keys: Keys,
}

// SAFETY: see `ProtectionDomain`; the keys are plain numbers.
unsafe impl Send for HwMr {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for HwMr {}

impl HwMr {
    pub(super) fn new(pd: Arc<ProtectionDomain>, raw: *mut abi::IbvMr, addr: u64) -> HwMr {
        // SAFETY: a region that the library has just made.
        let keys = unsafe { Keys { addr, len: (*raw).length as u64, lkey: (*raw).lkey, rkey: (*raw).rkey } };
        HwMr { pd, raw, keys }
    }
}

impl Mr for HwMr {
    fn keys(&self) -> Keys {
        self.keys
    }
}

impl Drop for HwMr {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once.
        unsafe { (self.pd.context.library.dereg_mr)(self.raw) };
    }
}
