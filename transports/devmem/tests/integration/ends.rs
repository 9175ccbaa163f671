//! One of the two streams ends before the other.

use std::time::{Duration, Instant};

use crate::common::{SimRail, rail, streams, until};
use linkspan_devmem::RailConfig;
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::SimGpu;
use linkspan_net::WaitSet;
use linkspan_proto::head::HEAD_LEN;
use linkspan_proto::{Head, Kind};
use linkspan_tcp::TcpRail;
use linkspan_transport::{Buf, MemSlice, Rail, Sink, StaticBuf, Violation};

/// One place for every chunk.
struct Place {
    mem: MemSlice,
    landed: usize,
}

impl Sink for Place {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(Some(self.mem))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.landed += 1;
        Ok(())
    }
}

/// Has a chunk of so many bytes announced on the stream of heads.
fn announce(heads: &mut TcpRail, len: usize) {
    let (mut chunk, mut beside) = (Head::new(Kind::Chunk), Head::new(Kind::Beside));
    chunk.len.set(len as u32);
    beside.len.set(HEAD_LEN as u32);
    let body = StaticBuf::new(HEAD_LEN);
    assert!(body.slice().fill(0, chunk.as_wire()));
    heads.ctrl(&beside, body.slice()).unwrap();
    heads.flush().unwrap();
}

/// A piece each 0.3 s, for 2.7 s after the end of the stream of heads.
#[test]
fn payload_that_goes_on_arriving_after_the_end_of_the_heads_is_delivered() {
    const PIECE: usize = 1000;
    const PIECES: usize = 10;
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let ((a, b), (mut payload, d)) = (streams(), streams());
    let mut heads = TcpRail::new(a, Default::default(), &[]).unwrap();
    let mut b = rail(&gpu, b, d, SimConfig::default(), RailConfig::default());
    announce(&mut heads, PIECE * PIECES);
    drop(heads);
    let place = StaticBuf::new(PIECE * PIECES);
    let mut sink = Place { mem: place.slice(), landed: 0 };
    for piece in 1..=PIECES as u8 {
        assert_eq!(payload.try_write(&[piece; PIECE]).unwrap(), Some(PIECE));
        let since = Instant::now();
        while piece < PIECES as u8 && since.elapsed() < Duration::from_millis(300) {
            b.poll(&mut sink).unwrap_or_else(|down| panic!("after piece {piece}: {down}"));
            std::thread::yield_now();
        }
    }
    let down = until("the chunk, then the end", || b.poll(&mut sink).err());
    assert_eq!(sink.landed, 1, "{down}");
    let content: Vec<u8> = (1..=PIECES as u8).flat_map(|piece| [piece; PIECE]).collect();
    assert!(place.slice().to_vec() == content);
}

/// Polls, and sleeps until the rail wakes it; at most so many times. The end, if it came.
fn sleep_and_wake(rail: &mut SimRail, sink: &mut Place, times: usize) -> Option<String> {
    let mut set = WaitSet::new();
    for _ in 0..times {
        if let Err(down) = rail.poll(sink).and_then(|_| rail.flush()) {
            return Some(down.to_string());
        }
        if let Some(fd) = rail.arm() {
            set.clear();
            set.add(fd);
            set.wait(Some(Duration::from_secs(60))).unwrap();
        }
    }
    None
}

/// As by `ss -K` or a firewall that forgets one of both: the stream of heads goes on.
#[test]
fn an_idle_rail_whose_payload_stream_is_reset_ends_and_does_not_wake_without_end() {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let ((a, b), (payload, d)) = (streams(), streams());
    let mut heads = TcpRail::new(a, Default::default(), &[]).unwrap();
    let mut b = rail(&gpu, b, d, SimConfig::default(), RailConfig::default());
    let place = StaticBuf::new(1);
    let mut sink = Place { mem: place.slice(), landed: 0 };
    payload.cut();
    let down = sleep_and_wake(&mut b, &mut sink, 50).expect("woken over and over");
    assert!(down.starts_with("LS0101") && down.contains("reset"), "{down}");
    heads.poll(&mut sink).expect("not by the end of the heads");
}

#[test]
fn payload_that_came_before_its_stream_was_reset_waits_for_its_head() {
    const LEN: usize = 1000;
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let ((a, b), (mut payload, d)) = (streams(), streams());
    let mut heads = TcpRail::new(a, Default::default(), &[]).unwrap();
    let mut b = rail(&gpu, b, d, SimConfig::default(), RailConfig::default());
    let place = StaticBuf::new(LEN);
    let mut sink = Place { mem: place.slice(), landed: 0 };
    assert_eq!(payload.try_write(&[7; LEN]).unwrap(), Some(LEN));
    payload.cut();
    assert_eq!(sleep_and_wake(&mut b, &mut sink, 10), None);
    announce(&mut heads, LEN);
    let down = until("the chunk, then the end", || sleep_and_wake(&mut b, &mut sink, 50));
    assert_eq!(sink.landed, 1, "{down}");
    assert!(place.slice().to_vec() == [7; LEN]);
}
