//! Peers in processes of their own: killed at each step, stopped and continued.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{BRIEF, LONG, PATHS, check, context, filled, pair, until};
use linkspan::{Access, Error, Memory, Notify, RemoteBuffer, Transport, Url};

const MIB: usize = 1 << 20;
const SIZE: usize = 64 * MIB;

/// A death is told at once: by the end of the keepalive connection or the pidfd, whichever thread drives or sleeps. Half the time in which a lost
/// peer may come back, after which it would be told in any case: with the settings of these tests 20 s or more.
const PROMPT: Duration = Duration::from_secs(10);

/// The child's part; not a test of its own.
#[test]
fn child() {
    let Ok(path) = std::env::var("LINKSPAN_TEST_PATH") else { return };
    let ctx = context(PATHS[path.parse::<usize>().unwrap()].1);
    let transport = ctx.transport().unwrap();
    let memory = Memory::host(SIZE);
    let mut remote = String::new();
    for byte in transport.expose(&memory.view(), Access::ReadWrite).unwrap().remote().encode() {
        remote.push_str(&format!("{byte:02x}"));
    }
    println!("\n@{} {remote}", transport.bind().unwrap());
    std::io::stdout().flush().unwrap();
    // Whatever happens to the peer, the child ends with its standard input.
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if let Some(url) = line.strip_prefix("dial ") {
            transport.connect_blocking(&url.parse().unwrap(), LONG).unwrap();
            println!("\n@dialled");
            std::io::stdout().flush().unwrap();
        }
        if line == "wait" {
            println!("\n@{:?}", transport.wait_for_write_blocking(Some(LONG)).map_err(|e| e.code()));
            std::io::stdout().flush().unwrap();
        }
    }
}

struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    url: Url,
    remote: RemoteBuffer,
}

impl Peer {
    fn start(path: usize) -> Peer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
            .env("LINKSPAN_TEST_PATH", path.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = Peer::said(&mut lines);
        let (url, hex) = said.split_once(' ').unwrap();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        let remote = RemoteBuffer::decode(&bytes).unwrap();
        Peer { input: child.stdin.take(), url: url.parse().unwrap(), lines, child, remote }
    }

    fn said(lines: &mut std::io::Lines<BufReader<std::process::ChildStdout>>) -> String {
        loop {
            let line = lines.next().expect("the child ended").unwrap();
            if let Some(said) = line.strip_prefix('@') {
                return said.to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        Peer::said(&mut self.lines)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        if signal == rustix::process::Signal::STOP {
            // Its threads stop one after the other, and until then answer.
            let (which, options) = (rustix::process::WaitId::Pid(pid), rustix::process::WaitIdOptions::STOPPED);
            assert!(rustix::process::waitid(which, options).unwrap().is_some_and(|status| status.stopped()));
        }
    }

    fn connect(&self, path: usize) -> Transport {
        self.connect_with(PATHS[path].1)
    }

    fn connect_with(&self, settings: &[(&str, &str)]) -> Transport {
        let transport = context(settings).transport().unwrap();
        transport.connect_blocking(&self.url, LONG).unwrap();
        transport
    }

    /// The same, with the peer as the side that dials.
    fn be_dialled(&mut self, path: usize) -> Transport {
        let transport = context(PATHS[path].1).transport().unwrap();
        let dial = format!("dial {}", transport.bind().unwrap());
        assert_eq!(self.ask(&dial), "dialled");
        transport.wait_connected_blocking(LONG).unwrap();
        transport
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_peer_may_be_another_process() {
    for path in 0..PATHS.len() {
        let mut peer = Peer::start(path);
        let own = peer.connect(path);
        for len in [8, SIZE] {
            let src = filled(len, 3);
            own.write_blocking(&src.view(), &peer.remote, Some(Notify::value(len as u64)), Some(LONG)).unwrap();
            assert_eq!(peer.ask("wait"), format!("Ok({len})"));
            let back = Memory::host(len);
            own.read_blocking(&back.view_mut().unwrap(), &peer.remote, Some(LONG)).unwrap();
            check(&back, 0, len, 3);
        }
    }
}

/// What the victim does when its peer is killed.
fn killed_while(what: &str, begin: impl Fn(&Transport, &Peer, &Memory) -> Result<u64, Error> + Sync) {
    for (path, we_dial) in (0..PATHS.len()).flat_map(|path| [(path, true), (path, false)]) {
        let mut peer = Peer::start(path);
        let own = if we_dial { peer.connect(path) } else { peer.be_dialled(path) };
        let memory = Memory::host(SIZE);
        let mut killed = None;
        let error = std::thread::scope(|s| {
            let running = s.spawn(|| begin(&own, &peer, &memory));
            std::thread::sleep(Duration::from_millis(5));
            peer.signal(rustix::process::Signal::KILL);
            killed = Some(Instant::now());
            running.join().unwrap()
        });
        let took = killed.unwrap().elapsed();
        assert!(took < PROMPT, "{what}, we dialled: {we_dial}: reported {took:?} after the kill");
        let error = error.unwrap_err();
        assert!(error.is_broken(), "{what}: {error}");
        // The memory is free: it is not touched any more.
        memory.fill(0, &vec![0xEE; SIZE]).unwrap();
        let again = own.write_blocking(&memory.slice(0, 8).unwrap(), &peer.remote, None, Some(LONG)).unwrap_err();
        assert!(again.is_broken(), "{what}: {again}");
        assert!(memory.to_vec() == vec![0xEE; SIZE], "{what}: memory has changed after the end");
        let _ = peer.child.wait();
        drop(own);
        // A new transport to a new peer works at once.
        let peer = Peer::start(path);
        let own = peer.connect(path);
        own.write_blocking(&memory.slice(0, 8).unwrap(), &peer.remote, None, Some(LONG)).unwrap();
    }
}

#[test]
fn a_peer_killed_while_we_write() {
    killed_while("write", |own, peer, memory| {
        loop {
            own.write_blocking(&memory.view(), &peer.remote, Some(Notify::COUNT), Some(LONG))?;
        }
    });
}

#[test]
fn a_peer_killed_while_we_read() {
    killed_while("read", |own, peer, memory| {
        loop {
            own.read_blocking(&memory.view_mut()?, &peer.remote, Some(LONG))?;
        }
    });
}

#[test]
fn a_peer_killed_while_we_wait() {
    killed_while("wait", |own, _, _| own.wait_for_write_blocking(None));
}

#[test]
fn a_peer_killed_while_nobody_drives() {
    killed_while("engine thread", |own, _, _| {
        let mut wait = own.wait_for_write(None);
        loop {
            if let Some(report) = wait.test() {
                return report;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_peer_killed_while_several_threads_wait() {
    killed_while("several threads", |own, peer, memory| {
        std::thread::scope(|s| {
            let waits: Vec<_> = (0..3).map(|_| s.spawn(|| own.wait_for_write_blocking(Some(LONG)))).collect();
            let error = loop {
                let write = own.write_blocking(&memory.view(), &peer.remote, None, Some(LONG));
                if let Err(error) = write {
                    break error;
                }
            };
            for wait in waits {
                assert!(wait.join().unwrap().unwrap_err().is_broken());
            }
            Err(error)
        })
    });
}

#[test]
fn a_peer_killed_between_small_writes() {
    killed_while("small writes", |own, peer, memory| {
        loop {
            own.write_blocking(&memory.slice(0, 8)?, &peer.remote, None, Some(LONG))?;
        }
    });
}

#[test]
fn a_peer_killed_before_and_during_connect() {
    for (path, (_, settings)) in PATHS.into_iter().enumerate() {
        for pause in [0, 1, 3, 10] {
            let peer = Peer::start(path);
            let own = context(settings).transport().unwrap();
            let connect = own.connect(&peer.url, Duration::from_secs(2));
            std::thread::sleep(Duration::from_millis(pause));
            peer.signal(rustix::process::Signal::KILL);
            let began = Instant::now();
            match connect.wait() {
                Ok(_) => until("the end to be seen", || !own.connected()),
                Err(error) => assert!(matches!(error, Error::Connect(_) | Error::Broken(_)), "{error}"),
            }
            assert!(began.elapsed() < LONG);
        }
    }
}

/// What tells the peer nothing needs nothing of it, where one process can copy the other's memory.
#[test]
fn a_peer_that_sleeps_and_has_been_stopped_is_written_to_and_read_from_over_shared_memory() {
    let peer = Peer::start(1);
    let own = peer.connect_with(&[PATHS[1].1, &[BRIEF]].concat());
    let sleeps = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    let tasks = format!("/proc/{}/task", peer.child.id());
    // It sleeps once it has answered, and anything else that is said to it wakes it.
    until("a peer that is stopped while it sleeps", || {
        own.write_blocking(&filled(1, 3).view(), &peer.remote, Some(Notify::COUNT), Some(LONG)).unwrap();
        // Our own engine thread may have an acknowledgement to send, some milliseconds later.
        let mut asleep = 0;
        until("all its threads asleep", || {
            asleep = if std::fs::read_dir(&tasks).unwrap().all(sleeps) { asleep + 1 } else { 0 };
            asleep == 30
        });
        peer.signal(rustix::process::Signal::STOP);
        let brief = Some(Duration::from_millis(100));
        let done = [1, 8, 8192, 8193, MIB].into_iter().all(|len| {
            let (src, back) = (filled(len, 3), Memory::host(len));
            let wrote = own.write_blocking(&src.view(), &peer.remote, None, brief);
            let read = wrote.and_then(|_| own.read_blocking(&back.view_mut().unwrap(), &peer.remote, brief));
            read.is_ok_and(|bytes| {
                check(&back, 0, len, 3);
                bytes == len as u64
            })
        });
        if !done {
            peer.signal(rustix::process::Signal::CONT);
        }
        done
    });
    peer.signal(rustix::process::Signal::CONT);
    own.write_blocking(&filled(8, 4).view(), &peer.remote, Some(Notify::COUNT), Some(LONG)).unwrap();
}

#[test]
fn a_second_peer_at_the_url_of_one_transport_is_told_at_once_that_there_is_another() {
    for (_, settings) in PATHS {
        let (first, server) = pair(settings);
        let late = context(settings).transport().unwrap();
        let began = Instant::now();
        let error = late.connect_blocking(&server.bind().unwrap(), 3 * LONG).unwrap_err();
        assert!(began.elapsed() < 2 * LONG, "told at the deadline only");
        assert!(matches!(&error, Error::Connect(why) if why.contains("has another peer")), "{error}");
        // The first one has lost nothing by it.
        let inbox = Memory::host(8);
        let to = server.expose(&inbox.view(), Access::Write).unwrap().remote();
        first.write_blocking(&filled(8, 1).view(), &to, Some(Notify::value(7)), Some(LONG)).unwrap();
        assert_eq!(server.wait_for_write_blocking(Some(LONG)).unwrap(), 7);
        assert_eq!(first.epoch(), 1);
    }
}

/// Reads that need nothing of the peer let what the peer sends come all the same.
#[test]
fn who_asks_again_and_again_for_a_word_gets_the_messages_that_come_before_it() {
    for (_, settings) in PATHS {
        let (asks, tells) = pair(settings);
        let (inbox, word) = (Memory::host(8), Memory::host(8));
        let to = asks.expose(&inbox.view(), Access::Write).unwrap().remote();
        let from = tells.expose(&word.view(), Access::Read).unwrap().remote();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=50u64 {
                    // The word follows what the other side acknowledges.
                    tells.write_blocking(&filled(8, n).view(), &to, Some(Notify::value(n)), Some(LONG)).unwrap();
                    word.fill(0, &n.to_le_bytes()).unwrap();
                }
            });
            let (seen, end) = (Memory::host(8), Instant::now() + LONG);
            while seen.to_vec() != 50u64.to_le_bytes() {
                asks.read_blocking(&seen.view_mut().unwrap(), &from, Some(LONG)).unwrap();
                assert!(Instant::now() < end, "{:?}", seen.to_vec());
                let next = Instant::now() + Duration::from_micros(200);
                while Instant::now() < next {
                    std::hint::spin_loop();
                }
            }
        });
        for n in 1..=50 {
            assert_eq!(asks.wait_for_write_blocking(Some(LONG)).unwrap(), n);
        }
    }
}

#[test]
fn write_timeout_production_disconnected_peer() {
    for (path, (_, settings)) in PATHS.into_iter().enumerate() {
        let mut peer = Peer::start(path);
        let own = peer.connect_with(&[settings, &[BRIEF]].concat());
        // Longer than what a writer copies alone, over shared memory.
        let src = filled(2 * MIB, 4);
        own.write_blocking(&src.view(), &peer.remote, None, Some(LONG)).unwrap();
        peer.signal(rustix::process::Signal::STOP);
        let began = Instant::now();
        // Stopped, not dead: it cannot confirm that it reads the old path no longer.
        let error = own.write_blocking(&src.view(), &peer.remote, None, Some(Duration::from_millis(100)));
        let took = began.elapsed();
        assert!(matches!(error, Err(Error::TimedOutUnrevoked)), "{error:?}");
        // The write's own limit, then that of the revocation.
        assert!(took > Duration::from_millis(100) && took < Duration::from_secs(16), "{took:?}");
        peer.signal(rustix::process::Signal::CONT);
        // The path is made again, and the transport has stayed usable.
        let big = filled(MIB, 5);
        own.write_blocking(&big.view(), &peer.remote, Some(Notify::value(6)), Some(LONG)).unwrap();
        assert_eq!(peer.ask("wait"), "Ok(6)");
        assert_eq!(own.epoch(), 2);
    }
}
