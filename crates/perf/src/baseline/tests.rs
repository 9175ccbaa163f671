use std::io::Write;
use std::net::TcpStream;
use std::thread;

use super::*;
use crate::idle::Idle;
use crate::interrupt::Interrupt;
use crate::link::LinkDesc;
use crate::mock::{Faults, pair};
use crate::session::{Limits, serve};
use crate::spec::WaitMode;
use bare::{Server, Terms};
use linkspan_net::Quota;

const TOKEN: [u8; 16] = [7; 16];

fn server(memory: &Quota, cma: bool) -> Server {
    let terms = Terms { token: TOKEN, memory: memory.clone(), cma, idle: Idle::new(None) };
    Server::start(&LinkDesc::default(), terms).unwrap()
}

fn visit(server: &Server) -> Bare {
    Bare::connect(&LinkDesc::default(), server.port(), TOKEN, &Interrupt::new()).unwrap()
}

/// The server lives as long as what is returned.
fn connected(memory: u64, cma: bool) -> (Bare, Server) {
    let server = server(&Quota::new(memory), cma);
    (visit(&server), server)
}

/// Joined, or `None` where the machine forbids cross-memory attach, which is then said.
fn joined() -> Option<(Bare, Server)> {
    let (mut bare, server) = connected(1 << 30, true);
    bare.join().unwrap();
    if let Err(why) = bare.split() {
        eprintln!("direct copy cannot be tested here: {why}");
        return None;
    }
    Some((bare, server))
}

#[test]
fn rounds_of_every_kind_on_one_connection() {
    let (mut bare, _server) = connected(1 << 30, true);
    assert!(!bare.congestion().is_empty());
    for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Sleep] {
        assert_eq!(bare.ping_pong(Loop::Ping, 8, 20, wait).unwrap().count(), 20);
        assert_eq!(bare.ping_pong(Loop::Ping, 3 << 20, 2, wait).unwrap().count(), 2);
        for kind in [Loop::Stream, Loop::Window] {
            assert!(bare.stream(kind, 100, 3, 100, wait).unwrap().elapsed_ns > 0);
            assert!(bare.stream(kind, 2 << 20, 2, 5, wait).unwrap().elapsed_ns > 0);
            assert!(bare.stream(kind, 1, 1, 3, wait).unwrap().elapsed_ns > 0);
        }
    }
}

#[test]
fn two_processes_copy_at_once_in_every_mode() {
    let Some((mut bare, _server)) = joined() else { return };
    for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Sleep] {
        let flow = bare.stream(Loop::Split, 300_000, 3, 10, wait).unwrap();
        assert!(flow.elapsed_ns > 0 && flow.cpu_peer_ns > 0);
        assert_eq!(bare.ping_pong(Loop::SplitPing, 70_000, 5, wait).unwrap().count(), 5);
        assert_eq!(bare.ping_pong(Loop::Line, 8, 50, wait).unwrap().count(), 50);
        // The same connection still serves the other loops.
        assert_eq!(bare.ping_pong(Loop::Ping, 8, 2, wait).unwrap().count(), 2);
    }
}

#[test]
fn what_is_switched_off_says_so() {
    let (mut bare, _server) = connected(1 << 30, false);
    assert!(bare.split().is_err(), "not asked yet");
    bare.join().unwrap();
    assert!(bare.split().unwrap_err().contains("LINKSPAN_CMA=0"));
    let error = bare.ping_pong(Loop::Line, 8, 1, WaitMode::Spin).unwrap_err();
    assert!(matches!(error, PerfError::Baseline { .. }), "{error}");
}

#[test]
fn a_visitor_with_another_nonce_gets_no_memory() {
    let patience = socket::Patience::new(&Interrupt::new());
    let (_map, offer) = cma::Pending::new([1; 16]).unwrap();
    let (split, _) = cma::answer(&offer, [2; 16], true, &patience);
    assert!(split.is_none());
}

#[test]
fn strangers_are_sent_away_and_the_visitor_still_comes_in() {
    let server = server(&Quota::new(1 << 30), true);
    for said in [&[9u8; 16][..], &[1]] {
        TcpStream::connect(("127.0.0.1", server.port())).unwrap().write_all(said).unwrap();
    }
    let mut bare = visit(&server);
    assert_eq!(bare.ping_pong(Loop::Ping, 8, 2, WaitMode::Adaptive).unwrap().count(), 2);
}

#[test]
fn a_round_beyond_the_limit_is_refused() {
    for (size, count) in [(2 << 20, 1), (1 << 19, u64::MAX / 2)] {
        let (mut bare, _server) = connected(1 << 20, true);
        let error = bare.ping_pong(Loop::Ping, size, count, WaitMode::Adaptive).unwrap_err();
        assert!(matches!(error, PerfError::Baseline { .. }), "{error}");
    }
}

#[test]
fn memory_is_taken_for_a_round_and_given_back_after_it() {
    let memory = Quota::new(1 << 20);
    let server = server(&memory, false);
    let mut bare = visit(&server);
    for _ in 0..3 {
        bare.stream(Loop::Stream, 1 << 18, 4, 4, WaitMode::Sleep).unwrap();
    }
    // The server gives a round's memory back when it hears that the visitor is done with it.
    let share = loop {
        match memory.take(1) {
            Some(share) => break share,
            None => thread::yield_now(),
        }
    };
    let error = bare.stream(Loop::Stream, 1 << 18, 4, 4, WaitMode::Sleep).unwrap_err();
    assert!(matches!(error, PerfError::Baseline { .. }), "{error}");
    drop((share, server));
    assert_eq!(memory.left(), 1 << 20);
}

#[test]
fn the_end_of_a_session_ends_a_visitor_that_never_pauses() {
    let memory = Quota::new(1 << 20);
    let server = server(&memory, false);
    let mut bare = visit(&server);
    let visitor = thread::spawn(move || bare.stream(Loop::Stream, 1 << 18, 4, 1 << 40, WaitMode::Spin));
    while memory.left() == 1 << 20 {
        thread::yield_now();
    }
    // Returns once its thread has ended.
    drop(server);
    assert_eq!(memory.left(), 1 << 20);
    visitor.join().unwrap().unwrap_err();
}

#[test]
fn a_client_that_is_killed_in_a_copy_leaves_no_memory_taken() {
    const PORT: &str = "LINKSPAN_TEST_PORT";
    if let Ok(port) = std::env::var(PORT) {
        let desc = LinkDesc::default();
        let mut bare = Bare::connect(&desc, port.parse().unwrap(), TOKEN, &Interrupt::new()).unwrap();
        bare.join().unwrap();
        match bare.split() {
            Ok(()) => bare.stream(Loop::Split, 1 << 18, 4, 1 << 40, WaitMode::Sleep).map(drop).unwrap(),
            Err(why) => eprintln!("direct copy cannot be tested here: {why}"),
        }
        return;
    }
    let memory = Quota::new(1 << 20);
    let server = server(&memory, true);
    let mut client = std::process::Command::new(std::env::current_exe().unwrap());
    client.args([
        "--exact",
        "baseline::tests::a_client_that_is_killed_in_a_copy_leaves_no_memory_taken",
        "--nocapture",
    ]);
    let mut client = client.env(PORT, server.port().to_string()).spawn().unwrap();
    while memory.left() == 1 << 20 {
        if let Some(status) = client.try_wait().unwrap() {
            assert!(status.success(), "it ended before it copied");
            return;
        }
        thread::yield_now();
    }
    client.kill().unwrap();
    client.wait().unwrap();
    // Returns once its thread has ended.
    drop(server);
    assert_eq!(memory.left(), 1 << 20);
}

#[test]
fn pairs_are_interleaved_and_ratios_spread() {
    let (ours, mut theirs) = pair(Faults::default());
    let server = thread::spawn(move || serve(&mut theirs, &Limits::default()));
    let mut client = Client::new(ours, Some(Duration::from_secs(60)));
    let mut bare = client.bare([5; 16]).unwrap();
    let cma = {
        bare.join().unwrap();
        bare.split().is_ok()
    };
    for (test, size, kinds) in [
        (Test::Lat, 8, &[Kind::Tcp, Kind::CacheLine][..]),
        (Test::Lat, 1000, &[Kind::Tcp]),
        (Test::Bw, 100, &[Kind::Tcp, Kind::Memcpy, Kind::TcpWindow]),
        (Test::Bw, 8192, &[Kind::Tcp, Kind::Memcpy, Kind::TcpWindow, Kind::SplitCma]),
    ] {
        let spec = Spec { stop: Stop::Messages(20), warmup: 2, ..Spec::new(test, size) };
        let out = compare(&mut client, &mut bare, &spec, 1).unwrap();
        let found: Vec<Kind> = out.comparisons.iter().map(|one| one.kind).collect();
        let shared = |kind: &Kind| matches!(kind, Kind::SplitCma | Kind::CacheLine);
        let wanted: Vec<Kind> = kinds.iter().copied().filter(|kind| cma || !shared(kind)).collect();
        assert_eq!(found, wanted, "{test:?} {size}");
        assert_eq!(out.notes.len(), kinds.len() - wanted.len(), "what is missing is named");
        for one in &out.comparisons {
            assert_eq!(one.pairs.len() as u32, ROUNDS);
            let (mid, low, high) = one.ratio();
            assert!(0.0 < low && low <= mid && mid <= high, "{one:?}");
            let has_cpu = test == Test::Bw && one.kind != Kind::Memcpy;
            assert_eq!((one.cpu_ratio().is_some(), one.cpu_medians().is_some()), (has_cpu, has_cpu));
        }
    }
    let both = Spec { direction: Direction::Both, ..Spec::new(Test::Bw, 8) };
    let out = compare(&mut client, &mut bare, &both, 10).unwrap();
    assert!(out.comparisons.is_empty() && out.notes.len() == 1);
    client.close().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn an_interrupt_ends_a_comparison() {
    let (ours, mut theirs) = pair(Faults::default());
    let server = thread::spawn(move || serve(&mut theirs, &Limits::default()));
    let interrupt = Interrupt::new();
    let mut client = Client::new(ours, Some(Duration::from_secs(60))).with_interrupt(&interrupt);
    let mut bare = client.bare([5; 16]).unwrap();
    let other = interrupt.clone();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        other.raise();
    });
    let spec = Spec { stop: Stop::After(Duration::from_secs(600)), ..Spec::new(Test::Lat, 8) };
    let error = compare(&mut client, &mut bare, &spec, 10).unwrap_err();
    assert!(matches!(error, PerfError::Link(crate::link::LinkError::Interrupted)), "{error}");
    later.join().unwrap();
    client.close().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn memory_is_copied() {
    let speed = Memcpy::new(1 << 20, 4).round(Duration::from_millis(20));
    assert!(speed > 0.05 && speed < 10_000.0, "{speed} GB/s");
}

#[test]
fn ratios_of_known_pairs() {
    let pairs = vec![(2.0, 1.0), (3.0, 1.0), (1.0, 1.0), (1.0, 0.0)];
    let out =
        Comparison { kind: Kind::Tcp, measure: Measure::Bandwidth, pairs, cpu: vec![(3.0, 2.0)], congestion: None };
    assert_eq!(out.ratio(), (2.0, 1.0, 3.0));
    assert_eq!(out.medians(), (1.5, 1.0));
    assert_eq!(out.cpu_ratio(), Some((1.5, 1.5, 1.5)));
    assert_eq!(out.cpu_medians(), Some((3.0, 2.0)));
    assert_eq!(Comparison { cpu: vec![], ..out }.cpu_ratio(), None);
}
