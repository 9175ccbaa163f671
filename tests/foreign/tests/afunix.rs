//! The suite of all transports over the foreign rail, and the library over the foreign list.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::spawn;
use std::time::Duration;

use foreign::{NAME, UnixRail, all};
use linkspan::{Access, Memory};
use linkspan_transport::conformance::{Side, Testbed, Want};

/// Whether bytes for this side may pass, on each rail of the last connection.
type Gates = Arc<(Mutex<Vec<[bool; 2]>>, Condvar)>;

/// Rails over pairs of sockets; where faults are wanted, with a thread each way between.
#[derive(Default)]
struct Sockets {
    gates: Gates,
    /// Ours of the last connection, the first side's and the second's.
    ends: Vec<[UnixStream; 2]>,
}

fn index(side: Side) -> usize {
    usize::from(side == Side::B)
}

fn pass(mut from: UnixStream, mut to: UnixStream, gates: Gates, rail: usize, side: usize) {
    let mut piece = vec![0; 4096];
    while let Ok(n @ 1..) = from.read(&mut piece) {
        let open = gates.0.lock().unwrap();
        let held = |gates: &mut Vec<[bool; 2]>| gates.get(rail).is_some_and(|sides| sides[side]);
        drop(gates.1.wait_while(open, held).unwrap());
        if to.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

impl Testbed for Sockets {
    type R = UnixRail;

    fn rail(&mut self, want: Want, n: usize) -> (UnixRail, UnixRail) {
        let (a, b) = UnixStream::pair().unwrap();
        let (a, b) = if want.faults {
            if n == 0 {
                self.release();
                self.ends.clear();
                self.gates = Gates::default();
            }
            self.gates.0.lock().unwrap().push([false; 2]);
            let (c, d) = UnixStream::pair().unwrap();
            for (from, to, side) in [(&b, &c, 1), (&c, &b, 0)] {
                let (from, to, gates) = (from.try_clone().unwrap(), to.try_clone().unwrap(), self.gates.clone());
                spawn(move || pass(from, to, gates, n, side));
            }
            self.ends.push([a.try_clone().unwrap(), d.try_clone().unwrap()]);
            (a, d)
        } else {
            (a, b)
        };
        let rail = |socket: UnixStream| {
            socket.set_nonblocking(true).unwrap();
            UnixRail::new(socket)
        };
        (rail(a), rail(b))
    }

    fn rails(&self) -> usize {
        4
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.gates.0.lock().unwrap()[n][index(side)] = true;
    }

    fn release(&mut self) {
        self.gates.0.lock().unwrap().iter_mut().for_each(|sides| *sides = [false; 2]);
        self.gates.1.notify_all();
    }

    fn kill(&mut self, side: Side) {
        for ends in &self.ends {
            let _ = ends[index(side)].shutdown(Shutdown::Both);
        }
    }
}

linkspan_transport::conformance_suite!(suite, Sockets::default());

/// A context with the foreign list and these settings.
fn context(path: &str) -> Result<linkspan::Context, linkspan::Error> {
    let get = |name: &str| match name {
        "LINKSPAN_PATH" => Some(path.to_owned()),
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        _ => None,
    };
    let config = linkspan::Config::read(&get).unwrap();
    linkspan::Context::with_transports(config, linkspan::Log::off(), all())
}

#[test]
fn the_library_writes_and_reads_over_it() {
    let soon = Duration::from_secs(30);
    let (a, b) = (context(NAME).unwrap().transport().unwrap(), context(NAME).unwrap().transport().unwrap());
    let bytes: Vec<u8> = (0..3u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    let (ours, theirs, back) = (Memory::copy_of(&bytes), Memory::host(bytes.len()), Memory::host(bytes.len()));
    let exposed = b.expose(&theirs.view(), Access::ReadWrite).unwrap();
    let url = b.bind().unwrap();
    a.connect_blocking(&url, soon).unwrap();
    a.write_blocking(&ours.view(), &exposed.remote(), None, Some(soon)).unwrap();
    assert!(theirs.to_vec() == bytes);
    a.read_blocking(&back.view_mut().unwrap(), &exposed.remote(), Some(soon)).unwrap();
    assert!(back.to_vec() == bytes);
    let path = a.path().unwrap();
    assert!(path.contains(&format!("{NAME} unix")), "{path}");
}

#[test]
fn its_name_is_one_that_the_settings_take_and_users_see() {
    let found = context("auto").unwrap().supported();
    assert!(found.iter().any(|way| way.path == NAME && way.usable), "{found:?}");
    let error = context("verbs").unwrap_err();
    let text = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    let text: Vec<String> = text.map(ToString::to_string).collect();
    assert!(text.concat().contains(&format!("auto, tcp, shm, {NAME}, devmem")), "{text:?}");
}
