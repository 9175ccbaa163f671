use std::io::Write;
use std::net::TcpStream;
use std::thread;

use super::*;
use crate::link::LinkDesc;
use crate::mock::{Faults, pair};
use crate::session::{Limits, serve};
use crate::spec::WaitMode;

fn connected() -> Bare {
    let desc = LinkDesc::default();
    let port = bare::listen(&desc, [7; 16], 1 << 30).unwrap();
    Bare::connect(&desc, port, [7; 16]).unwrap()
}

#[test]
fn rounds_of_every_kind_on_one_connection() {
    let mut bare = connected();
    assert!(!bare.congestion().is_empty());
    for wait in [WaitMode::Adaptive, WaitMode::Sleep] {
        assert_eq!(bare.ping_pong(8, 20, wait).unwrap().count(), 20);
        assert_eq!(bare.ping_pong(3 << 20, 2, wait).unwrap().count(), 2);
        assert!(bare.stream(100, 3, 100, wait).unwrap().elapsed_ns > 0);
        assert!(bare.stream(2 << 20, 2, 5, wait).unwrap().elapsed_ns > 0);
    }
}

#[test]
fn strangers_are_sent_away_and_the_visitor_still_comes_in() {
    let desc = LinkDesc::default();
    let port = bare::listen(&desc, [7; 16], 1 << 30).unwrap();
    for said in [&[9u8; 16][..], &[1]] {
        TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(said).unwrap();
    }
    let mut bare = Bare::connect(&desc, port, [7; 16]).unwrap();
    assert_eq!(bare.ping_pong(8, 2, WaitMode::Adaptive).unwrap().count(), 2);
}

#[test]
fn a_round_beyond_the_limit_is_refused() {
    let desc = LinkDesc::default();
    let port = bare::listen(&desc, [7; 16], 1 << 20).unwrap();
    let mut bare = Bare::connect(&desc, port, [7; 16]).unwrap();
    let error = bare.ping_pong(2 << 20, 1, WaitMode::Adaptive).unwrap_err();
    assert!(matches!(error, PerfError::Baseline { .. }), "{error}");
}

#[test]
fn pairs_are_interleaved_and_ratios_spread() {
    let (ours, mut theirs) = pair(Faults::default());
    let server = thread::spawn(move || serve(&mut theirs, &Limits::default()));
    let mut client = Client::new(ours, Some(Duration::from_secs(60)));
    let mut bare = client.bare([5; 16]).unwrap();
    for (test, measure) in [(Test::Lat, Measure::HalfRoundTrip), (Test::Bw, Measure::Bandwidth)] {
        let spec = Spec { stop: Stop::Messages(20), warmup: 2, ..Spec::new(test, 1000) };
        let out = compare(&mut client, &mut bare, &spec, 1).unwrap().unwrap();
        assert_eq!((out.measure, out.pairs.len() as u32), (measure, ROUNDS));
        let (mid, low, high) = out.ratio();
        assert!(0.0 < low && low <= mid && mid <= high, "{out:?}");
        assert_eq!(out.cpu_ratio().is_some(), test == Test::Bw);
    }
    let both = Spec { direction: Direction::Both, ..Spec::new(Test::Bw, 8) };
    assert!(compare(&mut client, &mut bare, &both, 10).unwrap().is_none());
    client.close().unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn memory_is_copied() {
    let speed = memcpy::memcpy(1 << 20, 4, Duration::from_millis(20));
    assert!(speed > 0.05 && speed < 10_000.0, "{speed} GB/s");
}

#[test]
fn ratios_of_known_pairs() {
    let pairs = vec![(2.0, 1.0), (3.0, 1.0), (1.0, 1.0), (1.0, 0.0)];
    let out = Comparison { measure: Measure::Bandwidth, pairs, cpu: vec![], congestion: String::new() };
    assert_eq!(out.ratio(), (2.0, 1.0, 3.0));
    assert_eq!(out.medians(), (1.5, 1.0));
    assert_eq!(out.cpu_ratio(), None);
}
