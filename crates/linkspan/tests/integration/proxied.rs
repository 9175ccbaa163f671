//! Somebody between two hosts, who ends, resets or holds their streams: a proxy that closes what is idle, or an attacker.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::common::url::moved;
use crate::common::{BRIEF, LONG, check, context, context_with, filled, until};
use linkspan::{Access, Error, Log, Memory, Transport};
use linkspan_fabric::stats::{Event, read};

/// Number of the stream that is the keepalive connection; the hello of its login says it.
const KEEPALIVE: u16 = 32;
const HELLO: usize = 96;

/// The two ends of each stream, by the side that they lead to.
const DIALS: usize = 0;
const LISTENS: usize = 1;

struct Stream {
    number: u16,
    ends: [TcpStream; 2],
}

/// What becomes of streams that are dialled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum New {
    Pass,
    Reset,
    /// Taken, and never answered.
    Swallow,
}

struct State {
    streams: Vec<Arc<Stream>>,
    new: New,
    /// Dials that did not get through.
    refused: usize,
    /// Streams as old as this hold what goes to this side, and its end.
    held: Option<(usize, usize)>,
    /// Of them the rails do so no more.
    released: bool,
    /// Bytes that have been held.
    holding: usize,
    swallowed: Vec<TcpStream>,
}

#[derive(Clone)]
struct Cable(Arc<(Mutex<State>, Condvar)>);

impl Cable {
    /// A cable before a transport, and the URL that leads over it.
    fn before(transport: &Transport) -> (Cable, linkspan::Url) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (to, url) = moved(&transport.bind().unwrap(), listener.local_addr().unwrap().port());
        let (streams, swallowed) = (Vec::new(), Vec::new());
        let state = State { streams, new: New::Pass, refused: 0, held: None, released: false, holding: 0, swallowed };
        let cable = Cable(Arc::new((Mutex::new(state), Condvar::new())));
        let own = cable.clone();
        // Ends with the tests' process.
        std::thread::spawn(move || listener.incoming().for_each(|client| own.enter(client.unwrap(), to)));
        (cable, url)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn enter(&self, mut client: TcpStream, to: SocketAddr) {
        let mut state = self.lock();
        if state.new != New::Pass {
            state.refused += 1;
            match state.new {
                New::Swallow => state.swallowed.push(client),
                _ => rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap(),
            }
            return;
        }
        drop(state);
        let mut hello = [0; HELLO];
        let Ok(()) = client.read_exact(&mut hello) else { return };
        let mut server = TcpStream::connect(to).unwrap();
        server.write_all(&hello).unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        }
        let stream = Arc::new(Stream { number: u16::from_le_bytes([hello[10], hello[11]]), ends: [client, server] });
        let mut state = self.lock();
        let age = state.streams.len();
        state.streams.push(stream.clone());
        for to in [DIALS, LISTENS] {
            let (cable, stream) = (self.clone(), stream.clone());
            std::thread::spawn(move || cable.pass(&stream, to, age));
        }
    }

    fn pass(&self, stream: &Stream, to: usize, age: usize) {
        let held = |state: &mut State| {
            let released = state.released && stream.number != KEEPALIVE;
            !released && state.held.is_some_and(|(side, most)| side == to && age < most)
        };
        let (mut part, mut bytes, mut open) = ([0; 1 << 16], Vec::new(), true);
        while open {
            // Reading goes on while something is held: the reader has a timeout.
            let n = match (&stream.ends[1 - to]).read(&mut part) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                end => {
                    open = end.as_ref().is_ok_and(|n| *n > 0);
                    end.unwrap_or(0)
                }
            };
            bytes.extend_from_slice(&part[..n]);
            let mut state = self.lock();
            if held(&mut state) {
                state.holding += n;
                if open {
                    continue;
                }
                state = self.0.1.wait_while(state, held).unwrap();
            }
            if state.new == New::Reset {
                return;
            }
            drop(state);
            open = (&stream.ends[to]).write_all(&bytes).is_ok() && open;
            bytes.clear();
        }
        let _ = stream.ends[to].shutdown(Shutdown::Write);
    }

    /// Holds what goes to one side on the streams that there are.
    fn hold(&self, to: usize) {
        let mut state = self.lock();
        state.held = Some((to, state.streams.len()));
    }

    /// Bytes that have been held.
    fn holds(&self) -> usize {
        self.lock().holding
    }

    /// Lets the rails have what was held. What the keepalive connection says might overtake it.
    fn release(&self) {
        self.lock().released = true;
        self.0.1.notify_all();
    }

    fn new_streams(&self, new: New) {
        self.lock().new = new;
    }

    fn refused(&self) -> usize {
        self.lock().refused
    }

    /// Ends streams in good order towards one side.
    fn end(&self, to: usize, which: impl Fn(u16) -> bool) {
        for stream in self.lock().streams.iter().filter(|stream| which(stream.number)) {
            let _ = stream.ends[to].shutdown(Shutdown::Write);
        }
    }

    /// Puts bytes of our own on streams towards one side.
    fn say(&self, to: usize, bytes: &[u8], which: impl Fn(u16) -> bool) {
        for stream in self.lock().streams.iter().filter(|stream| which(stream.number)) {
            let _ = (&stream.ends[to]).write_all(bytes);
        }
    }

    /// Resets streams, and each that is dialled until [`Cable::new_streams`].
    fn reset(&self, which: impl Fn(u16) -> bool) {
        let mut state = self.lock();
        state.new = New::Reset;
        for stream in state.streams.extract_if(.., |stream| which(stream.number)) {
            for end in &stream.ends {
                rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO)).unwrap();
                // Wakes the threads, of which the last closes the sockets.
                let _ = end.shutdown(Shutdown::Read);
            }
        }
    }
}

/// Settings with a cluster key, of this mode, or none.
fn keyed(mode: Option<&str>) -> Vec<(&'static str, String)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(mode) = mode else { return Vec::new() };
    let name = format!("proxied-psk-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, b"00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    vec![("LINKSPAN_PSK_FILE", path.to_str().unwrap().to_owned()), ("LINKSPAN_PSK_MODE", mode.to_owned())]
}

fn as_str<'a>(settings: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[test]
fn a_lost_path_is_dialled_again_although_the_first_dials_are_reset() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("retries-{}", std::process::id()));
    let counted = context(&[("LINKSPAN_STATS_DIR", dir.to_str().unwrap())]);
    let retries = || read(&dir).unwrap()[0].events[Event::PathRetries as usize];
    let (a, b) = (counted.transport().unwrap(), context(&[]).transport().unwrap());
    let (cable, url) = Cable::before(&b);
    let memory = Memory::host(100_000);
    let to = b.expose(&memory.view(), Access::Write).unwrap().remote();
    a.connect_blocking(&url, LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    assert_eq!(retries(), 0);
    // The keepalive connection later, when both sides have given their rails up.
    cable.reset(|number| number != KEEPALIVE);
    until("the path is lost", || !a.connected() && !b.connected());
    cable.reset(|_| true);
    // For longer than a revocation is waited for.
    let since = Instant::now();
    until("dials are reset", || cable.refused() > 5 && since.elapsed() > Duration::from_secs(3));
    cable.new_streams(New::Pass);
    a.write_blocking(&filled(100_000, 1).view(), &to, None, Some(LONG)).unwrap();
    check(&memory, 0, 100_000, 1);
    assert_eq!(a.epoch(), 2);
    assert!(retries() > 0, "tries that failed are counted");
    let _ = std::fs::remove_dir_all(&dir);
}

/// What ends towards a writer as if its peer were dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forged {
    Keepalive,
    All,
    /// The keepalive connection, when the writer has revoked its path and asks whether the peer lives.
    KeepaliveLater,
    /// Nothing: the byte of a peer that closes its path on purpose is put on the keepalive connection.
    Leaving,
}

/// A writer's bytes are held on their way and streams end towards it. What is held lands when it is let go, so the timeout must not
/// be told as confirmed.
fn forged_end(mode: Option<&str>, writer: usize, forged: Forged) {
    let settings = keyed(mode);
    let settings = [as_str(&settings), vec![BRIEF]].concat();
    let sides = [context(&settings).transport().unwrap(), context(&settings).transport().unwrap()];
    let (cable, url) = Cable::before(&sides[LISTENS]);
    sides[DIALS].connect_blocking(&url, LONG).unwrap();
    sides[LISTENS].wait_connected_blocking(LONG).unwrap();
    let (memory, source) = (Memory::host(4096), filled(4096, 2));
    let to = sides[1 - writer].expose(&memory.view(), Access::Write).unwrap().remote();
    cable.hold(1 - writer);
    cable.new_streams(New::Swallow);
    let write = sides[writer].write(&source.view(), &to, None, Some(Duration::from_millis(500)));
    until("the write is on its way", || cable.holds() > source.len());
    if forged == Forged::KeepaliveLater {
        until("the path is revoked", || !sides[writer].connected());
    }
    match forged {
        Forged::Leaving => cable.say(writer, b"L", |number| number == KEEPALIVE),
        _ => cable.end(writer, |number| forged == Forged::All || number == KEEPALIVE),
    }
    // Who cannot dial has nobody to ask.
    let broken = forged == Forged::All && writer == LISTENS;
    match write.wait() {
        Err(Error::TimedOutUnrevoked) if !broken => {}
        Err(Error::Broken(_)) if broken => {}
        other => panic!("{mode:?}, side {writer} writes, {forged:?}: {other:?}"),
    }
    assert_eq!(memory.to_vec(), [0; 4096]);
    cable.release();
    until("what was held lands", || memory.to_vec() == source.to_vec());
}

#[test]
fn streams_that_are_ended_on_the_way_confirm_no_timeout() {
    std::thread::scope(|s| {
        for (mode, writer) in [None, Some("encrypt")].into_iter().flat_map(|mode| [(mode, DIALS), (mode, LISTENS)]) {
            for forged in [Forged::Keepalive, Forged::All, Forged::KeepaliveLater, Forged::Leaving] {
                s.spawn(move || forged_end(mode, writer, forged));
            }
        }
    });
}

#[test]
fn a_connection_outlives_a_proxy_that_closes_its_idle_keepalive() {
    for mode in [None, Some("encrypt")] {
        let settings = keyed(mode);
        let settings = as_str(&settings);
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let side = || {
            let lines = lines.clone();
            let log = Log::to(move |_, line| lines.lock().unwrap().push(line.to_owned()));
            context_with(&settings, log).transport().unwrap()
        };
        let (a, b) = (side(), side());
        let (cable, url) = Cable::before(&b);
        let (here, there) = (Memory::host(20_000), Memory::host(20_000));
        let to_a = a.expose(&here.view(), Access::Write).unwrap().remote();
        let to_b = b.expose(&there.view(), Access::Write).unwrap().remote();
        a.connect_blocking(&url, LONG).unwrap();
        b.wait_connected_blocking(LONG).unwrap();
        for side in [DIALS, LISTENS] {
            cable.end(side, |number| number == KEEPALIVE);
        }
        let seen = |what: &str| lines.lock().unwrap().iter().filter(|line| line.contains(what)).count();
        until("both sides see the end", || seen("the keepalive connection was closed, the rails stay in use") == 2);
        a.write_blocking(&filled(20_000, 3).view(), &to_b, None, Some(LONG)).unwrap();
        b.write_blocking(&filled(20_000, 4).view(), &to_a, None, Some(LONG)).unwrap();
        check(&there, 0, 20_000, 3);
        check(&here, 0, 20_000, 4);
        assert_eq!((a.epoch(), b.epoch()), (1, 1));
        // The peer itself confirms a timeout, over a new path.
        cable.hold(LISTENS);
        let late = a.write_blocking(&filled(20_000, 5).view(), &to_b, None, Some(Duration::from_millis(100)));
        assert!(matches!(late, Err(Error::Timeout)), "{late:?}");
        cable.release();
        b.write_blocking(&filled(20_000, 6).view(), &to_a, None, Some(LONG)).unwrap();
        check(&here, 0, 20_000, 6);
        check(&there, 0, 20_000, 3);
        assert_eq!((a.epoch(), b.epoch()), (2, 2));
    }
}

/// The peer has two messages when the path is cut, and the sender has heard of one.
#[test]
fn a_message_that_timed_out_never_comes_and_one_that_was_sent_does() {
    let (a, b) = (context(&[]).transport().unwrap(), context(&[]).transport().unwrap());
    let (cable, url) = Cable::before(&b);
    a.connect_blocking(&url, LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    let sends = |seed| a.send_blocking(5, &filled(100, seed).view(), Some(LONG)).unwrap();
    let into = Memory::host(100);
    let receives = |seed| {
        b.recv_blocking(5, &into.view_mut().unwrap(), Some(LONG)).unwrap();
        check(&into, 0, 100, seed);
    };
    sends(1);
    cable.hold(DIALS);
    let (before, late) = (cable.holds(), filled(100, 2));
    let late = a.send(5, &late.view(), Some(Duration::from_secs(2)));
    until("the second one has come", || cable.holds() > before);
    let late = late.wait();
    assert!(matches!(late, Err(Error::Timeout)), "{late:?}");
    sends(3);
    receives(1);
    receives(3);
    // A receive that is posted while the path is made again.
    sends(4);
    cable.reset(|number| number != KEEPALIVE);
    until("the path is lost", || !a.connected() && !b.connected());
    let receive = b.recv(5, &into.view_mut().unwrap(), Some(LONG));
    cable.new_streams(New::Pass);
    assert_eq!(receive.wait().unwrap(), 100);
    check(&into, 0, 100, 4);
    assert_eq!(b.epoch(), 3, "it is given out when the peer has said what it knows");
}
