//! Copies lowest address first. NCCL's kernels look at words and lines while they come, and the last bytes of each say that the
//! others are there; `memmove(3)` writes the last bytes of a range early.
//!
//! Why a race with others is no undefined behaviour, says [`crate::copy`]: each load and store is in an `asm!` block, or an atomic
//! where copies are checked.

/// A line: what a reader of the LL128 protocol looks at together. Its last 8 bytes are the flag.
const LINE: usize = 128;

/// As [`crate::copy`], lowest address first; of ranges that overlap it is not said which bytes end up there.
///
/// Whole 128-byte lines of the target are written in aligned stores of 16 bytes, and the last 16 bytes of each line in two of 8, so
/// that the last 8 never come before anything else of their line; what is left at both ends is written in aligned stores of 8 bytes
/// and single bytes. On x86-64 every other processor and device sees them in this order (Intel SDM vol. 3, 9.2.2: stores are not
/// reordered with other stores); on ARM an observer needs a barrier that is not here.
///
/// # Safety
/// As for [`crate::copy`].
pub unsafe fn copy_ascending(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    while at < len {
        let left = len - at;
        // SAFETY: inside of both ranges: each step goes on by what it has copied, which was left.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            match to.addr() % LINE {
                0 if left >= LINE => {
                    for at in (0..LINE - 16).step_by(16) {
                        imp::pair(from.add(at), to.add(at));
                    }
                    imp::word(from.add(LINE - 16), to.add(LINE - 16));
                    imp::word(from.add(LINE - 8), to.add(LINE - 8));
                    at += LINE;
                }
                n if n.is_multiple_of(8) && left >= 8 => {
                    imp::word(from, to);
                    at += 8;
                }
                _ => {
                    imp::byte(from, to);
                    at += 1;
                }
            }
        }
    }
}

/// One store each.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom))))]
mod imp {
    macro_rules! step {
        ($name:ident, $register:ident, $load:literal, $store:literal) => {
            #[inline]
            pub(super) unsafe fn $name(from: *const u8, to: *mut u8) {
                // SAFETY: the caller's promise: so many bytes are readable, and writable at a multiple of their number.
                unsafe {
                    std::arch::asm!(
                        $load, $store, from = in(reg) from, to = in(reg) to, value = out($register) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    step!(byte, reg_byte, "mov {value}, [{from}]", "mov [{to}], {value}");
    #[cfg(target_arch = "x86_64")]
    step!(word, reg, "mov {value}, [{from}]", "mov [{to}], {value}");
    #[cfg(target_arch = "x86_64")]
    step!(pair, xmm_reg, "movdqu {value}, [{from}]", "movdqa [{to}], {value}");
    #[cfg(target_arch = "aarch64")]
    step!(byte, reg, "ldrb {value:w}, [{from}]", "strb {value:w}, [{to}]");
    #[cfg(target_arch = "aarch64")]
    step!(word, reg, "ldr {value}, [{from}]", "str {value}, [{to}]");
    #[cfg(target_arch = "aarch64")]
    step!(pair, vreg, "ldr {value:q}, [{from}]", "str {value:q}, [{to}]");
}

/// Byte by byte, as [`crate::copy`] does it where this is compiled.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom)))))]
mod imp {
    use std::sync::atomic::{AtomicU8, Ordering};

    pub(super) unsafe fn byte(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise: a byte, which others access with atomics only.
        unsafe {
            let value = AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to).store(value, Ordering::Release);
        }
    }

    pub(super) unsafe fn word(from: *const u8, to: *mut u8) {
        // SAFETY: as above, for 8 bytes.
        (0..8).for_each(|at| unsafe { byte(from.add(at), to.add(at)) });
    }

    pub(super) unsafe fn pair(from: *const u8, to: *mut u8) {
        // SAFETY: as above, for 16 bytes.
        (0..16).for_each(|at| unsafe { byte(from.add(at), to.add(at)) });
    }
}

#[cfg(test)]
mod tests;
