//! Encrypted rails: an attacker on the cable, or a peer, that sends anything or stops anywhere.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::common::sealed::{ciphers, gone, protocol, record, sealed_with_raw, to_end, to_silence};
use crate::common::{Model, buf, head, is_between, script, until, wire};
use linkspan_proto::Kind;
use linkspan_proto::head::EAGER_MAX;
use linkspan_proto::login::RECORD_MAX;
use linkspan_transport::{Buf, Down, Head, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};
use proptest::prelude::*;

/// The script in records of `size` bytes of text; where each record ends on the wire and in the text.
fn records(sealer: &mut linkspan_proto::login::Sealer, size: usize) -> (Vec<u8>, Vec<(usize, usize)>) {
    let (text, _) = script();
    let (mut bytes, mut ends, mut done) = (Vec::new(), vec![(0, 0)], 0);
    for part in text.chunks(size) {
        bytes.extend(record(sealer, part));
        done += part.len();
        ends.push((bytes.len(), done));
    }
    (bytes, ends)
}

#[test]
fn the_stream_may_end_after_every_byte() {
    let (_, messages) = script();
    let total = records(&mut ciphers().0.0, 61).0.len();
    for cut in 0..=total {
        let (mut rail, mut raw) = sealed_with_raw();
        let (bytes, ends) = records(&mut raw.sealer, 61);
        raw.stream.write_all(&bytes[..cut]).unwrap();
        drop(raw);
        let mut model = Model::new();
        model.drain = cut as u32 % 3;
        let down = to_end(&mut rail, &mut model);
        let (_, text) = *ends.iter().rfind(|(wire, _)| *wire <= cut).unwrap();
        let whole = messages.iter().filter(|&&end| end <= text).count() - 1;
        assert_eq!(model.next as usize, whole, "cut at {cut}");
        let want = if !ends.iter().any(|(wire, _)| *wire == cut) {
            "end of stream in the middle of an encrypted record"
        } else if !is_between(&messages, text) {
            "end of stream in the middle of a message"
        } else {
            "end of stream"
        };
        assert_eq!(gone(&down), want, "cut at {cut}");
        // And it stays so.
        assert_eq!(gone(&rail.poll(&mut model).unwrap_err()), want);
        assert!(rail.arm().is_none(), "a rail that is down does not wait");
    }
}

#[test]
fn every_record_may_be_split_at_every_byte() {
    let (_, messages) = script();
    for cut in 1..records(&mut ciphers().0.0, 97).0.len() {
        let (mut rail, mut raw) = sealed_with_raw();
        raw.stream.set_nodelay(true).unwrap();
        let mut model = Model::new();
        model.drain = cut as u32 % 3;
        let (bytes, _) = records(&mut raw.sealer, 97);
        raw.stream.write_all(&bytes[..cut]).unwrap();
        to_silence(&mut rail, &mut model);
        raw.stream.write_all(&bytes[cut..]).unwrap();
        until("the rest", || {
            rail.poll(&mut model).unwrap();
            (model.next as usize == messages.len() - 1).then_some(())
        });
    }
}

/// A flipped bit in the second of three records: the first is delivered, nothing of the others ever.
#[test]
fn every_flipped_bit_ends_the_rail_and_nothing_of_the_record_is_delivered() {
    let len = record(&mut ciphers().0.0, &wire(Kind::Chunk, 1, 20)).len();
    for bit in 0..len * 8 {
        let (mut rail, mut raw) = sealed_with_raw();
        let mut wires: Vec<Vec<u8>> = (0..3).map(|seq| record(&mut raw.sealer, &wire(Kind::Chunk, seq, 20))).collect();
        wires[1][bit / 8] ^= 1 << (bit % 8);
        raw.stream.write_all(&wires.concat()).unwrap();
        drop(raw);
        let mut model = Model::new();
        let down = to_end(&mut rail, &mut model);
        assert_eq!(model.next, 1, "bit {bit}");
        assert!(!model.inside_chunk(), "bit {bit}");
        match &down {
            Down::Protocol { why, .. } => assert!(["LS0251", "LS0252"].iter().any(|code| why.contains(code)), "{why}"),
            // A longer length waits for bytes that never come.
            Down::PeerGone { why, .. } if bit < 32 => assert!(why.contains("middle of an encrypted record"), "{why}"),
            other => panic!("bit {bit}: {other}"),
        }
    }
}

#[test]
fn records_that_are_repeated_dropped_swapped_or_not_ours_end_the_rail() {
    let cases: [(&str, &[usize]); 5] = [
        ("repeated", &[0, 0]),
        ("dropped", &[0, 2]),
        ("swapped", &[0, 2, 1]),
        ("replayed from the past", &[0, 1, 2, 0]),
        ("the first one dropped", &[1]),
    ];
    for (what, order) in cases {
        let (mut rail, mut raw) = sealed_with_raw();
        let wires: Vec<Vec<u8>> = (0..3).map(|seq| record(&mut raw.sealer, &wire(Kind::InlinePut, seq, 9))).collect();
        let bytes: Vec<u8> = order.iter().flat_map(|&n| wires[n].clone()).collect();
        raw.stream.write_all(&bytes).unwrap();
        let mut model = Model::new();
        let down = to_end(&mut rail, &mut model);
        assert!(protocol(&down).contains("LS0252") && protocol(&down).contains("reordered"), "{what}: {down}");
        let honest = order.iter().enumerate().take_while(|(at, n)| at == *n).count();
        assert_eq!(model.next as usize, honest, "{what}");
        assert_eq!(protocol(&rail.poll(&mut model).unwrap_err()), protocol(&down));
    }
    // Our own record sent back, and one of another session.
    let (mut rail, mut raw) = sealed_with_raw();
    rail.ctrl(&head(Kind::Notify, 0, 0), MemSlice::EMPTY).unwrap();
    until("sent", || {
        rail.flush().unwrap();
        (rail.taken() == 1).then_some(())
    });
    let mut own = [0; 68];
    raw.stream.read_exact(&mut own).unwrap();
    let foreign = record(&mut ciphers().1.0, &wire(Kind::Notify, 0, 0));
    raw.stream.write_all(&own).unwrap();
    assert!(protocol(&to_end(&mut rail, &mut Model::new())).contains("LS0252"));
    let (mut rail, mut raw) = sealed_with_raw();
    raw.stream.write_all(&foreign).unwrap();
    assert!(protocol(&to_end(&mut rail, &mut Model::new())).contains("LS0252"));
}

#[test]
fn bytes_in_clear_are_never_taken() {
    let long = ((RECORD_MAX + 1) as u32).to_le_bytes().to_vec();
    // A head in clear begins like the length of a small record.
    for (bytes, code) in
        [(wire(Kind::Eager, 0, 1000), "LS0252"), (vec![0; 4], "LS0251"), (vec![0xff; 4], "LS0251"), (long, "LS0251")]
    {
        let (mut rail, mut raw) = sealed_with_raw();
        raw.stream.write_all(&bytes).unwrap();
        let mut model = Model::new();
        let down = to_end(&mut rail, &mut model);
        assert!(protocol(&down).contains(code), "{down}");
        assert_eq!(model.next, 0);
    }
}

/// From one byte a record to the largest, and control messages of the largest size across their ends.
#[test]
fn a_peer_may_make_records_of_any_length() {
    for size in [1, 39, 41, 8231, 8232, 8233, 16_384, 65_537, RECORD_MAX - 1, RECORD_MAX] {
        let (mut rail, mut raw) = sealed_with_raw();
        let (mut text, mut count) = (Vec::new(), 0);
        // Single bytes cost a tag each: fewer of them.
        let enough = if size < 100 { 20_000 } else { 3 * RECORD_MAX };
        while text.len() < enough {
            let (kind, len) = [(Kind::Eager, EAGER_MAX), (Kind::Chunk, 99_991), (Kind::Notify, 0)][count as usize % 3];
            text.extend(wire(kind, count, if size < 100 { len.min(7000) } else { len }));
            count += 1;
        }
        let writer = std::thread::spawn(move || {
            for part in text.chunks(size) {
                raw.stream.write_all(&record(&mut raw.sealer, part)).unwrap();
            }
            raw
        });
        let mut model = Model::new();
        until("all messages", || {
            rail.poll(&mut model).unwrap();
            (model.next == count).then_some(())
        });
        drop(writer.join().unwrap());
        assert_eq!(gone(&to_end(&mut rail, &mut model)), "end of stream");
    }
}

#[test]
fn what_breaks_the_protocol_inside_a_record_ends_the_rail_as_on_a_plain_one() {
    let mut damaged = wire(Kind::Chunk, 0, 64);
    damaged[2] ^= 1;
    for (text, want) in
        [(damaged, "LS0002"), (b"G".to_vec(), "LS0001"), (head(Kind::Eager, 8193, 0).as_wire().to_vec(), "LS0004")]
    {
        let (mut rail, mut raw) = sealed_with_raw();
        let bytes = record(&mut raw.sealer, &text);
        raw.stream.write_all(&bytes).unwrap();
        let down = to_end(&mut rail, &mut Model::new());
        assert!(protocol(&down).starts_with(want), "{down}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_behind_good_records_is_never_taken_for_one(
        good in 0usize..4,
        garbage in prop::collection::vec(any::<u8>(), 1..400),
    ) {
        let (mut rail, mut raw) = sealed_with_raw();
        let bytes: Vec<u8> = (0..good).flat_map(|n| record(&mut raw.sealer, &wire(Kind::Put, n as u32, 50))).collect();
        raw.stream.write_all(&bytes).unwrap();
        raw.stream.write_all(&garbage).unwrap();
        drop(raw);
        let mut model = Model::new();
        let down = to_end(&mut rail, &mut model);
        prop_assert_eq!(model.next as usize, good);
        let text = down.to_string();
        prop_assert!(["LS0251", "LS0252", "encrypted record"].iter().any(|t| text.contains(t)), "{}", text);
    }

    #[test]
    fn no_text_from_a_proven_peer_makes_it_panic(
        text in prop::collection::vec(any::<u8>(), 1..2000),
        size in 1usize..500,
    ) {
        let (mut rail, mut raw) = sealed_with_raw();
        let bytes: Vec<u8> = text.chunks(size).flat_map(|part| record(&mut raw.sealer, part)).collect();
        raw.stream.write_all(&bytes).unwrap();
        drop(raw);
        to_end(&mut rail, &mut Model::new());
    }
}

/// Refuses what it is told to.
struct Picky {
    at: &'static str,
    mem: StaticBuf,
}

impl Picky {
    fn answer<T>(&self, at: &str, ok: T) -> Result<T, Violation> {
        if self.at == at { Err(Violation(format!("no {at}"))) } else { Ok(ok) }
    }
}

impl Sink for Picky {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.answer("ctrl", ())
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let short = u64::from(self.at == "short");
        self.answer("place", self.mem.slice().sub(0, u64::from(head.len.get()) - short))
    }
    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.answer("landed", ())
    }
}

#[test]
fn what_the_sink_refuses_ends_the_rail_with_its_words() {
    for (at, want) in [
        ("ctrl", "no ctrl"),
        ("place", "no place"),
        ("landed", "no landed"),
        ("short", "a chunk of 100 bytes met a place of 99"),
    ] {
        let (mut rail, mut raw) = sealed_with_raw();
        let bytes = record(&mut raw.sealer, &script().0);
        raw.stream.write_all(&bytes).unwrap();
        let mut sink = Picky { at, mem: StaticBuf::new(1024) };
        let down = to_end(&mut rail, &mut sink);
        assert_eq!(protocol(&down), want);
        assert!(down.to_string().contains("127.0.0.1"), "the path is named: {down}");
        assert_eq!(protocol(&rail.poll(&mut sink).unwrap_err()), want);
    }
}

/// The peer says something last and closes while it has not read all of ours, so its kernel resets the connection.
/// Our sending fails first; what it said must still come.
#[test]
fn a_failed_send_does_not_hide_the_last_words() {
    let (mut rail, mut raw) = sealed_with_raw();
    let body = buf(&[1; 1000]);
    rail.data(&head(Kind::Chunk, 1000, 0), body.slice()).unwrap();
    until("sent", || {
        rail.flush().unwrap();
        (rail.taken() == 1).then_some(())
    });
    raw.stream.read_exact(&mut [0; 10]).unwrap();
    let bytes = record(&mut raw.sealer, &wire(Kind::GoAway, 0, 0));
    raw.stream.write_all(&bytes).unwrap();
    drop(raw);
    for _ in 0..50 {
        if rail.ctrl(&head(Kind::Ack, 0, 1), MemSlice::EMPTY).is_err() {
            break;
        }
        rail.flush().expect("a failed send alone is not the end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(rail.arm().is_none(), "there is an end to be found");
    let mut model = Model::new();
    let down = to_end(&mut rail, &mut model);
    assert_eq!(model.next, 1, "the GOAWAY arrived");
    assert!(["connection reset", "the peer reads no more (broken pipe)"].contains(&gone(&down)), "{down}");
    assert!(matches!(rail.flush(), Err(Down::PeerGone { .. })), "now flushing tells too");
}

#[test]
fn a_peer_that_only_closes_its_sending_side_is_gone() {
    let (mut rail, raw) = sealed_with_raw();
    raw.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(gone(&to_end(&mut rail, &mut Model::new())), "end of stream");
}

/// A peer that never reads costs memory up to fixed limits and no time.
#[test]
fn a_peer_that_never_reads_makes_us_busy() {
    let (mut rail, _raw) = sealed_with_raw();
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

#[test]
fn a_long_idle_rail_finds_what_comes_within_two_polls_and_at_once_after_a_sleep() {
    let (mut rail, mut raw) = sealed_with_raw();
    let mut model = Model::new();
    for round in 0..3 {
        for _ in 0..1000 + round {
            assert_eq!(rail.poll(&mut model).unwrap(), Poll::Idle);
        }
        let wait = rail.arm().unwrap();
        assert!(wait.read && !wait.write);
        let before = model.next;
        if round < 2 {
            assert_eq!(rail.poll(&mut model).unwrap(), Poll::Idle);
        }
        let bytes = record(&mut raw.sealer, &wire(Kind::Notify, before, 0));
        raw.stream.write_all(&bytes).unwrap();
        let mut set = linkspan_net::WaitSet::new();
        set.add(wait);
        assert_eq!(set.wait(Some(crate::common::PATIENCE)).unwrap(), 1);
        let (one, two) = (rail.poll(&mut model).unwrap(), rail.poll(&mut model).unwrap());
        assert!(one == Poll::Active || (round < 2 && two == Poll::Active));
        assert_eq!(model.next, before + 1);
    }
    rail.ctrl(&head(Kind::Notify, 0, 0), MemSlice::EMPTY).unwrap();
    assert!(rail.arm().unwrap().write, "something waits to be sent");
    rail.flush().unwrap();
    assert!(!rail.arm().unwrap().write);
}

/// A dropped rail has bytes unread; what it sent last still arrives.
#[test]
fn what_was_taken_arrives_although_the_sender_is_dropped_with_bytes_unread() {
    let (mut a, mut b) = crate::common::sealed::sealed_rails(crate::common::V4, &linkspan_stream::Options::default());
    for seq in 0..100 {
        b.ctrl(&head(Kind::Notify, 0, seq), MemSlice::EMPTY).unwrap();
    }
    until("bytes", || {
        b.flush().unwrap();
        (a.tcp_info().unwrap().bytes_received == 4820).then_some(())
    });
    let body = buf(&crate::common::pattern(0, 100_000));
    a.data(&head(Kind::Chunk, 100_000, 0), body.slice()).unwrap();
    let last = a.ctrl(&head(Kind::GoAway, 0, 1), MemSlice::EMPTY).unwrap();
    until("taken", || {
        a.flush().unwrap();
        (a.taken() == last).then_some(())
    });
    drop(a);
    let mut model = Model::new();
    let down = to_end(&mut b, &mut model);
    assert_eq!((model.next, gone(&down)), (2, "end of stream"), "{down}");
}
