//! Hostile peers against a live listener: clients without the handle, and one that has it and then sends anything.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Fabric, Listener, Log};
use linkspan_proto::handle::Handle;
use linkspan_proto::login::Guard;
use linkspan_proto::plan::{AGREED, Carrier, Plan};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{MAX_RAILS, StaticBuf};

use super::common::{is_over, log_stream_in, reset};

fn fabric() -> Fabric {
    let get = |name: &str| {
        let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())
    };
    Fabric::new(Config::read(&get).unwrap(), Log::off(), true, Vec::new()).unwrap()
}

/// A generator that needs no crate: xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn address(handle: &Handle) -> SocketAddr {
    handle.addrs()[0].socket()
}

/// The same, and agrees on a connection over this one stream.
fn log_in(listener: &Listener) -> (TcpStream, Channel) {
    let mut stream = log_stream_in(listener, Guard::Token, 7, 0);
    let start = Instant::now();
    let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![0], keepalive: None };
    stream.write_all(&plan.encode()).unwrap();
    let channel = loop {
        assert!(start.elapsed() < Duration::from_secs(30));
        if let Some(channel) = listener.accept().unwrap() {
            break channel;
        }
    };
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, AGREED);
    (stream, channel)
}

/// A message that is almost right: true magic, everything else near what an honest peer might send.
fn frame(rng: &mut Rng, seq: u32, keys: &[u32]) -> Vec<u8> {
    const KINDS: [Kind; 13] = [
        Kind::Eager,
        Kind::Grant,
        Kind::Ack,
        Kind::InlinePut,
        Kind::Notify,
        Kind::Read,
        Kind::Truncated,
        Kind::RailDown,
        Kind::Refused,
        Kind::GoAway,
        Kind::InlinePutNotify,
        Kind::Chunk,
        Kind::Put,
    ];
    let kind = KINDS[rng.below(13) as usize];
    let mut head = Head::new(kind);
    let any = |rng: &mut Rng, likely: u64| match rng.below(4) {
        0 => rng.next(),
        1 => likely.wrapping_add(rng.below(3)).wrapping_sub(1),
        _ => likely,
    };
    let len = match rng.below(6) {
        0 => rng.below(kind.max_len() as u64 + 2).min(70_000),
        1 => 0,
        _ => rng.below(200),
    };
    head.len.set(len as u32);
    head.seq.set(any(rng, u64::from(seq)) as u32);
    head.ack.set(rng.below(3) as u32);
    head.tag.set(rng.below(3) as u32);
    let key = keys[rng.below(keys.len() as u64) as usize];
    head.id.set(any(rng, u64::from(key)) as u32);
    head.offset.set(any(rng, 0));
    head.total.set(any(rng, len));
    let mut bytes = head.as_wire().to_vec();
    if rng.below(40) == 0 {
        bytes[rng.below(40) as usize] ^= 1 << rng.below(8);
    }
    bytes.extend((0..len).map(|_| 0xEE));
    bytes.resize(bytes.len() + linkspan_proto::head::padding(len as usize), 0xEE);
    bytes
}

#[test]
fn a_peer_with_the_handle_cannot_write_outside_what_it_was_granted() {
    let fabric = fabric();
    let rounds = 300;
    let (mut broke, mut survived) = (0, 0);
    for seed in 1..=rounds {
        let mut rng = Rng(seed * 0x9E37_79B9);
        let listener = fabric.listen(0).unwrap();
        let (mut stream, mut channel) = log_in(&listener);
        // Three posted receives and two regions inside one buffer whose gaps must stay as they are.
        let memory = StaticBuf::new(64 << 10);
        let all = memory.slice();
        let granted = [(4096u64, 100u64), (8192, 20_000), (40_000, 64)];
        let regions = [(50_000u64, 1000u64), (55_000, 500)];
        for (tag, (offset, len)) in granted.iter().enumerate() {
            channel.post_recv(&[(tag as u32, all.sub(*offset, *len).unwrap())]).unwrap().unwrap();
        }
        let mut keys = vec![0, 1 << 10, 1 << 10 | 1];
        keys.push(channel.expose(all.sub(50_000, 1000).unwrap(), linkspan_fabric::Access::ReadWrite).unwrap());
        keys.push(channel.expose(all.sub(55_000, 500).unwrap(), linkspan_fabric::Access::Read).unwrap());
        // Some go before they have broken anything.
        for seq in 0..rng.below(40) as u32 {
            if stream.write_all(&frame(&mut rng, seq, &keys)).is_err() {
                break;
            }
            if channel.progress().is_err() {
                break;
            }
        }
        drop(stream);
        let until = Instant::now() + Duration::from_secs(5);
        while channel.progress().is_ok() {
            assert!(Instant::now() < until, "seed {seed}: neither an error nor an end");
        }
        if channel.lost().is_some_and(|why| why.contains("protocol") || why.contains("LS0103")) {
            broke += 1;
        } else {
            survived += 1;
        }
        let bytes = all.to_vec();
        for (at, byte) in bytes.iter().enumerate() {
            let at = at as u64;
            let inside = |(offset, len): &(u64, u64)| at >= *offset && at < offset + len;
            let writable = granted.iter().any(inside) || inside(&regions[0]);
            assert!(writable || *byte == 0, "seed {seed}: byte {at} outside every grant was written");
        }
    }
    // Both outcomes must occur, or the frames are too wild or too tame to test anything.
    assert!(broke > 20 && survived > 0, "{broke} broken off, {survived} ended otherwise");
}

#[test]
fn strangers_cost_nothing_and_stop_nobody() {
    let fabric = fabric();
    let listener = fabric.listen(0).unwrap();
    let addr = address(&Handle::decode(&listener.handle()).unwrap());
    let mut rng = Rng(77);
    // Silent ones, more than the table of half-open connections holds, and ones that talk.
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(addr).unwrap()).collect();
    for n in 0..100u64 {
        let mut stream = TcpStream::connect(addr).unwrap();
        let bytes: Vec<u8> = (0..n * 7).map(|_| rng.next() as u8).collect();
        let _ = stream.write_all(&bytes);
        let _ = listener.accept().unwrap();
    }
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(10);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "unauthenticated clients keep a peer out");
        if here.is_none() {
            here = connecting.poll().unwrap();
        }
        if there.is_none() {
            there = listener.accept().unwrap();
        }
    }
    drop(silent);
}

/// Peers that hold the handle may log in and go no further, or say plans that name streams which never come, or come
/// back to connections that never were: as many as they like, and an honest peer still gets through.
#[test]
fn connections_that_never_come_up_keep_nobody_out() {
    let fabric = fabric();
    let listener = fabric.listen(0).unwrap();
    let mut held = Vec::new();
    for conn in 0..400 {
        let mut stream = log_stream_in(&listener, Guard::Token, conn, if conn % 3 == 2 { 64 } else { 0 });
        if conn % 3 == 0 {
            let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![0, 1], keepalive: None };
            stream.write_all(&plan.encode()).unwrap();
        }
        held.push(stream);
    }
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(10);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "connections that never come up keep an honest peer out");
        if here.is_none() {
            here = connecting.poll().unwrap();
        }
        if there.is_none() {
            there = listener.accept().unwrap();
        }
    }
}

#[test]
fn one_hostile_peer_leaves_the_others_alone() {
    let fabric = fabric();
    let listener = fabric.listen(0).unwrap();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut a, mut b) = {
        let (mut here, mut there) = (None, None);
        while here.is_none() || there.is_none() {
            here = here.or_else(|| connecting.poll().unwrap());
            there = there.or_else(|| listener.accept().unwrap());
        }
        (here.unwrap(), there.unwrap())
    };
    let second = fabric.listen(0).unwrap();
    let (mut stream, mut victim) = log_in(&second);
    stream.write_all(&[0xff; 4096]).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while victim.progress().is_ok() {
        assert!(Instant::now() < until);
    }
    let (src, dst) = (StaticBuf::new(100), StaticBuf::new(100));
    let receive = b.post_recv(&[(0, dst.slice())]).unwrap().unwrap();
    a.post_send(0, src.slice()).unwrap().unwrap();
    while b.test(receive).unwrap().is_none() {
        assert!(Instant::now() < until + Duration::from_secs(5));
        a.progress().unwrap();
        b.progress().unwrap();
    }
}

#[test]
fn a_stream_that_is_reset_before_its_connection_is_up_ends_the_connection_only_where_its_plan_names_it() {
    let fabric = fabric();
    for (conn, streams) in [(1, vec![0]), (2, vec![0, 1])] {
        let listener = fabric.listen(0).unwrap();
        let [mut one, other] = [0, 1].map(|number| log_stream_in(&listener, Guard::Token, conn, number));
        reset(other);
        assert!(listener.accept().unwrap().is_none());
        let comes_up = streams.len() == 1;
        let plan = Plan { carrier: Carrier::Tcp, acked: true, streams, keepalive: None };
        one.write_all(&plan.encode()).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let up = loop {
            assert!(Instant::now() < until, "neither up nor dropped");
            match listener.accept().unwrap() {
                Some(_) => break true,
                None if is_over(&mut one) => break false,
                None => {}
            }
        };
        assert_eq!(up, comes_up);
    }
}

/// Serves the listener until it has ended this stream.
fn ends(listener: &Listener, stream: &mut TcpStream, what: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_over(stream) {
        assert!(Instant::now() < until, "{what} is not ended");
        assert!(listener.accept().unwrap().is_none());
    }
}

#[test]
fn a_stream_that_comes_back_is_kept_for_a_connection_that_is_up_alone_and_as_long_as_it_lives() {
    let fabric = fabric();
    let listener = fabric.listen(0).unwrap();
    let _in_the_making = log_stream_in(&listener, Guard::Token, 5, 0);
    let mut early = log_stream_in(&listener, Guard::Token, 5, 64);
    ends(&listener, &mut early, "a rail of a connection that is not up");
    // Nobody drives the connection, which therefore takes none of them.
    let (_stream, channel) = log_in(&listener);
    let mut back: Vec<TcpStream> =
        (64..65 + MAX_RAILS as u16).map(|number| log_stream_in(&listener, Guard::Token, 7, number)).collect();
    ends(&listener, &mut back[0], "the oldest of too many");
    assert!(back[1..].iter_mut().all(|stream| !is_over(stream)));
    drop(channel);
    ends(&listener, &mut back[1], "a rail of a connection that is over");
}
