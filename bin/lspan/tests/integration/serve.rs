//! `lspan perf serve` and visitors that mean harm: what they can make it use, and what is left when they are gone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{Event, read};
use linkspan_fabric::{Buf, Channel, Config, Connecting, Fabric, HANDLE_LEN, Log, Ticket};
use linkspan_perf::wire::{self, CTRL_LEN, Kind, Message, Params, Reply, TAG_CTRL};
use linkspan_perf::{Direction, Spec, Test};
use linkspan_transport::StaticBuf;
use zerocopy::IntoBytes;

use crate::signals::wait_until;

/// Well beyond what a test needs on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn lspan(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command.args(line.split_whitespace()).env("LINKSPAN_STATS_DIR", "off").env("LINKSPAN_LOG", "warn");
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// A serving process, ended with the value.
struct Server {
    child: Child,
    at: String,
    /// What it wrote to standard error.
    said: Arc<Mutex<Vec<String>>>,
    /// Of its statistics.
    dir: PathBuf,
}

impl Server {
    /// With so many descriptors.
    fn start(more: &str, descriptors: u32) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_lspan")]);
        command.args(["perf", "serve", "--port", &port.to_string()]).args(more.split_whitespace());
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("serve-{port}-{}", std::process::id()));
        command.env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_STATS_DIR", &dir).env("LINKSPAN_LOG", "warn");
        command.env("XDG_CONFIG_HOME", "/nonexistent");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || lines.for_each(|line| heard.lock().unwrap().push(line)));
        let server = Server { child, at: format!("127.0.0.1:{port}"), said, dir };
        wait_until("it ended before it waited", || server.lines("waiting on") == 1);
        server
    }

    fn count(&self, event: Event) -> u64 {
        read(&self.dir).unwrap().first().map_or(0, |process| process.events[event as usize])
    }

    fn lines(&self, with: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.contains(with)).count()
    }

    /// A number of /proc/PID/status.
    fn status(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Time that it has had a processor, ns: sched(7), the first number of schedstat, of all threads.
    fn processor_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat")).ok();
        tasks.filter_map(of).filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
    }

    fn handle(&self) -> [u8; HANDLE_LEN] {
        let mut said = [0; 8 + HANDLE_LEN];
        TcpStream::connect(&self.at).unwrap().read_exact(&mut said).unwrap();
        said[8..].try_into().unwrap()
    }

    /// A client as it should be.
    fn measured(&self) -> Output {
        lspan(&format!("perf lat -s 8 -n 5 {}", self.at)).env("LINKSPAN_IFNAME", "=lo").output().unwrap()
    }

    fn serves(&self) {
        let output = self.measured();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn fabric() -> Fabric {
    let values = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
    let get = |name: &str| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    Fabric::new(Config::read(&get).unwrap(), Log::off(), false, Vec::new()).unwrap()
}

fn up(mut connecting: Connecting) -> Channel {
    let until = Instant::now() + LONG;
    loop {
        if let Some(channel) = connecting.poll().unwrap() {
            return channel;
        }
        assert!(Instant::now() < until, "the connection does not come up");
        std::thread::yield_now();
    }
}

/// A session, and control messages in it.
struct Visitor(Channel);

impl Visitor {
    fn new(fabric: &Fabric, server: &Server) -> Visitor {
        Visitor(up(fabric.connect(0, &server.handle()).unwrap()))
    }

    fn done(&mut self, ticket: Ticket) {
        let until = Instant::now() + LONG;
        while self.0.test(ticket).unwrap().is_none() {
            assert!(Instant::now() < until, "nothing moves");
            self.0.progress().unwrap();
        }
    }

    fn say(&mut self, message: &[u8]) {
        let buf = StaticBuf::new(message.len());
        assert!(buf.slice().fill(0, message));
        let ticket = loop {
            match self.0.post_send(TAG_CTRL, buf.slice()).unwrap() {
                Some(ticket) => break ticket,
                None => drop(self.0.progress().unwrap()),
            }
        };
        self.done(ticket);
    }

    fn asks(&mut self, params: &Params) -> Reply {
        self.say(params.as_bytes());
        let buf = StaticBuf::new(CTRL_LEN);
        let ticket = loop {
            match self.0.post_recv(&[(TAG_CTRL, buf.slice())]).unwrap() {
                Some(ticket) => break ticket,
                None => drop(self.0.progress().unwrap()),
            }
        };
        self.done(ticket);
        let mut bytes = [0; CTRL_LEN];
        assert!(buf.slice().read(0, &mut bytes));
        match wire::decode(&bytes).unwrap() {
            Message::Reply(_, reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// A bare connection that has shown its token.
    fn bare(&mut self, token: u8) -> TcpStream {
        let reply = self.asks(&Params::bare([token; 16]));
        assert_eq!(reply.kind, Kind::Ready as u8);
        let mut stream = TcpStream::connect(("127.0.0.1", reply.port.get())).unwrap();
        stream.write_all(&[token; 16]).unwrap();
        stream
    }
}

/// A round of the bare loop: one message of `size` bytes. Whether the server had memory for it.
fn round(stream: &mut TcpStream, size: u64) -> bool {
    let mut round = vec![2, 3, 0, 0, 1, 0, 0, 0];
    round.extend([size, 1, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
    stream.write_all(&round).is_ok() && stream.read_exact(&mut [0; 8]).is_ok()
}

#[test]
fn hostile_visitors_use_no_more_than_the_server_has_for_all_and_are_ended() {
    let server = Server::start("--memory 64 --idle 5s", 1024);
    server.serves();
    wait_until("a session goes on", || server.status("Threads") == 1);
    let (memory, threads) = (server.status("VmHWM"), server.status("Threads"));
    let (fabric, mut streams) = (fabric(), Vec::new());
    let mut one = Visitor::new(&fabric, &server);
    // One session asks again and again, each time for most of what there is.
    for token in 1..=40 {
        let mut stream = one.bare(token);
        assert!(round(&mut stream, 36 << 20), "its own memory comes back to it");
        streams.push(stream);
    }
    // Others ask beside it: for baselines, for tests and for memory of one-sided tests.
    let mut others: Vec<Visitor> = (0..12).map(|_| Visitor::new(&fabric, &server)).collect();
    for (n, other) in others.iter_mut().enumerate() {
        match n % 3 {
            0 => {
                let mut stream = other.bare(99);
                assert!(!round(&mut stream, 36 << 20), "36 MiB of 64 are taken");
            }
            1 => {
                let spec = Spec { window: 6, direction: Direction::Both, ..Spec::new(Test::Bw, 4 << 20) };
                assert_eq!(other.asks(&Params::new(&spec)).kind, Kind::Refused as u8);
            }
            _ => assert_eq!(other.asks(&Params::offer(36 << 20)).kind, Kind::Refused as u8),
        }
        assert!(server.status("Threads") <= threads + 3 * 13, "three for each session at most");
    }
    // Slow ones: a part of a token, a part of a round, a part of nothing.
    let reply = others[0].asks(&Params::bare([9; 16]));
    let mut slow = TcpStream::connect(("127.0.0.1", reply.port.get())).unwrap();
    slow.write_all(&[9; 15]).unwrap();
    others[3].bare(8).write_all(&[2, 3, 0]).unwrap();
    let _silent = TcpStream::connect(&server.at).unwrap();
    let more = (server.status("VmHWM") - memory) >> 10;
    assert!(more < 64, "{more} MiB more than before");
    // Nobody of them leaves, and all are ended.
    wait_until("visitors that are silent are kept", || server.status("Threads") == threads);
    assert!(server.lines("LS0710") >= 13, "{:?}", server.said.lock().unwrap());
    server.serves();
    let all = lspan(&format!("perf bw -s 4M -w 6 -n 3 --bidir {}", server.at))
        .env("LINKSPAN_IFNAME", "=lo")
        .output()
        .unwrap();
    assert_eq!(all.status.code(), Some(0), "the memory is back: {}", String::from_utf8_lossy(&all.stderr));
    drop((one, others, streams, slow));
}

#[test]
fn a_client_that_measures_one_sided_is_not_silent() {
    // On a busy machine a process may well stand for a second.
    let server = Server::start("--idle 3s", 1024);
    let line = format!("perf write --path tcp -s 8K -d 7s {}", server.at);
    let output = lspan(&line).env("LINKSPAN_IFNAME", "=lo").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("its session goes on", || server.status("Threads") == 1);
    assert_eq!(server.lines("LS0710"), 0);
}

#[test]
fn clients_that_are_killed_leave_no_memory_behind() {
    let server = Server::start("", 1024);
    let measures = || {
        let mut client = lspan(&format!("perf bw -s 16M -d 60s {}", server.at));
        client.env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_PATH", "tcp").stdout(Stdio::null()).spawn().unwrap()
    };
    let before = server.status("VmRSS");
    for _ in 0..4 {
        let mut client = measures();
        wait_until("it measures", || server.status("VmRSS") > before + (64 << 10));
        client.kill().unwrap();
        client.wait().unwrap();
        // Eight messages of 16 MiB, which nobody has reported.
        wait_until("its memory is given back", || server.status("VmRSS") < before + (64 << 10));
    }
}

#[test]
fn running_out_of_descriptors_is_a_pause_that_ends_with_its_visitors() {
    let server = Server::start("", 48);
    let fabric = fabric();
    let (mut up, mut coming) = (Vec::new(), Vec::<Connecting>::new());
    let until = Instant::now() + LONG;
    let short = || server.lines("os error 24") > 0;
    while !short() {
        assert!(Instant::now() < until, "{} connections", up.len());
        // A rendezvous that fails is short of descriptors too, and will say so.
        let mut said = [0; 8 + HANDLE_LEN];
        let asked = TcpStream::connect(&server.at).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_millis(100)))?;
            stream.read_exact(&mut said)
        });
        if asked.is_ok() && coming.len() < 4 {
            coming.push(fabric.connect(0, said[8..].try_into().unwrap()).unwrap());
        }
        for n in (0..coming.len()).rev() {
            match coming[n].poll() {
                Ok(Some(channel)) => {
                    up.push(channel);
                    drop(coming.swap_remove(n));
                }
                Ok(None) => {}
                Err(_) => drop(coming.swap_remove(n)),
            }
        }
    }
    // It waits, and neither spins nor writes; both take a span of time to see.
    let (processor, since) = (server.processor_ns(), Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        let mut said = [0; 8];
        let _ = TcpStream::connect(&server.at).map(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            stream.read_exact(&mut said)
        });
    }
    let used = server.processor_ns() - processor;
    // One that spins has a processor nearly alone, or its part of a busy one.
    assert!(u128::from(used) < since.elapsed().as_nanos() / 3, "{used} ns of {:?}", since.elapsed());
    let lines = server.said.lock().unwrap().clone();
    assert!(lines.len() < 10, "{lines:#?}");
    assert!(server.count(Event::AcceptPauses) > 0, "{lines:#?}");
    drop((up, coming));
    wait_until("it does not serve again", || server.measured().status.success());
}

#[test]
fn as_many_sessions_as_it_may_have_go_on_and_a_further_client_is_refused_until_one_ends() {
    let server = Server::start("--idle 600s", 4096);
    let fabric = fabric();
    let mut visitors: Vec<Visitor> = (0..128).map(|_| Visitor::new(&fabric, &server)).collect();
    wait_until("a session has not begun", || server.status("Threads") == 1 + 128);
    assert!(!server.measured().status.success());
    let refused = || server.lines("a peer was refused: 128 sessions are running");
    wait_until("nobody is refused", || refused() > 0);
    assert_eq!(refused(), 1, "{:?}", server.said.lock().unwrap());
    assert_eq!(server.status("Threads"), 1 + 128);
    drop(visitors.pop());
    wait_until("its place is not given back", || server.measured().status.success());
}

#[test]
fn strangers_cause_a_bounded_number_of_lines() {
    let server = Server::start("", 1024);
    let fabric = fabric();
    for _ in 0..100 {
        Visitor::new(&fabric, &server).say(&[0x5a; CTRL_LEN]);
    }
    server.serves();
    wait_until("a session goes on", || server.status("Threads") == 1);
    let lines = server.said.lock().unwrap().len();
    assert!(server.lines("LS0721") > 10 && lines < 70, "{lines} lines");
}

#[test]
fn wait_takes_no_other_program_for_a_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let wait = |more: &str| lspan(&format!("wait {at} --timeout 1s {more}")).output().unwrap();
    assert_eq!(wait("").status.code(), Some(0), "the host is there");
    let said = wait("--serving");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(124) && text.contains("said nothing"), "{text}");
}

#[test]
fn it_says_who_may_measure_and_lets_other_hosts_in_only_when_told_to() {
    let file = std::env::temp_dir().join(format!("lspan-serve-{}.key", std::process::id()));
    std::fs::write(&file, "0123456789abcdef".repeat(4)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let first_line = |more: &str, key: bool| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = lspan(&format!("perf serve --port {port} {more}"));
        if key {
            command.env("LINKSPAN_PSK_FILE", &file);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("waiting on")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let typed = line.contains("perf bw HOST") == line.contains(&format!("`lspan perf bw HOST:{port}`"));
        assert!(typed, "{line}");
        let (addrs, whom) = line.split_once(" for everybody ").unwrap_or_else(|| panic!("{line}"));
        let addrs = addrs.trim_start_matches("lspan: waiting on ").trim_end_matches(',').split(", ");
        let local = addrs.into_iter().all(|addr| addr.parse::<std::net::SocketAddr>().unwrap().ip().is_loopback());
        (local, whom.to_owned())
    };
    let (local, whom) = first_line("", false);
    assert!(local && whom.contains("on this host") && whom.contains("--open"), "{whom}");
    let (local, whom) = first_line("--bind 127.0.0.1", false);
    assert!(local && whom.contains("on this host"), "{whom}");
    let (open, whom) = first_line("--open", false);
    // A machine may have no other interface.
    assert!(open || whom.contains("who can reach it") && whom.contains("LINKSPAN_PSK_FILE"), "{whom}");
    let (keyed, whom) = first_line("", true);
    assert!(whom.contains("who has the cluster key"), "{whom}");
    assert_eq!(keyed, open, "with a key it listens where --open would");
    std::fs::remove_file(file).unwrap();
}
