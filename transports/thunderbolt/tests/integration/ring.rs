//! Tier 1 against peers that lie and cables that go.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::common::Cables;
use linkspan_gpu::{Gpu, SimConfig, SimGpu};
use linkspan_proto::{Head, Kind};
use linkspan_tbring::Access;
use linkspan_thunderbolt::soft::{SoftRing, SoftRingLink};
use linkspan_thunderbolt::{RingDevice, RingRail};
use linkspan_transport::{Buf, MemSlice, Poll, Rail, Sink, StaticBuf, Violation};

/// Gives out one place, and counts.
struct Take {
    place: MemSlice,
    landed: usize,
    messages: usize,
}

impl Sink for Take {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.messages += 1;
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(self.place.sub(0, head.len.get().into()))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.landed += 1;
        Ok(())
    }
}

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head.total.set(len as u64);
    head
}

fn rail(link: &SoftRingLink, side: usize) -> RingRail<SoftRing> {
    rail_on(link, side, 2)
}

fn rail_on(link: &SoftRingLink, side: usize, first: u32) -> RingRail<SoftRing> {
    let mut device = link.open(side).expect("plugged in");
    for channel in [first, first + 1] {
        device.open_channel(channel).expect("free");
    }
    RingRail::new(device, (first, first + 1), format!("side {side}"), String::new(), 0, side == 1).expect("registered")
}

/// Tests that count what is registered, and those where no more may be, by which all rails of the process give way.
fn counted() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// A peer that sends what it likes: messages on the first channel, then payloads on the second.
fn lie(messages: &[&[u8]], payloads: &[usize]) -> Result<Take, String> {
    let link = SoftRingLink::new();
    let mut liar = link.open(0).expect("plugged in");
    for channel in [2, 3] {
        liar.open_channel(channel).expect("free");
    }
    let mut honest = rail(&link, 1);
    let mem = StaticBuf::new(1 << 20);
    let region = liar.register(mem.slice(), Access::Both).expect("registered");
    for message in messages {
        let own = StaticBuf::new(message.len().max(1));
        assert!(own.slice().fill(0, message));
        let region = liar.register(own.slice(), Access::Send).expect("registered");
        assert!(liar.send(2, &region, 0, message.len() as u64, 0).expect("up"));
        liar.doorbell(0, Duration::ZERO, false).expect("up");
    }
    for len in payloads {
        assert!(liar.send(3, &region, 0, *len as u64, 1).expect("up"));
    }
    liar.doorbell(0, Duration::ZERO, false).expect("up");
    let place = StaticBuf::new(1 << 20);
    let mut sink = Take { place: place.slice(), landed: 0, messages: 0 };
    for _ in 0..20 {
        let _ = honest.flush();
        if let Err(down) = honest.poll(&mut sink) {
            assert!(honest.poll(&mut sink).is_err() && honest.flush().is_err(), "it stays down");
            return Err(down.to_string());
        }
    }
    Ok(sink)
}

#[test]
fn a_peer_that_lies_ends_the_rail() {
    let chunk = head(Kind::Chunk, 100_000);
    let good = lie(&[chunk.as_wire()], &[100_000]).expect("no lie");
    assert_eq!((good.landed, good.messages), (1, 0));
    let small = [&head(Kind::Chunk, 5).as_wire()[..], b"12345"].concat();
    assert_eq!(lie(&[&small], &[]).expect("no lie").landed, 1);
    assert_eq!(lie(&[head(Kind::GoAway, 0).as_wire()], &[]).expect("no lie").messages, 1);

    let long = [&head(Kind::Eager, 5).as_wire()[..], b"1234567"].concat();
    let behind = [&chunk.as_wire()[..], b"1"].concat();
    let (bodiless, huge) = (head(Kind::Eager, 9), head(Kind::Chunk, (512 << 10) + 1));
    let lies: [(&[&[u8]], &[usize]); 8] = [
        (&[b"short"], &[]),
        (&[&[0; 40]], &[]),
        (&[&long], &[]),
        (&[bodiless.as_wire()], &[]),
        (&[&behind], &[]),
        (&[huge.as_wire()], &[]),
        (&[chunk.as_wire()], &[99_999]),
        (&[chunk.as_wire()], &[100_001]),
    ];
    for (messages, payloads) in lies {
        let down = lie(messages, payloads).err().expect("a lie");
        assert!(down.starts_with("LS0103"), "{down}");
    }
}

#[test]
fn messages_cost_few_doorbells_and_memory_is_registered_once() {
    let _alone = counted();
    let link = SoftRingLink::new();
    let (mut a, mut b) = (rail(&link, 0), rail(&link, 1));
    // From here on nothing more than this may be registered: each side once.
    link.limit(2 << 20);
    let (src, dst) = (StaticBuf::new(1 << 20), StaticBuf::new(1 << 20));
    let mut sink = Take { place: dst.slice(), landed: 0, messages: 0 };
    a.prepare(src.slice(), false);
    b.prepare(dst.slice(), true);
    for n in 1..=200 {
        a.data(&head(Kind::Chunk, 300_000), src.slice().sub(4096, 300_000).expect("inside")).expect("transport");
        while sink.landed < n {
            a.flush().expect("up");
            b.poll(&mut sink).expect("up");
            b.flush().expect("up");
            a.poll(&mut sink).expect("up");
        }
    }
    // Forgotten, it is registered again.
    let before = link.registered();
    a.registrar().expect("its own").invalidate(src.slice());
    a.data(&head(Kind::Chunk, 300_000), src.slice().sub(4096, 300_000).expect("inside")).expect("transport");
    assert_eq!(link.registered(), before + 1);
}

/// Gives each chunk the next place.
struct Places {
    mem: MemSlice,
    given: u64,
    landed: u64,
}

impl Sink for Places {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.given += 1;
        Ok(self.mem.sub((self.given - 1) * u64::from(head.len.get()), head.len.get().into()))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.landed += 1;
        Ok(())
    }
}

const PIECE: u64 = 300_000;
const PIECES: u64 = 40;

/// Moves as many pieces both ways at the same time; at most `limit` bytes of each link are locked beside what the rails are made of.
fn both_ways(limit: u64) -> Result<(), String> {
    let link = SoftRingLink::new();
    let mut rails = [rail(&link, 0), rail(&link, 1)];
    link.limit(limit);
    let sources = [0, 1].map(|side| {
        let bytes: Vec<u8> = (0..PIECE * PIECES).map(|at| (at / 1000) as u8 ^ side).collect();
        let own = StaticBuf::new(bytes.len());
        assert!(own.slice().fill(0, &bytes));
        (own, bytes)
    });
    let targets = [0, 1].map(|_| StaticBuf::new((PIECE * PIECES) as usize));
    let mut sinks = [0, 1].map(|side| Places { mem: targets[side].slice(), given: 0, landed: 0 });
    let mut sent = [0; 2];
    for _ in 0..10_000 {
        for side in 0..2 {
            let piece = sources[side].0.slice().sub(sent[side] * PIECE, PIECE);
            if let Some(piece) = piece
                && rails[side].data(&head(Kind::Chunk, PIECE as usize), piece).is_ok()
            {
                sent[side] += 1;
            }
            rails[side].flush().map_err(|down| down.to_string())?;
            rails[side].poll(&mut sinks[side]).map_err(|down| down.to_string())?;
        }
        if sinks.iter().all(|sink| sink.landed == PIECES) {
            let told = rails.each_mut().map(|rail| [rail.event(), rail.event()]);
            let is_short = |said: &Option<String>| said.as_ref().is_some_and(|said| said.contains("ulimit -l"));
            let short = limit < PIECE * PIECES;
            assert!(told.iter().any(|[first, again]| is_short(first) == short && again.is_none()), "{told:?}");
            for side in 0..2 {
                assert!(targets[side].slice().to_vec() == sources[1 - side].1, "other bytes at side {side}");
            }
            return Ok(());
        }
    }
    Err(format!("{} and {} pieces landed", sinks[0].landed, sinks[1].landed))
}

#[test]
fn where_little_memory_may_be_locked_messages_wait_for_those_before_and_come_by_scratch() {
    let _alone = counted();
    // All of it; some pieces; one to send for each side and none to receive into; one; not one.
    for limit in [1 << 30, 10 * PIECE, 3 * PIECE, 2 * PIECE, PIECE, PIECE - 1, 0] {
        assert_eq!(both_ways(limit), Ok(()), "with {limit} bytes");
    }
}

#[test]
fn a_chunk_is_sent_while_another_rail_has_all_memory_locked_for_chunks_under_way() {
    let _alone = counted();
    let link = SoftRingLink::new();
    let mut rails = [2, 4].map(|first| [0, 1].map(|side| rail_on(&link, side, first)));
    let bytes: Vec<u8> = (0..3 * PIECE).map(|at| (at / 1000) as u8).collect();
    let source = StaticBuf::new(bytes.len());
    assert!(source.slice().fill(0, &bytes));
    let piece = |n: u64| source.slice().sub(n * PIECE, PIECE).expect("inside");
    link.limit(2 * PIECE);
    link.stall(Some(0));
    for (rail, n) in [(0, 0), (0, 1), (1, 2)] {
        let sent = rails[rail][0].data(&head(Kind::Chunk, PIECE as usize), piece(n));
        assert!(sent.is_ok(), "piece {n}: {:?}", rails[rail][0].flush());
        rails[rail][0].flush().expect("up");
    }
    // The rail's own chunk is under way: the next waits for it.
    assert!(rails[1][0].data(&head(Kind::Chunk, PIECE as usize), piece(2)).is_err());
    rails[1][0].flush().expect("up");
    link.stall(None);
    let target = StaticBuf::new(bytes.len());
    let parts = [(0, 2 * PIECE), (2 * PIECE, PIECE)];
    let mut sinks =
        parts.map(|(at, len)| Places { mem: target.slice().sub(at, len).expect("inside"), given: 0, landed: 0 });
    for _ in 0..100 {
        for (pair, sink) in rails.iter_mut().zip(&mut sinks) {
            pair[1].poll(sink).expect("up");
            pair[1].flush().expect("up");
            pair[0].poll(sink).expect("up");
        }
    }
    assert_eq!(sinks.each_ref().map(|sink| sink.landed), [2, 1]);
    assert!(target.slice().to_vec() == bytes, "other bytes");
    assert_eq!(rails.each_ref().map(|pair| pair[0].taken()), [2, 1]);
}

#[test]
fn where_no_more_memory_may_be_locked_what_an_idle_rail_keeps_gives_way() {
    let _alone = counted();
    let link = SoftRingLink::new();
    let connections = [2, 4].map(|first| [0, 1].map(|side| rail_on(&link, side, first)));
    link.limit(2 * PIECE);
    let mut idle = Vec::new();
    let mem: Vec<StaticBuf> = (0..4).map(|_| StaticBuf::new(PIECE as usize)).collect();
    for (n, mut rails) in connections.into_iter().enumerate() {
        let mut sink = Take { place: mem[2 * n + 1].slice(), landed: 0, messages: 0 };
        let before = link.registered();
        // The first keeps all that may be locked, and says nothing any more.
        rails[0].data(&head(Kind::Chunk, PIECE as usize), mem[2 * n].slice()).expect("transport");
        while sink.landed == 0 {
            rails[0].flush().expect("up");
            rails[1].poll(&mut sink).expect("up");
            rails[1].flush().expect("up");
            rails[0].poll(&mut sink).expect("up");
        }
        assert_eq!(link.registered() - before, 2);
        idle.push(rails);
    }
}

#[test]
fn nothing_is_registered_ahead_while_there_is_no_space_for_its_first_chunk() {
    let _alone = counted();
    let link = SoftRingLink::new();
    let mut a = rail(&link, 0);
    link.stall(Some(0));
    let own = StaticBuf::new(PIECE as usize);
    while a.data(&head(Kind::Chunk, PIECE as usize), own.slice()).is_ok() {
        a.flush().expect("up");
    }
    let (before, more) = (link.registered(), StaticBuf::new(PIECE as usize));
    a.prepare(more.slice(), false);
    assert_eq!(link.registered(), before, "nothing of it can be sent yet");
}

#[test]
fn the_end_of_a_peer_and_of_a_cable_are_told_after_what_came_before() {
    let link = SoftRingLink::new();
    let (mut a, mut b) = (rail(&link, 0), rail(&link, 1));
    let body = StaticBuf::new(10);
    for _ in 0..10 {
        a.ctrl(&head(Kind::Eager, 10), body.slice()).expect("transport");
    }
    a.flush().expect("up");
    drop(a);
    let mut sink = Take { place: body.slice(), landed: 0, messages: 0 };
    let down = loop {
        if let Err(down) = b.poll(&mut sink) {
            break down.to_string();
        }
    };
    assert_eq!(sink.messages, 10);
    assert!(down.contains("it closed the rail"), "{down}");
    drop(b);

    let (mut a, mut b) = (rail(&link, 0), rail(&link, 1));
    assert!(matches!(b.poll(&mut sink), Ok(Poll::Idle)), "a silent peer is well");
    assert!(a.arm().is_some_and(|fd| fd.read));
    link.unplug();
    assert!(a.poll(&mut sink).is_err_and(|down| down.to_string().contains("the link was lost")));
    assert!(b.poll(&mut sink).is_err());
    assert!(b.arm().is_none());
}

#[test]
fn a_peer_that_closes_before_the_payload_of_as_many_chunks_as_may_arrive_is_seen_to_close() {
    let link = SoftRingLink::new();
    let mut peer = link.open(0).expect("plugged in");
    for channel in [2, 3] {
        peer.open_channel(channel).expect("free");
    }
    let mut rail = rail(&link, 1);
    let mem = StaticBuf::new(1 << 20);
    let mut sink = Take { place: mem.slice(), landed: 0, messages: 0 };
    // A message that follows the heads is brought yet.
    for kind in [Kind::Chunk; 64].into_iter().chain([Kind::GoAway]) {
        let len = if kind == Kind::Chunk { 100_000 } else { 0 };
        let own = StaticBuf::new(64);
        assert!(own.slice().fill(0, head(kind, len).as_wire()));
        let region = peer.register(own.slice(), Access::Send).expect("registered");
        assert!(peer.send(2, &region, 0, head(kind, len).as_wire().len() as u64, 0).expect("up"));
        peer.doorbell(0, Duration::ZERO, false).expect("up");
        rail.poll(&mut sink).expect("up");
        rail.flush().expect("up");
    }
    assert_eq!((sink.landed, sink.messages), (0, 0));
    drop(peer);
    let down = (0..20).find_map(|_| rail.poll(&mut sink).err()).expect("it is down for good");
    assert!(down.to_string().contains("it closed the rail"), "{down}");
    assert_eq!((sink.landed, sink.messages), (0, 1));
}

#[test]
fn rails_share_a_link_and_leave_its_channels_free() {
    let cables = Cables::ring();
    for _ in 0..300 {
        let _one = cables.rails();
        let _two = cables.rails();
    }
}

#[test]
fn a_short_chunk_that_the_driver_of_a_gpu_does_not_copy_is_neither_sent_nor_reported() {
    for lost in [0, 1] {
        let link = SoftRingLink::new();
        let (mut a, mut b) = (rail(&link, 0), rail(&link, 1));
        let gpus = [(); 2].map(|()| SimGpu::new(SimConfig::default()).expect("a device"));
        let [src, dst] = [0, 1].map(|n| gpus[n].alloc(100).expect("memory"));
        let mut sink = Take { place: dst, landed: 0, messages: 0 };
        let mut send = |sink: &mut Take| {
            let _ = a.data(&head(Kind::Chunk, 100), src);
            a.flush().and_then(|_| b.poll(sink)).err().map(|down| down.to_string())
        };
        assert_eq!((send(&mut sink), sink.landed), (None, 1));
        // As one that has failed: it copies nothing.
        let left = gpus.into_iter().enumerate().filter(|(n, _)| *n != lost).map(|(_, gpu)| gpu);
        let _left: Vec<_> = left.collect();
        let end = send(&mut sink).expect("the bytes are those of before");
        let side = format!("LS0104 the device behind side {lost} failed: its driver did not copy");
        assert!(end.starts_with(&side), "{end}");
        assert_eq!(sink.landed, 1);
    }
}
