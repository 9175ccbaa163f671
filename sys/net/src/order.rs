//! Copying in an order that another observer of the memory may rely on.

use linkspan_transport::{Buf, MemSlice};

/// Copies `bytes` to `offset` of `dst`, lowest address first, in aligned 8-byte stores (single bytes at the ends).
/// Returns false, and writes nothing, where they do not fit.
///
/// The compiler neither merges nor reorders the stores. On x86-64 every other processor and device sees them in
/// this order (Intel SDM vol. 3, 9.2.2: stores are not reordered with other stores); on ARM an observer needs a
/// barrier that is not here. memcpy promises no order: glibc's writes the last bytes of a range early.
#[must_use]
pub fn fill_ascending(dst: MemSlice, offset: usize, bytes: &[u8]) -> bool {
    let Some(part) = dst.sub(offset as u64, bytes.len() as u64) else {
        return false;
    };
    let mut at = part.as_ptr();
    let (lead, rest) = bytes.split_at(at.align_offset(8).min(bytes.len()));
    let (words, tail) = rest.as_chunks::<8>();
    for byte in lead {
        // SAFETY: `at` stays inside `part`, which is as long as `bytes` and mapped by the promise of a MemSlice.
        unsafe {
            at.write_volatile(*byte);
            at = at.add(1);
        }
    }
    for word in words {
        // SAFETY: as above; aligned, because `lead` ended at a multiple of 8.
        unsafe {
            at.cast::<u64>().write_volatile(u64::from_ne_bytes(*word));
            at = at.add(8);
        }
    }
    for byte in tail {
        // SAFETY: as for `lead`.
        unsafe {
            at.write_volatile(*byte);
            at = at.add(1);
        }
    }
    true
}

#[cfg(test)]
mod tests;
