//! A proxy in front of a listener: what lies between the two ends of a stream, for tests that hold bytes back there, change
//! them, or end the stream as a killed process does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::{Rng, Side};

/// Longest time that anything inside of one machine takes, a busy one too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the side that connects.
    There,
    /// To it.
    Back,
}

/// Sees, and may change, bytes on their way; the number is that of the bytes which have gone this way before on the stream.
type Tap = dyn Fn(Direction, usize, &mut [u8]) + Send + Sync;

/// Both ways of the streams, those from the side that connects first.
#[derive(Default)]
struct State {
    lines: [Line; 2],
    /// The sockets of each stream, which close when both its threads have ended.
    streams: Vec<Weak<[TcpStream; 2]>>,
    /// Every stream has ended.
    cut: bool,
    /// The proxy was dropped: its streams go on, and no new one begins.
    over: bool,
}

#[derive(Default)]
struct Line {
    /// Bytes that may pass yet; `None`: all.
    allowed: Option<usize>,
    /// Threads that have bytes and may not pass them on.
    waiting: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until at least one of so many bytes may pass, and takes those that may. `None`: the stream was cut.
    fn take(&self, way: Direction, most: usize) -> Option<usize> {
        let mut state = self.lock();
        let mut waited = false;
        loop {
            let cut = state.cut;
            let line = &mut state.lines[way as usize];
            let may = if cut { None } else { Some(line.allowed.map_or(most, |left| left.min(most))) };
            if may != Some(0) {
                line.allowed = line.allowed.zip(may).map(|(left, n)| left - n);
                line.waiting -= usize::from(waited);
                self.changed.notify_all();
                return may;
            }
            line.waiting += usize::from(!waited);
            waited = true;
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }
}

/// A proxy in front of one address. Its threads end with their streams.
pub struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Passes everything on.
    ///
    /// # Panics
    /// The OS gives no socket.
    pub fn new(to: SocketAddr) -> Proxy {
        Proxy::with_tap(to, |_, _, _| {})
    }

    /// Passes on what `tap` leaves of each piece.
    ///
    /// # Panics
    /// The OS gives no socket.
    pub fn with_tap(to: SocketAddr, tap: impl Fn(Direction, usize, &mut [u8]) + Send + Sync + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let (all, tap) = (shared.clone(), Arc::new(tap) as Arc<Tap>);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if all.lock().over {
                    return;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                join(client, server, &all, &tap);
            }
        });
        Proxy { shared, addr }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Lets so many bytes pass this way from now on, and holds back what follows.
    pub fn hold(&self, way: Direction, after: usize) {
        self.shared.lock().lines[way as usize].allowed = Some(after);
    }

    /// Lets everything pass again. When this returns, what was held back has been passed on, or its stream has ended.
    ///
    /// # Panics
    /// It takes a minute.
    pub fn release(&self) {
        let mut state = self.shared.lock();
        state.lines.iter_mut().for_each(|line| line.allowed = None);
        self.shared.changed.notify_all();
        let held = |state: &mut State| state.lines.iter().any(|line| line.waiting > 0);
        let waited = self.shared.changed.wait_timeout_while(state, PATIENCE, held);
        assert!(!waited.unwrap_or_else(|e| e.into_inner()).1.timed_out(), "bytes stay held back");
    }

    /// Ends every stream here, at the byte where it is: what each end sees when the process at the other one is killed.
    pub fn cut(&self) {
        let mut state = self.shared.lock();
        state.cut = true;
        for stream in state.streams.drain(..).filter_map(|stream| stream.upgrade()) {
            // Wakes the threads, of which the last closes the sockets.
            stream.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.lines.iter_mut().for_each(|line| line.allowed = None);
        state.over = true;
        self.shared.changed.notify_all();
        drop(state);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

/// The proxies below the rails of one connection whose streams go over loopback, for a testbed of such rails.
#[derive(Debug)]
pub struct Proxies {
    /// Of each rail: one for each of its streams.
    rails: Vec<Vec<Proxy>>,
    rng: Rng,
}

impl Default for Proxies {
    fn default() -> Proxies {
        Proxies { rails: Vec::new(), rng: Rng::new(0) }
    }
}

impl Proxies {
    /// Forgets those of the last connection where rail `n` begins one.
    pub fn begin(&mut self, n: usize) {
        if n == 0 {
            self.rails.clear();
        }
        self.rails.push(Vec::new());
    }

    /// The address for side A to dial, for a stream of the rail that was begun last to a listener of side B.
    pub fn before(&mut self, listener: SocketAddr) -> SocketAddr {
        let proxy = Proxy::new(listener);
        let addr = proxy.addr();
        self.rails.last_mut().expect("a rail was begun").push(proxy);
        addr
    }

    /// See [`super::Testbed::stall`]. One stream of the rail is held back, or more.
    pub fn stall(&mut self, side: Side, n: usize) {
        let streams = &self.rails[n];
        let all = 1 << streams.len();
        let held = 1 + self.rng.below(all - 1);
        for (i, stream) in streams.iter().enumerate() {
            if held >> i & 1 == 1 {
                let way = if side == Side::B { Direction::There } else { Direction::Back };
                stream.hold(way, self.rng.below(7000) as usize);
            }
        }
    }

    /// See [`super::Testbed::release`].
    pub fn release(&mut self) {
        self.rails.iter().flatten().for_each(Proxy::release);
    }

    /// See [`super::Testbed::kill`].
    pub fn kill(&mut self) {
        self.rails.iter().flatten().for_each(Proxy::cut);
    }
}

/// Starts a thread for each way of a stream.
fn join(client: TcpStream, server: TcpStream, shared: &Arc<Shared>, tap: &Arc<Tap>) {
    let stream = Arc::new([client, server]);
    shared.lock().streams.push(Arc::downgrade(&stream));
    for way in [Direction::There, Direction::Back] {
        let (stream, shared, tap) = (stream.clone(), shared.clone(), tap.clone());
        std::thread::spawn(move || forward(way, &stream, &shared, &*tap));
    }
}

fn forward(way: Direction, [client, server]: &[TcpStream; 2], shared: &Shared, tap: &Tap) {
    let (mut from, mut to) = if way == Direction::There { (client, server) } else { (server, client) };
    let _ = to.set_nodelay(true);
    let mut bytes = vec![0; 64 << 10];
    let mut done = 0;
    'stream: while let Ok(n @ 1..) = from.read(&mut bytes) {
        let mut rest = &mut bytes[..n];
        tap(way, done, rest);
        done += n;
        while !rest.is_empty() {
            let Some(n) = shared.take(way, rest.len()) else { break 'stream };
            let (now, later) = rest.split_at_mut(n);
            if to.write_all(now).is_err() {
                break 'stream;
            }
            rest = later;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
