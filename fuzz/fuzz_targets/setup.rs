//! The set-up of connections as a live listener sees it, by clients that know its states: logins that stop, go on byte by byte, are
//! changed or repeated, streams of several connections and numbers that meet, plans that name them or others, streams that come back. One
//! listener wants a token, one a cluster key, one encryption too. The listener goes on, nobody gets in but by a whole login, an
//! honest peer gets through. libFuzzer holds memory against its limits.
#![no_main]

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::{Channel, Fabric, Listener};
use linkspan_fuzz::{Input, peer};
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Guard, Login, Progress, Psk, Seed};
use linkspan_proto::plan::{Carrier, Plan};

/// Inputs between two honest connections.
const HONEST: u64 = 32;

/// Streams and actions of one input.
const STREAMS: usize = 20;
const ACTIONS: usize = 96;

/// Numbers that streams have: rails, the keepalive stream, the first that comes back, the last.
const NUMBERS: [u16; 8] = [0, 1, 2, 31, 32, 64, 65, 65_535];

const KEY: [u8; 32] = *b"\x80 a key of no use but for tests.";

struct World {
    fabric: Fabric,
    listener: Listener,
    guard: Guard,
    inputs: u64,
}

thread_local! {
    static WORLDS: RefCell<Vec<World>> = RefCell::new((0..3).map(World::new).collect());
}

/// A client's stream.
struct Stream {
    socket: TcpStream,
    login: Login,
    begun: Instant,
    /// The first message, for others to repeat.
    first: Vec<u8>,
    changed: bool,
    conn: u64,
    number: u16,
    in_clear: bool,
}

impl Stream {
    /// What the login has to say, at most so many bytes of it.
    fn say(&mut self, most: usize) {
        let len = self.login.output().len().min(most);
        if let Ok(n) = self.socket.write(&self.login.output()[..len]) {
            self.login.sent(n);
        }
    }

    /// What the other side has said. False when the stream is over.
    fn hear(&mut self) -> bool {
        let mut bytes = vec![0; self.login.wants()];
        match self.socket.read(&mut bytes) {
            Ok(0) if !bytes.is_empty() => return false,
            Ok(n) => drop(self.login.feed(&bytes[..n])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        match self.login.poll(self.begun.elapsed()) {
            Progress::Done(session) => {
                assert!(!self.changed, "a login whose bytes were changed is accepted");
                self.in_clear = session.ciphers.is_none();
                true
            }
            Progress::Failed(_) => false,
            _ => true,
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let choice = usize::from(input.u8());
    WORLDS.with_borrow_mut(|worlds| {
        let world = &mut worlds[choice % 3];
        world.inputs += 1;
        world.story(&mut input);
        if world.inputs.is_multiple_of(HONEST) {
            drop(peer::honest(&world.fabric, &world.listener));
        }
    });
});

impl World {
    fn new(kind: usize) -> World {
        let (fabric, guard) = match kind {
            0 => (peer::fabric(true), Guard::Token),
            _ => {
                let encrypt = kind == 2;
                (peer::keyed(&KEY, encrypt), Guard::Psk { psk: Psk::new(KEY), encrypt })
            }
        };
        let listener = fabric.listen(0).expect("loopback");
        World { fabric, listener, guard, inputs: 0 }
    }

    fn open(&self, input: &mut Input<'_>) -> Option<Stream> {
        let handle = Handle::decode(&self.listener.handle()).expect("our own handle");
        let conn = self.inputs << 2 | input.below(3) as u64;
        let number = NUMBERS[input.below(NUMBERS.len())];
        let mut params = ClientParams::new(handle.listen_id, handle.token.clone(), conn, number);
        params.blob = match input.u8() {
            0..=200 => vec![2, 0, 0, 0, 0, 0, 0, 0],
            _ => input.bytes(64).to_vec(),
        };
        // At times another key, or none.
        params.guard = match input.u8() {
            0..=220 => self.guard.clone(),
            221..=240 => Guard::Psk { psk: Psk::new([9; 32]), encrypt: false },
            _ => Guard::Token,
        };
        let login = Login::client(params, Seed::random().ok()?, std::time::Duration::ZERO).ok()?;
        let first = login.output().to_vec();
        let socket = peer::dial(peer::address(&self.listener));
        Some(Stream { socket, login, begun: Instant::now(), first, changed: false, conn, number, in_clear: true })
    }

    fn accept(&self, up: &mut Vec<Channel>) {
        match self.listener.accept() {
            Ok(Some(channel)) => up.push(channel),
            Ok(None) => {}
            // A connection that its settings forbid; the listener is none the worse.
            Err(error) => assert!(!error.to_string().contains("accept"), "{error}"),
        }
    }

    fn story(&self, input: &mut Input<'_>) {
        let (mut streams, mut up) = (Vec::<Stream>::new(), Vec::<Channel>::new());
        for _ in 0..ACTIONS {
            if input.is_empty() {
                break;
            }
            let action = input.below(12);
            if streams.is_empty() || action == 0 {
                if streams.len() < STREAMS {
                    streams.extend(self.open(input));
                }
                continue;
            }
            let at = input.below(streams.len());
            let mut over = false;
            match action {
                // A login as it should be, as far as it gets.
                1..=4 => {
                    for _ in 0..6 {
                        streams[at].say(usize::MAX);
                        self.accept(&mut up);
                        over = !streams[at].hear();
                        if over {
                            break;
                        }
                    }
                }
                5 => streams[at].say(input.below(40)),
                6 => {
                    let mut bytes = streams[at].login.output().to_vec();
                    if !bytes.is_empty() {
                        let n = input.below(bytes.len());
                        bytes[n] ^= 1 << input.below(8);
                        streams[at].changed = true;
                        over = streams[at].socket.write(&bytes).is_err();
                        streams[at].login.sent(bytes.len());
                    }
                }
                7 => {
                    // Another's first message, again.
                    let first = streams[input.below(streams.len())].first.clone();
                    if let Some(mut other) = (streams.len() < STREAMS).then(|| self.open(input)).flatten() {
                        let _ = other.socket.write(&first);
                        other.changed = true;
                        let len = other.login.output().len();
                        other.login.sent(len);
                        streams.push(other);
                    }
                }
                8 | 9 => over = !plan(&mut streams, at, input),
                10 => {
                    let _ =
                        streams[at].socket.shutdown(if input.u8() & 1 == 0 { Shutdown::Write } else { Shutdown::Both });
                }
                _ => over = true,
            }
            if over {
                drop(streams.swap_remove(at));
            }
            self.accept(&mut up);
        }
        drop(streams);
        for _ in 0..8 {
            self.accept(&mut up);
        }
        // Whoever came up is told that its peer is gone.
        let begun = Instant::now();
        while up.iter_mut().any(|channel| channel.progress().is_ok()) {
            assert!(begun.elapsed() < peer::PATIENCE, "the end of a peer goes unnoticed");
        }
    }
}

/// A plan over one of the streams: of its connection's streams, or of any.
fn plan(streams: &mut [Stream], at: usize, input: &mut Input<'_>) -> bool {
    let own = streams[at].conn;
    let all = input.u8() > 220;
    let mut numbers: Vec<u16> =
        streams.iter().filter(|s| (all || s.conn == own) && s.number < 32).map(|s| s.number).collect();
    numbers.truncate(8);
    if input.u8() > 230 {
        numbers.push(NUMBERS[input.below(NUMBERS.len())]);
    }
    let carrier = [Carrier::Tcp, Carrier::Tcp, Carrier::Shm, Carrier::Offered, Carrier::Devmem][input.below(5)];
    let keepalive = (input.u8() & 3 == 0).then_some(32);
    let mut bytes = Plan { carrier, acked: input.u8() & 1 == 0, streams: numbers, keepalive }.encode();
    if input.u8() > 230 {
        bytes[input.below(32)] = input.u8();
    }
    streams[at].socket.write(&bytes).is_ok()
}
