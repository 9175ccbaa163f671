//! What operations cost this side's processor over the software NIC; for `valgrind --tool=callgrind`, which counts
//! instructions whatever else the machine does.
//!
//! `cost hit N`: N look-ups in a registration cache of 1,024 regions. `cost frame N`: N messages of 64 bytes. `cost chunk
//! N`: N messages of one 12 KiB chunk into a told place. `cost none N`: the same set-up and nothing else, to subtract. With `watched` behind N
//! the memory is watched, so that each use of it asks the kernel.
//! `cost segment N`, `cost tensors N`: N tensors of 16 KiB of one segment are used, twice each, with the segment registered and without;
//! their memory is watched.

use std::net::Ipv4Addr;
use std::time::Instant;

use linkspan_transport::{Conn, MemSlice, StaticBuf};
use linkspan_verbs::{Config, Domain, Setup, join};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_else(|| "hit".into());
    let n: u64 = words.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    if let "segment" | "tensors" = &*what {
        return tensors(n, what == "segment");
    }
    let watched = words.next().is_some_and(|word| word == "watched");
    let net = SoftNet::new(1);
    let domain = |last| Domain::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1)));
    let domain = |last| if watched { domain(last).watching() } else { domain(last) };
    let (here, there) = (domain(1), domain(2));
    let side = |d: &Domain<_>| Setup::new(d.clone(), Config::default()).unwrap_or_else(|e| panic!("{e}"));
    let (mut a, b) = join(side(&here), side(&there)).unwrap_or_else(|e| panic!("{e}"));
    let memory: Vec<StaticBuf> = (0..1000).map(|_| StaticBuf::new(16 << 10)).collect();
    for buf in &memory {
        linkspan_transport::Rail::prepare(&mut a, buf.slice(), true);
    }
    let since = Instant::now();
    match what.as_str() {
        "none" => {}
        "hit" => {
            for at in 0..n {
                linkspan_transport::Rail::prepare(&mut a, memory[(at * 7919 % 1000) as usize].slice(), false);
            }
        }
        "frame" | "chunk" => {
            let len = if what == "frame" { 64 } else { 12 << 10 };
            let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
            for at in 0..n {
                let (src, dst) = (&memory[(at % 500) as usize], &memory[500 + (at % 500) as usize]);
                message(&mut a, &mut b, part(src, len), part(dst, len));
            }
        }
        other => panic!("{other} is not known: hit, frame, chunk, none, segment or tensors"),
    }
    let per = since.elapsed().as_nanos() as f64 / n as f64;
    println!("{what}: {per:.1} ns each");
    assert!(what != "hit" || here.registrations() == 1000, "every one was a hit");
}

/// As an allocator gives them out.
fn tensors(n: u64, exposed: bool) {
    const TENSOR: u64 = 16 << 10;
    let net = SoftNet::new(1);
    let domain = |last| Domain::new(net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1))).watching();
    let (here, there) = (domain(1), domain(2));
    println!("memory is watched: {:?}", here.watches());
    let side = |d: &Domain<_>| Setup::new(d.clone(), Config::default()).unwrap_or_else(|e| panic!("{e}"));
    let (mut a, _b) = join(side(&here), side(&there)).unwrap_or_else(|e| panic!("{e}"));
    let segment = StaticBuf::new((n * TENSOR) as usize);
    let before = here.registrations();
    let _held = exposed.then(|| here.hold(segment.slice(), true).unwrap_or_else(|e| panic!("{e}")));
    println!("segment of {} bytes: {} registrations", n * TENSOR, here.registrations() - before);
    for time in ["first", "second"] {
        let (before, since) = (here.registrations(), Instant::now());
        for at in 0..n {
            let tensor = linkspan_transport::Buf::sub(&segment.slice(), at * TENSOR, TENSOR).unwrap_or(MemSlice::NONE);
            linkspan_transport::Rail::prepare(&mut a, tensor, true);
        }
        let per = since.elapsed().as_nanos() as f64 / n as f64;
        println!("{n} tensors, {time} use: {} registrations, {per:.1} ns each", here.registrations() - before);
    }
}

fn part(buf: &StaticBuf, len: u64) -> MemSlice {
    linkspan_transport::Buf::sub(&buf.slice(), 0, len).unwrap_or(MemSlice::NONE)
}

type Rail = linkspan_verbs::VerbsRail<linkspan_verbs_sys::soft::SoftNic>;

fn message(a: &mut Conn<Rail>, b: &mut Conn<Rail>, src: MemSlice, dst: MemSlice) {
    let Ok(Some(recv)) = b.post_recv(&[(1, dst)]) else { panic!("no receive") };
    let (mut send, mut sent, mut got) = (None, false, false);
    while !sent || !got {
        let _ = (a.progress(), b.progress());
        match send {
            None => send = a.post_send(1, src).ok().flatten(),
            Some(ticket) => sent = sent || matches!(a.test(ticket), Ok(Some(_))),
        }
        got = got || matches!(b.test(recv), Ok(Some(_)));
    }
}
