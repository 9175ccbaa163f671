//! A rail against a peer that means harm: a queue pair that went through the handshake and then says what it likes.

use std::net::Ipv4Addr;
use std::time::Instant;

use linkspan_transport::{StaticBuf, Violation};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic, SoftQp};
use linkspan_verbs_sys::{SendOp, SendWr};
use proptest::prelude::*;

use super::*;
use crate::Setup;
use crate::setup::Parts;

/// Places everything in one buffer.
struct Places(StaticBuf, usize);

impl Sink for Places {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(if head.id.get() == 0 { None } else { self.0.slice().sub(0, head.len.get().into()) })
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.1 += 1;
        Ok(())
    }
}

/// Ready for a chunk when it is told so; the receives whose chunks were placed, and then those whose chunks landed.
struct Late {
    places: Places,
    open: bool,
    placed: Vec<u32>,
    landed: Vec<u32>,
}

impl Sink for Late {
    fn ready(&mut self, _: &Head) -> bool {
        self.open
    }

    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.placed.push(head.id.get());
        self.places.place(head)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.landed.push(head.id.get());
        Ok(())
    }
}

struct Liar {
    qp: SoftQp,
    cq: <SoftNic as Nic>::Cq,
    mr: <SoftNic as Nic>::Mr,
    ring: MemSlice,
    _memory: HostBuf,
}

fn against() -> (VerbsRail<SoftNic>, Liar) {
    let net = SoftNet::new(1);
    let side = |last| {
        let nic = net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1));
        Setup::new(Domain::new(nic), Config { close_wait: Some(Duration::ZERO), ..Config::default() }).expect("a side")
    };
    let (mut a, mut b) = (side(1), side(2));
    while !a.is_done() || !b.is_done() {
        b.input(&a.output()).expect("bytes");
        a.input(&b.output()).expect("bytes");
        a.poll().expect("packets pass");
        b.poll().expect("packets pass");
    }
    let Parts { qp, cq, mr, ring: (ring, memory) } = b.take_parts().expect("made");
    (a.finish().ok().expect("done"), Liar { qp, cq, mr, ring, _memory: memory })
}

impl Liar {
    fn say(&mut self, bytes: &[u8]) {
        let at = (SLOT * 100) as u64;
        assert!(self.ring.fill(at, bytes));
        use linkspan_verbs_sys::Mr;
        let range = self.mr.keys().sge(self.mr.keys().addr() + at, bytes.len() as u32);
        let _ = self.qp.post_send(&[SendWr::new(1, SendOp::Send, range)]);
        let _ = self.cq.poll(&mut [Completion::NONE; 64]);
    }
}

/// Polls until the rail is down or has nothing more.
fn hears(rail: &mut VerbsRail<SoftNic>, sink: &mut dyn Sink) -> Result<(), Down> {
    let mut idle = 0;
    while idle < 5 {
        idle = if rail.poll(sink)? == Poll::Active { 0 } else { idle + 1 };
        rail.flush()?;
    }
    Ok(())
}

fn frame(say: Say, id: u32) -> Frame {
    Frame::new(say, id)
}

fn with(frame: Frame, head: Head, body: &[u8]) -> Vec<u8> {
    [&frame.as_wire()[..], &head.as_wire()[..], body].concat()
}

fn chunk(id: u32, len: u32) -> Head {
    let mut head = Head::new(Kind::Chunk);
    head.id.set(id);
    head.len.set(len);
    head.total.set(len.into());
    head
}

#[test]
fn every_lie_ends_the_rail_by_name() {
    let mut credits = frame(Say::Credit, 0);
    credits.credits.set(1);
    let mut eager = Head::new(Kind::Eager);
    eager.len.set(5);
    let damaged = {
        let mut bytes = with(frame(Say::Ctrl, 0), Head::new(Kind::GoAway), &[]);
        bytes[FRAME_LEN + 2] ^= 1;
        bytes
    };
    let lies: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("a frame of 0 bytes", vec![vec![]]),
        ("a frame of 31 bytes", vec![vec![1; 31]]),
        ("a frame of kind 77", vec![vec![77; 32]]),
        ("Credit with 1 bytes", vec![[&frame(Say::Credit, 0).as_wire()[..], &[0]].concat()]),
        ("65 credits, it has 64 receives", vec![credits.as_wire().to_vec()]),
        ("LS0001", vec![[&frame(Say::Ctrl, 0).as_wire()[..], &[0; HEAD_LEN]].concat()]),
        ("LS0002", vec![damaged]),
        ("4 bytes of body, the head says 5", vec![with(frame(Say::Ctrl, 0), eager, b"four")]),
        ("Chunk in a frame of Ctrl", vec![with(frame(Say::Ctrl, 0), chunk(1, 0), &[])]),
        ("GoAway in a frame of Ask", vec![with(frame(Say::Ask, 0), Head::new(Kind::GoAway), &[])]),
        ("chunk 5 asks, 0 was due", vec![with(frame(Say::Ask, 5), chunk(1, 10), &[])]),
        ("the end of chunk 0", vec![frame(Say::Landed, 0).as_wire().to_vec()]),
        ("a place for chunk 0, which did not ask", vec![frame(Say::Place, 0).at(1, 1, 1).as_wire().to_vec()]),
        ("a place for chunk 9", vec![frame(Say::Nowhere, 9).as_wire().to_vec()]),
        ("which has ended", vec![with(frame(Say::Written, 0), chunk(0, 10), &[])]),
        (
            "the end of chunk 0",
            vec![with(frame(Say::Ask, 0), chunk(0, 10), &[]), frame(Say::Landed, 0).as_wire().to_vec()],
        ),
        ("64 arrive", (0..65).map(|n| with(frame(Say::Ask, n), chunk(1, 10), &[])).collect()),
    ];
    for (want, frames) in lies {
        let (mut rail, mut liar) = against();
        let mut sink = Places(StaticBuf::new(4096), 0);
        let mut told = Ok(());
        for bytes in frames {
            liar.say(&bytes);
            told = told.and_then(|()| hears(&mut rail, &mut sink));
        }
        match told {
            Err(Down::Protocol { why, .. }) if why.contains(want) => {}
            other => panic!("{want}: {other:?}"),
        }
        assert!(rail.flush().is_err() && rail.poll(&mut sink).is_err() && rail.arm().is_none(), "{want}: forever");
        assert!(rail.ctrl(&Head::new(Kind::GoAway), MemSlice::NONE).is_err());
    }
}

#[test]
fn a_chunk_that_was_written_waits_for_those_that_asked_before_it() {
    let (mut rail, mut liar) = against();
    let places = Places(StaticBuf::new(4096), 0);
    let mut sink = Late { places, open: false, placed: Vec::new(), landed: Vec::new() };
    for bytes in [with(frame(Say::Ask, 0), chunk(1, 10), &[]), with(frame(Say::Written, 0), chunk(2, 10), &[])] {
        liar.say(&bytes);
        hears(&mut rail, &mut sink).expect("up");
    }
    assert_eq!(sink.placed, [0; 0], "its turn has not come");
    sink.open = true;
    hears(&mut rail, &mut sink).expect("up");
    assert_eq!((&sink.placed[..], &sink.landed[..]), (&[1, 2][..], &[][..]));
    liar.say(frame(Say::Landed, 0).as_wire());
    hears(&mut rail, &mut sink).expect("up");
    assert_eq!(sink.landed, [1, 2]);
    // No more wait than may arrive.
    sink.open = false;
    liar.say(&with(frame(Say::Ask, 1), chunk(3, 10), &[]));
    let more = (0..64).find_map(|n| {
        liar.say(&with(frame(Say::Written, 0), chunk(4, 10), &[]));
        hears(&mut rail, &mut sink).err().map(|down| (n, down.to_string()))
    });
    assert!(matches!(&more, Some((63, why)) if why.contains("64 arrive")), "{more:?}");
}

#[test]
fn a_place_that_was_asked_for_is_the_only_one_that_is_written() {
    let (mut rail, mut liar) = against();
    let src = StaticBuf::new(1000);
    assert!(rail.data(&chunk(1, 1000), src.slice()).is_ok());
    rail.flush().expect("up");
    liar.say(frame(Say::Place, 0).at(4096, 7, 999).as_wire());
    match hears(&mut rail, &mut Places(StaticBuf::new(1), 0)) {
        Err(Down::Protocol { why, .. }) => assert!(why.contains("a place of 999 bytes for a chunk of 1000"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_only_sent_from_cannot_be_written_or_read_by_the_peer() {
    for read in [false, true] {
        let (mut rail, mut liar) = against();
        let src = StaticBuf::new(4096);
        assert!(src.slice().fill(0, &[7; 4096]));
        assert!(rail.data(&chunk(1, 4096), src.slice()).is_ok());
        rail.flush().expect("up");
        // Any key at all: those of the ring and of the source among them.
        let (addr, keys) = (src.slice().as_ptr() as u64, 0..4u32);
        use linkspan_verbs_sys::Mr;
        let own = liar.mr.keys();
        for key in keys.map(|k| (k << 8) | (k.wrapping_mul(0x9E37) & 0xff)) {
            let op = if read { SendOp::Read { addr, rkey: key } } else { SendOp::Write { addr, rkey: key } };
            let _ = liar.qp.post_send(&[SendWr::new(1, op, own.sge(own.addr(), 64))]);
        }
        let since = Instant::now();
        while hears(&mut rail, &mut Places(StaticBuf::new(1), 0)).is_ok() && since.elapsed() < Duration::from_secs(5) {
            let _ = liar.cq.poll(&mut [Completion::NONE; 64]);
        }
        assert!(src.slice().to_vec().iter().all(|&b| b == 7), "written by the peer");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Frames that are right in form and wrong in everything else: the rail goes on or ends, and never panics.
    #[test]
    fn no_order_of_frames_breaks_it(frames in proptest::collection::vec((1u8..=9, 0u32..4, 0u64..3000, 0u32..3, any::<bool>()), 1..40)) {
        let (mut rail, mut liar) = against();
        let src = StaticBuf::new(2000);
        let mut sink = Places(StaticBuf::new(4096), 0);
        for (say, id, len, receive, send) in frames {
            if send {
                let _ = rail.data(&chunk(id, 2000), src.slice());
            }
            let say = [Say::Ctrl, Say::Ask, Say::Place, Say::Nowhere, Say::Landed, Say::Written, Say::Granted, Say::Credit, Say::Close][usize::from(say) - 1];
            let frame = frame(say, id).at(src.slice().as_ptr() as u64, 1, len);
            let head = if say == Say::Ctrl { Head::new(Kind::GoAway) } else { chunk(receive, len as u32) };
            liar.say(&if say.has_head() { with(frame, head, &[]) } else { frame.as_wire().to_vec() });
            if hears(&mut rail, &mut sink).is_err() {
                break;
            }
        }
    }
}
