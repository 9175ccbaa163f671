//! The transport over io_uring's zero-copy receive in its mode without a card (Linux 7.1, CAP_NET_ADMIN), with memory of a simulated GPU.
//!
//! `cargo run --release -p linkspan-devmem --example uring`: the conformance suite with many and with few pages, planted bugs,
//! and a peer that is killed. Exit code 4 where the kernel has no such mode. `LINKSPAN_CONFORMANCE=full` takes long.
#![allow(clippy::unwrap_used)]

#[path = "../tests/integration/common/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::bed::PAYLOAD;
use common::uring::{end, here, uring};
use common::{SimRail, until};
use linkspan_devmem::{PlantedBug, plant};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_tcp::{Dial, Listen, Options, Stream};
use linkspan_transport::conformance::{Level, Patience, behaviours};
use linkspan_transport::{Buf, Conn};

/// Of a message that goes to and fro.
const LEN: usize = 3 << 20;

fn suite(pages: usize, only: Option<&[&str]>) {
    for (name, behaviour) in behaviours::<SimRail>() {
        if only.is_some_and(|only| !only.contains(&name)) {
            continue;
        }
        let since = Instant::now();
        behaviour(&mut uring(pages), Level::from_env());
        println!("{pages:5} pages  {name}: ok, {:.1} s", since.elapsed().as_secs_f64());
    }
}

/// Bugs that would be seen on a card too: pages that go back early are written again by the kernel.
fn planted() {
    for bug in [PlantedBug::TokensEarly, PlantedBug::LandedEarly, PlantedBug::SplitToken] {
        plant(Some(bug));
        let caught =
            behaviours::<SimRail>().into_iter().filter(|b| PAYLOAD[1..4].contains(&b.0)).find(|(_, behaviour)| {
                let run = || {
                    let mut bed = uring(24);
                    bed.patience = Patience::Wall(Duration::from_secs(20));
                    behaviour(&mut bed, Level::Quick);
                };
                catch_unwind(AssertUnwindSafe(run)).is_err()
            });
        plant(None);
        let (name, _) = caught.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        println!("planted: {bug:?} is caught by {name}");
    }
}

fn options() -> Options {
    Options::default()
}

/// The other process: sends for as long as it lives.
fn peer(at: [SocketAddr; 2]) -> ! {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let [control, data] = at.map(|at| {
        let mut dial = Dial::start(None, at, &options(), Duration::from_secs(60)).unwrap();
        until("connect", || dial.poll().unwrap())
    });
    let mut conn = Conn::new([end(&gpu, control, data, 64 << 12)], false);
    let any: Arc<dyn Gpu> = gpu;
    let src = StaticGpuBuf::new(&any, LEN).unwrap();
    assert!(src.slice().fill(0, &vec![0x3c; LEN]));
    loop {
        let mut sent = None;
        until("a message", || {
            sent = sent.or_else(|| conn.post_send(1, src.slice()).unwrap());
            conn.progress().unwrap();
            conn.test(sent?).unwrap()
        });
    }
}

/// A peer that is killed in the midst of messages: told within seconds, and nothing of its stream is held.
fn killed() {
    let mut listens = [(); 2].map(|()| Listen::bind("127.0.0.1:0".parse().unwrap(), &options()).unwrap());
    let at = [0, 1].map(|n: usize| listens[n].local_addr());
    let words = at.map(|at| at.to_string());
    let mut other =
        Command::new(std::env::current_exe().unwrap()).arg("peer").args(words).stdout(Stdio::null()).spawn().unwrap();
    let [control, data]: [Stream; 2] = [0, 1].map(|n: usize| until("accept", || listens[n].accept().unwrap()).0);
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let mut conn = Conn::new([end(&gpu, control, data, 64 << 12)], false);
    let any: Arc<dyn Gpu> = gpu.clone();
    let dst = StaticGpuBuf::new(&any, LEN).unwrap();
    let post = |conn: &mut Conn<_>| until("space for a receive", || conn.post_recv(&[(1, dst.slice())]).unwrap());
    for _ in 0..5 {
        let recv = post(&mut conn);
        until("a message", || {
            conn.progress().unwrap();
            conn.test(recv).unwrap()
        });
        assert!(dst.slice().to_vec() == vec![0x3c; LEN], "not what was sent");
    }
    let recv = post(&mut conn);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2) {
        conn.progress().unwrap();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    let since = Instant::now();
    let told = loop {
        let moved = conn.progress();
        match (moved, conn.test(recv)) {
            (Err(down), _) => break down.to_string(),
            (_, Err(down)) => break down.to_string(),
            _ => assert!(since.elapsed() < Duration::from_secs(30), "a killed peer is not told of"),
        }
    };
    drop(conn);
    assert_eq!(gpu.fault(), None);
    println!("a killed peer: {told}");
    assert!(since.elapsed() < Duration::from_secs(30), "told after {:?}", since.elapsed());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert_eq!(threads, 1, "threads of rings that have ended");
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [what, control, data] = &words[..]
        && what == "peer"
    {
        peer([control, data].map(|at| at.parse().unwrap()));
    }
    if let Err(why) = here() {
        println!("cannot be tested here: {why}");
        return ExitCode::from(4);
    }
    killed();
    suite(512, None);
    suite(24, Some(&PAYLOAD[..4]));
    planted();
    println!("passed");
    std::io::stdout().flush().unwrap();
    ExitCode::SUCCESS
}
