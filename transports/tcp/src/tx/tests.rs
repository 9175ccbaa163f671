use std::os::fd::AsFd;

use linkspan_proto::Kind;
use linkspan_transport::StaticBuf;

use super::*;

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head
}

/// The bytes that a system call would send now.
fn next(tx: &Tx) -> usize {
    let mut gather = Gather::new();
    tx.collect(&mut gather);
    gather.bytes()
}

#[test]
fn a_prefix_of_any_length_may_be_taken() {
    let mem = StaticBuf::new(300);
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
    let mem = StaticBuf::new(4 << 20);
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
    let mem = StaticBuf::new(8192);
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

/// What a batch is on the wire, wherever the kernel stops in it, and when its items are gone.
#[test]
fn payloads_behind_one_another_become_a_row() {
    let mem = StaticBuf::new(5000);
    let bytes: Vec<u8> = (0..5000).map(|i| (i * 7) as u8).collect();
    assert!(mem.slice().fill(0, &bytes));
    let heads = [head(Kind::Put, 4096), head(Kind::Chunk, 5000)];
    let mut batch = Head::new(Kind::BatchHeads);
    batch.len.set(80);
    batch.total.set(9096);
    let want = [batch.as_wire(), heads[0].as_wire(), heads[1].as_wire(), &bytes[..4096], &bytes, &[0; 8]].concat();
    let mut tx = Tx::new(ZeroCopy::off());
    for cut in (1..want.len()).step_by(97).chain([want.len() - 1]) {
        let before = tx.taken();
        tx.data(&heads[0], mem.slice().sub(0, 4096).unwrap()).unwrap();
        tx.data(&heads[1], mem.slice()).unwrap();
        assert!(tx.pending());
        let mut out = vec![0xEE; want.len() + 1];
        assert_eq!(tx.drain(&mut out[..cut]), cut);
        let whole = [120 + 4096, want.len()].iter().filter(|&&end| end <= cut).count();
        assert_eq!(tx.taken() - before, whole as u64, "cut at {cut}");
        assert_eq!(tx.drain(&mut out[cut..]), want.len() - cut);
        assert!(out[..want.len()] == want, "cut at {cut}");
        assert!(!tx.pending() && tx.taken() - before == 2);
    }
}

#[test]
fn a_row_ends_at_its_limits_and_two_fill_a_call() {
    let mem = StaticBuf::new(ROW_PAYLOAD_MAX + 1);
    let part = |len: usize| mem.slice().sub(0, len as u64).unwrap();
    // What is too short or too long for it, a control message, thirty payloads, half a MiB.
    for (lens, batches) in [
        (vec![4095, 4095], vec![]),
        (vec![ROW_PAYLOAD_MAX + 1, 4096, ROW_PAYLOAD_MAX + 1], vec![]),
        (vec![4096; 61], vec![30, 30]),
        (vec![ROW_PAYLOAD_MAX; 16], vec![8, 8]),
        (vec![4096, 4096, 100, 4096, 4096, 4096], vec![2, 3]),
    ] {
        let mut tx = Tx::new(ZeroCopy::off());
        for &len in &lens {
            tx.data(&head(Kind::Put, len), part(len)).unwrap();
        }
        let mut out = vec![0; 2 << 20];
        let n = tx.drain(&mut out);
        assert!(!tx.pending() && tx.taken() == lens.len() as u64);
        let (mut at, mut found, mut payloads) = (0, Vec::new(), 0);
        while at < n {
            let (head, kind) = Head::decode(out[at..].first_chunk().unwrap()).unwrap();
            let mut len = head.len.get() as usize;
            if kind == Kind::BatchHeads {
                found.push(len / HEAD_LEN);
                payloads += len / HEAD_LEN;
                len += head.total.get() as usize;
            } else {
                payloads += 1;
            }
            at += HEAD_LEN + len + padding(len);
        }
        assert_eq!((at, payloads), (n, lens.len()), "{lens:?}");
        assert_eq!(found, batches, "{lens:?}");
    }
    let mut tx = Tx::new(ZeroCopy::off());
    for _ in 0..60 {
        tx.data(&head(Kind::Put, 16 << 10), part(16 << 10)).unwrap();
    }
    tx.close_row();
    assert_eq!(next(&tx), 2 * (31 * HEAD_LEN + 8) + 60 * (16 << 10), "one call carries both batches");
}
