//! Owners of host memory.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};

use linkspan_mem::Pages;
use linkspan_proto::Buf;

use crate::MemSlice;

/// Page-aligned, zeroed host memory. Dropping it gives it back to the system. From 4 MiB on it is backed by memory at once, on
/// huge pages where the system gives any.
#[derive(Debug)]
pub struct HostBuf {
    pages: Pages,
    len: usize,
}

impl HostBuf {
    /// `len` zero bytes. Aborts, as every Rust allocation does, when the machine has no memory left.
    pub fn new(len: usize) -> HostBuf {
        match Pages::new(len) {
            Ok(pages) => HostBuf { pages, len },
            Err(_) => handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<usize>())),
        }
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.pages.as_ptr()
    }

    /// Copies `bytes` to `offset`. False, and nothing is written, where they do not fit.
    #[must_use]
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> bool {
        self.all().fill(offset, bytes)
    }

    /// Copies bytes from `offset` into `out`. False, and nothing is written, where they are not inside.
    #[must_use]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        self.all().read(offset, out)
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.all().to_vec()
    }

    /// A handle on the whole buffer.
    ///
    /// # Safety
    /// Nothing uses the handle, a copy or a part of it once the buffer is dropped; see [`MemSlice::new`].
    pub unsafe fn slice(&self) -> MemSlice {
        self.all()
    }

    fn all(&self) -> MemSlice {
        // SAFETY: `len` bytes are mapped as long as this lives, and no references are made to them. The methods above use the
        // handle within their calls; the callers of `slice` promise the same.
        unsafe { MemSlice::new(self.pages.as_ptr(), self.len) }
    }
}

#[cfg(any(test, feature = "conformance"))]
pub use fixed::StaticBuf;

#[cfg(any(test, feature = "conformance"))]
mod fixed {
    use std::collections::BTreeMap;
    use std::mem::ManuallyDrop;
    use std::sync::Mutex;

    use super::HostBuf;
    use crate::{Buf, MemSlice};

    /// A [`HostBuf`] for tests, whose memory stays allocated until the process ends, so that handles on it are always safe to
    /// use. The memory of dropped ones serves again, for all lengths up to the same power of two: tests ask for thousands of lengths.
    #[derive(Debug)]
    pub struct StaticBuf {
        buf: ManuallyDrop<HostBuf>,
        len: usize,
    }

    /// What was dropped, by its length.
    static POOL: Mutex<BTreeMap<usize, Vec<HostBuf>>> = Mutex::new(BTreeMap::new());

    impl StaticBuf {
        /// `len` zero bytes.
        pub fn new(len: usize) -> StaticBuf {
            let whole = len.next_power_of_two();
            let again = POOL.lock().unwrap_or_else(|e| e.into_inner()).get_mut(&whole).and_then(Vec::pop);
            let buf = again.inspect(|buf| {
                let zeros = [0; 4096];
                for at in (0..len).step_by(zeros.len()) {
                    let inside = buf.fill(at as u64, &zeros[..zeros.len().min(len - at)]);
                    debug_assert!(inside);
                }
            });
            StaticBuf { buf: ManuallyDrop::new(buf.unwrap_or_else(|| HostBuf::new(whole))), len }
        }

        /// Bytes asked for.
        pub fn len(&self) -> usize {
            self.len
        }

        /// Whether no bytes were asked for.
        pub fn is_empty(&self) -> bool {
            self.len == 0
        }

        /// A handle on the bytes asked for.
        pub fn slice(&self) -> MemSlice {
            // SAFETY: the buffer is never dropped.
            let whole = unsafe { self.buf.slice() };
            whole.sub(0, self.len as u64).expect("a buffer is no shorter than what was asked for")
        }
    }

    impl Drop for StaticBuf {
        fn drop(&mut self) {
            // SAFETY: once.
            let buf = unsafe { ManuallyDrop::take(&mut self.buf) };
            POOL.lock().unwrap_or_else(|e| e.into_inner()).entry(buf.len()).or_default().push(buf);
        }
    }
}
