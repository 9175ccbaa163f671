//! Both ends in two processes: the test program runs itself once more, as the peer.
//!
//! A transport that crosses processes implements [`Joint`] and writes
//! `linkspan_transport::processes_suite!(tcp, Tcp::new());`. Side A is the test; side B its child, which runs the same test and
//! finds in its environment which one it is. One that cannot cross processes here says so, and cargo lists its tests as ignored:
//! `processes_suite!(ignored verbs, "...")`.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::bench::{check_poison, filled, poison};
use super::{Rng, Side, SuiteMemory, check_bytes};
use crate::{Access, Buf, Conn, Down, Error, Poll, Rail, RemoteSlice, Ticket};

/// Names the test whose peer this process is.
const PEER: &str = "LINKSPAN_CONFORMANCE_PEER";

/// Longest time that anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes rails between two processes.
pub trait Joint {
    /// Its rail.
    type R: Rail;

    /// This side's end of a new rail. Both processes call it at a time, and tell each other by `link` what they must know.
    fn rail(&mut self, side: Side, link: &mut PeerPipe) -> Self::R;
}

/// Messages between the two processes, beside their rails.
#[derive(Debug)]
pub struct PeerPipe(UnixStream);

impl PeerPipe {
    fn new(stream: UnixStream) -> PeerPipe {
        stream.set_read_timeout(Some(PATIENCE)).expect("a Unix socket has timeouts");
        PeerPipe(stream)
    }

    /// Sends a message.
    ///
    /// # Panics
    /// The other process is gone.
    pub fn send(&mut self, message: &[u8]) {
        let len = (message.len() as u32).to_le_bytes();
        self.0.write_all(&len).and_then(|()| self.0.write_all(message)).expect("the other process listens");
    }

    /// Waits for a message.
    ///
    /// # Panics
    /// The other process is gone, or says nothing for two minutes.
    pub fn recv(&mut self) -> Vec<u8> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).expect("the other process speaks");
        let mut message = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut message).expect("the other process finishes what it says");
        message
    }
}

/// The child, which does not outlive this value.
struct Peer {
    child: Child,
    link: PeerPipe,
}

impl Peer {
    fn start(test: &str) -> Peer {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let child = Command::new(std::env::current_exe().expect("the test program has a path"))
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(PEER, test)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the test program runs");
        Peer { child, link: PeerPipe::new(ours) }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a child has a number")
    }

    /// Sends a signal to it.
    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is our child");
    }

    /// Stops it, and waits until it stands still.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it is our child");
        assert!(status.is_some_and(|(_, status)| status.stopped()), "the other process ended: {status:?}");
    }

    /// Waits for its end, which is a good one.
    fn finish(mut self) {
        let mut said = String::new();
        let pipe = self.child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "the other process: {status}: {said}{}", if pipe.is_some() { "" } else { "?" });
    }

    /// Ends it at once.
    fn kill(&mut self) {
        self.child.kill().expect("it is our child");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(mut pipe) = self.child.stderr.take().filter(|_| std::thread::panicking()) {
            let mut said = String::new();
            let _ = pipe.read_to_string(&mut said);
            eprintln!("the other process: {said}");
        }
    }
}

type Any<'a, R> = &'a mut (dyn Joint<R = R> + 'a);

/// Runs the behaviour of this name, as either of the processes of `test`, which is the test's path as `module_path!` has it
/// and its name.
///
/// # Panics
/// It does not hold, or there is none of this name.
pub fn two_processes<R: Rail>(test: &str, joint: &mut dyn Joint<R = R>) {
    // The harness leaves out the name of the crate.
    let test = test.split_once("::").map_or(test, |(_, path)| path);
    let name = test.rsplit_once("::").map_or(test, |(_, name)| name);
    let Some((_, ours, theirs)) = behaviours::<R>().into_iter().find(|b| b.0 == name) else {
        panic!("no behaviour of two processes is called {name}");
    };
    if std::env::var(PEER).is_ok_and(|peer| peer == test) {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
        theirs(joint, &mut PeerPipe::new(UnixStream::from(stdin)));
    } else {
        ours(joint, test);
    }
}

type Ours<R> = fn(Any<'_, R>, &str);
type Theirs<R> = fn(Any<'_, R>, &mut PeerPipe);

// `$d` is a dollar sign, for the macro that this one makes.
macro_rules! behaviours {
    ($d:tt $($name:ident),* $(,)?) => {
        fn behaviours<R: Rail>() -> Vec<(&'static str, Ours<R>, Theirs<R>)> {
            vec![$((stringify!($name), $name::ours::<R> as Ours<R>, $name::theirs::<R> as Theirs<R>)),*]
        }

        /// One test per behaviour of two processes; see [`crate::conformance::Joint`].
        #[macro_export]
        macro_rules! processes_suite {
            (ignored $suite:ident, $why:literal) => {
                mod $suite {
                    $(#[test]
                    #[ignore = $why]
                    fn $name() {
                        panic!($why);
                    })*
                }
            };
            ($suite:ident, $joint:expr) => {
                mod $suite {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[test]
                    fn $name() {
                        let test = concat!(module_path!(), "::", stringify!($name));
                        $crate::conformance::two_processes(test, &mut $joint);
                    })*
                }
            };
        }
    };
}

behaviours!($ sizes, ordering_per_tag, one_sided, last_message_then_exit, killed_peer, stopped_peer, revocation);

/// A connection of so many rails to the other process.
fn connect<R: Rail>(joint: Any<'_, R>, side: Side, link: &mut PeerPipe, rails: usize, acked: bool) -> Conn<R> {
    let rails: Vec<R> = (0..rails).map(|_| joint.rail(side, link)).collect();
    Conn::new(rails, acked)
}

/// Drives one end until `done` answers. That the other end has closed is for `done` to find out.
fn until<R: Rail, T>(conn: &mut Conn<R>, what: &str, mut done: impl FnMut(&mut Conn<R>) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = done(conn) {
            return answer;
        }
        if !matches!(conn.progress(), Ok(Poll::Active)) {
            assert!(since.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
            std::thread::yield_now();
        }
    }
}

fn recv<R: Rail>(conn: &mut Conn<R>, tag: u32, dst: &SuiteMemory) -> Ticket {
    until(conn, "a receive to be accepted", |conn| conn.post_recv(&[(tag, dst.slice())]).expect("post_recv"))
}

fn send<R: Rail>(conn: &mut Conn<R>, tag: u32, src: &SuiteMemory) -> Ticket {
    until(conn, "a send to be accepted", |conn| conn.post_send(tag, src.slice()).expect("post_send"))
}

fn outcome<R: Rail>(conn: &mut Conn<R>, ticket: Ticket) -> Result<u64, Error> {
    until(conn, "an operation to report", |conn| conn.test(ticket).transpose())
}

fn done<R: Rail>(conn: &mut Conn<R>, ticket: Ticket) -> u64 {
    outcome(conn, ticket).unwrap_or_else(|e| panic!("an operation failed: {e}; {:?}", conn.lost()))
}

/// Drives one end until the connection is over.
fn over<R: Rail>(conn: &mut Conn<R>) -> Error {
    until(conn, "the end of the connection", |conn| conn.progress().err())
}

/// Some turns, in which nothing is wrong.
fn turns<R: Rail>(conn: &mut Conn<R>, n: u64) {
    for _ in 0..n {
        if conn.progress().unwrap_or_else(|e| panic!("progress: {e}; {:?}", conn.lost())) == Poll::Idle {
            std::thread::yield_now();
        }
    }
}

/// A behaviour that both sides carry out alike over one connection.
fn alike<R: Rail>(joint: Any<'_, R>, test: &str, both: impl FnOnce(&mut Conn<R>, Side)) {
    let mut peer = Peer::start(test);
    let mut conn = connect(joint, Side::A, &mut peer.link, 2, true);
    both(&mut conn, Side::A);
    // Neither closes while the other still waits.
    peer.link.send(b"done");
    peer.link.recv();
    peer.finish();
}

fn alike_there<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe, both: impl FnOnce(&mut Conn<R>, Side)) {
    let mut conn = connect(joint, Side::B, link, 2, true);
    both(&mut conn, Side::B);
    link.send(b"done");
    link.recv();
}

/// Every size arrives whole, both ways at once.
mod sizes {
    use super::*;

    const LENS: [usize; 12] =
        [0, 1, 63, 64, 4096, 8191, 8192, 8193, 65_537, (512 << 10) - 1, (512 << 10) + 1, (3 << 20) + 5];

    fn both<R: Rail>(conn: &mut Conn<R>, side: Side) {
        for (tag, len) in (0..).zip(LENS) {
            let (src, dst) = (filled(len, seed(side, tag)), SuiteMemory::new(len));
            let recv = recv(conn, tag, &dst);
            let send = send(conn, tag, &src);
            assert_eq!(done(conn, recv), len as u64, "received size");
            assert_eq!(done(conn, send), len as u64, "sent size");
            check_bytes(dst.slice(), seed(side.other(), tag));
        }
    }

    fn seed(side: Side, tag: u32) -> u64 {
        u64::from(tag) * 2 + side as u64
    }

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        alike(joint, test, both);
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        alike_there(joint, link, both);
    }
}

/// Messages of one tag arrive in order, with those of others in between.
mod ordering_per_tag {
    use super::*;

    const TAGS: u32 = 4;
    const EACH: u64 = 40;

    fn len(tag: u32, n: u64) -> usize {
        [10, 9000, 300, 200_000, 0, 8192][(n as usize + tag as usize) % 6]
    }

    fn seed(side: Side, tag: u32, n: u64) -> u64 {
        n * 100 + u64::from(tag) * 2 + side as u64
    }

    fn both<R: Rail>(conn: &mut Conn<R>, side: Side) {
        let mut rng = Rng::new(side as u64);
        let mut tags: Vec<u32> = (0..TAGS).collect();
        // Of each tag, messages that were sent and that a receive was posted for.
        let (mut sent, mut posted) = ([0; TAGS as usize], [0; TAGS as usize]);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        let mut left = 2 * u64::from(TAGS) * EACH;
        until(conn, "all messages", |conn| {
            rng.shuffle(&mut tags);
            for &tag in &tags {
                let (sent, posted) = (&mut sent[tag as usize], &mut posted[tag as usize]);
                if *sent < EACH && sends.len() < 16 {
                    let src = filled(len(tag, *sent), seed(side, tag, *sent));
                    if let Some(ticket) = conn.post_send(tag, src.slice()).expect("post_send") {
                        sends.push((ticket, src));
                        *sent += 1;
                    }
                }
                if *posted < EACH && recvs.len() < 16 {
                    let dst = SuiteMemory::new(len(tag, *posted));
                    if let Some(ticket) = conn.post_recv(&[(tag, dst.slice())]).expect("post_recv") {
                        recvs.push((ticket, dst, seed(side.other(), tag, *posted)));
                        *posted += 1;
                    }
                }
            }
            let before = sends.len() + recvs.len();
            sends.retain(|(ticket, _)| conn.test(*ticket).expect("a send").is_none());
            recvs.retain(|(ticket, dst, seed)| match conn.test(*ticket).expect("a receive") {
                None => true,
                Some(n) => {
                    assert_eq!(n, dst.len() as u64, "received size");
                    check_bytes(dst.slice(), *seed);
                    false
                }
            });
            left -= (before - sends.len() - recvs.len()) as u64;
            (left == 0).then_some(())
        });
    }

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        alike(joint, test, both);
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        alike_there(joint, link, both);
    }
}

/// Writes, notifications and reads reach the memory of another process.
mod one_sided {
    use super::*;

    const REGION: usize = 2 << 20;
    const LENS: [usize; 6] = [300_000, 10, 1 << 20, 0, 8192, 9000];
    /// The tag of the last message.
    const OVER: u32 = 9;

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        let mut peer = Peer::start(test);
        let mut conn = connect(joint, Side::A, &mut peer.link, 2, true);
        let key = u32::from_le_bytes(peer.link.recv().try_into().expect("a key"));
        let mut writes = Vec::new();
        let mut at = 0;
        for (n, len) in (0..).zip(LENS) {
            let (src, to) = (filled(len, n), RemoteSlice { key, offset: at });
            let ticket = until(&mut conn, "a write to be accepted", |c| {
                c.post_write(src.slice(), to, Some(n)).expect("post_write")
            });
            writes.push((ticket, src, at));
            at += len as u64;
        }
        for (n, (ticket, src, at)) in (0..).zip(writes) {
            assert_eq!(done(&mut conn, ticket), src.len() as u64);
            let (back, from) = (SuiteMemory::new(src.len()), RemoteSlice { key, offset: at });
            let read = until(&mut conn, "a read to be accepted", |conn| {
                conn.post_read(back.slice(), from).expect("post_read")
            });
            assert_eq!(done(&mut conn, read), src.len() as u64);
            check_bytes(back.slice(), n);
        }
        let last = SuiteMemory::new(1);
        let send = send(&mut conn, OVER, &last);
        done(&mut conn, send);
        peer.link.send(b"done");
        peer.finish();
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        let mut conn = connect(joint, Side::B, link, 2, true);
        let region = SuiteMemory::new(REGION);
        let key = conn.expose(region.slice(), Access::ReadWrite).expect("a free key");
        link.send(&key.to_le_bytes());
        let last = SuiteMemory::new(1);
        let over = recv(&mut conn, OVER, &last);
        let mut at = 0;
        for (n, len) in (0..).zip(LENS) {
            let value = until(&mut conn, "a notification", Conn::take_notify);
            assert_eq!(value, n, "order of notifications");
            check_bytes(region.slice().sub(at, len as u64).expect("inside"), n);
            at += len as u64;
        }
        done(&mut conn, over);
        link.recv();
    }
}

/// What a process has sent when it closes and ends arrives.
mod last_message_then_exit {
    use super::*;

    const LENS: [usize; 4] = [100, 100_000, 0, 2 << 20];

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        // Without acknowledgements an operation reports as soon as its bytes need no further call.
        let shapes = [(1, false), (2, true)];
        for (peer, (rails, acked)) in shapes.map(|shape| (Peer::start(test), shape)) {
            let mut peer = peer;
            peer.link.send(&[rails, u8::from(acked)]);
            let mut conn = connect(joint, Side::A, &mut peer.link, rails.into(), acked);
            let recvs: Vec<_> = LENS
                .into_iter()
                .map(|len| {
                    let dst = SuiteMemory::new(len);
                    (recv(&mut conn, 1, &dst), dst)
                })
                .collect();
            for (n, (recv, dst)) in (0..).zip(recvs) {
                assert_eq!(done(&mut conn, recv), dst.len() as u64, "message {n} of a process that ended after it");
                check_bytes(dst.slice(), n);
            }
            let end = over(&mut conn);
            assert!(matches!(end, Error::Closed), "a close is reported as: {end}");
            peer.finish();
        }
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        let shape = link.recv();
        let mut conn = connect(joint, Side::B, link, shape[0].into(), shape[1] != 0);
        let sends: Vec<_> = (0..)
            .zip(LENS)
            .map(|(n, len)| {
                let src = filled(len, n);
                (send(&mut conn, 1, &src), src)
            })
            .collect();
        for (send, _) in &sends {
            done(&mut conn, *send);
        }
    }
}

/// Messages that one process keeps under way to the other, over and over.
struct Stream {
    sends: Vec<(SuiteMemory, Option<Ticket>)>,
    recvs: Vec<(SuiteMemory, Option<Ticket>)>,
    /// Receives that have reported.
    got: u64,
}

impl Stream {
    const LEN: usize = 1 << 20;

    fn new() -> Stream {
        let bufs = |seed| (0..2).map(|_| (filled(Stream::LEN, seed), None)).collect();
        Stream { sends: bufs(7), recvs: bufs(8), got: 0 }
    }

    /// Posts and tests what can be. An error ends the connection.
    fn step<R: Rail>(&mut self, conn: &mut Conn<R>) -> Result<(), Error> {
        let moved = conn.progress()?;
        for (src, ticket) in &mut self.sends {
            match *ticket {
                None => *ticket = conn.post_send(1, src.slice())?,
                Some(send) => *ticket = if conn.test(send)?.is_some() { None } else { *ticket },
            }
        }
        for (dst, ticket) in &mut self.recvs {
            match *ticket {
                None => *ticket = conn.post_recv(&[(1, dst.slice())])?,
                Some(recv) if conn.test(recv)?.is_some() => {
                    check_bytes(dst.slice(), 7);
                    poison(dst.slice(), 0);
                    (*ticket, self.got) = (None, self.got + 1);
                }
                Some(_) => {}
            }
        }
        if moved == Poll::Idle {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The child's part where it sends and receives until the connection ends.
fn streaming<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
    let mut conn = connect(joint, Side::B, link, 2, true);
    let mut stream = Stream::new();
    while stream.step(&mut conn).is_ok() {}
}

/// A process that is killed is reported as lost, at any moment, and nothing lands after that.
mod killed_peer {
    use super::*;

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        let mut rng = Rng::new(1);
        let mut next = Some(Peer::start(test));
        for round in 0..6 {
            let Some(mut peer) = next.take() else { break };
            // It starts while this round runs.
            next = (round < 5).then(|| Peer::start(test));
            let mut conn = connect(joint, Side::A, &mut peer.link, 2, true);
            let mut stream = Stream::new();
            let (messages, more) = (rng.below(4), rng.below(300));
            while stream.got < messages {
                stream.step(&mut conn).unwrap_or_else(|e| panic!("while both live: {e}; {:?}", conn.lost()));
            }
            for _ in 0..more {
                stream.step(&mut conn).unwrap_or_else(|e| panic!("while both live: {e}; {:?}", conn.lost()));
            }
            peer.kill();
            let since = Instant::now();
            let end = loop {
                if let Err(end) = stream.step(&mut conn) {
                    break end;
                }
                assert!(since.elapsed() < PATIENCE, "a killed process is not reported");
            };
            assert!(matches!(end, Error::Lost), "a death is reported as: {end}");
            assert!(conn.lost().is_some(), "a death has a reason");
            for (dst, _) in &stream.recvs {
                poison(dst.slice(), 0xEE);
            }
            drop(conn);
            drop(peer);
            for (dst, _) in &stream.recvs {
                check_poison(dst.slice(), 0xEE, "after the other process was killed");
            }
        }
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        streaming(joint, link);
    }
}

/// A process that stands still is no error, and goes on where it was.
mod stopped_peer {
    use super::*;

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        let mut peer = Peer::start(test);
        let mut conn = connect(joint, Side::A, &mut peer.link, 2, true);
        let mut stream = Stream::new();
        let step = |stream: &mut Stream, conn: &mut Conn<R>| {
            stream.step(conn).unwrap_or_else(|e| panic!("a process that stands still: {e}; {:?}", conn.lost()));
        };
        for round in 1..=4 {
            while stream.got < 3 * round {
                step(&mut stream, &mut conn);
            }
            peer.stop();
            for _ in 0..2000 {
                step(&mut stream, &mut conn);
            }
            peer.signal(Signal::CONT);
        }
        while stream.got < 20 {
            step(&mut stream, &mut conn);
        }
        drop(conn);
        peer.finish();
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        streaming(joint, link);
    }
}

/// A process stands still in the middle of a transfer, and goes on when the memory is used for something else: not a byte of
/// that changes, and nothing of it is taken for what was sent.
mod revocation {
    use super::*;

    const LEN: usize = 4 << 20;
    const ROUNDS: u64 = 18;

    /// What side A does while the other one stands still.
    #[derive(Clone, Copy, PartialEq)]
    enum Then {
        /// It gives one of the two rails up.
        Rail(usize),
        /// It drops the connection.
        Drop,
    }

    /// Who sends, and what side A does.
    fn plan(round: u64) -> (Side, Then) {
        let sender = if round.is_multiple_of(2) { Side::B } else { Side::A };
        (sender, [Then::Drop, Then::Rail(0), Then::Rail(1)][(round / 2 % 3) as usize])
    }

    pub(super) fn ours<R: Rail>(joint: Any<'_, R>, test: &str) {
        let mut peer = Peer::start(test);
        let mut rng = Rng::new(2);
        for round in 0..ROUNDS {
            let (sender, then) = plan(round);
            let mut conn = connect(joint, Side::A, &mut peer.link, 2, true);
            let mem = filled(LEN, round);
            let op = if sender == Side::A {
                send(&mut conn, 1, &mem)
            } else {
                poison(mem.slice(), 0);
                recv(&mut conn, 1, &mem)
            };
            // A few turns are a few chunks.
            turns(&mut conn, rng.below(40));
            peer.stop();
            turns(&mut conn, rng.below(40));
            match then {
                Then::Drop => {
                    drop(conn);
                    poison(mem.slice(), 0xEE);
                    peer.signal(Signal::CONT);
                }
                Then::Rail(slot) => {
                    let gone = Down::PeerGone { path: "this rail".into(), why: "given up by the suite".into() };
                    conn.give_up_rail(slot, gone).expect("another rail is up");
                    peer.signal(Signal::CONT);
                    assert_eq!(done(&mut conn, op), LEN as u64);
                    if sender == Side::B {
                        check_bytes(mem.slice(), round);
                    }
                    poison(mem.slice(), 0xEE);
                    // The last acknowledgement is on its way.
                    turns(&mut conn, 3);
                    drop(conn);
                }
            }
            // The other one has seen the end of the connection and has dropped it.
            assert_eq!(peer.link.recv(), b"over");
            check_poison(mem.slice(), 0xEE, "when a process that stood still had gone on");
        }
        peer.finish();
    }

    pub(super) fn theirs<R: Rail>(joint: Any<'_, R>, link: &mut PeerPipe) {
        for round in 0..ROUNDS {
            let (sender, then) = plan(round);
            let mut conn = connect(joint, Side::B, link, 2, true);
            let mem = filled(LEN, round);
            let posted = until(&mut conn, "an operation to be accepted", |conn| {
                let posted = if sender == Side::B {
                    conn.post_send(1, mem.slice())
                } else {
                    poison(mem.slice(), 0);
                    conn.post_recv(&[(1, mem.slice())])
                };
                posted.map_err(|end| assert!(then == Then::Drop, "a post: {end}")).map_or(Some(None), |t| t.map(Some))
            });
            let result = posted.map(|op| outcome(&mut conn, op));
            match result {
                Some(Ok(n)) => {
                    assert_eq!(n, LEN as u64);
                    check_bytes(mem.slice(), round);
                }
                Some(Err(Error::Closed | Error::Lost)) | None => {
                    assert!(then == Then::Drop, "round {round}: {result:?}")
                }
                Some(Err(error)) => panic!("round {round}: {error}"),
            }
            let end = over(&mut conn);
            assert!(then == Then::Drop || matches!(end, Error::Closed), "a close is reported as: {end}");
            drop(conn);
            link.send(b"over");
        }
    }
}
