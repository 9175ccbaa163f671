use std::os::fd::AsFd;

use linkspan_proto::Kind;
use linkspan_transport::HostBuf;

use super::*;

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.sealed()
}

/// The bytes that a system call would send now.
fn next(tx: &Tx) -> usize {
    let mut gather = Gather::new();
    tx.collect(&mut gather);
    gather.bytes()
}

#[test]
fn a_prefix_of_any_length_may_be_taken() {
    let mem = HostBuf::new(300);
    for cut in 1..=584 {
        let mut tx = Tx::new(ZeroCopy::off());
        tx.ctrl(&head(Kind::Eager, 100), mem.slice().sub(0, 100).unwrap()).unwrap();
        tx.data(&head(Kind::Chunk, 300), mem.slice()).unwrap();
        tx.data(&head(Kind::Chunk, 0), MemSlice::EMPTY).unwrap();
        tx.ctrl(&head(Kind::Ack, 0), MemSlice::EMPTY).unwrap();
        // 144, 344, 48 and 48 bytes.
        assert_eq!(next(&tx), 584);
        tx.advance(cut);
        let whole = [144, 488, 536, 584].iter().filter(|&&end| end <= cut).count();
        assert_eq!(tx.taken(), whole as u64, "cut at {cut}");
        assert_eq!(next(&tx), 584 - cut as usize, "cut at {cut}");
        assert_eq!(tx.pending(), cut < 584);
    }
}

#[test]
fn one_call_carries_a_bounded_number_of_payload_bytes() {
    let mem = HostBuf::new(4 << 20);
    let mut tx = Tx::new(ZeroCopy::off());
    tx.data(&head(Kind::Chunk, 4 << 20), mem.slice()).unwrap();
    let mut calls = 0;
    while tx.pending() {
        let n = next(&tx);
        assert!(n > 0 && n <= BATCH + HEAD_LEN + 8);
        assert_eq!(tx.taken(), 0);
        tx.advance(n as u64);
        calls += 1;
    }
    assert_eq!((tx.taken(), calls), (1, 4));
}

#[test]
fn full_is_busy_and_everything_fits_again_afterwards() {
    let mem = HostBuf::new(8192);
    let mut tx = Tx::new(ZeroCopy::off());
    for round in 0..3 {
        let mut n = 0;
        while tx.ctrl(&head(Kind::Eager, 8192), mem.slice()).is_ok() {
            n += 1;
        }
        assert_eq!(n, RING / (8192 + HEAD_LEN + 8), "round {round}");
        tx.advance(n as u64 * (8192 + HEAD_LEN + 8) as u64);
        let mut n = 0;
        while tx.ctrl(&head(Kind::Ack, 0), MemSlice::EMPTY).is_ok() {
            n += 1;
        }
        assert_eq!(n, ITEMS);
        tx.advance((ITEMS * (HEAD_LEN + 8)) as u64);
        let mut n = 0;
        while tx.data(&head(Kind::Chunk, 1), mem.slice().sub(0, 1).unwrap()).is_ok() {
            n += 1;
        }
        assert_eq!(n, PAYLOADS);
        tx.advance((PAYLOADS * (HEAD_LEN + 8)) as u64);
        assert!(!tx.pending());
    }
}

#[test]
fn nothing_to_send_asks_nothing_of_the_kernel() {
    let mut tx = Tx::new(ZeroCopy::off());
    // A descriptor that is no socket: any call on it would fail.
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(!tx.flush(null.as_fd()).unwrap());
    tx.ctrl(&head(Kind::Ack, 0), MemSlice::EMPTY).unwrap();
    assert!(tx.flush(null.as_fd()).is_err());
}
