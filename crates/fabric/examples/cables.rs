//! The conformance suite over real Thunderbolt or USB4 cables, both ends in this process: on a machine of which one cable joins two
//! host interfaces of its own, as the lab has it.
//!
//! `cables ring`: our driver; `cables dmabuf`: our driver and memory that it knows as dma-bufs only; `cables stream`: the
//! kernel's stream, of which 11 are set up first (root); `cables net A B`: TCP between two addresses of this host whose way
//! leads over a cable. Behaviours may be named behind. Exit code 4 where there is no such cable.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tbring::udmabuf::Udmabuf;
use linkspan_tcp::{RailConfig, TcpRail};
use linkspan_thunderbolt::find::Root;
use linkspan_thunderbolt::{Cable, Config, Ports, Role, Setup, Tier, join, up::FIRST_HOP};
use linkspan_transport::conformance::{Buffer, Level, Side, Testbed, Want, behaviours, take_memory_from};
use linkspan_transport::{
    BoxRail, Buf, Busy, DeviceMemory, Down, MemSlice, MemoryDomain, Poll, Rail, RailInfo, Registrar, Sink, StaticBuf,
    WaitFd, register_device,
};

/// Streams that are set up: HopIDs go to 31 at most, and the first is 9.
const STREAMS: u16 = 11;

/// What takes more connections at once than there are streams.
const TOO_MANY: &str = "many_connections";

/// Why no rail is stalled.
const STALL: &str = "both ends are in this process, which cannot stop the cable between them";

/// Cables that a handshake tells of.
const TOLD: usize = 16;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (kind, rest) = args.split_first().map_or(("ring", &args[..]), |(first, rest)| (first.as_str(), rest));
    match kind {
        "ring" => run(&mut Cables::new(Tier::Ring, None), rest, false),
        "dmabuf" => run(&mut Cables::new(Tier::Ring, Some(Known::new())), rest, false),
        "stream" => {
            let lines = Root::default().up(STREAMS, FIRST_HOP).unwrap_or_else(|e| missing(&e.to_string()));
            println!("{}", lines.join("\n"));
            run(&mut Cables::new(Tier::Stream, None), rest, true);
        }
        "net" => {
            let [a, b] = [0, 1].map(|n| rest.get(n).and_then(|a| format!("{a}:0").parse().ok()));
            match (a, b) {
                (Some(a), Some(b)) => run(&mut Net { ends: [a, b] }, &rest[2..], false),
                _ => missing("cables net ADDRESS ADDRESS"),
            }
        }
        other => missing(&format!("{other} is none of ring, dmabuf, stream, net")),
    }
}

fn missing(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(4)
}

/// `few`: connections take what there are few of.
fn run<T: Testbed>(bed: &mut T, names: &[String], few: bool) {
    println!("{}", bed.pair(Want::PLAIN).0.rails().map(|(_, rail)| rail.info().path.clone()).collect::<String>());
    for (name, behaviour) in behaviours::<T::R>() {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        if few && name == TOO_MANY {
            println!(
                "{name}: cannot be tested here: 16 connections at once, each of which takes one of {STREAMS} streams"
            );
            continue;
        }
        if name == "revocation" {
            println!("{name}: ignored: {STALL}");
            continue;
        }
        let since = Instant::now();
        println!("{name} ...");
        behaviour(bed, Level::from_env());
        println!("{name}: {:.1} s", since.elapsed().as_secs_f64());
    }
    println!("passed");
}

/// Cables of which both ends are here.
struct Cables {
    ends: [Vec<Cable>; 2],
    /// Where the search for a free stream begins.
    turn: usize,
    known: Option<Rc<Known>>,
}

impl Cables {
    fn new(tier: Tier, known: Option<Rc<Known>>) -> Cables {
        let ports = Root::default().ports();
        let of_tier = |cable: &&Cable| cable.tier == tier;
        let Some(first) = ports.cables.iter().find(of_tier) else { missing(&ports.why_not(tier)) };
        let side = |local: [u8; 16], peer: [u8; 16]| {
            let mut own: Vec<Cable> = ports.cables.iter().filter(of_tier).cloned().collect();
            own.retain(|cable| cable.local == local && cable.peer == peer);
            own.sort_by_key(|cable| cable.hops.0.min(cable.hops.1));
            own
        };
        let ends = [side(first.local, first.peer), side(first.peer, first.local)];
        if ends[1].is_empty() {
            missing("no cable joins two host interfaces of this machine");
        }
        println!("{} and {} of {tier}", ends[0].len(), ends[1].len());
        Cables { ends, turn: 0, known }
    }

    fn setup(&self, side: usize) -> Setup {
        let mut cables = self.ends[side].clone();
        let len = cables.len();
        cables.rotate_left(self.turn % len);
        cables.truncate(TOLD);
        let role = if side == 0 { Role::Caller } else { Role::Answerer };
        let ports = Ports { cables, plugged: true, ..Ports::default() };
        Setup::new(ports.shared(), role, Config::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    fn rails(&mut self) -> (Whole, Whole) {
        let (a, b) = join(self.setup(0), self.setup(1)).unwrap_or_else(|e| panic!("{e}"));
        self.turn += 1;
        (self.whole(a), self.whole(b))
    }

    fn whole(&self, rail: BoxRail) -> Whole {
        let mut info = rail.info().clone();
        if let (Some(known), Some(memory)) = (&self.known, rail.registrar()) {
            known.rail(memory);
            info.caps.device_memory = true;
        }
        Whole { rail, info }
    }
}

impl Testbed for Cables {
    type R = Whole;

    fn rail(&mut self, _: Want, n: usize) -> (Whole, Whole) {
        if let Some(known) = self.known.as_ref().filter(|_| n == 0) {
            known.take_buffers();
        }
        Cables::rails(self)
    }

    fn rails(&self) -> usize {
        3
    }

    fn stall(&mut self, _: Side, _: usize) {
        panic!("{STALL}");
    }

    fn release(&mut self) {}

    /// The process goes on, and what it has open is closed with its rails.
    fn kill(&mut self, _: Side) {}
}

/// A rail that knows all the memory there is, so that none needs to be staged.
struct Whole {
    rail: BoxRail,
    info: RailInfo,
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Rail for Whole {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &linkspan_transport::Head, body: MemSlice) -> Result<u64, Busy> {
        self.rail.ctrl(head, body)
    }

    fn data(&mut self, head: &linkspan_transport::Head, src: MemSlice) -> Result<u64, Busy> {
        self.rail.data(head, src)
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        self.rail.prepare(mem, target);
    }

    fn taken(&self) -> u64 {
        self.rail.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.rail.flush()
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.rail.poll(sink)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.rail.arm()
    }
}

/// dma-bufs that live, and rails that have to know them.
struct Known {
    device: Arc<Device>,
    place: MemoryDomain,
    own: Weak<Known>,
    rails: RefCell<Vec<Arc<dyn Registrar>>>,
    live: RefCell<Vec<(MemSlice, Weak<Udmabuf>)>>,
    made: RefCell<usize>,
}

/// The device whose memory they are: the processor reaches it by this alone.
#[derive(Default)]
struct Device(Mutex<Vec<(u64, MemSlice)>>);

impl Device {
    fn host(&self, mem: MemSlice) -> Option<MemSlice> {
        let live = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let at = mem.as_ptr() as u64;
        live.iter().find_map(|(from, host)| host.sub(at.checked_sub(*from)?, mem.len() as u64))
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl DeviceMemory for Device {
    fn write(&self, to: MemSlice, bytes: &[u8]) -> bool {
        self.host(to).is_some_and(|host| host.fill(0, bytes))
    }

    fn read(&self, from: MemSlice, out: &mut [u8]) -> bool {
        self.host(from).is_some_and(|host| host.read(0, out))
    }
}

/// Bytes in front of a buffer in its dma-buf: it begins in the midst of a page.
const BEFORE: u64 = 4096 + 72;

impl Known {
    fn new() -> Rc<Known> {
        let device = Arc::new(Device::default());
        let any: Arc<dyn DeviceMemory> = device.clone();
        let place = register_device(Arc::downgrade(&any)).unwrap_or_else(|| missing("no place for a device"));
        Rc::new_cyclic(|own| Known {
            device,
            place,
            own: own.clone(),
            rails: RefCell::default(),
            live: RefCell::default(),
            made: RefCell::default(),
        })
    }

    /// The suite's buffers are of this device, but for every fifth.
    fn take_buffers(&self) {
        let own = self.own.clone();
        take_memory_from(move |len| match own.upgrade() {
            Some(known) => known.buffer(len),
            None => Box::new(StaticBuf::new(len)),
        });
    }

    fn buffer(self: &Rc<Known>, len: usize) -> Box<dyn Buffer> {
        let made = *self.made.borrow();
        *self.made.borrow_mut() = made + 1;
        if made % 5 == 4 {
            return Box::new(StaticBuf::new(len));
        }
        let memory = Udmabuf::new(len + BEFORE as usize).unwrap_or_else(|e| missing(&format!("udmabuf: {e}")));
        let (host, whole) = (memory.slice(), memory.on_device(self.place));
        let mem = whole.sub(BEFORE, len as u64).unwrap_or_else(|| missing("a dma-buf too short"));
        self.device.0.lock().unwrap_or_else(|e| e.into_inner()).push((whole.as_ptr() as u64, host));
        let memory = Rc::new(memory);
        self.rails.borrow_mut().retain(|rail| register(&**rail, &memory, mem));
        self.live.borrow_mut().push((mem, Rc::downgrade(&memory)));
        Box::new(Owned { memory: Some(memory), mem, known: self.clone() })
    }

    /// A new rail is told of all there are.
    fn rail(&self, rail: Arc<dyn Registrar>) {
        for (mem, memory) in self.live.borrow().iter() {
            if let Some(memory) = memory.upgrade() {
                assert!(register(&*rail, &memory, *mem), "a rail that has just come up");
            }
        }
        self.rails.borrow_mut().push(rail);
    }
}

/// False where the rail is gone.
fn register(rail: &dyn Registrar, memory: &Udmabuf, mem: MemSlice) -> bool {
    if mem.len() == 0 {
        return true;
    }
    let Some(fd) = memory.dmabuf() else { return true };
    match rail.register_dmabuf(fd, BEFORE, mem, true) {
        Ok(_) => true,
        Err(_) if rail.is_over() => false,
        Err(error) => panic!("{mem:?}: {error}"),
    }
}

struct Owned {
    memory: Option<Rc<Udmabuf>>,
    mem: MemSlice,
    known: Rc<Known>,
}

impl Buffer for Owned {
    fn slice(&self) -> MemSlice {
        self.mem
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.known.rails.borrow().iter().for_each(|rail| rail.invalidate(self.mem));
        self.memory = None;
        let (known, start) = (&self.known, self.mem.as_ptr() as u64 - BEFORE);
        known.live.borrow_mut().retain(|(_, memory)| memory.strong_count() > 0);
        known.device.0.lock().unwrap_or_else(|e| e.into_inner()).retain(|(from, _)| *from != start);
    }
}

/// TCP between two addresses.
struct Net {
    ends: [SocketAddr; 2],
}

/// Longest that anything may take in an emulated guest.
const LONG: Duration = Duration::from_secs(60);

impl Net {
    fn rails(&self) -> (TcpRail, TcpRail) {
        let options = Options::default();
        let said = |e: linkspan_stream::Error| -> ! { panic!("{e}") };
        let mut listen = Listen::bind(self.ends[1], &options).unwrap_or_else(|e| said(e));
        let mut dial = Dial::start(Some(self.ends[0]), listen.local_addr(), &options, LONG).unwrap_or_else(|e| said(e));
        let (mut a, mut b) = (None, None);
        let since = Instant::now();
        while a.is_none() || b.is_none() {
            assert!(since.elapsed() < LONG, "no connection from {} to {}", self.ends[0], self.ends[1]);
            a = a.or_else(|| dial.poll().unwrap_or_else(|e| said(e)));
            b = b.or_else(|| listen.accept().unwrap_or_else(|e| said(e)).map(|(stream, _)| stream));
            std::thread::yield_now();
        }
        let rail = |stream: Option<Stream>| match stream.map(|s| TcpRail::new(s, RailConfig::default(), &[])) {
            Some(Ok(rail)) => rail,
            Some(Err(error)) => panic!("{error}"),
            None => missing("no stream"),
        };
        (rail(a), rail(b))
    }
}

impl Testbed for Net {
    type R = TcpRail;

    fn rail(&mut self, _: Want, _: usize) -> (TcpRail, TcpRail) {
        Net::rails(self)
    }

    fn rails(&self) -> usize {
        3
    }

    fn stall(&mut self, _: Side, _: usize) {
        panic!("{STALL}");
    }

    fn release(&mut self) {}

    /// The process goes on, and what it has open is closed with its rails.
    fn kill(&mut self, _: Side) {}
}
