//! Two processes: death, stops and closing at every moment, the worst one above all: a peer that stands still with a
//! claim on a slice of our memory.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::bed::{Processes, tiny};
use crate::common::{Catch, filled, head, pattern, until_down};
use linkspan_proto::Kind;
use linkspan_proto::conn::{Access, RemoteSlice};
use linkspan_shm::{Accepting, Config, Connecting, IDENTITY_LEN, Identity, SETUP_TIME, ShmRail};
use linkspan_transport::{Buf, Down, MemSlice, Poll, Rail, StaticBuf};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, kill_process, pidfd_getfd, pidfd_open};

const CHUNK: usize = 1 << 20;
/// Of what the parent exposes.
const KEY: u32 = 1 << 12;
const ROLE: &str = "LINKSPAN_SHM_TEST_ROLE";

/// Longest time that anything takes on a machine that is busy with other things.
const BUSY: Duration = Duration::from_secs(30);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> [u8; N] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("a step"))
}

/// Stops this process, the first time, between the claim of a slice and its copy.
fn stop_once() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        kill_process(getpid(), Signal::STOP).expect("a step");
        // Another thread may take the signal and stop us a little later: not before the copy is tried.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Takes `/proc` from this thread, as in a container that has none.
fn hide_proc() {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    #[allow(unsafe_code)]
    // SAFETY: the thread shares no descriptors less than before.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("a mount namespace");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("a step");
    mount("none", "/proc", "tmpfs", MountFlags::empty(), None).expect("a step");
    assert!(std::fs::read_to_string("/proc/self/stat").is_err());
}

linkspan_transport::processes_suite!(direct, Processes(Config::default()));
linkspan_transport::processes_suite!(tiny, Processes(tiny()));
linkspan_transport::processes_suite!(ring, Processes(Config { cma: false, ..Config::default() }));

/// The other process. It ends with 0 when the rail went down as it should, and nothing was reported that should not.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let own = linkspan_shm::identity().expect("a step");
    if role.starts_with("blind") {
        hide_proc();
    }
    println!("\nidentity {}", hex(&own.encode()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a step");
    let peer = Identity::decode(&unhex::<IDENTITY_LEN>(line.trim())).expect("a step");
    let between = role.starts_with("hold").then_some(stop_once as fn());
    let config = Config { between, cma: !role.ends_with("ring"), ..Config::default() };
    let deadline = Instant::now() + SETUP_TIME;
    let mut connecting = Connecting::new(config, &own, &peer, deadline).expect("a step");
    let mut rail = loop {
        if let Some(rail) = connecting.poll(Instant::now()).expect("a step") {
            break rail;
        }
    };
    let alone = rail.info().reason.contains("only the receiver copies");
    assert_eq!(alone, role.starts_with("blind"), "{}", rail.info().reason);
    let area = filled(&pattern(1, CHUNK));
    let mut sink = Catch::new(area.slice());
    let mut seq = 0;
    if role.ends_with("exposes") {
        rail.exposed(KEY, area.slice(), Access::ReadWrite);
    }
    loop {
        if role.contains("send") && (seq == 0 || !role.starts_with("hold")) {
            seq += u32::from(rail.data(&head(Kind::Chunk, seq, CHUNK, 0), area.slice()).is_ok());
        }
        if role.ends_with("alone") {
            let _ = rail.copy_alone(area.slice(), RemoteSlice { key: KEY, offset: 0 }, true);
        }
        match rail.poll(&mut sink).and_then(|_| rail.flush()) {
            // It sleeps as far as it says.
            Ok(_) if role.ends_with("exposes") => _ = rail.arm(),
            Ok(_) => {}
            Err(Down::PeerGone { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    if role == "hold recv" {
        assert!(sink.landed.is_empty(), "a chunk whose sender went away was reported");
    }
}

struct Peer {
    child: Child,
    rail: ShmRail,
}

impl Peer {
    fn start(role: &str) -> Peer {
        let own = linkspan_shm::identity().expect("a step");
        let mut child = Command::new(std::env::current_exe().expect("a step"))
            .args(["--exact", "processes::role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a step");
        let mut lines = BufReader::new(child.stdout.take().expect("a step")).lines();
        let text = lines.find_map(|l| l.expect("a step").strip_prefix("identity ").map(String::from)).expect("a step");
        // Read on, so that the child never meets a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let peer = Identity::decode(&unhex::<IDENTITY_LEN>(&text)).expect("a step");
        let deadline = Instant::now() + SETUP_TIME;
        let mut accepting = Accepting::new(Config::default(), &own, &peer, deadline).expect("a step");
        writeln!(child.stdin.as_mut().expect("a step"), "{}", hex(&own.encode())).expect("a step");
        let rail = loop {
            if let Some(rail) = accepting.poll(Instant::now()).expect("a step") {
                break rail;
            }
            std::thread::yield_now();
        };
        Peer { child, rail }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).expect("a step"), signal).expect("a step");
    }

    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a step");
        stat.rsplit_once(") ").expect("a step").1.chars().next().expect("a step")
    }

    /// Lets the child stop: a transfer is opened, and then the slices are left to it.
    fn until_stopped(&mut self, sink: &mut Catch, opened: bool) {
        let end = Instant::now() + BUSY;
        while sink.placed.is_empty() && !opened {
            self.rail.poll(sink).expect("a step");
        }
        self.rail.flush().expect("a step");
        while self.state() != 'T' {
            assert!(Instant::now() < end, "it never came to the point where it stops");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ends_well(mut child: Child) {
        let end = Instant::now() + BUSY;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a step") {
                break status;
            }
            assert!(Instant::now() < end, "the other process never ends");
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(status.success(), "the other process: {status}");
    }
}

fn expect_death(mut peer: Peer, sink: &mut Catch) {
    peer.signal(Signal::KILL);
    let start = Instant::now();
    let down = until_down(&mut peer.rail, sink);
    assert!(matches!(down, Down::PeerGone { .. }), "{down}");
    let start = (start, Instant::now());
    drop(peer.rail);
    // "At once": a look every millisecond; the rest is for a busy machine.
    assert!(start.0.elapsed() < BUSY, "noticed late");
    assert!(start.1.elapsed() < BUSY, "closed late");
    peer.child.wait().expect("a step");
}

#[test]
fn a_sender_killed_in_mid_stream_is_noticed() {
    for role in ["send", "send ring"] {
        let area = StaticBuf::new(CHUNK);
        let mut sink = Catch::new(area.slice());
        let mut peer = Peer::start(role);
        while sink.landed.len() < 20 {
            peer.rail.poll(&mut sink).expect("a step");
        }
        assert!(area.slice().to_vec() == pattern(1, CHUNK), "{role}: other bytes");
        expect_death(peer, &mut sink);
    }
}

#[test]
fn a_receiver_killed_in_mid_stream_is_noticed() {
    for role in ["recv", "recv ring"] {
        let src = filled(&pattern(1, CHUNK));
        let mut sink = Catch::new(MemSlice::EMPTY);
        let mut peer = Peer::start(role);
        let mut seq = 0;
        while peer.rail.taken() < 20 {
            seq += u32::from(peer.rail.data(&head(Kind::Chunk, seq, CHUNK, 0), src.slice()).is_ok());
            peer.rail.flush().expect("a step");
            peer.rail.poll(&mut sink).expect("a step");
        }
        expect_death(peer, &mut sink);
    }
}

/// Descriptors of the peer that outlive it, as in a process that it had forked, hide nothing: its sockets stay open.
#[test]
fn a_peer_killed_whose_sockets_are_still_open_is_noticed() {
    let area = StaticBuf::new(CHUNK);
    let mut sink = Catch::new(area.slice());
    let peer = Peer::start("recv");
    let pidfd = pidfd_open(Pid::from_child(&peer.child), PidfdFlags::empty()).expect("a step");
    let fds = std::fs::read_dir(format!("/proc/{}/fd", peer.child.id())).expect("a step");
    let fds = fds.map(|fd| fd.expect("a step").file_name().into_string().expect("a number"));
    let kept: Vec<_> = fds
        .filter_map(|fd| pidfd_getfd(&pidfd, fd.parse().expect("a number"), PidfdGetfdFlags::empty()).ok())
        .collect();
    assert!(kept.len() > 3, "its sockets could not be had");
    expect_death(peer, &mut sink);
}

#[test]
fn the_first_poll_after_a_sleep_tells_that_the_peer_has_died() {
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut peer = Peer::start("recv");
    let end = Instant::now() + BUSY;
    loop {
        assert!(Instant::now() < end, "it never sleeps");
        // The set-up is over, and this process has looked at the peer's just now.
        peer.rail.poll(&mut sink).expect("a step");
        if peer.rail.arm().is_some() {
            break;
        }
    }
    peer.signal(Signal::KILL);
    peer.child.wait().expect("a step");
    assert!(matches!(peer.rail.poll(&mut sink), Err(Down::PeerGone { .. })), "it slept, and looks at once");
}

#[test]
fn a_peer_killed_with_a_claim_is_noticed_and_harmless() {
    for role in ["hold send", "hold recv"] {
        let area = filled(&pattern(1, CHUNK));
        let mut sink = Catch::new(area.slice());
        let mut peer = Peer::start(role);
        if role == "hold recv" {
            peer.rail.data(&head(Kind::Chunk, 0, CHUNK, 0), area.slice()).expect("a step");
        }
        peer.until_stopped(&mut sink, role == "hold recv");
        expect_death(peer, &mut sink);
        assert!(sink.landed.is_empty(), "{role}");
    }
}

#[test]
fn a_stopped_peer_is_waited_for() {
    let area = StaticBuf::new(CHUNK);
    let mut sink = Catch::new(area.slice());
    let mut peer = Peer::start("hold send");
    peer.until_stopped(&mut sink, false);
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        peer.rail.poll(&mut sink).expect("a step");
    }
    assert!(sink.landed.is_empty(), "a slice is still its");
    peer.signal(Signal::CONT);
    let end = Instant::now() + BUSY;
    while sink.landed.is_empty() {
        peer.rail.poll(&mut sink).expect("a step");
        assert!(Instant::now() < end);
    }
    assert!(area.slice().to_vec() == pattern(1, CHUNK));
    drop(peer.rail);
    Peer::ends_well(peer.child);
}

/// Without `/proc` a late copy could not be proven to have ended: so nothing is shown to the other side.
#[test]
fn a_process_copies_alone_from_one_that_can_prove_its_end_and_from_no_other() {
    for (role, shows) in [("exposes", true), ("blind exposes", false)] {
        if !shows && !rustix::process::geteuid().is_root() {
            println!("cannot be tested here: mounting needs root");
            return;
        }
        let (back, mut peer) = (StaticBuf::new(CHUNK), Peer::start(role));
        let place = RemoteSlice { key: KEY, offset: 0 };
        let end = Instant::now() + if shows { BUSY } else { Duration::from_millis(300) };
        while !peer.rail.copy_alone(back.slice(), place, false) && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(back.slice().to_vec() == pattern(1, CHUNK), shows, "{role}");
        assert!(peer.rail.event().is_none(), "{role}: nothing was tried that could not be");
        drop(peer.rail);
        Peer::ends_well(peer.child);
    }
}

/// The promise of the transport: after `drop` no byte of the destination changes any more, although the peer had claimed a
/// slice, was stopped before it copied, and goes on afterwards.
#[test]
fn a_writer_stopped_with_a_claim_writes_nothing_after_the_drop() {
    let area = StaticBuf::new(CHUNK);
    let mut sink = Catch::new(area.slice());
    let mut peer = Peer::start("hold send");
    peer.until_stopped(&mut sink, false);
    while peer.rail.poll(&mut sink).expect("a step") == Poll::Active {}
    assert!(sink.landed.is_empty());
    let start = Instant::now();
    drop(peer.rail);
    assert!(start.elapsed() < BUSY, "the drop hangs on a stopped peer");
    assert!(area.slice().fill(0, &vec![0x55; CHUNK]));
    kill_process(Pid::from_raw(peer.child.id() as i32).expect("a step"), Signal::CONT).expect("a step");
    Peer::ends_well(peer.child);
    assert!(area.slice().to_vec() == vec![0x55; CHUNK], "written after the rail was gone");
}

#[test]
fn a_writer_stopped_before_it_copies_alone_keeps_the_region_taken_and_writes_nothing_after_the_drop() {
    let area = StaticBuf::new(CHUNK);
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut peer = Peer::start("hold alone");
    peer.rail.exposed(KEY, area.slice(), Access::Write);
    while peer.rail.arm().is_none() {
        peer.rail.poll(&mut sink).expect("a step");
    }
    peer.until_stopped(&mut sink, true);
    assert!(!peer.rail.unexposed(KEY), "it may copy yet");
    let start = Instant::now();
    drop(peer.rail);
    assert!(start.elapsed() < BUSY, "the drop hangs on a stopped peer");
    assert!(area.slice().fill(0, &vec![0x55; CHUNK]));
    kill_process(Pid::from_raw(peer.child.id() as i32).expect("a step"), Signal::CONT).expect("a step");
    Peer::ends_well(peer.child);
    assert!(area.slice().to_vec() == vec![0x55; CHUNK], "written after the rail was gone");
}

#[test]
fn a_process_killed_before_it_copies_alone_leaves_the_region_to_its_owner() {
    let area = StaticBuf::new(CHUNK);
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut peer = Peer::start("hold alone");
    peer.rail.exposed(KEY, area.slice(), Access::Write);
    while peer.rail.arm().is_none() {
        peer.rail.poll(&mut sink).expect("a step");
    }
    peer.until_stopped(&mut sink, true);
    assert!(!peer.rail.unexposed(KEY));
    expect_death(peer, &mut sink);
    assert_eq!(area.slice().to_vec(), vec![0; CHUNK]);
}

#[test]
fn a_reader_stopped_with_a_claim_reports_nothing_after_the_drop() {
    let src = filled(&pattern(1, CHUNK));
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut peer = Peer::start("hold recv");
    peer.rail.data(&head(Kind::Chunk, 0, CHUNK, 0), src.slice()).expect("a step");
    peer.until_stopped(&mut sink, true);
    let start = Instant::now();
    drop(peer.rail);
    assert!(start.elapsed() < BUSY, "the drop hangs on a stopped peer");
    kill_process(Pid::from_raw(peer.child.id() as i32).expect("a step"), Signal::CONT).expect("a step");
    // It asserts that nothing was reported.
    Peer::ends_well(peer.child);
}

/// Without `/proc` a late writer could not be proven gone: so there is none, from the start.
#[test]
fn without_proof_only_the_receiver_copies() {
    if !rustix::process::geteuid().is_root() {
        println!("cannot be tested here: mounting needs root");
        return;
    }
    let src = filled(&pattern(1, CHUNK));
    let mut sink = Catch::new(MemSlice::EMPTY);
    let mut peer = Peer::start("blind recv");
    let mut seq = 0;
    while peer.rail.taken() < 20 {
        seq += u32::from(peer.rail.data(&head(Kind::Chunk, seq, CHUNK, 0), src.slice()).is_ok());
        peer.rail.flush().expect("a step");
        peer.rail.poll(&mut sink).expect("a step");
    }
    drop(peer.rail);
    Peer::ends_well(peer.child);
}

#[test]
fn a_drop_in_mid_stream_is_quick_and_final() {
    for role in ["send", "recv", "send ring", "recv ring"] {
        for landed in [1, 7] {
            let area = filled(&pattern(1, CHUNK));
            let mut sink = Catch::new(area.slice());
            let mut peer = Peer::start(role);
            let mut seq = 0;
            while sink.landed.len() < landed && peer.rail.taken() < landed as u64 {
                if role.starts_with("recv") {
                    seq += u32::from(peer.rail.data(&head(Kind::Chunk, seq, CHUNK, 0), area.slice()).is_ok());
                }
                peer.rail.flush().expect("a step");
                peer.rail.poll(&mut sink).expect("a step");
            }
            let start = Instant::now();
            drop(peer.rail);
            assert!(start.elapsed() < BUSY);
            assert!(area.slice().fill(0, &vec![0x55; CHUNK]));
            Peer::ends_well(peer.child);
            assert!(area.slice().to_vec() == vec![0x55; CHUNK], "{role}: written after the drop");
        }
    }
}
