//! Copies whose target goes past the caches: of a stream that is larger than they are, what has just been written is not looked at
//! soon, and lines that are written as a whole need not be read from memory first.

/// As [`std::ptr::copy_nonoverlapping`] of bytes; when it returns, other threads see the bytes by the same means as after that.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    use crate::ring::LINE;

    let before = dst.align_offset(LINE).min(len);
    let lines = (len - before) / LINE;
    let behind = before + lines * LINE;
    // SAFETY: all offsets are within `len`, by the caller's promise; the target of each line is aligned to it. The fence orders
    // these stores, which are otherwise weaker than others, before those behind it.
    unsafe {
        dst.copy_from_nonoverlapping(src, before);
        for line in 0..lines {
            let from = src.add(before + line * LINE).cast::<__m128i>();
            let to = dst.add(before + line * LINE).cast::<__m128i>();
            let words = [0, 1, 2, 3].map(|n| _mm_loadu_si128(from.add(n)));
            for (n, word) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(n), word);
            }
        }
        dst.add(behind).copy_from_nonoverlapping(src.add(behind), len - behind);
        _mm_sfence();
    }
}

/// As [`std::ptr::copy_nonoverlapping`] of bytes: other processors are not told.
///
/// # Safety
/// As there.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { dst.copy_from_nonoverlapping(src, len) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_length_and_offset_is_copied_and_nothing_else() {
        let src: Vec<u8> = (0..600u32).map(|n| (n * 7 % 251) as u8 + 1).collect();
        for at in [0, 1, 15, 16, 63, 64, 65] {
            for len in (0..200).chain([256, 300, 321]) {
                let mut dst = vec![0u8; 600];
                // SAFETY: both ranges lie inside their vectors.
                unsafe { super::copy(src[3..].as_ptr(), dst[at..].as_mut_ptr(), len) };
                assert!(dst[..at].iter().chain(&dst[at + len..]).all(|&b| b == 0), "{at} {len}");
                assert_eq!(dst[at..at + len], src[3..3 + len], "{at} {len}");
            }
        }
    }
}
