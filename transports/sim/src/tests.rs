//! The simulated link by itself.

use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, Busy, Down, Head, Kind, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};

use crate::{End, Fault, LinkConfig, SimRail, World};

/// Puts every chunk into one buffer and remembers what came.
struct Into {
    place: MemSlice,
    came: Vec<(Kind, Vec<u8>)>,
}

impl Into {
    fn new(buf: &StaticBuf) -> Into {
        Into { place: buf.slice(), came: Vec::new() }
    }
}

impl Sink for Into {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        let kind = Kind::from_u8(head.kind).expect("decoded");
        self.came.push((kind, payload.to_vec()));
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(self.place.sub(0, u64::from(head.len.get())))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.came.push((Kind::Chunk, Vec::new()));
        Ok(())
    }
}

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head
}

fn small() -> LinkConfig {
    LinkConfig { queue: 4, buffer: 3000, segment: 700, ..LinkConfig::default() }
}

fn filled(len: usize, byte: u8) -> StaticBuf {
    let buf = StaticBuf::new(len);
    assert!(buf.slice().fill(0, &vec![byte; len]));
    buf
}

/// Lets both ends run until nothing moves any more.
fn run(world: &World, a: &mut SimRail, b: &mut SimRail, sink: &mut Into) -> Result<(), Down> {
    let mut idle = 0;
    while idle < 50 {
        let out = a.flush()?;
        let came = b.poll(sink)?;
        idle = if (out, came) == (Poll::Idle, Poll::Idle) { idle + 1 } else { 0 };
        world.pass();
    }
    Ok(())
}

#[test]
fn messages_and_chunks_arrive_whole_and_in_order() {
    let world = World::new(1);
    let (mut a, mut b) = world.link(small());
    let (src, dst) = (filled(20_000, 7), StaticBuf::new(20_000));
    let text = filled(500, 3);
    assert_eq!(a.ctrl(&head(Kind::Eager, 500), text.slice()), Ok(1));
    assert_eq!(a.data(&head(Kind::Chunk, 20_000), src.slice()), Ok(2));
    assert_eq!(a.ctrl(&head(Kind::GoAway, 0), MemSlice::EMPTY), Ok(3));
    let mut sink = Into::new(&dst);
    run(&world, &mut a, &mut b, &mut sink).expect("nothing is wrong");
    let kinds: Vec<Kind> = sink.came.iter().map(|c| c.0).collect();
    assert_eq!(kinds, [Kind::Eager, Kind::Chunk, Kind::GoAway]);
    assert_eq!(sink.came[0].1, vec![3; 500]);
    assert_eq!(dst.slice().to_vec(), vec![7; 20_000]);
}

#[test]
fn memory_is_read_when_it_leaves_and_taken_says_when_it_has() {
    let world = World::new(1);
    let (mut a, mut b) = world.link(small());
    let (src, dst) = (filled(2000, 1), StaticBuf::new(20_000));
    let late = filled(5000, 1);
    a.data(&head(Kind::Chunk, 2000), src.slice()).expect("transport");
    a.data(&head(Kind::Chunk, 5000), late.slice()).expect("transport");
    assert_eq!(a.taken(), 0);
    a.flush().expect("up");
    assert_eq!(a.taken(), 1, "the buffer of the link holds 3000 bytes");
    assert!(src.slice().fill(0, &[9; 2000]));
    assert!(late.slice().fill(4000, &[2; 1000]));
    let mut sink = Into::new(&dst);
    run(&world, &mut a, &mut b, &mut sink).expect("nothing is wrong");
    assert_eq!(a.taken(), 2);
    assert_eq!(dst.slice().to_vec()[3990..4010], [[1; 10], [2; 10]].concat());
}

#[test]
fn a_full_queue_and_a_storm_are_busy() {
    let world = World::new(1);
    let (mut a, _b) = world.link(small());
    let goaway = head(Kind::GoAway, 0);
    for n in 1..=4 {
        assert_eq!(a.ctrl(&goaway, MemSlice::EMPTY), Ok(n));
    }
    assert_eq!(a.ctrl(&goaway, MemSlice::EMPTY), Err(Busy));
    a.flush().expect("up");
    assert_eq!(a.ctrl(&goaway, MemSlice::EMPTY), Ok(5));
    let storm = Fault::Storm { at: End::A, time: 100 };
    world.plant(a.link(), storm);
    assert_eq!(a.ctrl(&goaway, MemSlice::EMPTY), Err(Busy));
    world.advance(100);
    assert_eq!(a.ctrl(&goaway, MemSlice::EMPTY), Ok(6));
}

#[test]
fn a_stall_leaves_a_chunk_half_landed_and_a_dropped_end_takes_no_more() {
    for dropped in [false, true] {
        let world = World::new(1);
        let (mut a, mut b) = world.link(LinkConfig::default());
        let (src, dst) = (filled(10_000, 7), StaticBuf::new(10_000));
        a.data(&head(Kind::Chunk, 10_000), src.slice()).expect("transport");
        let stall = Fault::Stall { to: End::B, after: HEAD_LEN as u64 + 4000, time: None };
        world.plant(a.link(), stall);
        let mut sink = Into::new(&dst);
        run(&world, &mut a, &mut b, &mut sink).expect("a stall is not an end");
        assert!(b.is_inside_chunk());
        assert!(sink.came.is_empty());
        let half = [vec![7; 4000], vec![0; 6000]].concat();
        assert_eq!(dst.slice().to_vec(), half);
        if dropped {
            drop(b);
            world.release(a.link());
            for _ in 0..100 {
                world.pass();
                let _ = a.flush();
            }
            assert_eq!(dst.slice().to_vec(), half, "written after its rail was dropped");
            assert!(a.flush().is_err(), "the sender learns of the end");
        } else {
            world.release(a.link());
            run(&world, &mut a, &mut b, &mut sink).expect("released");
            assert_eq!(dst.slice().to_vec(), vec![7; 10_000]);
        }
    }
}

#[test]
fn a_cut_is_seen_by_each_end_in_its_own_time() {
    let world = World::new(1);
    let (mut a, mut b) = world.link(LinkConfig::default());
    let cut = Fault::Cut { a: Some(500), b: None };
    world.plant(a.link(), cut);
    assert!(a.flush().is_ok());
    world.advance(500);
    assert!(matches!(a.flush(), Err(Down::PeerGone { .. })));
    drop(a);
    world.advance(u64::MAX / 2);
    let dst = StaticBuf::new(1);
    assert!(b.flush().is_ok());
    assert_eq!(b.poll(&mut Into::new(&dst)).expect("never"), Poll::Idle);
}

#[test]
fn what_was_sent_before_a_close_is_read_before_the_end() {
    let world = World::new(1);
    let (mut a, mut b) = world.link(LinkConfig::default());
    a.ctrl(&head(Kind::GoAway, 0), MemSlice::EMPTY).expect("transport");
    a.flush().expect("up");
    drop(a);
    world.advance(1_000_000_000);
    assert!(b.flush().is_err(), "what is sent is not taken");
    let dst = StaticBuf::new(1);
    let mut sink = Into::new(&dst);
    assert_eq!(b.poll(&mut sink).expect("one message"), Poll::Active);
    assert_eq!(sink.came.len(), 1);
    assert!(matches!(b.poll(&mut sink), Err(Down::PeerGone { .. })));
}

#[test]
fn a_damaged_head_ends_the_rail() {
    for seed in 0..2000 {
        let world = World::new(seed);
        let (mut a, mut b) = world.link(LinkConfig::default());
        let corrupt = Fault::Corrupt { to: End::B, after: 1 };
        world.plant(a.link(), corrupt);
        for n in 0..3u32 {
            let mut head = Head::new(Kind::Grant);
            head.seq.set(n);
            head.id.set(seed as u32);
            a.ctrl(&head, MemSlice::EMPTY).expect("transport");
        }
        let dst = StaticBuf::new(1);
        let mut sink = Into::new(&dst);
        let end = run(&world, &mut a, &mut b, &mut sink);
        assert!(matches!(end, Err(Down::Protocol { .. })), "{end:?}");
        assert_eq!((sink.came.len(), world.corrupted()), (1, 1));
    }
}
