//! Memory that cannot be copied directly: the ring carries it, and memory that cannot be read at all is an error.

use std::cell::RefCell;

use crate::common::{Catch, ctrl, drive, filled, head, pattern, until_down};
use linkspan_proto::Kind;
use linkspan_shm::{Config, ShmRail, pair};
use linkspan_shmring::strange::{forbidden, secret};
use linkspan_transport::{Buf, Down, MemSlice, Rail, StaticBuf};

const LEN: usize = 300_000;

/// Runs `f` with memory of the kind, or says why this machine has none.
fn with_secret(f: impl FnOnce(&dyn Fn() -> MemSlice)) {
    match secret(LEN) {
        Ok(_) => f(&|| secret(LEN).expect("a step")),
        Err(e) => eprintln!("cannot be tested here: memfd_secret(2): {e}"),
    }
}

fn transfer(src: MemSlice, dst: MemSlice) {
    let (mut a, mut b) = pair(Config::default()).expect("a step");
    let bytes = pattern(3, LEN);
    assert!(src.fill(0, &bytes));
    let (mut sink, mut none) = (Catch::new(dst), Catch::new(MemSlice::EMPTY));
    for seq in 0..5 {
        assert!(dst.fill(0, &vec![0; LEN]));
        let item = a.data(&head(Kind::Chunk, seq, LEN, 0), src).expect("a step");
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, t| t == item && b.landed.len() as u32 == seq + 1);
        assert!(dst.to_vec() == bytes, "other bytes");
    }
    let told = [a.event(), b.event()];
    assert!(told.iter().flatten().any(|line| line.contains("cannot be copied directly")), "{told:?}");
    assert_eq!([a.event(), b.event()], [None, None], "once");
}

/// Memory that nobody can read or write. What touches it in the tests below are system calls.
fn out_of_reach() -> MemSlice {
    // SAFETY: transfers of this length go by cross-memory attach, or are checked by the kernel.
    unsafe { forbidden(LEN) }.expect("a step")
}

#[test]
fn a_source_the_receiver_cannot_read() {
    with_secret(|secret| transfer(secret(), StaticBuf::new(LEN).slice()));
}

#[test]
fn a_destination_the_sender_cannot_write() {
    with_secret(|secret| transfer(StaticBuf::new(LEN).slice(), secret()));
}

#[test]
fn neither_can_reach_the_other() {
    with_secret(|secret| transfer(secret(), secret()));
}

thread_local! {
    static SENDER: RefCell<Option<ShmRail>> = const { RefCell::new(None) };
}

/// The sender goes on while the receiver reads.
fn sender_goes_on() {
    if let Some(mut a) = SENDER.take() {
        // It cannot write the next slice, and fills the ring with it.
        (0..2).for_each(|_| _ = a.poll(&mut Catch::new(MemSlice::EMPTY)).expect("a step"));
        SENDER.set(Some(a));
    }
}

#[test]
fn a_slice_that_comes_back_while_a_later_one_is_half_in_the_ring() {
    with_secret(|secret| {
        let (mut a, mut b) =
            pair(Config { ring: 64 << 10, between: Some(sender_goes_on), ..Config::default() }).expect("a step");
        let (src, dst, bytes) = (secret(), secret(), pattern(6, LEN));
        assert!(src.fill(0, &bytes));
        let item = a.data(&head(Kind::Chunk, 0, LEN, 0), src).expect("a step");
        a.flush().expect("a step");
        SENDER.set(Some(a));
        let (mut sink, mut none) = (Catch::new(dst), Catch::new(MemSlice::EMPTY));
        b.poll(&mut sink).expect("a step");
        let mut a = SENDER.take().expect("a step");
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, t| t == item && b.landed.len() == 1);
        assert!(dst.to_vec() == bytes, "other bytes");
    });
}

#[test]
fn a_source_that_is_gone_is_an_error_and_not_a_signal() {
    let (mut a, mut b) = pair(Config::default()).expect("a step");
    let dst = StaticBuf::new(LEN);
    a.data(&head(Kind::Chunk, 0, LEN, 0), out_of_reach()).expect("a step");
    let (mut sink, mut none) = (Catch::new(dst.slice()), Catch::new(MemSlice::EMPTY));
    let down = loop {
        b.poll(&mut sink).expect("a step");
        if let Err(down) = a.poll(&mut none) {
            break down;
        }
    };
    assert!(matches!(&down, Down::System { source, .. } if source.raw_os_error() == Some(14)), "{down:?}");
    drop(a);
    assert!(matches!(until_down(&mut b, &mut sink), Down::PeerGone { .. }));
    assert!(sink.landed.is_empty());
}

#[test]
fn a_destination_that_is_gone_is_an_error_and_not_a_signal() {
    let (mut a, mut b) = pair(Config::default()).expect("a step");
    let src = filled(&pattern(1, LEN));
    a.data(&head(Kind::Chunk, 0, LEN, 0), src.slice()).expect("a step");
    let (mut sink, mut none) = (Catch::new(out_of_reach()), Catch::new(MemSlice::EMPTY));
    let down = loop {
        a.flush().expect("a step");
        if let Err(down) = b.poll(&mut sink) {
            break down;
        }
    };
    assert!(matches!(&down, Down::System { source, .. } if source.raw_os_error() == Some(14)), "{down:?}");
    drop(b);
    assert!(matches!(until_down(&mut a, &mut none), Down::PeerGone { .. }));
}

/// Chunks of a batch, some of which can be copied directly and some not, and some of which go nowhere.
#[test]
fn a_row_of_memory_that_cannot_be_reached_and_of_memory_that_can() {
    const PAGE: usize = 20_000;
    with_secret(|secret| {
        let (mut a, mut b) = pair(Config { batches: true, ..Config::default() }).expect("a step");
        for (src, dst) in [(StaticBuf::new(LEN).slice(), secret()), (secret(), StaticBuf::new(LEN).slice())] {
            let bytes = pattern(8, LEN);
            assert!(src.fill(0, &bytes));
            let (mut sink, mut none) = (Catch::new(dst), Catch::new(MemSlice::EMPTY));
            let mut item = 0;
            for seq in 0..(LEN / PAGE) as u32 {
                let at = u64::from(seq) * PAGE as u64;
                let part = src.sub(at, PAGE as u64).expect("a step");
                item = a.data(&head(Kind::Chunk, seq, PAGE, at), part).expect("a step");
            }
            let all = LEN / PAGE;
            drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, t| t == item && b.landed.len() == all);
            assert!(dst.to_vec() == bytes, "other bytes");
        }
    });
}

#[test]
fn chunks_of_a_row_that_nobody_wants_are_done_and_the_others_arrive() {
    const PAGE: usize = 20_000;
    let (mut a, mut b) = pair(Config { batches: true, ..Config::default() }).expect("a step");
    let (src, dst) = (filled(&pattern(4, LEN)), StaticBuf::new(LEN));
    let (mut sink, mut none) = (Catch::new(dst.slice()), Catch::new(MemSlice::EMPTY));
    sink.unwanted = vec![1, 5];
    let mut item = 0;
    for seq in 0..8u32 {
        let at = u64::from(seq) * PAGE as u64;
        let part = src.slice().sub(at, PAGE as u64).expect("a step");
        item = a.data(&head(Kind::Chunk, seq, PAGE, at), part).expect("a step");
    }
    assert_eq!(a.taken(), 0, "they were not announced");
    drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, t| t == item && b.landed.len() == 8);
    let (got, sent) = (dst.slice().to_vec(), pattern(4, LEN));
    for seq in 0..8 {
        let range = seq * PAGE..(seq + 1) * PAGE;
        let whole = got[range.clone()] == sent[range.clone()];
        assert_eq!(whole, seq != 1 && seq != 5, "chunk {seq}");
        assert!(whole || got[range].iter().all(|b| *b == 0));
    }
}

#[test]
fn control_passes_while_a_chunk_falls_back() {
    with_secret(|secret| {
        let (mut a, mut b) = pair(Config { ring: 64 << 10, ..Config::default() }).expect("a step");
        let (src, dst) = (secret(), secret());
        assert!(src.fill(0, &pattern(5, LEN)));
        a.data(&head(Kind::Chunk, 0, LEN, 0), src).expect("a step");
        let (mut sink, mut none) = (Catch::new(dst), Catch::new(MemSlice::EMPTY));
        let mut sent = 0;
        while sink.landed.is_empty() {
            sent += u32::from(ctrl(&mut a, sent, &pattern(sent.into(), 8000)).is_ok());
            a.flush().expect("a step");
            b.poll(&mut sink).expect("a step");
        }
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, _| b.ctrl.len() as u32 == sent);
        assert!(sent > 0 && dst.to_vec() == pattern(5, LEN));
    });
}
