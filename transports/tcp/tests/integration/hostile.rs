//! Peers that send anything, or stop anywhere.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::common::{
    Model, V4, batch, buf, head, is_between, next_head, pattern, poll_to_end, poll_to_silence, rail_with_raw, rails,
    script, until, wire, with_raw,
};
use linkspan_proto::Kind;
use linkspan_proto::head::HEAD_LEN;
use linkspan_stream::Options;
use linkspan_tcp::{RailConfig, TcpRail};
use linkspan_transport::{Down, Head, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};
use proptest::prelude::*;

fn gone(down: &Down) -> &str {
    match down {
        Down::PeerGone { why, .. } => why,
        other => panic!("expected a peer that is gone, got {other:?}"),
    }
}

fn protocol(down: &Down) -> &str {
    match down {
        Down::Protocol { why, .. } => why,
        other => panic!("expected a broken protocol, got {other:?}"),
    }
}

#[test]
fn the_stream_may_end_after_every_byte() {
    let (bytes, ends) = script();
    for drain in [0, 1] {
        for cut in 0..=bytes.len() {
            let (mut rail, mut raw) = rail_with_raw();
            raw.write_all(&bytes[..cut]).unwrap();
            drop(raw);
            let mut model = Model::new();
            model.drain = drain;
            let down = poll_to_end(&mut rail, &mut model);
            let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
            assert_eq!(model.next as usize, whole, "cut at {cut}");
            let clean = is_between(&ends, cut);
            let want = if clean { "end of stream" } else { "end of stream in the middle of a message" };
            assert_eq!(gone(&down), want, "cut at {cut}");
            // And it stays so.
            assert_eq!(gone(&rail.poll(&mut model).unwrap_err()), want);
            assert!(rail.arm().is_none(), "a rail that is down does not wait");
        }
    }
}

#[test]
fn every_message_may_be_split_at_every_byte() {
    let (bytes, ends) = script();
    for drain in [0, 1] {
        for cut in 1..bytes.len() {
            let (mut rail, mut raw) = rail_with_raw();
            raw.set_nodelay(true).unwrap();
            let mut model = Model::new();
            model.drain = drain;
            raw.write_all(&bytes[..cut]).unwrap();
            poll_to_silence(&mut rail, &mut model);
            raw.write_all(&bytes[cut..]).unwrap();
            until("the rest", || {
                rail.poll(&mut model).unwrap();
                (model.next as usize == ends.len() - 1).then_some(())
            });
        }
    }
}

#[test]
fn bytes_read_ahead_may_end_anywhere() {
    let (bytes, ends) = script();
    for cut in 0..=bytes.len() {
        let (stream, mut raw) = with_raw();
        let mut rail = TcpRail::new(stream, RailConfig::default(), &bytes[..cut]).unwrap();
        assert_eq!(rail.arm().is_none(), cut > 0, "bytes read ahead are work");
        raw.write_all(&bytes[cut..]).unwrap();
        let mut model = Model::new();
        until("all", || {
            rail.poll(&mut model).unwrap();
            (model.next as usize == ends.len() - 1).then_some(())
        });
    }
}

#[test]
fn too_many_bytes_read_ahead_are_refused() {
    let (stream, _raw) = with_raw();
    assert!(TcpRail::new(stream, RailConfig::default(), &[0; 64 << 10]).is_ok());
    let (stream, _raw) = with_raw();
    let error = TcpRail::new(stream, RailConfig::default(), &[0; (128 << 10)]).err().unwrap();
    assert!(error.to_string().starts_with("LS0311"), "{error}");
}

#[test]
fn a_head_with_a_wrong_magic_or_reserved_byte_ends_the_rail() {
    let good = wire(Kind::Chunk, 0, 64);
    for bit in (0..8).chain(16..32) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (mut rail, mut raw) = rail_with_raw();
        raw.write_all(&bad).unwrap();
        let mut model = Model::new();
        let down = poll_to_end(&mut rail, &mut model);
        assert!(protocol(&down).starts_with("LS000"), "bit {bit}: {down}");
        assert_eq!(model.next, 0);
        assert!(!model.inside_chunk());
        assert!(matches!(rail.poll(&mut model), Err(Down::Protocol { .. })));
    }
}

/// Chunk batches that no honest peer sends: the rail ends, and no byte of them is placed.
#[test]
fn chunk_batches_that_cannot_be_end_the_rail() {
    let of = |heads: &[Head]| {
        let text: Vec<u8> = heads.iter().flat_map(|head| head.as_wire().to_vec()).collect();
        let mut bytes = head(Kind::BatchHeads, text.len(), 0).as_wire().to_vec();
        bytes.extend(text);
        bytes.resize(bytes.len() + (128 << 10), 0xAA);
        bytes
    };
    let put = |len, seq| head(Kind::Put, len, seq);
    let mut damaged = batch(0, &[5000, 5000]);
    damaged[2 * HEAD_LEN + 2] ^= 1;
    let mut odd = head(Kind::BatchHeads, 100, 0).as_wire().to_vec();
    odd.resize(200, 0xC5);
    let bad = [
        (of(&[]), "a chunk batch"),
        (of(&[put(5000, 0)]), "a chunk batch"),
        (of(&[put(5000, 0), put(0, 1)]), "a chunk batch"),
        (of(&[put((64 << 10) + 1, 0), put(5000, 1)]), "a chunk batch"),
        (of(&[put(5000, 0), head(Kind::InlinePut, 10, 1)]), "a chunk batch"),
        (of(&[put(5000, 0), head(Kind::BatchHeads, 80, 1)]), "a chunk batch"),
        (of(&vec![put(10, 0); 31]), "LS0004"),
        (odd, "a chunk batch"),
        (damaged, "LS0002"),
    ];
    for (n, (bytes, want)) in bad.into_iter().enumerate() {
        let (mut rail, mut raw) = rail_with_raw();
        raw.write_all(&bytes).unwrap();
        let mut model = Model::new();
        let down = poll_to_end(&mut rail, &mut model);
        assert!(protocol(&down).starts_with(want), "{n}: {down}");
        assert_eq!(model.next, 0, "{n}");
    }
}

#[test]
fn one_wrong_byte_is_enough() {
    let (mut rail, mut raw) = rail_with_raw();
    raw.write_all(b"G").unwrap();
    let down = poll_to_end(&mut rail, &mut Model::new());
    assert!(protocol(&down).contains("LS0001") && protocol(&down).contains("0x47"), "{down}");
}

#[test]
fn a_control_message_over_the_limit_is_refused_before_its_body() {
    let (mut rail, mut raw) = rail_with_raw();
    raw.write_all(head(Kind::Eager, 8193, 0).as_wire()).unwrap();
    let down = poll_to_end(&mut rail, &mut Model::new());
    assert!(protocol(&down).contains("LS0004") && protocol(&down).contains("8193"), "{down}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_behind_good_messages_is_never_taken_for_one(
        good in 0usize..3,
        garbage in prop::collection::vec(any::<u8>(), 40..400),
    ) {
        let (bytes, ends) = script();
        let (mut rail, mut raw) = rail_with_raw();
        raw.write_all(&bytes[..if good == 0 { 0 } else { next_head(ends[good]) }]).unwrap();
        raw.write_all(&garbage).unwrap();
        drop(raw);
        let mut model = Model::new();
        let down = poll_to_end(&mut rail, &mut model);
        prop_assert_eq!(model.next as usize, good);
        protocol(&down);
    }
}

/// Refuses what it is told to.
struct Picky {
    at: &'static str,
    mem: StaticBuf,
}

impl Sink for Picky {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        if self.at == "ctrl" { Err(Violation("no ctrl".into())) } else { Ok(()) }
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        use linkspan_transport::Buf;
        let len = u64::from(head.len.get());
        match self.at {
            "place" => Err(Violation("no place".into())),
            "short" => Ok(self.mem.slice().sub(0, len - 1)),
            _ => Ok(self.mem.slice().sub(0, len)),
        }
    }
    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        if self.at == "landed" { Err(Violation("no landing".into())) } else { Ok(()) }
    }
}

#[test]
fn what_the_sink_refuses_ends_the_rail_with_its_words() {
    let (bytes, _) = script();
    for (at, want) in [
        ("ctrl", "no ctrl"),
        ("place", "no place"),
        ("landed", "no landing"),
        ("short", "a chunk of 100 bytes met a place of 99"),
    ] {
        let (mut rail, mut raw) = rail_with_raw();
        raw.write_all(&bytes).unwrap();
        let mut sink = Picky { at, mem: StaticBuf::new(1024) };
        let down = poll_to_end(&mut rail, &mut sink);
        assert_eq!(protocol(&down), want);
        assert!(down.to_string().contains("127.0.0.1"), "the path is named: {down}");
        assert_eq!(protocol(&rail.poll(&mut sink).unwrap_err()), want);
    }
}

#[test]
fn a_reset_is_told_apart_and_what_came_before_it_is_delivered() {
    let (bytes, ends) = script();
    let (mut rail, mut raw) = rail_with_raw();
    raw.write_all(&bytes).unwrap();
    // Wait until the bytes are on our side, then cut.
    until("arrival", || (rail.tcp_info().unwrap().bytes_received == bytes.len() as u64).then_some(()));
    socket2::SockRef::from(&raw).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(raw);
    let mut model = Model::new();
    let down = poll_to_end(&mut rail, &mut model);
    assert_eq!(model.next as usize, ends.len() - 1);
    assert_eq!(gone(&down), "connection reset");
}

/// The peer says something last and closes while it has not read all of ours, so its kernel resets the connection.
/// Our sending fails first; what it said must still come.
#[test]
fn a_failed_send_does_not_hide_the_last_words() {
    let (mut rail, mut raw) = rail_with_raw();
    let body = StaticBuf::new(1000);
    rail.data(&head(Kind::Chunk, 1000, 0), body.slice()).unwrap();
    until("sent", || {
        rail.flush().unwrap();
        (rail.taken() == 1).then_some(())
    });
    raw.read_exact(&mut [0; 10]).unwrap();
    raw.write_all(&wire(Kind::GoAway, 0, 0)).unwrap();
    drop(raw);
    // Send until it fails; the rail goes on until it was polled.
    for _ in 0..50 {
        if rail.ctrl(&head(Kind::Ack, 0, 1), <MemSlice as linkspan_transport::Buf>::EMPTY).is_err() {
            break;
        }
        rail.flush().expect("a failed send alone is not the end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(rail.arm().is_none(), "there is an end to be found");
    let mut model = Model::new();
    let down = poll_to_end(&mut rail, &mut model);
    assert_eq!(model.next, 1, "the GOAWAY arrived");
    assert!(["connection reset", "the peer reads no more (broken pipe)"].contains(&gone(&down)), "{down}");
    assert!(matches!(rail.flush(), Err(Down::PeerGone { .. })), "now flushing tells too");
}

#[test]
fn a_peer_that_only_closes_its_sending_side_is_gone() {
    let (mut rail, raw) = rail_with_raw();
    raw.shutdown(Shutdown::Write).unwrap();
    assert_eq!(gone(&poll_to_end(&mut rail, &mut Model::new())), "end of stream");
}

/// A filter that drops every segment stands for a cable that was cut.
#[test]
fn a_rail_whose_segments_nobody_acknowledges_has_stopped_carrying() {
    let (mut rail, raw) = rail_with_raw();
    assert!(!rail.stalled());
    // `BPF_RET | BPF_K`, 0 bytes (linux/bpf_common.h).
    socket2::SockRef::from(&raw).attach_filter(&[socket2::SockFilter::new(6, 0, 0, 0)]).unwrap();
    let body = StaticBuf::new(1000);
    rail.data(&head(Kind::Chunk, 1000, 0), body.slice()).unwrap();
    until("timeouts", || {
        rail.flush().expect("the kernel goes on trying");
        rail.stalled().then_some(())
    });
    let timeouts = rail.tcp_info().unwrap().timeouts;
    assert!(timeouts >= 3, "after {timeouts} timeouts");
}

/// A peer that never reads costs memory up to fixed limits and no time.
#[test]
fn a_peer_that_never_reads_makes_us_busy() {
    let (mut rail, _raw) = rail_with_raw();
    let body = StaticBuf::new(512 << 10);
    let (mut accepted, mut idle) = (0u64, 0);
    while idle < 100 {
        match rail.data(&head(Kind::Chunk, body.len(), 0), body.slice()) {
            Ok(n) => accepted = n,
            Err(_) => idle += 1,
        }
        if rail.flush().unwrap() == Poll::Active {
            idle = 0;
        }
        assert!(accepted < 4096, "2 GiB accepted for a peer that reads nothing");
    }
    assert!(rail.taken() < accepted);
    let wait = rail.arm().expect("nothing to do but wait");
    assert!(wait.read && wait.write);
}

/// What was taken arrives, though the sender closes at once and the receiver goes on talking to it.
#[test]
fn bytes_on_their_way_survive_the_senders_close_and_a_talking_receiver() {
    const LEN: usize = 256 << 10;
    let (mut a, mut b) = rails(V4, &Options::default());
    let sources: Vec<StaticBuf> = (0..64).map(|seq| buf(&pattern(seq, LEN))).collect();
    // Fills the kernel's buffers at both ends; there is no reader yet.
    let mut sent = 0;
    for (seq, src) in sources.iter().enumerate() {
        let Ok(pos) = a.data(&head(Kind::Chunk, LEN, seq as u32), src.slice()) else { break };
        for _ in 0..1000 {
            a.flush().expect("the peer lives");
        }
        if a.taken() < pos {
            break;
        }
        sent += 1;
    }
    assert!(sent > 0, "the kernel took nothing");
    drop(a);
    let mut model = Model::new();
    let mut said = 0;
    until("all that had been taken", || {
        linkspan_stream::closing::sweep();
        // Grants and acknowledgements go on; they must not make the dead end reset the connection.
        let _ = b.ctrl(&head(Kind::Ack, 0, said), MemSlice::NONE);
        said += 1;
        let _ = b.flush();
        let end = b.poll(&mut model).is_err();
        (end || model.next >= sent).then_some(())
    });
    assert_eq!(model.next, sent, "chunks that had been taken were lost");
}
