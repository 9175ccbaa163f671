//! Copying in an order that another observer of the memory may rely on.

use linkspan_transport::{Buf, MemSlice};

/// A line: what a reader of the LL128 protocol looks at together. Its last 8 bytes are the flag.
const LINE: usize = 128;

/// Copies `bytes` to `offset` of `dst`, lowest address first. Returns false, and writes nothing, where they do not
/// fit.
///
/// Whole 128-byte lines are written in aligned stores of 16 bytes (32 where the processor has AVX), and the last 16
/// bytes of each line in two of 8, so that the last 8 never come before anything else of their line; what is left at
/// both ends is written in aligned stores of 8 bytes and single bytes. The compiler neither merges nor reorders the stores. On x86-64 every other
/// processor and device sees them in this order (Intel SDM vol. 3, 9.2.2: stores are not reordered with other
/// stores); on ARM an observer needs a barrier that is not here. memcpy promises no order: glibc's writes the last
/// bytes of a range early.
#[must_use]
pub fn fill_ascending(dst: MemSlice, offset: usize, bytes: &[u8]) -> bool {
    let Some(part) = dst.sub(offset as u64, bytes.len() as u64) else {
        return false;
    };
    let to = part.as_ptr();
    let (lead, rest) = bytes.split_at(to.align_offset(LINE).min(bytes.len()));
    let (lines, tail) = rest.as_chunks::<LINE>();
    // SAFETY: the three pieces lie one behind the other in `part`, which is as long as `bytes` and mapped by the
    // promise of a MemSlice; `lead` ends at a multiple of LINE, or nothing follows it.
    unsafe {
        words(to, lead);
        whole_lines(to.add(lead.len()), lines);
        words(to.add(bytes.len() - tail.len()), tail);
    }
    true
}

/// As [`fill_ascending`], from one range of host memory to another, which do not overlap. Returns false, and writes nothing,
/// where they differ in length or one is on a device. The source is not written meanwhile.
#[must_use]
pub fn copy_ascending(src: MemSlice, dst: MemSlice) -> bool {
    if !src.is_host() || !dst.is_host() || src.len() != dst.len() {
        return false;
    }
    // SAFETY: mapped for its whole length by the promise of a MemSlice, and it is not written during the call.
    let bytes = unsafe { std::slice::from_raw_parts(src.as_ptr(), src.len()) };
    fill_ascending(dst, 0, bytes)
}

/// Writes in stores of 8 bytes, and of single ones at the ends.
///
/// # Safety
/// `bytes.len()` bytes at `to` are writable.
unsafe fn words(mut to: *mut u8, bytes: &[u8]) {
    let (lead, rest) = bytes.split_at(to.align_offset(8).min(bytes.len()));
    let (words, tail) = rest.as_chunks::<8>();
    // SAFETY: `to` moves on by what was written and so stays inside; `lead` ends at a multiple of 8.
    unsafe {
        for byte in lead {
            to.write_volatile(*byte);
            to = to.add(1);
        }
        for word in words {
            to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word));
            to = to.add(8);
        }
        for byte in tail {
            to.write_volatile(*byte);
            to = to.add(1);
        }
    }
}

/// Writes whole lines.
///
/// # Safety
/// The lines' bytes at `to` are writable, and `to` is a multiple of LINE, or there is no line.
#[inline]
unsafe fn whole_lines(to: *mut u8, lines: &[[u8; LINE]]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the same promise; the processor has AVX.
        return unsafe { x86::lines_32(to, lines) };
    }
    for (n, line) in lines.iter().enumerate() {
        // SAFETY: the n-th line of the promise.
        unsafe { one_line(to.add(n * LINE), line) };
    }
}

#[cfg(target_arch = "x86_64")]
use x86::one_line;

/// Writes one line.
///
/// # Safety
/// LINE bytes at `to` are writable.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn one_line(to: *mut u8, line: &[u8; LINE]) {
    // SAFETY: the same promise.
    unsafe { words(to, line) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LINE;
    use std::arch::x86_64::{__m128i, __m256i, _mm_loadu_si128, _mm256_loadu_si256};

    /// Writes whole lines in stores of 32 bytes, 16, 8 and 8. A page of them takes half as long as with [`one_line`].
    ///
    /// # Safety
    /// As for [`super::whole_lines`], and the processor has AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn lines_32(to: *mut u8, lines: &[[u8; LINE]]) {
        for (n, line) in lines.iter().enumerate() {
            // SAFETY: all within the n-th line of the promise; offsets that are multiples of 32 or 16 from an aligned
            // start are aligned for their stores, and loads need no alignment.
            unsafe {
                let (from, to) = (line.as_ptr(), to.add(n * LINE));
                for at in [0, 32, 64] {
                    let value = _mm256_loadu_si256(from.add(at).cast());
                    to.add(at).cast::<__m256i>().write_volatile(value);
                }
                let value = _mm_loadu_si128(from.add(96).cast());
                to.add(96).cast::<__m128i>().write_volatile(value);
                flag(from, to);
            }
        }
    }

    /// Writes one line in stores of 16 bytes, 8 and 8.
    ///
    /// # Safety
    /// LINE bytes at `to` are writable, and `to` is a multiple of LINE.
    #[inline]
    pub(super) unsafe fn one_line(to: *mut u8, line: &[u8; LINE]) {
        let from = line.as_ptr();
        // SAFETY: inside the line; multiples of 16 from an aligned start are aligned. SSE2 is part of x86-64.
        unsafe {
            for n in 0..7 {
                let value = _mm_loadu_si128(from.add(n * 16).cast());
                to.add(n * 16).cast::<__m128i>().write_volatile(value);
            }
            flag(from, to);
        }
    }

    /// Writes the last 16 bytes of a line, the last 8 of them last.
    ///
    /// # Safety
    /// LINE bytes at `from` are readable and at `to` writable, and `to` is a multiple of LINE.
    #[inline]
    unsafe fn flag(from: *const u8, to: *mut u8) {
        for at in [LINE - 16, LINE - 8] {
            // SAFETY: the promise, and a multiple of 8 from an aligned start.
            unsafe {
                let word = from.add(at).cast::<u64>().read_unaligned();
                to.add(at).cast::<u64>().write_volatile(word);
            }
        }
    }
}

#[cfg(test)]
mod tests;
