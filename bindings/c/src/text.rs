//! Text on its way into fixed places of C structures.
#![forbid(unsafe_code)]

use std::ffi::c_char;

/// `text` with a zero at its end and zeros behind; cut between characters where it is longer.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let end = text.floor_char_boundary(N.saturating_sub(1));
    let mut place = [0; N];
    for (to, from) in place.iter_mut().zip(text.as_bytes().get(..end).unwrap_or_default()) {
        *to = from.cast_signed() as c_char;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::fixed;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(fixed::<4>("ab").map(|c| c as u8), *b"ab\0\0");
        assert_eq!(fixed::<4>("abcdef").map(|c| c as u8), *b"abc\0");
        assert_eq!(fixed::<4>("ab\u{e9}").map(|c| c as u8), *b"ab\0\0");
        assert_eq!(fixed::<1>("x").map(|c| c as u8), *b"\0");
    }
}
