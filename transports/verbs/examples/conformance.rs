//! The conformance suite over a real RDMA device, both ends on it, or over two that reach each other, in this process.
//!
//! `cargo run --release -p linkspan-verbs --example conformance -- DEVICE[,DEVICE] [PORT]`; without a name, the first device there
//! is. Exit code 4 when there is none. `LINKSPAN_CONFORMANCE=full` takes long. With `cost` behind the port, what a stream of
//! messages costs the card in requests, doorbells, completions and registrations, how fast it is, and half a round trip.

use std::time::Instant;

use linkspan_transport::conformance::{Level, Side, Testbed, Want, behaviours};
use linkspan_transport::{Conn, Rail, StaticBuf};
use linkspan_verbs::{Config, Domain, Setup, VerbsRail, join};
use linkspan_verbs_sys::Nic;
use linkspan_verbs_sys::hw::{HwNic, devices};

struct Device {
    /// One, or one for each end.
    ends: Vec<Domain<HwNic>>,
    port: u8,
}

impl Device {
    fn rails(&self) -> (VerbsRail<HwNic>, VerbsRail<HwNic>) {
        let config = Config { port: self.port, ..Config::default() };
        let side = |n: usize| {
            let end = self.ends[n % self.ends.len()].clone();
            Setup::new(end, config.clone()).unwrap_or_else(|e| panic!("{e}"))
        };
        join(side(0), side(1)).unwrap_or_else(|e| panic!("{e}"))
    }

    fn registrations(&self) -> u64 {
        self.ends.iter().map(Domain::registrations).sum()
    }
}

impl Testbed for Device {
    type R = VerbsRail<HwNic>;

    fn rail(&mut self, _: Want, _: usize) -> (Self::R, Self::R) {
        Device::rails(self)
    }

    fn rails(&self) -> usize {
        2
    }

    fn stall(&mut self, _: Side, _: usize) {
        panic!("nothing holds back what a real device sends to itself");
    }

    fn release(&mut self) {}

    /// A device has no call that ends a queue pair under the hands of its process: the rail is dropped.
    fn kill(&mut self, _: Side) {}
}

/// What this program cannot bring about, and why.
const IGNORED: [(&str, &str); 1] = [("revocation", "nothing holds back what a real device sends to itself")];

/// Messages under way.
const WINDOW: usize = 16;

/// Streams messages of `len` bytes between buffers that are known, and prints what the sender's card was asked to do.
fn cost(transport: &Device, len: usize) {
    let (a, b) = transport.rails();
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let memory: Vec<_> = (0..WINDOW).map(|_| (StaticBuf::new(len), StaticBuf::new(len))).collect();
    stream(&mut a, &mut b, &memory, 2 * WINDOW as u64);
    let count = if len > 1 << 16 { 128u64 } else { 640 };
    let done = |conn: &Conn<VerbsRail<HwNic>>| conn.rails().next().map(|(_, rail)| rail.counts()).unwrap_or_default();
    let (before, regions, since) = (done(&a), transport.registrations(), Instant::now());
    stream(&mut a, &mut b, &memory, count);
    let (after, took) = (done(&a), since.elapsed().as_secs_f64());
    let mib = (count * len as u64) as f64 / f64::from(1 << 20);
    let registered = transport.registrations() - regions;
    let (requests, reports) = (after.requests - before.requests, after.signalled - before.signalled);
    // At the end of a message, or with a write of nothing behind it.
    let alone = after.alone - before.alone + after.probes - before.probes;
    let each = [
        ("requests", requests),
        ("reports", reports),
        ("- nothing else under way", alone),
        ("doorbells", after.doorbells - before.doorbells),
        ("completions", after.completions - before.completions),
        ("registrations", registered),
    ];
    println!("cost of {count} messages of {len} bytes, {WINDOW} under way: {:.4} MB/s", mib * 1.048_576 / took);
    for (what, n) in each {
        let n = n as f64;
        println!("  {what:<24} {:8.3} per message {:10.2} per MiB", n / count as f64, n / mib);
    }
    assert_eq!(registered, 0, "every buffer was known");
    // How often the queue runs dry is a matter of who else runs here; each time the end of a message reports by itself.
    assert!(
        (reports - alone) * 16 <= requests + 16,
        "{reports} reports, {alone} of them alone, in {requests} requests"
    );
}

/// Half a round trip of 8 bytes: what `ib_write_lat` measures, with messages in place of bare writes.
fn latency(transport: &Device) {
    let (a, b) = transport.rails();
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let memory = [StaticBuf::new(8), StaticBuf::new(8)];
    let mut halves: Vec<f64> = Vec::new();
    for _ in 0..220 {
        let since = Instant::now();
        one_way(&mut a, &mut b, &memory);
        one_way(&mut b, &mut a, &memory);
        halves.push(since.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    halves.drain(..20);
    halves.sort_by(f64::total_cmp);
    println!(
        "latency of {} messages of 8 bytes: {:.1} us (median half round trip)",
        halves.len(),
        halves[halves.len() / 2]
    );
}

fn one_way(from: &mut Conn<VerbsRail<HwNic>>, to: &mut Conn<VerbsRail<HwNic>>, memory: &[StaticBuf; 2]) {
    let recv = to.post_recv(&[(1, memory[1].slice())]).unwrap_or_else(|e| panic!("{e}"));
    let recv = recv.unwrap_or_else(|| panic!("no space for one receive"));
    let mut send = None;
    loop {
        if send.is_none() {
            send = from.post_send(1, memory[0].slice()).unwrap_or_else(|e| panic!("{e}"));
        }
        from.progress().and_then(|_| to.progress()).unwrap_or_else(|e| panic!("{e}"));
        if to.test(recv).unwrap_or_else(|e| panic!("{e}")).is_some() {
            break;
        }
    }
    while let Some(ticket) = send
        && from.test(ticket).unwrap_or_else(|e| panic!("{e}")).is_none()
    {
        from.progress().unwrap_or_else(|e| panic!("{e}"));
    }
}

/// `count` messages, each pair of buffers' next one as soon as its last has arrived.
fn stream(
    a: &mut Conn<VerbsRail<HwNic>>,
    b: &mut Conn<VerbsRail<HwNic>>,
    memory: &[(StaticBuf, StaticBuf)],
    count: u64,
) {
    let mut lanes: Vec<_> = memory.iter().map(|_| (None, None, false)).collect();
    let (mut begun, mut over) = (0, 0);
    while over < count {
        for ((recv, send, _), (n, (src, dst))) in lanes.iter_mut().zip((0u32..).zip(memory)) {
            if recv.is_none() && begun < count {
                *recv = b.post_recv(&[(n, dst.slice())]).unwrap_or_else(|e| panic!("{e}"));
                begun += u64::from(recv.is_some());
            }
            if recv.is_some() && send.is_none() {
                *send = a.post_send(n, src.slice()).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        a.progress().and_then(|_| b.progress()).unwrap_or_else(|e| panic!("{e}"));
        for (recv, send, sent) in &mut lanes {
            let is_done = |conn: &mut Conn<_>, ticket| conn.test(ticket).unwrap_or_else(|e| panic!("{e}")).is_some();
            *sent = *sent || send.is_some_and(|ticket| is_done(a, ticket));
            if *sent && recv.is_some_and(|ticket| is_done(b, ticket)) {
                (*recv, *send, *sent) = (None, None, false);
                over += 1;
            }
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().or_else(|| devices().ok()?.into_iter().next());
    let Some(name) = name else {
        eprintln!("there is no RDMA device on this machine (rdma link; modprobe rdma_rxe for one in software)");
        std::process::exit(4);
    };
    let port = args.next().and_then(|p| p.parse().ok()).unwrap_or(1);
    let open = |name: &str| {
        let nic = HwNic::open(name).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(4);
        });
        println!("{name}: {:?} {:?}", nic.port(port), nic.limits());
        Domain::new(nic)
    };
    let mut transport = Device { ends: name.split(',').take(2).map(open).collect(), port };
    println!("{}", transport.rails().0.info().path);
    if args.next().is_some_and(|word| word == "cost") {
        [8, 64 << 10, 1 << 20].into_iter().for_each(|len| cost(&transport, len));
        latency(&transport);
        println!("passed");
        return;
    }
    let level = Level::from_env();
    for (name, behaviour) in behaviours::<VerbsRail<HwNic>>() {
        if let Some((_, why)) = IGNORED.iter().find(|ignored| ignored.0 == name) {
            println!("{name}: ignored: {why}");
            continue;
        }
        let since = Instant::now();
        behaviour(&mut transport, level);
        println!("{name}: {:.1} s", since.elapsed().as_secs_f64());
    }
    println!("passed");
}
