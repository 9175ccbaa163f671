use linkspan_proto::Kind as HeadKind;
use linkspan_transport::{StaticBuf, Violation};
use proptest::prelude::*;

use super::segment::{Kind, SEGMENT_LEN, Segment};
use super::*;
use crate::soft::SoftStreamLink;

#[derive(Default)]
struct Got(Vec<(u8, usize)>);

impl Sink for Got {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.0.push((head.kind, payload.len()));
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(None)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.0.push((head.kind, head.len.get() as usize));
        Ok(())
    }
}

fn head(kind: HeadKind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.total.set(len as u64);
    head
}

fn rail(link: &SoftStreamLink, side: usize) -> StreamRail {
    let about = About { path: format!("side {side}"), reason: String::new(), speed: 0, plug: String::new() };
    let rings = [side, 1 - side].map(|end| link.ring(end) as u32);
    StreamRail::new(Box::new(link.open(side).expect("free")), rings, about)
}

fn rails(link: &SoftStreamLink) -> [StreamRail; 2] {
    [0, 1].map(|side| rail(link, side))
}

#[test]
fn no_more_is_under_way_than_the_peer_has_buffers_for() {
    for ring in [32, 256] {
        let link = SoftStreamLink::new(ring).expect("descriptors");
        let [mut a, mut b] = rails(&link);
        let (src, mut sent, mut got) = (StaticBuf::new(100_000), 0, Got::default());
        let chunk = head(HeadKind::Chunk, 100_000);
        let small = head(HeadKind::Eager, 3);
        let body = src.slice().sub(0, 3).expect("inside");
        // Nobody reads: what is written fits into the peer's ring all the same.
        for _ in 0..200 {
            sent += usize::from(a.ctrl(&small, body).is_ok()) + usize::from(a.data(&chunk, src.slice()).is_ok());
            a.flush().expect("up");
        }
        assert_eq!(link.overrun(), 0, "frames without a buffer, rings of {ring}");
        // Small messages one by one, a frame each, then a reader.
        for round in 0..20_000 {
            a.flush().expect("up");
            if round % 3 == 0 {
                b.poll(&mut got).expect("up");
            }
            b.flush().expect("up");
            a.poll(&mut got).expect("up");
            if got.0.len() == sent {
                break;
            }
        }
        assert_eq!((got.0.len(), link.overrun()), (sent, 0), "rings of {ring}");
        for _ in 0..3000 {
            if a.ctrl(&small, body).is_ok() {
                sent += 1;
            }
            a.flush().expect("up");
            assert_eq!(link.overrun(), 0);
            b.poll(&mut got).expect("up");
            b.flush().expect("up");
            a.poll(&mut got).expect("up");
        }
        assert!(got.0.len() + 1 >= sent, "{} of {sent}", got.0.len());
    }
}

/// Both send as much as they may before either reads; then all of it arrives. How much each sent.
fn both_full(link: &SoftStreamLink, len: usize) -> [usize; 2] {
    let mut rails = rails(link);
    let (src, chunk) = (StaticBuf::new(len), head(HeadKind::Chunk, len));
    let (mut sent, mut got) = ([0; 2], [Got::default(), Got::default()]);
    for _ in 0..4 {
        for (rail, sent) in rails.iter_mut().zip(&mut sent) {
            while rail.data(&chunk, src.slice()).is_ok() {
                *sent += 1;
            }
            rail.flush().expect("up");
        }
        assert_eq!(link.overrun(), 0);
    }
    for _ in 0..10_000 {
        for (rail, got) in rails.iter_mut().zip(&mut got) {
            rail.poll(got).expect("up");
            rail.flush().expect("up");
        }
        if got[0].0.len() == sent[1] && got[1].0.len() == sent[0] {
            break;
        }
    }
    assert_eq!(
        [got[1].0.len(), got[0].0.len()],
        sent,
        "messages of {len} bytes over rings of {:?}",
        [0, 1].map(|n| link.ring(n))
    );
    sent
}

#[test]
fn two_full_directions_do_not_wait_for_each_other() {
    for ring in [32, 64, 256] {
        for len in [1, 4000, 4096, 8193, 12_289, 100_000] {
            let sent = both_full(&SoftStreamLink::new(ring).expect("descriptors"), len);
            assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
        }
    }
}

#[test]
fn hosts_whose_rings_differ_carry_all_the_same() {
    for rings in [[32, 256], [256, 32], [256, 4096]] {
        for len in [3, 100_000] {
            both_full(&SoftStreamLink::with_rings(rings).expect("descriptors"), len);
        }
    }
}

#[test]
fn what_was_taken_arrives_although_the_sender_is_gone_and_nobody_had_read() {
    let link = SoftStreamLink::new(32).expect("descriptors");
    let [mut a, mut b] = rails(&link);
    let src = StaticBuf::new(4);
    for _ in 0..500 {
        let _ = a.ctrl(&head(HeadKind::Eager, 4), src.slice());
        a.flush().expect("up");
    }
    let taken = a.taken();
    assert!(taken > 5);
    link.lose_close();
    drop(a);
    let mut got = Got::default();
    let why = loop {
        match b.poll(&mut got) {
            Ok(Poll::Active) => {}
            Ok(Poll::Idle) => break "silence".to_owned(),
            Err(down) => break down.to_string(),
        }
    };
    assert!(got.0.len() as u64 >= taken, "{} of {taken}: {why}", got.0.len());
}

#[test]
fn an_end_mark_tells_the_end_where_the_device_does_not() {
    let link = SoftStreamLink::new(64).expect("descriptors");
    let [a, mut b] = rails(&link);
    link.lose_close();
    drop(a);
    let down = b.poll(&mut Got::default()).expect_err("it closed").to_string();
    assert!(down.contains("LS0101") && down.contains("it closed the rail"), "{down}");

    let [a, mut b] = rails(&SoftStreamLink::new(64).expect("descriptors"));
    std::mem::forget(a);
    assert!(matches!(b.poll(&mut Got::default()), Ok(Poll::Idle)), "a silent peer is well");

    let link = SoftStreamLink::new(64).expect("descriptors");
    let [_a, mut b] = rails(&link);
    link.unplug();
    let down = b.poll(&mut Got::default()).expect_err("unplugged").to_string();
    assert!(down.contains("the cable is gone"), "{down}");
}

#[test]
fn a_stalled_cable_holds_everything_and_loses_nothing() {
    let link = SoftStreamLink::new(32).expect("descriptors");
    let [mut a, mut b] = rails(&link);
    link.stall(Some(0));
    let src = StaticBuf::new(50_000);
    a.data(&head(HeadKind::Chunk, 50_000), src.slice()).expect("transport");
    let mut got = Got::default();
    for _ in 0..50 {
        a.flush().expect("up");
        assert!(matches!(b.poll(&mut got), Ok(Poll::Idle)));
    }
    link.stall(None);
    for _ in 0..50 {
        a.flush().expect("up");
        b.poll(&mut got).expect("up");
        b.flush().expect("up");
        a.poll(&mut got).expect("up");
    }
    assert_eq!(got.0, [(HeadKind::Chunk as u8, 50_000)]);
}

#[test]
fn a_peer_that_lies_ends_the_rail() {
    let good = |kind, len| *Segment::new(kind, len, 0).as_wire();
    let mut acked = *Segment::new(Kind::Ack, 0, 1).as_wire();
    acked[8] = 9;
    let lies: [&[u8]; 5] = [
        &[0; SEGMENT_LEN],
        &acked,
        &[&good(Kind::Bytes, 40)[..], &[0; 40]].concat(),
        &[&good(Kind::Bytes, 40)[..], &head(HeadKind::Eager, 9000).as_wire()[..]].concat(),
        &good(Kind::Ack, 5),
    ];
    for lie in lies {
        let link = SoftStreamLink::new(64).expect("descriptors");
        let mut liar = link.open(0).expect("free");
        let mut b = rail(&link, 1);
        let mem = StaticBuf::new(lie.len());
        assert!(mem.slice().fill(0, lie));
        StreamDevice::write(&mut liar, &[mem.slice()]).expect("written");
        let down = b.poll(&mut Got::default()).expect_err("a lie").to_string();
        assert!(down.starts_with("LS0103"), "{down}");
        assert!(b.flush().is_err() && b.arm().is_none(), "it stays down");
    }
}

#[test]
fn a_rail_whose_handshake_is_not_over_closes_without_its_end_mark() {
    let reads = |over: bool| {
        let link = SoftStreamLink::new(64).expect("descriptors");
        let (mut a, mut peer) = (rail(&link, 0), link.open(1).expect("free"));
        a.hello(&[7; NONCE_LEN]).expect("up");
        if over {
            a.joined();
        }
        drop(a);
        let mut bytes = [0; 64];
        let mut reads = || StreamDevice::read(&mut peer, MemSlice::NONE, &mut bytes).expect("up").unwrap_or(0);
        [reads(), reads()]
    };
    assert_eq!(reads(true), [1 + NONCE_LEN + SEGMENT_LEN, 0]);
    assert_eq!(reads(false), [1 + NONCE_LEN, 0]);
}

#[test]
fn golden_bytes() {
    let bytes = *b"\xe5\x01\x34\x12\x00\x00\x00\x00\x08\x07\x06\x05\x04\x03\x02\x01";
    assert_eq!(Segment::new(Kind::Bytes, 0x1234, 0x0102_0304_0506_0708).as_wire(), &bytes);
    assert!(is_segment(&bytes));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        lens in proptest::collection::vec(0u16..300, 0..4),
    ) {
        // Segments that are segments, with anything in them.
        let mut all = Vec::new();
        for len in lens {
            all.extend_from_slice(Segment::new(if len == 0 { Kind::Ack } else { Kind::Bytes }, len, 0).as_wire());
            all.extend(bytes.iter().cycle().take(if bytes.is_empty() { 0 } else { len.into() }));
            let good = head(HeadKind::Eager, 5);
            all.extend_from_slice(good.as_wire());
        }
        all.extend_from_slice(&bytes);
        reads_any_bytes(&all);
    }
}
