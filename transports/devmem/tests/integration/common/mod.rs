//! Rails over loopback with simulated cards.

pub(crate) mod bed;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use linkspan_devmem::sim::{SimConfig, SimSocket};
use linkspan_devmem::{DevmemRail, Owner, RailConfig};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tcp::TcpRail;
use linkspan_transport::Rail;
use linkspan_transport::conformance::{PeerPipe, Side};

pub(crate) type SimRail = DevmemRail<TcpRail>;

/// Long enough for a machine that stands still for a while.
const PATIENCE: Duration = Duration::from_secs(150);

/// Repeats `f` until it answers.
pub(crate) fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

pub(crate) fn streams() -> (Stream, Stream) {
    streams_by(|listener| listener)
}

/// What is dialled is made of the listener's address.
pub(crate) fn streams_by(way: impl FnOnce(SocketAddr) -> SocketAddr) -> (Stream, Stream) {
    let options = Options::default();
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let mut dial = Dial::start(None, way(listen.local_addr()), &options, PATIENCE).unwrap();
    let a = until("connect", || dial.poll().unwrap());
    (a, until("accept", || listen.accept().unwrap()).0)
}

/// This side's end of a stream to the other process.
pub(crate) fn stream_to_process(side: Side, link: &mut PeerPipe) -> Stream {
    let options = Options::default();
    if side == Side::A {
        let listener = String::from_utf8(link.recv()).unwrap().parse().unwrap();
        let mut dial = Dial::start(None, listener, &options, PATIENCE).unwrap();
        until("connect", || dial.poll().unwrap())
    } else {
        let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        link.send(listen.local_addr().to_string().as_bytes());
        until("accept", || listen.accept().unwrap()).0
    }
}

/// A stream that still arrives when it is dropped.
#[derive(Debug)]
pub(crate) struct Leaves(Option<Stream>);

impl Leaves {
    pub(crate) fn new(stream: Stream) -> Leaves {
        Leaves(Some(stream))
    }
}

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
        self.0.take().unwrap().leave();
    }
}

static SEED: AtomicU64 = AtomicU64::new(1);

/// One end.
pub(crate) fn rail(gpu: &Arc<SimGpu>, control: Stream, data: Stream, sim: SimConfig, config: RailConfig) -> SimRail {
    let seed = sim.seed.wrapping_add(SEED.fetch_add(1, Ordering::Relaxed) << 32);
    let path = data.path();
    let socket = SimSocket::new(Leaves(Some(data)), path, gpu.clone(), SimConfig { seed, ..sim });
    let control = TcpRail::new(control, Default::default(), &[]).unwrap();
    DevmemRail::new(control, Box::new(socket), config).unwrap()
}

pub(crate) fn rails(gpu: &Arc<SimGpu>, sim: SimConfig) -> (SimRail, SimRail) {
    let ((a, b), (c, d)) = (streams(), streams());
    let (mut a, mut b) = (rail(gpu, a, c, sim, RailConfig::default()), rail(gpu, b, d, sim, RailConfig::default()));
    let any: Arc<dyn Gpu> = gpu.clone();
    a.attach(&any).unwrap();
    b.attach(&any).unwrap();
    (a, b)
}
