//! Copies whose target goes past the caches: of a stream that is larger than they are, what has just been written is not looked at
//! soon, and lines that are written as a whole need not be read from memory first.

/// As [`crate::copy`] of ranges that do not overlap; when it returns, other threads see the bytes by the same means as after
/// that. An ordinary copy where the processor has no such stores.
///
/// # Safety
/// As for [`crate::copy`], and the ranges do not overlap.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    /// Bytes of a cache line.
    const LINE: usize = 64;
    let before = to.align_offset(LINE).min(len);
    let lines = (len - before) / LINE;
    let behind = before + lines * LINE;
    // SAFETY: all offsets are within `len`, by the caller's promise; the target of each line is aligned to it.
    unsafe {
        crate::copy(from, to, before);
        if lines > 0 {
            stream(from.add(before), to.add(before), lines);
        }
        if len > behind {
            crate::copy(from.add(behind), to.add(behind), len - behind);
        }
    }
}

/// # Safety
/// At least one line; `to` is aligned to a line.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
unsafe fn stream(from: *const u8, to: *mut u8, lines: usize) {
    // SAFETY: reads and writes `lines` lines of 64 bytes. SSE2 is part of x86-64. The fence orders these stores, which are
    // otherwise weaker than others, before those behind it.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            "sfence",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// As [`crate::copy`].
///
/// # Safety
/// As there.
#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { crate::copy(from, to, len) };
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
                unsafe { super::copy_past_caches(src[3..].as_ptr(), dst[at..].as_mut_ptr(), len) };
                assert!(dst[..at].iter().chain(&dst[at + len..]).all(|&b| b == 0), "{at} {len}");
                assert_eq!(dst[at..at + len], src[3..3 + len], "{at} {len}");
            }
        }
    }
}
