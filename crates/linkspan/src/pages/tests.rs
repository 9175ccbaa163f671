use proptest::prelude::*;

use super::*;
use crate::Memory;

const SHAPE: PageShape = PageShape { len: 4, stride: 8, count: 3, pieces: 2, piece_stride: 24 };

#[test]
fn a_shape_lies_inside_its_memory() {
    // The last byte is at 24 + 16 + 4.
    assert!(SHAPE.inside(44).is_ok());
    assert!(PageShape { count: 0, ..SHAPE }.inside(0).is_ok());
    for (shape, have, why) in [
        (SHAPE, 43, "they reach over its end"),
        (PageShape { count: u64::MAX, ..SHAPE }, u64::MAX, "they reach over its end"),
        (PageShape { pieces: u64::MAX, ..SHAPE }, u64::MAX, "they reach over its end"),
        (PageShape { len: 0, ..SHAPE }, 44, "a page has one piece and one byte at least"),
        (PageShape { pieces: 0, ..SHAPE }, 44, "a page has one piece and one byte at least"),
        (PageShape { stride: 3, ..SHAPE }, 44, "pages would overlap"),
        (PageShape { piece_stride: 3, ..SHAPE }, 44, "pages would overlap"),
    ] {
        match shape.inside(have) {
            Err(Error::PageShape { why: said, .. }) => assert_eq!(said, why),
            other => panic!("{shape:?} in {have}: {other:?}"),
        }
    }
}

#[test]
fn indices_are_checked_and_named() {
    let (memory, remote) = (Memory::host(44), crate::remote::sample(44));
    let pages = memory.view().pages(SHAPE).unwrap();
    let there = remote.pages(SHAPE).unwrap();
    assert!(Moved::new(&pages, &[0, 2, 1], &there, &[2, 2, 0]).is_ok());
    let text = |ours: &[u64], theirs: &[u64]| Moved::new(&pages, ours, &there, theirs).err().unwrap().to_string();
    assert_eq!(text(&[0, 3], &[0, 1]), "LS1129 index 3, at position 1 of the list, is outside of 3 pages here");
    assert_eq!(text(&[0], &[9]), "LS1129 index 9, at position 0 of the list, is outside of 3 pages at the peer");
    assert_eq!(text(&[0], &[]), "LS1132 1 pages here and 0 at the peer: both lists name as many");
    let other = remote.pages(PageShape::blocks(4, 3)).unwrap();
    let text = Moved::new(&pages, &[0], &other, &[0]).err().unwrap().to_string();
    assert_eq!(text, "LS1131 a page has 2 pieces of 4 bytes here and 1 of 4 at the peer: both must be alike");
}

proptest! {
    #[test]
    fn every_piece_lies_inside_and_none_overlaps(
        len in 1u64..9, gap in 0u64..5, count in 1u64..9, pieces in 1u64..4, more in 0u64..7
    ) {
        let stride = len + gap;
        let shape = PageShape { len, stride, count, pieces, piece_stride: stride * count + more };
        let have = shape.piece_stride * pieces;
        prop_assert!(shape.inside(have).is_ok());
        let mut seen = vec![false; have as usize];
        for page in 0..count {
            for piece in 0..pieces {
                let at = shape.at(page, piece) as usize;
                for byte in &mut seen[at..at + len as usize] {
                    prop_assert!(!std::mem::replace(byte, true));
                }
            }
        }
    }
}
