//! Peers that mean harm: what they send is refused, and the victim goes on.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::url::handle_of;
use crate::common::{BRIEF, LONG, PATHS, check, context, filled, pair};
use linkspan::hello::{HELLO_LEN, Hello};
use linkspan::{Access, Error, Memory, Notify, Transport, Url};
use linkspan_fabric::{Buf, Channel, Config, Fabric, Log, RemoteSlice, Ticket};
use linkspan_transport::StaticBuf;

const LEN: usize = 1 << 20;

/// A peer whose messages a test writes by hand.
struct Raw {
    channel: Channel,
}

impl Raw {
    fn fabric() -> Fabric {
        let get = |name: &str| match name {
            "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
            "LINKSPAN_PATH" => Some("tcp".to_owned()),
            "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
            _ => None,
        };
        Fabric::new(Config::read(&get).unwrap(), Log::off(), true, Vec::new()).unwrap()
    }

    /// Connects with the victim's URL and says `hello`.
    fn connect(url: &Url, hello: &Hello) -> Raw {
        let mut connecting = Raw::fabric().connect(0, &handle_of(url)).unwrap();
        Raw::begin(|| connecting.poll().unwrap(), hello)
    }

    /// Says `hello` as soon as there is a path.
    fn begin(mut path: impl FnMut() -> Option<Channel>, hello: &Hello) -> Raw {
        let end = Instant::now() + LONG;
        let mut channel = loop {
            assert!(Instant::now() < end, "no path");
            if let Some(channel) = path() {
                break channel;
            }
        };
        let buf = StaticBuf::new(HELLO_LEN);
        assert!(buf.slice().fill(0, &hello.encode()));
        channel.post_send(u32::MAX, buf.slice()).unwrap().unwrap();
        let mut raw = Raw { channel };
        raw.drive(50);
        raw
    }

    fn drive(&mut self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < end && self.channel.progress().is_ok() {}
    }

    fn outcome(&mut self, ticket: Option<Ticket>) -> Result<u64, String> {
        let end = Instant::now() + LONG;
        let ticket = ticket.unwrap();
        loop {
            assert!(Instant::now() < end, "no report");
            let moved = self.channel.progress();
            match self.channel.test(ticket) {
                Ok(Some(n)) => return Ok(n),
                Ok(None) => moved.map(|_| ()).map_err(|e| e.to_string())?,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn write(&mut self, len: usize, key: u32, offset: u64) -> Result<u64, String> {
        let src = StaticBuf::new(len);
        assert!(src.slice().fill(0, &vec![0xBB; len]));
        let ticket = self.channel.post_write(src.slice(), RemoteSlice { key, offset }, Some(666));
        let ticket = ticket.map_err(|e| e.to_string())?;
        self.outcome(ticket)
    }

    /// So many writes that notify.
    fn notify(&mut self, count: usize, key: u32) {
        let src = StaticBuf::new(1);
        let mut under_way = std::collections::VecDeque::new();
        for _ in 0..count {
            let end = Instant::now() + LONG;
            let ticket = loop {
                assert!(Instant::now() < end, "nothing moves");
                match self.channel.post_write(src.slice(), RemoteSlice { key, offset: 0 }, Some(666)).unwrap() {
                    Some(ticket) => break ticket,
                    None => drop(self.channel.progress().unwrap()),
                }
            };
            under_way.push_back(ticket);
            if under_way.len() >= 64 {
                self.outcome(under_way.pop_front()).unwrap();
            }
        }
        for ticket in under_way {
            self.outcome(Some(ticket)).unwrap();
        }
    }

    fn read(&mut self, len: usize, key: u32, offset: u64) -> Result<u64, String> {
        let dst = StaticBuf::new(len);
        let ticket = self.channel.post_read(dst.slice(), RemoteSlice { key, offset }).map_err(|e| e.to_string())?;
        let result = self.outcome(ticket);
        assert!(result.is_ok() || dst.slice().to_vec().iter().all(|&b| b == 0), "a refused read has brought bytes");
        result
    }
}

fn id_of(url: &Url) -> u64 {
    let victim_sees = format!("{url}");
    assert!(victim_sees.starts_with("linkspan://1/"));
    url.number()
}

/// A victim with a guarded region in the middle of its memory, and a raw peer that has connected.
fn victim() -> (Transport, Memory, Raw) {
    let victim = context(&[PATHS[0].1, &[BRIEF]].concat()).transport().unwrap();
    let url = victim.bind().unwrap();
    let memory = Memory::host(3 * LEN);
    memory.fill(0, &vec![0xEE; 3 * LEN]).unwrap();
    let hello = Hello { from: 77, to: id_of(&url), epoch: 1, ..Hello::default() };
    let raw = Raw::connect(&url, &hello);
    victim.wait_connected_blocking(LONG).unwrap();
    (victim, memory, raw)
}

fn untouched(memory: &Memory) {
    assert!(memory.to_vec().iter().all(|&b| b == 0xEE), "a hostile peer has written");
}

#[test]
fn outside_its_region_against_its_rights_and_with_old_keys_a_peer_gets_nothing() {
    let (victim, memory, mut raw) = victim();
    let middle = memory.slice(LEN, LEN).unwrap();
    let read_only = victim.expose(&middle, Access::Read).unwrap().remote().key();
    let gone = victim.expose(&middle, Access::ReadWrite).unwrap();
    victim.unexpose(&gone, LONG).unwrap();
    let write_only = victim.expose(&memory.slice(LEN, 64).unwrap(), Access::Write).unwrap().remote().key();
    let end = LEN as u64;
    for len in [1usize, 8192, 8193, 300_000] {
        for (key, offset) in [
            (read_only, 0),
            (gone.remote().key(), 0),
            (write_only, 64),
            (write_only, 65 - len.min(65) as u64 + 64),
            (write_only, u64::MAX - len as u64),
            (read_only ^ 1 << 12, 0),
            (0, 0),
            (u32::MAX, 0),
        ] {
            let refused = raw.write(len, key, offset).unwrap_err();
            assert!(refused.contains("LS0013"), "{refused}");
        }
        for (key, offset) in
            [(read_only, end), (read_only, end + 1 - len as u64), (write_only, 0), (gone.remote().key(), 0)]
        {
            let refused = raw.read(len, key, offset).unwrap_err();
            assert!(refused.contains("LS0013"), "{refused}");
        }
    }
    untouched(&memory);
    let none = victim.wait_for_write_blocking(Some(Duration::from_millis(20)));
    assert!(matches!(none, Err(Error::Timeout)), "a refused write has notified: {none:?}");
    // What is allowed still works.
    assert_eq!(raw.read(1000, read_only, 0), Ok(1000));
    assert_eq!(raw.write(64, write_only, 0), Ok(64));
    assert_eq!(victim.wait_for_write_blocking(Some(LONG)).unwrap(), 666);
}

#[test]
fn keys_of_one_transport_say_nothing_to_another() {
    let (a, b) = pair(PATHS[0].1);
    let (c, d) = pair(PATHS[0].1);
    let memory = Memory::host(100);
    let remote = b.expose(&memory.view(), Access::ReadWrite).unwrap().remote();
    let src = filled(100, 1);
    assert!(matches!(c.write_blocking(&src.view(), &remote, None, None), Err(Error::WrongPeer)));
    a.write_blocking(&src.view(), &remote, None, Some(LONG)).unwrap();
    check(&memory, 0, 100, 1);
    drop(d);
}

#[test]
fn a_forged_secret_gets_nothing() {
    let (victim, memory, _raw) = victim();
    let region = victim.expose(&memory.view(), Access::ReadWrite).unwrap();
    let url = victim.bind().unwrap();
    let mut forged = handle_of(&url);
    forged[30] ^= 1; // inside the token
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_PATH" => Some("tcp".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        "LINKSPAN_CONNECT_TIMEOUT_MS" => Some("2000".to_owned()),
        _ => None,
    };
    let fabric = Fabric::new(Config::read(&get).unwrap(), Log::off(), true, Vec::new()).unwrap();
    let mut connecting = fabric.connect(0, &forged).unwrap();
    let refused = loop {
        match connecting.poll() {
            Ok(None) => std::thread::yield_now(),
            Ok(Some(_)) => panic!("a forged secret was let in"),
            Err(error) => break error,
        }
    };
    drop(refused);
    untouched(&memory);
    victim.unexpose(&region, LONG).unwrap();
}

#[test]
fn noise_and_silence_at_the_listener_do_no_harm() {
    let (victim, memory, mut raw) = victim();
    let port = {
        let shown = victim.bind().unwrap().redacted();
        shown.rsplit(':').next().unwrap().parse::<u16>().unwrap()
    };
    let mut silent = Vec::new();
    for n in 0..20u8 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        if n % 2 == 0 {
            let _ = stream.write_all(&[n; 500]);
        }
        silent.push(stream);
    }
    let key = victim.expose(&memory.view(), Access::Write).unwrap().remote().key();
    assert_eq!(raw.write(8, key, 0), Ok(8));
    assert_eq!(victim.wait_for_write_blocking(Some(LONG)).unwrap(), 666);
}

#[test]
fn only_the_peer_itself_makes_a_path_again() {
    let (victim, memory, mut raw) = victim();
    let url = victim.bind().unwrap();
    let key = victim.expose(&memory.view(), Access::Write).unwrap().remote().key();
    // Others who know the URL, or paths that are no newer, do not push the peer out.
    for (from, to, epoch) in [(78, id_of(&url), 2), (77, id_of(&url), 1), (77, 12345, 2)] {
        let mut other = Raw::connect(&url, &Hello { from, to, epoch, ..Hello::default() });
        assert!(other.write(8, key, 0).is_err(), "{from} {to} {epoch}");
    }
    assert_eq!(raw.write(8, key, 0), Ok(8));
    assert_eq!((victim.wait_for_write_blocking(Some(LONG)).unwrap(), victim.epoch()), (666, 1));
    // The peer itself does.
    let mut again = Raw::connect(&url, &Hello { from: 77, to: id_of(&url), epoch: 2, ..Hello::default() });
    assert_eq!(again.write(8, key, 0), Ok(8));
    assert!(raw.write(8, key, 0).is_err(), "the old path is read no longer");
    assert_eq!(victim.epoch(), 2);
}

/// Once lost, a path with the number 0 would count as none, and what is under way as never begun.
#[test]
fn a_peer_that_answers_with_the_number_of_an_older_path_is_not_taken() {
    let listener = Raw::fabric().listen(0).unwrap();
    let victim = context(PATHS[0].1).transport().unwrap();
    let to = id_of(&victim.bind().unwrap());
    let connect = victim.connect(&Url::of_listener(&listener.handle()).unwrap(), LONG);
    let _raw = Raw::begin(|| listener.accept().unwrap(), &Hello { from: 77, to, epoch: 0, ..Hello::default() });
    let error = connect.wait().unwrap_err();
    assert!(error.to_string().contains("path 1 was answered with number 0"), "{error}");
    assert_eq!((victim.connected(), victim.epoch()), (false, 0));
}

#[test]
fn a_peer_that_makes_path_after_path_has_a_bounded_number_of_notifications_kept() {
    // Less than a path keeps, and in two of them more.
    const MANY: usize = 33_000;
    let (victim, memory, raw) = victim();
    let url = victim.bind().unwrap();
    let key = victim.expose(&memory.view(), Access::Write).unwrap().remote().key();
    // The old ones stay: an end in good order would say that the transport is closed.
    let mut paths = vec![raw];
    for epoch in 2..=3 {
        paths.last_mut().unwrap().notify(MANY, key);
        assert_eq!((victim.connected(), victim.epoch()), (true, epoch - 1));
        paths.push(Raw::connect(&url, &Hello { from: 77, to: id_of(&url), epoch, ..Hello::default() }));
    }
    let end = Instant::now() + LONG;
    while victim.connected() {
        assert!(Instant::now() < end && victim.epoch() < 3, "a third path is taken");
    }
    let error = victim.send_blocking(1, &memory.view(), Some(LONG)).unwrap_err();
    assert!(error.to_string().contains("more notifications than were waited for"), "{error}");
    // Those that were kept are there still.
    assert_eq!(victim.wait_for_write_blocking(Some(LONG)).unwrap(), 666);
}

#[test]
fn a_peer_that_makes_path_after_path_has_a_bounded_number_of_messages_kept() {
    // All that may be sent ahead on a path.
    const MANY: u32 = 8;
    let (victim, memory, raw) = victim();
    let (url, src) = (victim.bind().unwrap(), StaticBuf::new(8128));
    let mut paths = vec![raw];
    for epoch in 2..=18 {
        let raw = paths.last_mut().unwrap();
        for _ in 0..MANY {
            let sent = raw.channel.post_send(5, src.slice()).unwrap();
            assert_eq!(raw.outcome(sent), Ok(8128));
        }
        assert_eq!((victim.connected(), victim.epoch()), (true, epoch - 1));
        let (mut past, mut acked) = (Hello::default().past, Hello::default().acked);
        (past[0].0, acked[0]) = (epoch - 1, 1 + MANY);
        let hello = Hello { from: 77, to: id_of(&url), epoch, past, acked, ..Hello::default() };
        paths.push(Raw::connect(&url, &hello));
    }
    let end = Instant::now() + LONG;
    while victim.connected() {
        assert!(Instant::now() < end && victim.epoch() < 18, "an eighteenth path is taken");
    }
    let error = victim.send_blocking(1, &memory.view(), Some(LONG)).unwrap_err();
    assert!(error.to_string().contains("more than 1 MiB of messages had not been received"), "{error}");
    // Those that were kept are there still.
    for _ in 0..17 * MANY {
        assert_eq!(victim.recv_blocking(5, &memory.view_mut().unwrap(), Some(LONG)).unwrap(), 8128);
    }
}

/// The peer had path 2, whose hello did not arrive.
#[test]
fn a_message_is_received_though_the_next_path_has_ended_before_one_side_had_it() {
    let (victim, memory, mut raw) = victim();
    let (url, src) = (victim.bind().unwrap(), StaticBuf::new(100));
    let sent = raw.channel.post_send(5, src.slice()).unwrap();
    assert_eq!(raw.outcome(sent), Ok(100));
    let (mut past, mut acked) = (Hello::default().past, Hello::default().acked);
    [past[0].0, past[1].0] = [2, 1];
    // Its hello, and the message.
    acked[1] = 2;
    let hello = Hello { from: 77, to: id_of(&url), epoch: 3, past, acked, ..Hello::default() };
    let _again = Raw::connect(&url, &hello);
    assert_eq!(victim.recv_blocking(5, &memory.view_mut().unwrap(), Some(LONG)).unwrap(), 100);
    assert_eq!(victim.epoch(), 3);
}

#[test]
fn a_peer_that_takes_nothing_is_timed_out_and_unrevoked() {
    let (victim, memory, raw) = victim();
    let theirs = remote_of(77);
    let began = Instant::now();
    let write = victim.write_blocking(&memory.view(), &theirs, Some(Notify::COUNT), Some(Duration::from_millis(100)));
    assert!(matches!(write, Err(Error::TimedOutUnrevoked)), "{write:?}");
    // Its own time, and that for confirming.
    assert!(began.elapsed() >= Duration::from_millis(100 + 1500), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(16), "{:?}", began.elapsed());
    drop(raw);
}

/// A remote buffer as transport `domain` would have given it out.
fn remote_of(domain: u64) -> linkspan::RemoteBuffer {
    let mut bytes = [0u8; 40];
    bytes[..6].copy_from_slice(b"LSRB\x01\x03");
    bytes[8..16].copy_from_slice(&domain.to_le_bytes());
    bytes[16..20].copy_from_slice(&(1u32 << 12).to_le_bytes());
    bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    let hashed = bytes.iter().enumerate().filter(|(at, _)| !(6..8).contains(at));
    let hash = hashed.fold(0x811C_9DC5u32, |h, (_, &b)| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    bytes[6..8].copy_from_slice(&((hash ^ hash >> 16) as u16).to_le_bytes());
    linkspan::RemoteBuffer::decode(&bytes).unwrap()
}
