//! Connections over device-memory TCP, between hosts that are fabrics with simulated cards.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_devmem::sim::{SimConfig, SimSocket};
use linkspan_devmem::{Owner, Socket};
use linkspan_fabric::devmem::Ports;
use linkspan_fabric::{Buf, Channel, Config, Error, Fabric, Gpu, Log, MemSlice};
use linkspan_gpu::SimGpu;
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_stream::Stream;
use linkspan_transport::StaticBuf;

/// A stream that still arrives when it is dropped.
#[derive(Debug)]
struct Leaves(Option<Stream>);

impl AsFd for Leaves {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().unwrap().as_fd()
    }
}

impl Owner for Leaves {
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        let stream = self.0.as_ref().unwrap();
        (stream.local_addr(), stream.peer_addr())
    }

    fn cut(&mut self) {
        self.0.as_ref().unwrap().reset();
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.leave();
        }
    }
}

/// A host's cards: as simulated ones, or why there are none.
#[derive(Debug)]
struct Cards {
    gpu: Arc<SimGpu>,
    config: SimConfig,
    refuses: Option<&'static str>,
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Ports for Cards {
    fn ready(&self, interface: &str) -> Result<(), String> {
        if interface != "lo" {
            return Err(String::new());
        }
        self.refuses.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn socket(&self, stream: Stream) -> Box<dyn Socket> {
        let path = stream.path();
        Box::new(SimSocket::new(Leaves(Some(stream)), path, self.gpu.clone(), self.config))
    }
}

type Env = &'static [(&'static str, &'static str)];

/// Two hosts on one cable, with one GPU between them.
struct World {
    gpu: Arc<SimGpu>,
    fabrics: [Fabric; 2],
    lines: [Arc<Mutex<Vec<String>>>; 2],
}

fn world(envs: [Env; 2], refuses: [Option<&'static str>; 2], sim: SimConfig, acked: bool) -> World {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
        let get = |name: &str| base.iter().chain(envs[n]).rev().find(|p| p.0 == name).map(|p| p.1.to_owned());
        let config = SimConfig { seed: sim.seed + n as u64, ..sim };
        let cards = Cards { gpu: gpu.clone(), config, refuses: refuses[n] };
        Fabric::with_ports(Config::read(&get).unwrap(), log, acked, Arc::new(cards)).unwrap()
    });
    World { gpu, fabrics, lines }
}

type Ends = (Result<Channel, Error>, Result<Channel, Error>);

impl World {
    /// What comes of a connection from the first host to the second; the side that fails first ends it.
    fn connect(&self) -> Ends {
        let listener = self.fabrics[1].listen(0).unwrap();
        let mut connecting = self.fabrics[0].connect(0, &listener.handle()).unwrap();
        let (mut here, mut there) = (None, None);
        let until = Instant::now() + Duration::from_secs(30);
        while here.is_none() || there.is_none() {
            assert!(Instant::now() < until, "neither up nor refused within 30 s");
            here = here.or_else(|| connecting.poll().transpose());
            there = there.or_else(|| listener.accept().transpose());
            if let Some(Err(_)) = &here {
                break;
            }
        }
        let none = || Err(Error::NoDevice { index: 9, count: 0 });
        (here.unwrap_or_else(none), there.unwrap_or_else(none))
    }

    fn pair(&self) -> (Channel, Channel) {
        let (a, b) = self.connect();
        (a.unwrap(), b.unwrap())
    }

    fn warned(&self, host: usize) -> Vec<String> {
        let lines = self.lines[host].lock().unwrap();
        lines.iter().filter(|l| l.starts_with("Warn ")).cloned().collect()
    }

    /// Messages of many sizes there and back, between device memory and device or host memory.
    fn traffic(&self, a: &mut Channel, b: &mut Channel) {
        let gpu: Arc<dyn Gpu> = self.gpu.clone();
        for (n, len) in [0, 1, 8192, 8193, 100_000, (3 << 20) + 7].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251 + n) as u8).collect();
            let (up, down, host) =
                (StaticGpuBuf::new(&gpu, len).unwrap(), StaticGpuBuf::new(&gpu, len).unwrap(), StaticBuf::new(len));
            assert!(up.slice().fill(0, &bytes));
            message(a, b, up.slice(), down.slice());
            assert!(down.slice().to_vec() == bytes, "{len} bytes over {}", a.describe());
            message(b, a, down.slice(), host.slice());
            assert!(host.slice().to_vec() == bytes, "{len} bytes back over {}", a.describe());
            let again = StaticGpuBuf::new(&gpu, len).unwrap();
            message(a, b, host.slice(), again.slice());
            assert!(again.slice().to_vec() == bytes, "{len} bytes from the host over {}", a.describe());
        }
        assert_eq!(self.gpu.fault(), None, "{}", a.describe());
    }
}

fn message(a: &mut Channel, b: &mut Channel, src: MemSlice, dst: MemSlice) {
    let (mut ta, mut tb) = (None, None);
    let (mut sent, mut got) = (None, None);
    let until = Instant::now() + Duration::from_secs(60);
    while sent.is_none() || got.is_none() {
        assert!(Instant::now() < until, "no completion within 60 s over {}", a.describe());
        tb = tb.or_else(|| b.post_recv(&[(3, dst)]).unwrap());
        ta = ta.or_else(|| a.post_send(3, src).unwrap());
        for end in [&mut *a, &mut *b] {
            if let Err(error) = end.progress() {
                panic!("{error}: {:?}", end.lost());
            }
        }
        sent = sent.or_else(|| a.test(ta?).unwrap());
        got = got.or_else(|| b.test(tb?).unwrap());
    }
    assert_eq!((sent, got), (Some(src.len() as u64), Some(src.len() as u64)));
}

#[test]
fn payload_lands_in_device_memory_where_both_cards_are_set_up() {
    const KERNEL: Env = &[("LINKSPAN_UNPACK", "kernel")];
    const D2D: Env = &[("LINKSPAN_UNPACK", "d2d"), ("LINKSPAN_TCP_STREAMS", "2")];
    const HOST: Env = &[("LINKSPAN_UNPACK", "host"), ("LINKSPAN_PATH", "devmem")];
    for (n, (env, acked)) in [(&[] as Env, false), (KERNEL, true), (D2D, true), (HOST, false)].into_iter().enumerate() {
        let world =
            world([env, env], [None; 2], SimConfig { seed: 10 * n as u64, pages: 4096, ..SimConfig::default() }, acked);
        let (mut a, mut b) = world.pair();
        // Before there is a GPU: host memory, over the same rails.
        let (from, to) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
        assert!(from.slice().fill(0, &[7; 100_000]));
        message(&mut a, &mut b, from.slice(), to.slice());
        assert!(to.slice().to_vec() == [7; 100_000]);
        let gpu: Arc<dyn Gpu> = world.gpu.clone();
        a.attach(&gpu).unwrap();
        b.attach(&gpu).unwrap();
        world.traffic(&mut a, &mut b);
        let (line, rails) = (a.describe(), if env == D2D { 2 } else { 1 });
        assert_eq!(a.rails().filter(|r| r.transport == "devmem").count(), rails, "{line}");
        assert!(line.contains("payload lands in 16 MiB of sim:0, binding "), "{line}");
        assert_eq!([world.warned(0), world.warned(1)], [vec![], vec![]] as [Vec<String>; 2]);
        drop((a, b));
        assert_eq!(world.gpu.fault(), None, "after the end");
    }
}

#[test]
fn what_one_host_has_not_set_up_is_tcp_and_said_aloud() {
    let why = "its queues are in use";
    // The peer's reason, our reason, and a peer that was never set up.
    let cases = [
        ([None, Some(why)], ["the peer says: its queues are in use", why]),
        ([Some(why), None], [why, "the peer says: its queues are in use"]),
        ([None, Some("")], ["run `lspan devmem up` there", "this host has not: run `lspan devmem up`"]),
    ];
    for (refuses, said) in cases {
        let plain = world([&[], &[]], refuses, SimConfig::default(), false);
        let (mut a, mut b) = plain.pair();
        assert!(a.rails().all(|r| r.transport == "tcp") && a.rails().count() == 1, "{}", a.describe());
        assert!([0, 1].map(|n| plain.fabrics[n].reaches_device_memory()) == refuses.map(|r| r.is_none()));
        let (from, to) = (StaticBuf::new(50_000), StaticBuf::new(50_000));
        message(&mut a, &mut b, from.slice(), to.slice());
        for (host, said) in said.iter().enumerate() {
            let lines = plain.warned(host);
            assert!(
                lines.iter().any(|l| l.contains("TCP in place of device-memory TCP") && l.contains(said)),
                "{lines:?}"
            );
        }
        const STRICT: Env = &[("LINKSPAN_STRICT", "1")];
        let strict = world([STRICT, STRICT], refuses, SimConfig::default(), false);
        let error = linkspan_fabric::chain(&strict.connect().0.unwrap_err());
        assert!(error.contains("TCP in place of device-memory TCP") && error.contains(said[0]), "{error}");
    }
    // Nobody asked for it: nothing to say.
    let none = world([&[], &[]], [Some(""), Some("")], SimConfig::default(), false);
    let (a, _b) = none.pair();
    assert!(a.rails().all(|r| r.transport == "tcp") && none.warned(0).is_empty() && none.warned(1).is_empty());
}

#[test]
fn a_forced_path_says_why_it_cannot_be() {
    const FORCED: Env = &[("LINKSPAN_PATH", "devmem")];
    const OFF: Env = &[("LINKSPAN_PATH", "devmem"), ("LINKSPAN_GPU", "off")];
    let cases = [
        ([FORCED, &[]], [Some(""), None], "lo is not set up: run `lspan devmem up lo`"),
        ([FORCED, &[]], [None, Some("no")], "the peer says: no"),
        ([OFF, &[]], [None, None], "LINKSPAN_GPU=off"),
    ];
    for (envs, refuses, why) in cases {
        let error = linkspan_fabric::chain(&world(envs, refuses, SimConfig::default(), false).connect().0.unwrap_err());
        assert!(error.contains("devmem") && error.contains(why), "{error}");
    }
    let other = world([&[], FORCED], [Some(""), None], SimConfig::default(), false);
    let error = linkspan_fabric::chain(&other.connect().1.unwrap_err());
    assert!(error.contains("devmem"), "{error}");
}

#[test]
fn memory_that_the_card_refuses_goes_by_way_of_the_host_and_strict_refuses() {
    let sim = SimConfig { refuses: Some("EBUSY from the driver"), lends: false, ..SimConfig::default() };
    let plain = world([&[], &[]], [None; 2], sim, false);
    let (mut a, mut b) = plain.pair();
    let gpu: Arc<dyn Gpu> = plain.gpu.clone();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    plain.traffic(&mut a, &mut b);
    let until = Instant::now() + Duration::from_secs(10);
    let said = |what: &str| plain.warned(0).iter().any(|l| l.contains("downgrade: LS134") && l.contains(what));
    while !said("is copied to the host and sent from there") {
        assert!(Instant::now() < until, "{:?}", plain.warned(0));
        a.progress().unwrap();
    }
    assert!(said("EBUSY from the driver; it comes to the host and is copied to the GPU"), "{:?}", plain.warned(0));
    assert!(a.describe().contains("sim:0 through host memory: LS1340"), "{}", a.describe());
    const STRICT: Env = &[("LINKSPAN_STRICT", "1")];
    let (mut a, _b) = world([STRICT, STRICT], [None; 2], sim, false).pair();
    let error = a.attach(&gpu).unwrap_err().to_string();
    assert!(error.starts_with("LS1305") && error.contains("EBUSY from the driver"), "{error}");
}

#[test]
fn a_lack_of_pages_is_told() {
    let sim = SimConfig { pages: 4, plain: 0, linear: 0, ..SimConfig::default() };
    let world = world([&[], &[]], [None; 2], sim, false);
    let (mut a, mut b) = world.pair();
    let gpu: Arc<dyn Gpu> = world.gpu.clone();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    let (src, dst) = (StaticGpuBuf::new(&gpu, 1 << 20).unwrap(), StaticGpuBuf::new(&gpu, 1 << 20).unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while !world.warned(1).iter().any(|l| l.contains("pieces of device memory wait for the GPU")) {
        assert!(Instant::now() < until, "{:?}", world.warned(1));
        message(&mut a, &mut b, src.slice(), dst.slice());
    }
}

/// The ports of this machine.
fn of_this_machine(env: Env) -> World {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n: usize| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_PATH", "devmem")];
        let get = |name: &str| base.iter().chain(env).rev().find(|p| p.0 == name).map(|p| p.1.to_owned());
        Fabric::apart(Config::read(&get).unwrap(), log, false, Vec::new()).unwrap()
    });
    World { gpu, fabrics, lines }
}

/// Queues of an interface that has none to give, and a GPU without dma-buf: each step says so.
#[test]
fn queues_of_our_own_say_what_they_lack() {
    let error = linkspan_fabric::chain(&of_this_machine(&[]).connect().0.unwrap_err());
    assert!(error.contains("lo is not set up"), "{error}");
    let world = of_this_machine(&[("LINKSPAN_DEVMEM_QUEUES", "lo:0")]);
    let (mut a, mut b) = world.pair();
    let gpu: Arc<dyn Gpu> = world.gpu.clone();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    world.traffic(&mut a, &mut b);
    let warned = world.warned(0).join("\n");
    assert!(warned.contains("LS1340") && warned.contains("dma-buf"), "{warned}");
}

#[test]
fn queues_that_an_interface_does_not_have_are_named_before_a_connection_says_it_is_up() {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off"), ("LINKSPAN_DEVMEM_QUEUES", "lo:0-900")];
    let config = Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap();
    let fabric = Fabric::new(config, Log::off(), false, Vec::new()).unwrap();
    let interfaces = fabric.devmem_interfaces();
    let lo = interfaces.iter().find(|one| one.0 == "lo").unwrap();
    assert!(lo.1.as_ref().is_err_and(|why| why.contains("lo does not have")), "{lo:?}");
}
