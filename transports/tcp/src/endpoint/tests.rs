use std::collections::VecDeque;
use std::time::{Duration, Instant};

use linkspan_proto::Kind;
use linkspan_transport::{StaticBuf, Violation};

use super::*;
use linkspan_stream::{Dial, Listen, Options};

fn streams() -> (Stream, Stream) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), Duration::from_secs(20)).unwrap();
    let a = until(|| dial.poll().unwrap());
    (a, until(|| listen.accept().unwrap()).0)
}

fn until<T>(mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s");
        std::thread::yield_now();
    }
}

fn rail(stream: Stream) -> TcpRail {
    TcpRail::new(stream, RailConfig::default(), &[]).unwrap()
}

/// A rail that lends to the kernel although the peer is on this machine.
fn lending(stream: Stream, from: usize) -> TcpRail {
    let zerocopy = ZeroCopy::new(stream.as_fd(), ZeroCopyPolicy::From(from));
    assert!(zerocopy.on(), "this kernel has MSG_ZEROCOPY");
    TcpRail::with(stream, RailConfig::default(), Rx::new(&[]).unwrap(), zerocopy)
}

fn head(kind: Kind, len: usize) -> Head {
    let mut head = Head::new(kind);
    head.len.set(len as u32);
    head
}

/// Keeps what lands.
struct Keep {
    mem: StaticBuf,
    /// What has a place and has not landed: a batch has many at a time.
    placed: VecDeque<MemSlice>,
    next: u64,
    landed: Vec<Vec<u8>>,
    ctrl: usize,
}

impl Keep {
    fn new() -> Keep {
        Keep { mem: StaticBuf::new(4 << 20), placed: VecDeque::new(), next: 0, landed: Vec::new(), ctrl: 0 }
    }
}

impl Sink for Keep {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        self.ctrl += 1;
        Ok(())
    }
    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let len = u64::from(head.len.get());
        let fits = self.mem.slice().sub(self.next, len);
        let place = fits.or_else(|| self.mem.slice().sub(0, len)).expect("shorter than the place for all");
        self.next = if fits.is_some() { self.next + len } else { len };
        self.placed.push_back(place);
        Ok(Some(place))
    }
    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        let mem = self.placed.pop_front().expect("it was placed");
        assert_eq!(mem.len(), head.len.get() as usize);
        self.landed.push(mem.to_vec());
        Ok(())
    }
}

#[test]
fn lent_payload_is_given_back_when_the_kernel_says_so_and_never_lent_again_after_a_copy() {
    let (a, b) = streams();
    let (mut a, mut b) = (lending(a, 10_000), rail(b));
    let mem = StaticBuf::new(1 << 20);
    let mut keep = Keep::new();
    let mut want = Vec::new();
    for (round, len) in [100usize, 10_000, 300_000, 1 << 20, 9_999, 700_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251 + round) as u8).collect();
        assert!(mem.slice().fill(0, &bytes));
        want.push(bytes);
        a.ctrl(&head(Kind::Notify, 0), MemSlice::EMPTY).unwrap();
        let item = a.data(&head(Kind::Chunk, len), mem.slice().sub(0, len as u64).unwrap()).unwrap();
        until(|| {
            a.flush().unwrap();
            b.poll(&mut keep).unwrap();
            assert!(!a.tx.lent() || a.taken() < item, "given back while the kernel holds it");
            (a.taken() == item).then_some(())
        });
        // Ours again: spoil it, whatever the peer has read of it by now.
        assert!(mem.slice().fill(0, &vec![0xDD; len]));
    }
    until(|| {
        b.poll(&mut keep).unwrap();
        (keep.landed.len() == want.len()).then_some(())
    });
    assert!(keep.landed == want, "content");
    assert_eq!(keep.ctrl, want.len());
    assert!(!a.tx.lends(), "loopback copies, so lending must have been given up");
}

#[test]
fn dropping_a_rail_that_lends_ends_the_lending() {
    let (a, b) = streams();
    // As a child of fork has it.
    let childs = rustix::io::dup(&a).unwrap();
    let mut a = lending(a, 1);
    let mem = StaticBuf::new(1 << 20);
    // Nobody reads, so the kernel keeps the rest.
    for _ in 0..64 {
        let _ = a.data(&head(Kind::Chunk, mem.len()), mem.slice());
        a.flush().unwrap();
    }
    assert!(a.tx.lent());
    drop(a);
    assert!(socket2::SockRef::from(&childs).peer_addr().is_err(), "the kernel goes on sending");
    let mut b = rail(b);
    let down = until(|| b.poll(&mut Keep::new()).err());
    assert!(matches!(down, Down::PeerGone { .. }), "{down}");
}

#[test]
fn lending_is_off_towards_this_machine() {
    let (a, _b) = streams();
    let config = RailConfig { zero_copy: ZeroCopyPolicy::From(1), ..RailConfig::default() };
    let a = TcpRail::new(a, config, &[]).unwrap();
    assert!(!a.tx.lends());
}

#[test]
fn a_long_idle_rail_finds_what_comes_within_four_polls() {
    let (a, b) = streams();
    let (mut a, mut b) = (rail(a), rail(b));
    let mut keep = Keep::new();
    for extra in 0..4 {
        for _ in 0..1000 + extra {
            assert_eq!(b.poll(&mut keep).unwrap(), Poll::Idle);
        }
        let before = keep.ctrl;
        a.ctrl(&head(Kind::Notify, 0), MemSlice::EMPTY).unwrap();
        until(|| (a.flush().unwrap() == Poll::Active).then_some(()));
        // Loopback delivers within the sender's call, but may leave it to another processor's softirq.
        std::thread::sleep(Duration::from_millis(50));
        let found = (0..IDLE_TURNS).filter(|_| b.poll(&mut keep).unwrap() == Poll::Active).count();
        assert_eq!(found, 1);
        assert_eq!(keep.ctrl, before + 1);
    }
}

#[test]
fn a_long_idle_rail_that_is_to_catch_up_finds_what_has_come_by_its_next_poll() {
    let (a, b) = streams();
    let (mut a, mut b) = (rail(a), rail(b));
    let mut keep = Keep::new();
    for extra in 0..4 {
        for _ in 0..1000 + extra {
            assert_eq!(b.poll(&mut keep).unwrap(), Poll::Idle);
        }
        a.ctrl(&head(Kind::Notify, 0), MemSlice::EMPTY).unwrap();
        until(|| (a.flush().unwrap() == Poll::Active).then_some(()));
        until(|| (linkspan_net::queued(b.stream.as_fd()).unwrap() > 0).then_some(()));
        b.catch_up();
        assert_eq!(b.poll(&mut keep).unwrap(), Poll::Active);
    }
}

#[test]
fn arming_waits_for_what_is_needed_and_makes_the_next_poll_ask() {
    let (a, b) = streams();
    let (mut a, mut b) = (rail(a), rail(b));
    let mut keep = Keep::new();
    for _ in 0..IDLE_POLLS + 1 {
        b.poll(&mut keep).unwrap();
    }
    let wait = b.arm().unwrap();
    assert!(wait.read && !wait.write);
    a.ctrl(&head(Kind::Notify, 0), MemSlice::EMPTY).unwrap();
    assert!(a.arm().unwrap().write, "something waits to be sent");
    a.flush().unwrap();
    assert!(!a.arm().unwrap().write);
    let mut set = linkspan_net::WaitSet::new();
    set.add(wait);
    assert_eq!(set.wait(Some(Duration::from_secs(20))).unwrap(), 1);
    assert_eq!(b.poll(&mut keep).unwrap(), Poll::Active, "the first poll after a sleep asks the kernel");
}

/// A dropped rail has bytes unread; what it sent last still arrives.
#[test]
fn what_was_taken_arrives_although_the_sender_is_dropped_with_bytes_unread() {
    for _ in 0..20 {
        let (a, b) = streams();
        let (mut a, mut b) = (rail(a), rail(b));
        let mut keep = Keep::new();
        for _ in 0..100 {
            b.ctrl(&head(Kind::Notify, 0), MemSlice::EMPTY).unwrap();
        }
        until(|| {
            b.flush().unwrap();
            (a.tcp_info().unwrap().bytes_received == 4800).then_some(())
        });
        let mem = StaticBuf::new(100_000);
        a.data(&head(Kind::Chunk, mem.len()), mem.slice()).unwrap();
        let last = a.ctrl(&head(Kind::GoAway, 0), MemSlice::EMPTY).unwrap();
        until(|| {
            a.flush().unwrap();
            (a.taken() == last).then_some(())
        });
        drop(a);
        let down = until(|| b.poll(&mut keep).err());
        assert_eq!((keep.landed.len(), keep.ctrl), (1, 1), "{down}");
        assert!(matches!(&down, Down::PeerGone { why, .. } if why == "end of stream"), "{down}");
    }
}

/// Who answers every message reads all of it, without a question; who does not leaves a byte.
#[test]
fn a_byte_is_left_only_where_messages_are_not_answered() {
    let (a, b) = streams();
    let (mut a, mut b) = (rail(a), rail(b));
    let left = |from: &mut TcpRail, to: &mut TcpRail| {
        from.ctrl(&head(Kind::Ack, 0), MemSlice::EMPTY).unwrap();
        from.flush().unwrap();
        until(|| matches!(to.poll(&mut Keep::new()), Ok(Poll::Active)).then_some(()));
        linkspan_net::queued(to.stream.as_fd()).unwrap()
    };
    // One way only: a byte is left, but for every ninth message.
    let one_way: Vec<usize> = (0..8).map(|_| left(&mut a, &mut b)).collect();
    assert_eq!(one_way, [1; 8]);
    for _ in 0..20 {
        left(&mut b, &mut a);
        left(&mut a, &mut b);
    }
    for turn in 0..20 {
        assert_eq!((left(&mut b, &mut a), left(&mut a, &mut b)), (0, 0), "turn {turn}");
    }
    // It ends with the first message that is not answered.
    left(&mut a, &mut b);
    assert_eq!(left(&mut a, &mut b), 1);
}

#[test]
fn many_payloads_at_once_fill_the_stream_and_lose_nothing() {
    let (a, b) = streams();
    let (mut a, mut b) = (lending(a, 4096), rail(b));
    let mut keep = Keep::new();
    let bufs: Vec<StaticBuf> = (0..60)
        .map(|n: u8| {
            let buf = StaticBuf::new(300_001);
            assert!(buf.slice().fill(0, &vec![n; 300_001]));
            a.data(&head(Kind::Chunk, 300_001), buf.slice()).unwrap();
            buf
        })
        .collect();
    // Nobody reads: the stream fills up in the middle of a payload.
    for _ in 0..1000 {
        a.flush().unwrap();
    }
    assert!(a.tx.pending());
    until(|| {
        a.flush().unwrap();
        b.poll(&mut keep).unwrap();
        (keep.landed.len() == bufs.len()).then_some(())
    });
    for (n, landed) in keep.landed.iter().enumerate() {
        assert!(landed.iter().all(|byte| *byte == n as u8), "payload {n}");
    }
}
