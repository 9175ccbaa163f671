//! Paths that are lost when the side that listens has taken them, and the one that dials has not been told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::common::url::moved;
use crate::common::{LONG, check, context, filled, until};
use linkspan::{Access, Memory, Notify, Transport, Url};

/// The two ends of a stream, by the side that they lead to; without one that was reset.
type Ends = Mutex<[Option<Arc<TcpStream>>; 2]>;

/// With its number, which the hello of its login says.
type Stream = Arc<(u16, Ends)>;

/// Number of the stream that is the keepalive connection.
const KEEPALIVE: u16 = 32;
const HELLO: usize = 96;

const DIALS: usize = 0;

#[derive(Default)]
struct State {
    streams: Vec<Stream>,
    /// Paths to be lost when the answer to their hello is under way.
    answers: u32,
    /// Only the side that dials hears of a loss.
    alone: bool,
    /// The keepalive connection is left alone.
    rails_only: bool,
    /// What goes to the side that dials is dropped.
    deaf: bool,
}

#[derive(Clone, Default)]
struct Cable(Arc<Mutex<State>>);

impl Cable {
    fn before(transport: &Transport) -> (Cable, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (to, url) = moved(&transport.bind().unwrap(), listener.local_addr().unwrap().port());
        let cable = Cable::default();
        let own = cable.clone();
        // Ends with the tests' process.
        std::thread::spawn(move || listener.incoming().for_each(|client| own.enter(client.unwrap(), to)));
        (cable, url)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn enter(&self, mut client: TcpStream, to: SocketAddr) {
        let mut hello = [0; HELLO];
        let Ok(()) = client.read_exact(&mut hello) else { return };
        let mut server = TcpStream::connect(to).unwrap();
        server.write_all(&hello).unwrap();
        let ends = Mutex::new([client, server].map(|end| Some(Arc::new(end))));
        let stream: Stream = Arc::new((u16::from_le_bytes([hello[10], hello[11]]), ends));
        self.lock().streams.push(stream.clone());
        for to in 0..2 {
            let (cable, stream) = (self.clone(), stream.clone());
            std::thread::spawn(move || cable.pass(&stream, to));
        }
    }

    fn pass(&self, stream: &Stream, to: usize) {
        let end = |n: usize| stream.1.lock().unwrap()[n].clone();
        let mut part = [0; 1 << 16];
        loop {
            let Some(from) = end(1 - to) else { return };
            let Some(n) = (&*from).read(&mut part).ok().filter(|&n| n > 0) else { break };
            let mut state = self.lock();
            if to == DIALS && state.answers > 0 && part[..n].windows(4).any(|at| at == b"LSHI") {
                state.answers -= 1;
                state.lose();
            }
            let dropped = to == DIALS && state.deaf;
            drop(state);
            match end(to) {
                Some(to) if !dropped => drop((&*to).write_all(&part[..n])),
                _ => {}
            }
        }
        // Of a reset the other side hears nothing.
        if let (Some(_), Some(to)) = (end(1 - to), end(to)) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

impl State {
    /// Resets all streams towards both sides, or towards the one that dials.
    fn lose(&mut self) {
        let ends = if self.alone { 1 } else { 2 };
        let rails_only = self.rails_only;
        for stream in self.streams.iter().filter(|stream| !rails_only || stream.0 != KEEPALIVE) {
            for end in stream.1.lock().unwrap().iter_mut().take(ends).filter_map(Option::take) {
                rustix::net::sockopt::set_socket_linger(&*end, Some(Duration::ZERO)).unwrap();
                // Wakes its reader, which closes it.
                let _ = end.shutdown(Shutdown::Read);
            }
        }
        if !self.alone {
            self.streams.clear();
        }
    }
}

/// A hello tells of the last four paths of its sender. Those that came to nothing displace none.
#[test]
fn paths_that_come_to_nothing_lose_no_message_and_notify_nobody_twice() {
    let (a, b) = (context(&[]).transport().unwrap(), context(&[]).transport().unwrap());
    let (cable, url) = Cable::before(&b);
    a.connect_blocking(&url, LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    let (inbox, into) = (Memory::host(100), Memory::host(100));
    let to = b.expose(&inbox.view(), Access::Write).unwrap().remote();
    b.send_blocking(5, &filled(100, 1).view(), Some(LONG)).unwrap();
    // Its acknowledgement does not come back.
    cable.lock().deaf = true;
    let source = filled(100, 2);
    let write = a.write(&source.view(), &to, Some(Notify::value(7)), Some(LONG));
    assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 7);
    let mut state = cable.lock();
    (state.deaf, state.answers) = (false, 6);
    state.lose();
    drop(state);
    assert_eq!(write.wait().unwrap(), 100);
    assert_eq!(cable.lock().answers, 0);
    a.recv_blocking(5, &into.view_mut().unwrap(), Some(LONG)).unwrap();
    check(&into, 0, 100, 1);
    a.write_blocking(&source.view(), &to, Some(Notify::value(8)), Some(LONG)).unwrap();
    assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 8, "a write notified twice");
}

/// The side that listens cannot dial: where all of a path ends without a word it takes the peer for dead.
#[test]
fn a_path_that_comes_to_nothing_is_no_death_of_who_dialled_it() {
    let (a, b) = (context(&[]).transport().unwrap(), context(&[]).transport().unwrap());
    let (cable, url) = Cable::before(&b);
    a.connect_blocking(&url, LONG).unwrap();
    b.wait_connected_blocking(LONG).unwrap();
    let inbox = Memory::host(100);
    let to = b.expose(&inbox.view(), Access::Write).unwrap().remote();
    let mut state = cable.lock();
    (state.rails_only, state.answers) = (true, 1);
    state.lose();
    drop(state);
    a.write_blocking(&filled(100, 3).view(), &to, None, Some(LONG)).unwrap();
    check(&inbox, 0, 100, 3);
    assert_eq!(cable.lock().answers, 0);
}

#[test]
fn a_path_that_is_up_on_the_listening_side_alone_keeps_no_other_one_out() {
    for first in [false, true] {
        let (a, b) = (context(&[]).transport().unwrap(), context(&[]).transport().unwrap());
        let (cable, url) = Cable::before(&b);
        cable.lock().alone = true;
        cable.lock().answers = 1;
        if !first {
            cable.lock().answers = 0;
            a.connect_blocking(&url, LONG).unwrap();
            b.wait_connected_blocking(LONG).unwrap();
            let mut state = cable.lock();
            state.answers = 1;
            state.lose();
        }
        let inbox = Memory::host(100);
        let to = b.expose(&inbox.view(), Access::Write).unwrap().remote();
        if first {
            a.connect_blocking(&url, LONG).unwrap();
        }
        a.write_blocking(&filled(100, 3).view(), &to, None, Some(LONG)).unwrap();
        check(&inbox, 0, 100, 3);
        until("one path was lost", || cable.lock().answers == 0);
        assert_eq!(a.epoch(), b.epoch());
    }
}
