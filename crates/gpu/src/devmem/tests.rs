//! Golden bytes as the kernel lays them out, and everything that may go wrong.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::unpack::{Batch, PIECES, Piece};

/// A control message, byte by byte: length u64, level u32, type u32, body, padding to 8.
fn message(level: u32, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((16 + body.len() as u64).to_le_bytes());
    out.extend(level.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(body);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

fn body(offset: u64, size: u32, token: u32, id: u32) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &size.to_le_bytes(), &token.to_le_bytes(), &id.to_le_bytes(), &[0; 4]].concat()
}

fn all(received: usize, control: &[u8]) -> Result<Vec<Fragment>, BadControl> {
    fragments(received, control).collect()
}

/// One device fragment of 4096 bytes at 0x12000 with token 7 of binding 3, as the kernel's structures have it.
const GOLDEN: [u8; 40] = [
    40, 0, 0, 0, 0, 0, 0, 0, // cmsg_len
    1, 0, 0, 0, // SOL_SOCKET
    79, 0, 0, 0, // SCM_DEVMEM_DMABUF
    0x00, 0x20, 0x01, 0, 0, 0, 0, 0, // frag_offset
    0x00, 0x10, 0, 0, // frag_size
    7, 0, 0, 0, // frag_token
    3, 0, 0, 0, // dmabuf_id
    0, 0, 0, 0, // flags
];

#[test]
fn golden_bytes() {
    let device = Fragment::Device { offset: 0x12000, len: 4096, token: 7, dmabuf: 3 };
    assert_eq!(all(4096, &GOLDEN).unwrap(), [device]);
    assert_eq!(message(1, 79, &body(0x12000, 4096, 7, 3)), GOLDEN);
}

#[test]
fn kinds_come_in_the_order_of_the_stream() {
    let control = [
        message(1, 79, &body(0, 100, 0, 1)),
        message(1, 29, &[0; 16]), // SCM_TIMESTAMP
        message(1, 78, &body(0, 52, 0, 0)),
        message(0, 79, &[1, 2, 3]), // another level
        message(1, 79, &body(8192, 48, 1, 1)),
    ]
    .concat();
    let want = [
        Fragment::Device { offset: 0, len: 100, token: 0, dmabuf: 1 },
        Fragment::Linear { len: 52 },
        Fragment::Device { offset: 8192, len: 48, token: 1, dmabuf: 1 },
    ];
    assert_eq!(all(200, &control).unwrap(), want);
    // A sum that is wrong either way.
    assert_eq!(all(201, &control), Err(BadControl::Sum { fragments: 200, received: 201 }));
    assert_eq!(all(151, &control), Err(BadControl::Sum { fragments: 152, received: 151 }));
}

#[test]
fn data_that_was_not_steered_is_host_data() {
    assert_eq!(all(777, &[]).unwrap(), [Fragment::Linear { len: 777 }]);
    assert_eq!(all(5, &message(1, 29, &[0; 16])).unwrap(), [Fragment::Linear { len: 5 }]);
    assert_eq!(all(0, &[]).unwrap(), []);
}

#[test]
fn every_cut_and_every_wrong_length_is_an_error_or_less() {
    for cut in 1..GOLDEN.len() {
        match all(4096, &GOLDEN[..cut]) {
            Err(BadControl::Length { len: 40, left }) => assert_eq!(left, cut),
            Ok(fragments) => assert!(cut < 16 && fragments == [Fragment::Linear { len: 4096 }], "cut at {cut}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    for len in [0u64, 15, 41, u64::MAX] {
        let mut bad = GOLDEN;
        bad[..8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(all(4096, &bad), Err(BadControl::Length { len, left: 40 }));
    }
    let short = message(1, 79, &[0; 16]);
    assert_eq!(all(4096, &short), Err(BadControl::Body { len: 16 }));
    // Nothing comes after an error.
    let mut it = fragments(4096, &short);
    assert!(it.next().unwrap().is_err() && it.next().is_none());
}

#[test]
fn a_message_is_assembled_from_both_kinds() {
    let mut batch = Batch::new(1 << 20, 300);
    let mut assembly = Assembly::new(1, 300);
    let device = |offset, len, token| Fragment::Device { offset, len, token, dmabuf: 1 };
    assert_eq!(assembly.place(device(4096, 100, 9), Some(&mut batch)), Ok(Placed::Device { token: 9 }));
    assert_eq!(
        assembly.place(Fragment::Linear { len: 50 }, Some(&mut batch)),
        Ok(Placed::Host { from: 0, to: 100, len: 50 })
    );
    assert_eq!(
        assembly.place(Fragment::Linear { len: 20 }, Some(&mut batch)),
        Ok(Placed::Host { from: 50, to: 150, len: 20 })
    );
    assembly.call();
    assert_eq!(
        assembly.place(Fragment::Linear { len: 30 }, Some(&mut batch)),
        Ok(Placed::Host { from: 0, to: 170, len: 30 })
    );
    assert!(!assembly.complete());
    assert_eq!(assembly.place(device(0, 101, 2), Some(&mut batch)), Err(Unplaced::Beyond { left: 100 }));
    let foreign = Fragment::Device { offset: 0, len: 1, token: 0, dmabuf: 2 };
    assert_eq!(assembly.place(foreign, Some(&mut batch)), Err(Unplaced::Foreign { dmabuf: 2 }));
    let far = (1 << 20) - 10;
    assert_eq!(assembly.place(device(far, 20, 2), Some(&mut batch)), Err(Unplaced::Outside { offset: far }));
    assert_eq!(assembly.placed(), 200);
    assert_eq!(assembly.place(device(0, 100, 2), Some(&mut batch)), Ok(Placed::Device { token: 2 }));
    assert!(assembly.complete());
    assert_eq!(batch.pieces(), [Piece { src: 4096, len: 100, dst: 0 }, Piece { src: 0, len: 100, dst: 200 }]);
}

#[test]
fn a_full_batch_is_no_loss() {
    let mut batch = Batch::new(1 << 24, 1 << 20);
    let mut assembly = Assembly::new(1, 1 << 20);
    let at = |i: u64| Fragment::Device { offset: i * 4096, len: 100, token: i as u32, dmabuf: 1 };
    for i in 0..PIECES as u64 {
        assembly.place(at(i), Some(&mut batch)).unwrap();
    }
    let next = at(PIECES as u64);
    assert_eq!(assembly.place(next, Some(&mut batch)), Err(Unplaced::Full));
    batch.clear(1 << 20);
    assert!(assembly.place(next, Some(&mut batch)).is_ok());
    assert_eq!(batch.pieces()[0].dst, PIECES as u64 * 100);
}

/// The kernel: takes at most 1024 pages of at most 128 runs, each token once.
fn kernel(held: &mut std::collections::BTreeSet<u32>, runs: &[Run], most: u32) -> u64 {
    assert!(runs.len() <= 128);
    let mut freed = 0;
    for token in runs.iter().flat_map(|r| r.start..r.start + r.count) {
        if freed == u64::from(most) {
            break;
        }
        assert!(held.remove(&token), "token {token} given back twice, or never given out");
        freed += 1;
    }
    freed
}

#[test]
fn tokens_go_back_once_each_within_the_limits() {
    let mut x = 5u64;
    let mut next = move |n: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % n
    };
    let (mut held, mut tokens, mut out) =
        (std::collections::BTreeSet::new(), Tokens::new(16), [Run { start: 0, count: 0 }; RUNS]);
    let mut calls = 0;
    for _ in 0..60 {
        for _ in 0..next(600) {
            // The lowest free number, as the kernel takes it; now and then a gap.
            let token = (0..).find(|t| !(held.contains(t) || t % 50 == 0 && held.len() % 3 == 0)).unwrap_or(0);
            held.insert(token);
            tokens.push(token);
            if held.len() > 700 {
                break;
            }
        }
        while tokens.waiting() > 100 {
            let n = tokens.next(&mut out);
            let given: u64 = out[..n].iter().map(|r| u64::from(r.count)).sum();
            assert!(n > 0 && given <= 1024);
            // Now and then the kernel takes fewer.
            let most = if next(4) == 0 { 1 + next(given) as u32 } else { 1024 };
            let freed = kernel(&mut held, &out[..n], most);
            assert!(tokens.freed(freed));
            calls += 1;
        }
        assert_eq!(held.len() as u64, tokens.waiting());
    }
    assert!(calls > 20, "{calls} calls");
    assert!(!tokens.freed(tokens.waiting() + 1), "more than were given");
}

#[test]
fn consecutive_tokens_are_one_run() {
    let (mut tokens, mut out) = (Tokens::new(4), [Run { start: 0, count: 0 }; RUNS]);
    for token in [5, 6, 7, 3, 4, u32::MAX, 0] {
        tokens.push(token);
    }
    assert_eq!(tokens.next(&mut out), 4);
    let want = [(5, 3), (3, 2), (u32::MAX, 1), (0, 1)].map(|(start, count)| Run { start, count });
    assert_eq!(out[..4], want);
    assert!(tokens.freed(4));
    assert_eq!((tokens.next(&mut out), out[0]), (3, Run { start: 4, count: 1 }));
}

#[test]
fn a_fragment_that_ends_one_message_begins_the_next() {
    let (mut batch, mut assembly) = (Batch::new(1 << 20, 100), Assembly::new(1, 100));
    let whole = Fragment::Device { offset: 4096, len: 150, token: 9, dmabuf: 1 };
    let Err(Unplaced::Beyond { left }) = assembly.place(whole, Some(&mut batch)) else { panic!("it is too long") };
    let (first, rest) = whole.split(left);
    let rest = rest.unwrap();
    assert_eq!((first.len(), rest), (100, Fragment::Device { offset: 4196, len: 50, token: 9, dmabuf: 1 }));
    assert_eq!(assembly.place(first, Some(&mut batch)), Ok(Placed::Device { token: 9 }));
    assert!(assembly.complete());
    // The next one is not wanted; linear bytes of the same call go on where they were.
    assembly.begin(80);
    assert_eq!(assembly.place(rest, None), Ok(Placed::Device { token: 9 }));
    assert_eq!(assembly.place(Fragment::Linear { len: 30 }, None), Ok(Placed::Host { from: 0, to: 50, len: 30 }));
    assert!(assembly.complete() && batch.bytes() == 100);
    assert_eq!(Fragment::Linear { len: 5 }.split(5), (Fragment::Linear { len: 5 }, None));
    assert_eq!(Fragment::Linear { len: 5 }.split(9), (Fragment::Linear { len: 5 }, None));
}
