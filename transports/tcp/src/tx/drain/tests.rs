use linkspan_proto::{Head, Kind};
use linkspan_transport::{MemSlice, StaticBuf};

use super::*;
use crate::zerocopy::ZeroCopy;

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head
}

/// Whatever the sizes of the pieces, and wherever the ring begins: the same bytes, and items end with them.
#[test]
fn pieces_of_every_size_are_the_same_stream() {
    let mem = StaticBuf::new(300);
    let bytes: Vec<u8> = (0..300).map(|i| (i * 7) as u8).collect();
    assert!(mem.slice().fill(0, &bytes));
    let part = |len| mem.slice().sub(0, len).unwrap();
    let heads = [head(Kind::Eager, 100), head(Kind::Chunk, 300), head(Kind::Chunk, 0), head(Kind::Ack, 0)];
    let (four, eight) = (&[0; 4][..], &[0; 8][..]);
    let first = [heads[0].as_wire(), &bytes[..100], four, heads[1].as_wire(), &bytes, four].concat();
    let want = [&first[..], heads[2].as_wire(), eight, heads[3].as_wire(), eight].concat();
    let mut tx = Tx::new(ZeroCopy::off());
    for size in 1..=600 {
        let before = tx.taken();
        tx.ctrl(&heads[0], part(100)).unwrap();
        tx.data(&heads[1], part(300)).unwrap();
        tx.data(&heads[2], MemSlice::EMPTY).unwrap();
        tx.ctrl(&heads[3], MemSlice::EMPTY).unwrap();
        let mut got: Vec<u8> = Vec::new();
        while tx.pending() {
            let mut out = vec![0xEE; size];
            let n = tx.drain(&mut out);
            assert!(n > 0 && out[n..].iter().all(|&b| b == 0xEE));
            got.extend(&out[..n]);
            let whole = [144, 488, 536, 584].iter().filter(|&&end| end <= got.len()).count();
            assert_eq!(tx.taken() - before, whole as u64, "pieces of {size}");
        }
        assert!(got == want, "pieces of {size}");
        assert_eq!(tx.drain(&mut [0; 8]), 0);
    }
}

/// The ring never becomes empty, so it goes round and its messages cross its end.
#[test]
fn messages_across_the_end_of_the_ring() {
    let mem = StaticBuf::new(8191);
    let mut tx = Tx::new(ZeroCopy::off());
    let (mut put, mut got) = (0u64, 0u64);
    let mut out = vec![0; 40 + 8191 + 1];
    for round in 0..200u64 {
        while put < got + 3 {
            assert!(mem.slice().fill(0, &[put as u8; 8191]));
            tx.ctrl(&head(Kind::Eager, 8191), mem.slice()).unwrap();
            put += 1;
        }
        assert_eq!(tx.drain(&mut out), out.len());
        assert!(out[..40] == head(Kind::Eager, 8191).as_wire()[..], "round {round}");
        assert!(out[40..][..8191].iter().all(|&b| b == got as u8), "round {round}");
        got += 1;
        assert_eq!(tx.taken(), got);
    }
}
