//! Copying in an order that another observer of the memory may rely on.

use linkspan_transport::{Buf, MemSlice};

/// A line: what a reader of the LL128 protocol looks at together. Its last 8 bytes are the flag.
const LINE: usize = 128;

/// Copies `bytes` to `offset` of `dst`, lowest address first. Returns false, and writes nothing, where they do not
/// fit.
///
/// Whole 128-byte lines are written in aligned stores of 16 bytes, and the last 16 bytes of each line in two of 8,
/// so that the last 8 never come before anything else of their line; what is left at both ends is written in aligned
/// stores of 8 bytes and single bytes. The compiler neither merges nor reorders the stores. On x86-64 every other
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
        for (n, line) in lines.iter().enumerate() {
            one_line(to.add(lead.len() + n * LINE), line);
        }
        words(to.add(bytes.len() - tail.len()), tail);
    }
    true
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

/// Writes one line.
///
/// # Safety
/// LINE bytes at `to` are writable, and `to` is a multiple of LINE.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn one_line(to: *mut u8, line: &[u8; LINE]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128};
    let (body, flag) = line.split_at(LINE - 16);
    let (body, _) = body.as_chunks::<16>();
    // SAFETY: inside the line; multiples of 16 from an aligned start are aligned. SSE2 is part of x86-64.
    unsafe {
        for (n, bytes) in body.iter().enumerate() {
            let value = _mm_loadu_si128(bytes.as_ptr().cast());
            to.add(n * 16).cast::<__m128i>().write_volatile(value);
        }
        words(to.add(LINE - 16), flag);
    }
}

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

#[cfg(test)]
mod tests;
