//! The attacks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Login, Seed, Token};
use rustix::thread::{CpuSet, sched_setaffinity};
use socket2::{Domain, Socket, Type};

use crate::{Target, listening};

/// Connections that are kept at a time by those attacks that keep some.
const KEPT: usize = 600;

/// Time between two looks at what listens.
const SCAN: Duration = Duration::from_millis(100);

/// Time between two bytes of one that says something slowly.
const DRIP: Duration = Duration::from_millis(200);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but to take the processor.
    Spin,
    /// Connects and resets, as often as it can.
    Flood,
    /// Connects and says nothing.
    Silent,
    /// Says something that is no login.
    Garbage,
    /// Says the first message of a login without the token, or with the one of a handle that it was given, and then nothing.
    Half,
    /// Says one and the same first message again and again.
    Replay,
    /// Says one a byte at a time, and reads nothing.
    Slow,
    /// All of them in turn.
    Mix,
}

impl Kind {
    /// All, by name.
    pub const ALL: [(&str, Kind); 8] = [
        ("spin", Kind::Spin),
        ("flood", Kind::Flood),
        ("silent", Kind::Silent),
        ("garbage", Kind::Garbage),
        ("half", Kind::Half),
        ("replay", Kind::Replay),
        ("slow", Kind::Slow),
        ("mix", Kind::Mix),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// A generator that needs no crate: xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
}

/// Some bytes that look like a login's first message, made with the token that is known, or with another.
fn hello(handle: Option<&Handle>, conn: u64) -> Result<Vec<u8>, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let (listen, token) = match handle {
        Some(handle) => (handle.listen_id, handle.token.clone()),
        None => (7, Token::random().map_err(|e| told(&e))?),
    };
    let seed = Seed::random().map_err(|e| told(&e))?;
    let login = Login::client(ClientParams::new(listen, token, conn, 0), seed, Duration::ZERO);
    login.map(|login| login.output().to_vec()).map_err(|e| told(&e))
}

/// One that is kept, with what it still says.
struct Kept {
    stream: TcpStream,
    rest: Vec<u8>,
    next: Instant,
}

impl Kept {
    /// Whether the victim still has it.
    fn lives(&mut self, now: Instant, reads: bool) -> bool {
        if !self.rest.is_empty() && now >= self.next {
            self.next = now + DRIP;
            if matches!(self.stream.write(&self.rest[..1]), Ok(1)) {
                self.rest.remove(0);
            }
        }
        let mut bytes = [0; 512];
        let read = if reads { self.stream.read(&mut bytes) } else { self.stream.peek(&mut bytes) };
        match read {
            Ok(n) => n > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected),
        }
    }
}

/// Attacks until the time is over: how many connections came up. It runs on one processor alone.
///
/// # Errors
/// A text: the system call that failed with its error, or why a login's message could not be made.
pub fn attack(
    kind: Kind,
    victim: u32,
    targets: &[Target],
    handle: Option<&Handle>,
    processor: usize,
    time: Duration,
) -> Result<u64, String> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(|e| format!("sched_setaffinity: {e}"))?;
    let until = Instant::now() + time;
    if kind == Kind::Spin {
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        return Ok(0);
    }
    let mut rng = Rng(u64::from(std::process::id()) << 20 | 1);
    let same = hello(handle, 7)?;
    let (mut kept, mut ports, mut scanned) = (Vec::<Kept>::new(), Vec::new(), None::<Instant>);
    let (mut up, mut turn) = (0, 0usize);
    loop {
        let now = Instant::now();
        if now >= until {
            return Ok(up);
        }
        if scanned.is_none_or(|at| now.duration_since(at) >= SCAN) {
            scanned = Some(now);
            ports = listening(victim);
            let reads = kind != Kind::Slow;
            kept.retain_mut(|one| one.lives(now, reads));
        }
        turn += 1;
        let Some((to, from)) = aim(targets, &ports, &mut rng) else {
            std::thread::yield_now();
            continue;
        };
        let turns = [Kind::Flood, Kind::Silent, Kind::Garbage, Kind::Half, Kind::Replay, Kind::Slow];
        let now_kind = match kind {
            // Most of its time goes where it costs the victim most; what is kept fills up all the same.
            Kind::Mix if !turn.is_multiple_of(8) => Kind::Flood,
            Kind::Mix => turns[turn / 8 % turns.len()],
            kind => kind,
        };
        let keeps = matches!(now_kind, Kind::Silent | Kind::Half | Kind::Replay | Kind::Slow);
        if keeps && kept.len() >= KEPT {
            if kind != Kind::Mix {
                std::thread::yield_now();
            }
            continue;
        }
        let Some(mut stream) = connect(to, from) else { continue };
        up += 1;
        let mut rest = Vec::new();
        let said = match now_kind {
            Kind::Garbage => {
                let len = 1 + rng.next() as usize % 300;
                let bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
                stream.write(&bytes)
            }
            Kind::Half => stream.write(&hello(handle, rng.next())?),
            Kind::Replay => stream.write(&same),
            Kind::Slow => {
                rest.clone_from(&same);
                Ok(0)
            }
            _ => Ok(0),
        };
        // A victim that has closed already is none of our business.
        drop(said);
        if keeps {
            kept.push(Kept { stream, rest, next: now });
        }
    }
}

/// Any port and source.
fn aim(targets: &[Target], ports: &[SocketAddr], rng: &mut Rng) -> Option<(SocketAddr, SocketAddr)> {
    let mut any = |count: usize| rng.next() as usize % count.max(1);
    let target = targets.get(any(targets.len()))?;
    let of_it = |port: &&SocketAddr| port.ip().is_unspecified() || port.ip() == target.to;
    let count = ports.iter().filter(of_it).count();
    let port = ports.iter().filter(of_it).nth(any(count))?;
    let from = target.from.get(any(target.from.len()))?;
    Some((SocketAddr::new(target.to.into(), port.port()), SocketAddr::new((*from).into(), 0)))
}

/// A connection that is up, or has failed. Its end is a reset, which leaves nothing behind in our kernel.
fn connect(to: SocketAddr, from: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.set_linger(Some(Duration::ZERO)).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.bind(&from.into()).ok()?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(_) => return None,
    }
    let stream = TcpStream::from(socket);
    // Between namespaces of one machine the answer is there before the call returns; where the queue is full there is none.
    stream.peer_addr().is_ok().then_some(stream)
}
