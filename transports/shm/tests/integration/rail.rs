//! One rail, both ends in this process: what the contract of `Rail` says.

use crate::common::{Catch, ctrl, drive, filled, head, pattern, until_down, ways};
use linkspan_proto::Kind;
use linkspan_proto::head::EAGER_MAX;
use linkspan_shm::{Config, pair};
use linkspan_shmring::layout;
use linkspan_transport::{Buf, Busy, Down, MemSlice, Poll, Rail, StaticBuf};
use proptest::prelude::*;

/// A chunk of many slices.
const CHUNK_MAX: usize = 1 << 20;

#[test]
fn the_info_names_path_and_reason() {
    let (a, b) = pair(Config::default()).expect("a step");
    assert_eq!((a.info().transport, b.info().transport), ("shm", "shm"));
    assert!(a.info().reason.contains("(CMA)"), "{}", a.info().reason);
    assert!(a.info().caps.local && a.info().caps.chunk == CHUNK_MAX);
    let (a, _b) = pair(Config { cma: false, ..Config::default() }).expect("a step");
    assert!(a.info().reason.contains("switched off"), "{}", a.info().reason);
}

#[test]
fn control_messages_of_every_size_arrive_whole_and_in_order() {
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        let mut sink = Catch::new(MemSlice::EMPTY);
        let mut sent = 0u64;
        for len in (0..200).chain([1000, 4095, 4096, 8191, EAGER_MAX]).chain(0..40) {
            let body = pattern(sent, len);
            while ctrl(&mut a, sent as u32, &body) == Err(Busy) {
                a.flush().expect("a step");
                b.poll(&mut sink).expect("a step");
            }
            sent += 1;
        }
        a.flush().expect("a step");
        assert_eq!(a.taken(), sent, "{way}: control has left with the flush");
        while b.poll(&mut sink).expect("a step") == Poll::Active {}
        assert_eq!(sink.ctrl.len() as u64, sent);
        for (i, (seq, body)) in sink.ctrl.iter().enumerate() {
            assert_eq!((*seq as usize, body), (i, &pattern(i as u64, body.len())), "{way}");
        }
    }
}

#[test]
fn chunks_of_every_size_arrive_whole_and_in_order() {
    let sizes = [0, 1, 63, 64, 65, 4096, 16 << 10, (16 << 10) + 1, 48 << 10, 64 << 10, 100_001, 1 << 18, CHUNK_MAX];
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        let area = StaticBuf::new(sizes.iter().sum());
        let (mut sink, mut none) = (Catch::new(area.slice()), Catch::new(MemSlice::EMPTY));
        let sources: Vec<_> = sizes.iter().map(|n| filled(&pattern(*n as u64, *n))).collect();
        let mut offset = 0;
        for (seq, src) in sources.iter().enumerate() {
            let head = head(Kind::Chunk, seq as u32, src.len(), offset);
            while a.data(&head, src.slice()) == Err(Busy) {
                drive((&mut a, &mut none), (&mut b, &mut sink), {
                    let mut once = false;
                    move |_, _, _| std::mem::replace(&mut once, true)
                });
            }
            offset += src.len() as u64;
        }
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, taken| {
            b.landed.len() == sizes.len() && taken == sizes.len() as u64
        });
        assert_eq!(sink.landed, (0..sizes.len() as u32).collect::<Vec<_>>(), "{way}");
        let want: Vec<u8> = sizes.iter().flat_map(|n| pattern(*n as u64, *n)).collect();
        assert!(area.slice().to_vec() == want, "{way}: other bytes");
    }
}

#[test]
fn a_source_is_ours_until_the_receiver_has_it() {
    let (mut a, mut b) = pair(Config::default()).expect("a step");
    let (src, dst) = (filled(&pattern(1, 256 << 10)), StaticBuf::new(256 << 10));
    let item = a.data(&head(Kind::Chunk, 0, src.len(), 0), src.slice()).expect("a step");
    for _ in 0..100 {
        a.flush().expect("a step");
    }
    assert!(a.taken() < item, "it was not read yet");
    let after = ctrl(&mut a, 1, b"after").expect("a step");
    a.flush().expect("a step");
    assert!(a.taken() < item && after > item, "items are reported in their order");
    let (mut sink, mut none) = (Catch::new(dst.slice()), Catch::new(MemSlice::EMPTY));
    drive((&mut a, &mut none), (&mut b, &mut sink), |_, _, taken| taken == after);
    assert_eq!((sink.landed.len(), sink.ctrl.len()), (1, 1));
}

#[test]
fn revoked_chunks_are_drained() {
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        let src = filled(&pattern(1, 200_000));
        let (mut sink, mut none) = (Catch::new(MemSlice::EMPTY), Catch::new(MemSlice::EMPTY));
        sink.drain = true;
        a.data(&head(Kind::Put, 0, src.len(), 0), src.slice()).expect("a step");
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, taken| b.landed == [0] && taken == 1);
        ctrl(&mut a, 1, b"still well").expect("a step");
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, _| b.ctrl.len() == 1);
        assert_eq!(sink.ctrl[0].1, b"still well", "{way}");
    }
}

#[test]
fn a_receiver_that_never_polls_makes_the_sender_busy_and_nothing_else() {
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        let src = filled(&pattern(1, 64 << 10));
        let mut chunks = 0;
        while a.data(&head(Kind::Chunk, chunks, src.len(), 0), src.slice()).is_ok() {
            chunks += 1;
            a.flush().expect("a step");
            assert!(chunks < 1000, "{way}: never busy");
        }
        assert!(ctrl(&mut a, 0, &pattern(0, EAGER_MAX)).is_ok(), "{way}: chunks leave space for control");
        let dst = StaticBuf::new(64 << 10);
        let (mut sink, mut none) = (Catch::new(dst.slice()), Catch::new(MemSlice::EMPTY));
        drive((&mut a, &mut none), (&mut b, &mut sink), |_, b, _| b.landed.len() == chunks as usize);
        assert_eq!(sink.ctrl.len(), 1);
    }
}

#[test]
fn a_rail_that_was_busy_does_not_sleep_where_there_is_space_by_now() {
    let (mut a, mut b) = pair(Config { ring: 64 << 10, ..Config::default() }).expect("a step");
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut sent = 0;
    while a.poll(&mut sink).is_ok() && ctrl(&mut a, sent, &[7; 1000]).is_ok() {
        sent += 1;
    }
    // The peer does not know that somebody is about to sleep.
    while b.poll(&mut sink).expect("a step") == Poll::Active {}
    assert!(a.flush().is_ok() && a.arm().is_none(), "it sleeps over the space that it has waited for");
    while a.poll(&mut sink).expect("a step") == Poll::Active {}
    assert!(a.arm().is_some(), "nothing is to be sent any more");
}

#[test]
fn a_closed_rail_gives_what_it_carried_and_then_says_so() {
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        for i in 0..50 {
            ctrl(&mut a, i, b"before the end").expect("a step");
        }
        a.flush().expect("a step");
        drop(a);
        let mut sink = Catch::new(MemSlice::EMPTY);
        let down = until_down(&mut b, &mut sink);
        assert!(matches!(down, Down::PeerGone { .. }), "{way}: {down}");
        assert_eq!(sink.ctrl.len(), 50, "{way}");
    }
}

#[test]
fn a_sender_that_goes_in_mid_transfer_leaves_no_report() {
    let (mut a, mut b) = pair(Config::default()).expect("a step");
    let (src, dst) = (filled(&pattern(1, CHUNK_MAX)), StaticBuf::new(CHUNK_MAX));
    a.data(&head(Kind::Chunk, 0, src.len(), 0), src.slice()).expect("a step");
    a.flush().expect("a step");
    let mut sink = Catch::new(dst.slice());
    b.poll(&mut sink).expect("a step");
    assert_eq!((sink.placed.len(), sink.landed.len()), (1, 0));
    drop(a);
    assert!(matches!(until_down(&mut b, &mut sink), Down::PeerGone { .. }));
    assert!(sink.landed.is_empty(), "a torn chunk is not reported");
}

#[test]
fn sleepers_are_woken_by_whatever_concerns_them() {
    for (way, config) in ways() {
        let (mut a, mut b) = pair(config).expect("a step");
        let mut none = Catch::new(MemSlice::EMPTY);
        assert!(a.arm().is_some(), "{way}: nothing to do");
        ctrl(&mut a, 0, b"x").expect("a step");
        assert!(b.arm().is_none(), "{way}: something is there");
        let dst = StaticBuf::new(CHUNK_MAX);
        // Each side sleeps whenever it has nothing to do; a lost wake-up would hang here.
        let receiver = std::thread::spawn(move || {
            let mut sink = Catch::new(dst.slice());
            while sink.landed.len() < 300 {
                if b.poll(&mut sink).expect("a step") == Poll::Idle {
                    sleep(&mut b);
                }
            }
            (b, sink)
        });
        let sources: Vec<_> = [100, 40_000, 300_000].map(|n| filled(&pattern(n, n as usize))).into();
        let mut item = 0;
        for i in 0..300 {
            let src = &sources[i % 3];
            loop {
                match a.data(&head(Kind::Chunk, i as u32, src.len(), 0), src.slice()) {
                    Ok(n) => break item = n,
                    Err(Busy) => {
                        if a.flush().expect("a step") == Poll::Idle && a.poll(&mut none).expect("a step") == Poll::Idle
                        {
                            sleep(&mut a);
                        }
                    }
                }
            }
            a.flush().expect("a step");
        }
        while a.taken() < item {
            if a.poll(&mut none).expect("a step") == Poll::Idle && a.taken() < item {
                sleep(&mut a);
            }
        }
        let (_b, sink) = receiver.join().expect("a step");
        assert_eq!(sink.landed, (0..300).collect::<Vec<_>>(), "{way}");
    }
}

/// Sleeps until woken; ten seconds without are a lost wake-up.
fn sleep(rail: &mut linkspan_shm::ShmRail) {
    use std::os::fd::AsRawFd;

    use rustix::event::{PollFd, PollFlags, Timespec};
    let Some(wait) = rail.arm() else { return };
    assert!(wait.read && !wait.write);
    let fd = rail.wait_fd();
    assert_eq!(fd.as_raw_fd(), wait.fd);
    let mut set = [PollFd::new(&fd, PollFlags::IN)];
    let woken = rustix::event::poll(&mut set, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).expect("a step");
    assert_eq!(woken, 1, "a wake-up was lost");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any mix of messages in both directions, in any rhythm, over any way.
    #[test]
    fn any_mix_arrives(way in 0usize..4, steps in proptest::collection::vec((0u8..6, 0usize..150_000), 1..60)) {
        let (mut a, mut b) = pair(ways()[way].1).expect("a step");
        let area = StaticBuf::new(60 * 150_000);
        let (mut at_a, mut at_b) = (Catch::new(MemSlice::EMPTY), Catch::new(area.slice()));
        let (mut bodies, mut chunks, mut back) = (Vec::new(), Vec::new(), 0u32);
        let mut offset = 0u64;
        for (what, len) in steps {
            match what {
                0 => if ctrl(&mut a, bodies.len() as u32, &pattern(9, len % (EAGER_MAX + 1))).is_ok() {
                    bodies.push(pattern(9, len % (EAGER_MAX + 1)));
                },
                1 | 2 => {
                    let src = filled(&pattern(chunks.len() as u64, len));
                    let h = head(Kind::Chunk, chunks.len() as u32, len, offset);
                    if a.data(&h, src.slice()).is_ok() {
                        chunks.push((src, offset));
                        offset += len as u64;
                    }
                }
                3 => _ = a.flush().expect("a step"),
                4 => _ = b.poll(&mut at_b).expect("a step"),
                _ => back += u32::from(ctrl(&mut b, back, b"back").is_ok()),
            }
        }
        drive((&mut a, &mut at_a), (&mut b, &mut at_b), |x, y, _| {
            x.ctrl.len() == back as usize && y.ctrl.len() == bodies.len() && y.landed.len() == chunks.len()
        });
        prop_assert_eq!(at_b.ctrl.into_iter().map(|c| c.1).collect::<Vec<_>>(), bodies);
        prop_assert_eq!(&at_b.landed, &(0..chunks.len() as u32).collect::<Vec<_>>());
        for (src, at) in &chunks {
            let got = area.slice().sub(*at, src.len() as u64).expect("a step").to_vec();
            prop_assert!(got == src.slice().to_vec());
        }
    }
}

/// Whether anything was ever written into the ring of the first side from `at` on.
fn touched(rail: &linkspan_shm::ShmRail, at: usize) -> bool {
    let (map, begin) = (rail.map(), layout::RINGS);
    (begin + at..begin + map.ring()).step_by(64).any(|at| map.peek(at) != 0)
}

#[test]
fn light_traffic_stays_at_the_beginning_of_the_ring_and_a_stream_uses_all_of_it() {
    let (mut a, mut b) = pair(Config { cma: false, ..Config::default() }).expect("a step");
    let ring = a.map().ring();
    assert!(ring >= 8 * layout::LIGHT, "the default has more than light traffic uses");
    let mut sink = Catch::new(MemSlice::EMPTY);
    for n in 0..4 * ring / 1024 {
        ctrl(&mut a, n as u32, &pattern(n as u64, 1000)).expect("transport");
        a.flush().expect("a step");
        while b.poll(&mut sink).expect("a step") == Poll::Active {}
    }
    assert_eq!(sink.ctrl.len(), 4 * ring / 1024);
    assert!(sink.ctrl.iter().enumerate().all(|(n, (seq, body))| *seq == n as u32 && *body == pattern(n as u64, 1000)));
    // One record may begin before the end of that part and reach beyond it.
    assert!(!touched(&a, layout::LIGHT + 2048), "light traffic goes through the whole ring");
    let (len, area) = (16 << 10, StaticBuf::new(16 << 10));
    let (mut sink, src) = (Catch::new(area.slice()), filled(&pattern(3, len)));
    for n in 0..2 * ring / len {
        a.data(&head(Kind::Chunk, n as u32, len, 0), src.slice()).expect("transport");
        a.flush().expect("a step");
        while b.poll(&mut sink).expect("a step") == Poll::Active {}
    }
    assert_eq!(sink.landed.len(), 2 * ring / len);
    assert!(area.slice().to_vec() == pattern(3, len), "other bytes");
    assert!(touched(&a, ring - 2 * len), "a stream stays in a part of the ring");
}
