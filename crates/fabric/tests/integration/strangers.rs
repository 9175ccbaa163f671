//! Listeners among strangers: many who say nothing, hellos that were overheard, a process without descriptors. The listeners are
//! in a process of their own, for bounds are those of a process.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use linkspan_fabric::{Config, Connecting, Error, Fabric, HANDLE_LEN, Listener, Log, chain};
use linkspan_net::WaitSet;
use linkspan_proto::handle::{Addr, Handle};
use linkspan_proto::login::{ClientParams, Guard, Login, Psk, Seed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

/// Set in the process that has the listeners: how many, and the descriptors it may have.
const SERVES: &str = "LINKSPAN_TEST_SERVES";

/// Ample for everything that is waited for here.
const PATIENCE: Duration = Duration::from_secs(60);

fn fabric(env: &[(&str, &str)], log: Log) -> Fabric {
    let base = [
        ("LINKSPAN_IFNAME", "=lo"),
        ("LINKSPAN_PATH", "tcp"),
        ("LINKSPAN_STATS_DIR", "off"),
        ("LINKSPAN_CONNECT_TIMEOUT_MS", "60000"),
    ];
    let get = |name: &str| env.iter().chain(&base).find(|p| p.0 == name).map(|p| p.1.to_owned());
    Fabric::new(Config::read(&get).unwrap(), log, true, Vec::new()).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What the process with the listeners has to tell.
#[derive(Debug, PartialEq)]
struct Report {
    /// Connections that came up.
    up: usize,
    /// Errors of `accept`.
    errors: usize,
    warnings: usize,
    /// Open now; 0 where it has none to look.
    descriptors: usize,
    /// The most there were at a time.
    most: usize,
}

/// The process with the listeners. It does as each line of its input says: `poll` them from now on, `hoard` descriptors
/// until none is left, `release` those, `report`.
fn serve(what: &str) {
    let numbers: Vec<u64> = what.split(' ').map(|n| n.parse().unwrap()).collect();
    setrlimit(Resource::Nofile, Rlimit { current: Some(numbers[1]), ..getrlimit(Resource::Nofile) }).unwrap();
    let warnings = Arc::new(AtomicU64::new(0));
    let counted = warnings.clone();
    let log = Log::to(move |level, _| {
        if level == linkspan_fabric::Level::Warn {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let key = std::env::var("LINKSPAN_PSK_FILE").unwrap_or_default();
    let env = [("LINKSPAN_PSK_FILE", key.as_str())];
    let fabric = fabric(if key.is_empty() { &[] } else { &env }, log);
    let listeners: Vec<Listener> = (0..numbers[0]).map(|_| fabric.listen(0).unwrap()).collect();
    for listener in &listeners {
        let hex: String = listener.handle().iter().map(|b| format!("{b:02x}")).collect();
        println!("\n#handle {hex}");
    }
    let (tell, told) = channel();
    std::thread::spawn(move || std::io::stdin().lines().for_each(|line| drop(tell.send(line.unwrap()))));
    let (mut polls, mut hoard, mut up) = (false, Vec::new(), Vec::new());
    let (mut errors, mut most) = (0, 0);
    let (mut set, mut fds) = (WaitSet::new(), Vec::new());
    loop {
        match told.try_recv().as_deref() {
            Ok("poll") => polls = true,
            Ok("hoard") => {
                while let Ok(file) = File::open("/dev/null") {
                    hoard.push(file);
                }
            }
            Ok("release") => hoard.clear(),
            Ok(_) => {
                let warnings = warnings.load(Ordering::Relaxed);
                let open = if hoard.is_empty() { descriptors() } else { 0 };
                println!("\n#report {} {errors} {warnings} {open} {most}", up.len());
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(_) => {}
        }
        fds.clear();
        for listener in listeners.iter().filter(|_| polls) {
            loop {
                match listener.accept() {
                    Ok(Some(channel)) => up.push(channel),
                    Ok(None) => break,
                    Err(_) => {
                        errors += 1;
                        break;
                    }
                }
            }
            listener.wait_fds(&mut fds);
        }
        if hoard.is_empty() {
            most = most.max(descriptors());
        }
        set.clear();
        for fd in &fds {
            set.add(*fd);
        }
        set.wait(Some(Duration::from_millis(5))).unwrap();
    }
}

/// That process as its parent sees it.
struct Far {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    handles: Vec<[u8; HANDLE_LEN]>,
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Far {
    /// `None` in that process itself, after it has done what it is for.
    fn start(test: &str, listeners: usize, descriptors: u64, env: &[(&str, &str)]) -> Option<Far> {
        if let Ok(what) = std::env::var(SERVES) {
            serve(&what);
            return None;
        }
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("strangers::{test}"), "--nocapture"]);
        command.env(SERVES, format!("{listeners} {descriptors}")).envs(env.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut far = Far { child, input, output, handles: Vec::new() };
        for _ in 0..listeners {
            let hex = far.line("#handle ");
            let byte = |n: usize| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap();
            far.handles.push(std::array::from_fn(byte));
        }
        Some(far)
    }

    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process with the listeners has ended");
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    fn report(&mut self) -> Report {
        self.tell("report");
        let numbers: Vec<usize> = self.line("#report ").split(' ').map(|n| n.parse().unwrap()).collect();
        let [up, errors, warnings, descriptors, most] = numbers[..] else { panic!("{numbers:?}") };
        Report { up, errors, warnings, descriptors, most }
    }

    fn handle(&self, n: usize) -> Handle {
        Handle::decode(&self.handles[n]).unwrap()
    }

    fn addr(&self, n: usize) -> SocketAddr {
        self.handle(n).addrs()[0].socket()
    }
}

/// Connects and says nothing.
fn stranger(addr: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&addr.into());
    socket.into()
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 512]) {
        Ok(n) => n == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected),
    }
}

/// Polls them until all are up.
fn all_up(mut connecting: Vec<Connecting>) -> Result<Vec<linkspan_fabric::Channel>, Error> {
    let mut up = Vec::new();
    let until = Instant::now() + PATIENCE;
    while !connecting.is_empty() {
        assert!(Instant::now() < until, "{} are not up", connecting.len());
        let mut n = 0;
        while n < connecting.len() {
            match connecting[n].poll()? {
                Some(channel) => {
                    up.push(channel);
                    connecting.swap_remove(n);
                }
                None => n += 1,
            }
        }
        std::thread::yield_now();
    }
    Ok(up)
}

#[test]
fn two_thousand_silent_strangers_keep_none_of_three_hundred_peers_out() {
    let name = "two_thousand_silent_strangers_keep_none_of_three_hundred_peers_out";
    let Some(mut far) = Far::start(name, 1, 1024, &[]) else { return };
    let fabric = fabric(&[], Log::off());
    let strangers: Vec<TcpStream> = (0..2000).map(|_| stranger(far.addr(0))).collect();
    let mut peers: Vec<Connecting> = (0..300).map(|_| fabric.connect(0, &far.handles[0]).unwrap()).collect();
    // Nobody looks at the listener for a while.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        peers.iter_mut().for_each(|peer| assert!(peer.poll().unwrap().is_none()));
    }
    far.tell("poll");
    let up = all_up(peers).unwrap_or_else(|error| panic!("{}", chain(&error)));
    let report = far.report();
    assert_eq!((up.len(), report.up, report.errors), (300, 300, 0), "{report:?}");
    drop(strangers);
}

#[test]
fn peers_that_come_all_at_once_do_not_displace_each_other() {
    let name = "peers_that_come_all_at_once_do_not_displace_each_other";
    let Some(mut far) = Far::start(name, 1, 1024, &[]) else { return };
    let fabric = fabric(&[], Log::off());
    let mut peers: Vec<Connecting> = (0..300).map(|_| fabric.connect(0, &far.handles[0]).unwrap()).collect();
    // All have said their hello before the listener is looked at for the first time.
    for _ in 0..20 {
        peers.iter_mut().for_each(|peer| assert!(peer.poll().unwrap().is_none()));
    }
    far.tell("poll");
    let up = all_up(peers).unwrap_or_else(|error| panic!("{}", chain(&error)));
    // Each with its keepalive stream, too.
    let report = far.report();
    assert_eq!((up.len(), report.up, report.errors, report.warnings), (300, 300, 0, 0), "{report:?}");
}

#[test]
fn bursts_at_several_listeners_stay_within_the_bound_of_the_process() {
    let name = "bursts_at_several_listeners_stay_within_the_bound_of_the_process";
    let Some(mut far) = Far::start(name, 3, 1024, &[]) else { return };
    let before = far.report().descriptors;
    let mut strangers: Vec<TcpStream> = (0..3).flat_map(|n| vec![far.addr(n); 400]).map(stranger).collect();
    far.tell("poll");
    let until = Instant::now() + PATIENCE;
    while !strangers.is_empty() {
        assert!(Instant::now() < until, "{} strangers are still there", strangers.len());
        strangers.retain_mut(|stream| !is_closed(stream));
        std::thread::yield_now();
    }
    let report = far.report();
    // 256 streams, and what the count itself and its neighbours take.
    assert!(report.most <= before + 256 + 8 && report.most > before + 200, "{before} before, then {report:?}");
    assert_eq!(report.errors, 0);
}

#[test]
fn a_process_without_descriptors_pauses_and_warns_once() {
    let name = "a_process_without_descriptors_pauses_and_warns_once";
    let Some(mut far) = Far::start(name, 5, 256, &[]) else { return };
    far.tell("hoard");
    far.report();
    let strangers: Vec<TcpStream> = (0..5).flat_map(|n| vec![far.addr(n); 50]).map(stranger).collect();
    far.tell("poll");
    let until = Instant::now() + PATIENCE;
    while far.report().warnings == 0 {
        assert!(Instant::now() < until, "it never ran out of descriptors");
    }
    drop(strangers);
    far.tell("release");
    let fabric = fabric(&[], Log::off());
    let peers = far.handles.clone();
    let up = all_up(peers.iter().map(|handle| fabric.connect(0, handle).unwrap()).collect());
    assert_eq!(up.unwrap_or_else(|error| panic!("{}", chain(&error))).len(), 5);
    let report = far.report();
    assert_eq!((report.up, report.errors, report.warnings), (5, 0, 1), "{report:?}");
}

/// A login that was overheard and cut, or made by somebody who has the token and not the key: each of its copies is a hello with
/// a right code.
#[test]
fn a_hello_that_is_sent_again_and_again_keeps_nobody_out() {
    let name = "a_hello_that_is_sent_again_and_again_keeps_nobody_out";
    let path = format!("{}/strangers-psk-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    if std::env::var(SERVES).is_err() {
        std::fs::write(&path, "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let env = [("LINKSPAN_PSK_FILE", path.as_str())];
    let Some(mut far) = Far::start(name, 1, 1024, &env) else { return };
    let fabric = fabric(&env, Log::off());
    std::fs::remove_file(&path).unwrap();
    let (handle, addr) = (far.handle(0), far.addr(0));
    let params = ClientParams {
        guard: Guard::Psk { psk: Psk::new([1; 32]), encrypt: false },
        ..ClientParams::new(handle.listen_id, handle.token.clone(), 7, 0)
    };
    let login = Login::client(params, Seed::random().unwrap(), Duration::ZERO).unwrap();
    let hello = login.output().to_vec();
    far.tell("poll");
    let stop = Arc::new(AtomicBool::new(false));
    let (stops, made) = (stop.clone(), Arc::new(AtomicU64::new(0)));
    let counted = made.clone();
    let attacker = std::thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        while !stops.load(Ordering::Relaxed) {
            streams.retain_mut(|stream| {
                let mut answer = [0; 512];
                !matches!(stream.read(&mut answer), Ok(0)) || stream.peek(&mut answer).is_ok_and(|n| n > 0)
            });
            while streams.len() < 400 {
                let Ok(mut stream) = TcpStream::connect(addr) else { break };
                let _ = stream.write_all(&hello);
                stream.set_nonblocking(true).unwrap();
                streams.push(stream);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
    });
    let until = Instant::now() + PATIENCE;
    while made.load(Ordering::Relaxed) < 400 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let up = all_up(vec![fabric.connect(0, &far.handles[0]).unwrap()]);
    stop.store(true, Ordering::Relaxed);
    attacker.join().unwrap();
    up.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(far.report().up, 1);
}

/// Somebody in between who ends the first streams.
fn forwarder(to: SocketAddr, refuses: usize) -> SocketAddr {
    let listener = TcpListener::bind((to.ip(), 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let near = stream.unwrap();
            if n < refuses {
                continue;
            }
            let Ok(far) = TcpStream::connect(to) else { continue };
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    addr
}

#[test]
fn a_connect_whose_streams_are_ended_is_tried_again() {
    let fabric = fabric(&[], Log::off());
    let listener = fabric.listen(0).unwrap();
    let own = Handle::decode(&listener.handle()).unwrap();
    // A path has two streams, so the first tries all fail.
    let addr = forwarder(own.addrs()[0].socket(), 6);
    let mut handle = Handle::new(own.listen_id, own.token.clone(), own.host);
    handle.push(Addr { ip: addr.ip(), port: addr.port(), prefix: own.addrs()[0].prefix }).unwrap();
    let mut connecting = fabric.connect(0, &handle.encode()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + PATIENCE;
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until);
        here = here.or_else(|| connecting.poll().unwrap_or_else(|error| panic!("{}", chain(&error))));
        there = there.or_else(|| listener.accept().unwrap());
    }
}

#[test]
fn a_connect_that_nobody_answers_fails_when_its_time_is_over_and_says_why() {
    let fabric = fabric(&[("LINKSPAN_CONNECT_TIMEOUT_MS", "1000")], Log::off());
    let handle = fabric.listen(0).unwrap().handle();
    let begun = Instant::now();
    let mut connecting = fabric.connect(0, &handle).unwrap();
    let error = loop {
        match connecting.poll() {
            Ok(None) => std::thread::yield_now(),
            Ok(Some(_)) => panic!("there is no listener any more"),
            Err(error) => break error,
        }
    };
    assert!(begun.elapsed() > Duration::from_millis(500), "it was not tried again");
    let text = chain(&error);
    assert_eq!(text.matches("refused").count(), 1, "equal reasons are said once: {text}");
}

/// Who sleeps on the descriptors of a listener is woken by each step of a set-up, that of shared memory too.
#[test]
fn a_listener_that_is_slept_on_wakes_for_shared_memory() {
    let fabric = fabric(&[("LINKSPAN_PATH", "shm")], Log::off());
    let listener = fabric.listen(0).unwrap();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let sleeper = std::thread::spawn(move || {
        let (mut set, mut fds) = (WaitSet::new(), Vec::new());
        loop {
            if let Some(channel) = listener.accept().unwrap() {
                return channel;
            }
            set.clear();
            fds.clear();
            listener.wait_fds(&mut fds);
            for fd in &fds {
                set.add(*fd);
            }
            assert!(set.wait(Some(PATIENCE)).unwrap() > 0, "nothing woke it");
        }
    });
    let until = Instant::now() + PATIENCE;
    let here = loop {
        assert!(Instant::now() < until);
        match connecting.poll().unwrap_or_else(|error| panic!("{}", chain(&error))) {
            Some(channel) => break channel,
            None => std::thread::yield_now(),
        }
    };
    assert!(here.describe().starts_with("shm"), "{}", here.describe());
    assert!(sleeper.join().unwrap().describe().starts_with("shm"));
}

#[test]
fn an_accept_ends_however_many_connections_end_at_once() {
    let listener = fabric(&[], Log::off()).listen(0).unwrap();
    let handle = Handle::decode(&listener.handle()).unwrap();
    let to = handle.addrs().iter().find(|addr| addr.ip.is_loopback()).unwrap();
    for _ in 0..100 {
        drop(TcpStream::connect((to.ip, to.port)).unwrap());
    }
    assert!(listener.accept().unwrap().is_none());
    let (mut set, mut fds) = (WaitSet::new(), Vec::new());
    listener.wait_fds(&mut fds);
    fds.iter().for_each(|fd| _ = set.add(*fd));
    assert!(set.wait(Some(Duration::ZERO)).unwrap() > 0, "it has gone on until nobody came any more");
}
