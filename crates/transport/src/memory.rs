//! Memory as transports see it: raw ranges that some owner keeps mapped.
#![allow(unsafe_code)]

use linkspan_proto::Buf;

use crate::domain::{self, MemoryDomain};

/// A range of memory, on the host or on a device. Copying the handle is free; it keeps nothing alive.
///
/// Who has a handle may touch the memory, without `unsafe`. That is sound because nobody comes by one without: it is made by
/// an `unsafe fn` ([`MemSlice::new`], [`crate::HostBuf::slice`]), whose caller answers for all copies of it, and the traits that are
/// given handles ([`crate::Rail`], [`DeviceMemory`](crate::DeviceMemory)) are `unsafe` to implement.
///
/// Other threads, a peer process or a GPU may look at the same bytes at any time, and change them: all access is a copy by
/// [`linkspan_mem`], which may race, and no Rust reference to the bytes is ever made. Bytes on a device are copied by the device's driver, and only rails
/// whose [`crate::Caps::device_memory`] says so are given such a range ([`crate::Conn`] sees to it).
///
/// ```compile_fail,E0133
/// // A handle may outlive its memory, so it is not to be had without a promise ...
/// let late = linkspan_transport::HostBuf::new(8).slice();
/// ```
/// ```
/// // ... which this one keeps.
/// let buf = linkspan_transport::HostBuf::new(8);
/// // SAFETY: the handle is used before `buf` is dropped.
/// assert_eq!(unsafe { buf.slice() }.to_vec(), [0; 8]);
/// ```
/// ```compile_fail,E0133
/// let anywhere = linkspan_transport::MemSlice::new(std::ptr::without_provenance_mut(4096), 8);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MemSlice {
    ptr: *mut u8,
    /// The length, and above it the place: two words travel in registers, three through memory.
    extent: u64,
}

/// Bytes that [`MemSlice::fetch_ahead`] asks for: a page, at whose end the processor's own prefetching begins anew.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AHEAD: usize = 4 << 10;

/// Bits of [`MemSlice`]'s length: what the processors that we build for can address at most, bytes as a power of two.
const LEN_BITS: u32 = 48;

// SAFETY: the handle is an address and a length; what may be done with them is settled by `MemSlice::new`, whose
// promise holds for every thread.
unsafe impl Send for MemSlice {}
// SAFETY: as above; a shared handle offers no more than a copied one.
unsafe impl Sync for MemSlice {}

impl MemSlice {
    /// The range of no bytes.
    pub const NONE: MemSlice = <MemSlice as Buf>::EMPTY;

    /// Wraps `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The range must stay mapped, readable and (where it is ever a destination) writable, and must not be accessed by Rust
    /// references, as long as anything may use this handle, a copy or a part of it: a [`crate::Conn`] until each operation posted on it has reported or the connection was
    /// dropped, a region until it is exposed no more; other code as long as it has the handle.
    ///
    /// # Panics
    /// 2^48 bytes or more, which nothing can be.
    #[inline]
    pub const unsafe fn new(ptr: *mut u8, len: usize) -> MemSlice {
        MemSlice::at(ptr, len, MemoryDomain::HOST)
    }

    #[inline]
    const fn at(ptr: *mut u8, len: usize, place: MemoryDomain) -> MemSlice {
        assert!(len as u64 >> LEN_BITS == 0, "a range of 2^48 bytes or more: no memory is as large");
        MemSlice { ptr, extent: len as u64 | (place.number() as u64) << LEN_BITS }
    }

    /// Names `len` bytes at device address `addr` of the device at `place`.
    ///
    /// # Safety
    /// As for [`MemSlice::new`], with the device's memory in place of the process's: the range belongs to one
    /// allocation of that device, which lives until no operation uses the handle any more.
    pub const unsafe fn on_device(place: MemoryDomain, addr: u64, len: usize) -> MemSlice {
        MemSlice::at(std::ptr::without_provenance_mut(addr as usize), len, place)
    }

    /// Lends `bytes` as a range to something that copies from it before it returns.
    pub(crate) fn with_bytes<T>(bytes: &[u8], f: impl FnOnce(MemSlice) -> T) -> T {
        let ptr = bytes.as_ptr().cast_mut();
        // Miri reads memory that others may share with atomics, which want it writable.
        #[cfg(miri)]
        let mut own = bytes.to_vec();
        #[cfg(miri)]
        let ptr = own.as_mut_ptr();
        f(MemSlice::at(ptr, bytes.len(), MemoryDomain::HOST))
    }

    /// Asks the processor for the first bytes, which are about to be read; nothing where they are on a device.
    #[inline]
    pub fn fetch_ahead(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.is_host() {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            for at in (0..self.len().min(AHEAD)).step_by(64) {
                // SAFETY: a hint, which faults nowhere and changes nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(self.ptr.wrapping_add(at).cast()) };
            }
        }
    }

    /// Where the bytes are.
    #[inline]
    pub fn place(self) -> MemoryDomain {
        MemoryDomain::numbered((self.extent >> LEN_BITS) as u16)
    }

    /// Whether the processor can reach the bytes at [`MemSlice::as_ptr`].
    #[inline]
    pub fn is_host(self) -> bool {
        self.place() == MemoryDomain::HOST
    }

    /// Address of the first byte; for a range on a device, the device's address.
    pub fn as_ptr(self) -> *mut u8 {
        self.ptr
    }

    /// Copies as many bytes as both have, lowest address first, between ranges on the host; of ranges that overlap it is not said which
    /// bytes end up there. False: they differ in length, or one is on a device.
    pub fn copy_to_host(self, to: MemSlice) -> bool {
        let len = Buf::len(&self);
        if !self.is_host() || !to.is_host() || len != Buf::len(&to) {
            return false;
        }
        // SAFETY: both are mapped for their whole length by the promise of `new`, and nobody makes references to them.
        unsafe { linkspan_mem::copy_ascending(self.ptr, to.ptr, len) };
        true
    }

    /// As [`Buf::fill`], lowest address first. False also where this is on a device.
    pub fn fill_ascending(self, offset: u64, bytes: &[u8]) -> bool {
        let part = Buf::sub(&self, offset, bytes.len() as u64);
        part.is_some_and(|part| MemSlice::with_bytes(bytes, |from| from.copy_to_host(part)))
    }

    /// The bytes as a vector; for tests and small reads off the data path.
    pub fn to_vec(self) -> Vec<u8> {
        let mut out = vec![0; Buf::len(&self)];
        let inside = Buf::read(&self, 0, &mut out);
        debug_assert!(inside);
        out
    }
}

impl std::fmt::Debug for MemSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemSlice({:p}, {} bytes, {:?})", self.ptr, Buf::len(self), self.place())
    }
}

impl Buf for MemSlice {
    const EMPTY: MemSlice = MemSlice::at(std::ptr::NonNull::dangling().as_ptr(), 0, MemoryDomain::HOST);

    #[inline]
    fn len(&self) -> usize {
        (self.extent & ((1 << LEN_BITS) - 1)) as usize
    }

    #[inline]
    fn is_host(&self) -> bool {
        MemSlice::is_host(*self)
    }

    #[inline]
    fn sub(&self, offset: u64, len: u64) -> Option<MemSlice> {
        let end = offset.checked_add(len)?;
        if end > Buf::len(self) as u64 {
            return None;
        }
        let place = self.extent >> LEN_BITS << LEN_BITS;
        Some(MemSlice { ptr: self.ptr.wrapping_add(offset as usize), extent: len | place })
    }

    #[inline]
    fn fill(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(part) = self.sub(offset, bytes.len() as u64) else {
            return false;
        };
        if !self.is_host() {
            return domain::write(part, bytes);
        }
        // SAFETY: in bounds by `sub`; mapped by the promise of `new`, and nobody makes references to it.
        unsafe { linkspan_mem::copy_in(bytes, part.ptr) };
        true
    }

    #[inline]
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(part) = self.sub(offset, out.len() as u64) else {
            return false;
        };
        if !self.is_host() {
            return domain::read(part, out);
        }
        // SAFETY: as in `fill`.
        unsafe { linkspan_mem::copy_out(part.ptr, out) };
        true
    }
}

#[cfg(test)]
mod tests;
