//! The one routine that copies memory which others may look at or change meanwhile.
//!
//! To Rust and to C a copy that races with a write is undefined, whatever the bytes are used for. So the copy is made by code
//! that the compiler does not see: `memmove(3)`, called from an `asm!` block, of which it knows only that it may read and write
//! memory that it can reach by the pointers. What the processor does is defined: each byte is one that was there at some time
//! of the call. Where copies are checked (Miri, loom) they are made byte by byte with relaxed atomics, which is what the block
//! stands for; at full speed these would be some ten times slower. Its two variants, by stores past the caches and lowest address
//! first, keep to the same.
//!
//! Nothing is ordered by a copy: who tells another that bytes are there does it by a release store behind the copy, and who is
//! told looks by an acquire load before it.

/// Copies between ranges that both may be shared, in any overlap.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, during the call. Others may access both at any time, but not by
/// Rust references.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { imp::copy(from, to, len) }
}

/// Copies bytes of ours to memory that may be shared.
///
/// # Safety
/// `to` is writable for as many bytes, during the call. Others may access it at any time, but not by Rust references.
#[inline]
pub unsafe fn copy_in(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise; the slice is readable.
    unsafe { imp::copy_in(from, to) }
}

/// Copies bytes that may be shared to a place of ours.
///
/// # Safety
/// `from` is readable for as many bytes, during the call. Others may access it at any time, but not by Rust references.
#[inline]
pub unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    // SAFETY: the caller's promise; the slice is writable.
    unsafe { imp::copy_out(from, to) }
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
mod imp {
    use std::arch::asm;

    #[inline]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: memmove of ranges that the caller answers for, called as the platform's C calls it: the stack is aligned for a
        // call and has no red zone in use (no `nostack`), and what a C function may change is said to be changed.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                "call {f}",
                f = in(reg) libc::memmove as *const (),
                in("rdi") to,
                in("rsi") from,
                in("rdx") len,
                clobber_abi("C"),
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                "blr {f}",
                f = in(reg) libc::memmove as *const (),
                in("x0") to,
                in("x1") from,
                in("x2") len,
                clobber_abi("C"),
            );
        }
    }

    #[inline]
    pub(super) unsafe fn copy_in(from: &[u8], to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { copy(from.as_ptr(), to, from.len()) }
    }

    #[inline]
    pub(super) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) }
    }
}

/// Byte by byte, for checkers, and for processors that nobody has written the call for.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom)))))]
mod imp {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// # Safety
    /// The byte at `at` is mapped, and accessed by others with atomics only.
    unsafe fn byte<'a>(at: *const u8) -> &'a AtomicU8 {
        // SAFETY: the caller's promise; an AtomicU8 is a byte.
        unsafe { AtomicU8::from_ptr(at.cast_mut()) }
    }

    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let one = |i: usize| {
            // SAFETY: inside both ranges.
            unsafe { byte(to.add(i)).store(byte(from.add(i)).load(Relaxed), Relaxed) }
        };
        if from.addr() < to.addr() { (0..len).rev().for_each(one) } else { (0..len).for_each(one) }
    }

    pub(super) unsafe fn copy_in(from: &[u8], to: *mut u8) {
        for (i, &value) in from.iter().enumerate() {
            // SAFETY: inside the range.
            unsafe { byte(to.add(i)).store(value, Relaxed) }
        }
    }

    pub(super) unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
        for (i, place) in to.iter_mut().enumerate() {
            // SAFETY: inside the range.
            *place = unsafe { byte(from.add(i)).load(Relaxed) };
        }
    }
}

#[cfg(test)]
mod tests;
