//! The receiving half of device-memory TCP against a peer that announces anything and a kernel that says anything: it never
//! touches memory that is not the pool's or the chunk's, lands chunks in the order of their heads, gives each page back at most
//! once and none while its chunk is not in place, and holds no more than its bounds.
#![no_main]

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use linkspan_devmem::{DevmemRail, Error, Lent, Pool, RailConfig, Socket};
use linkspan_gpu::devmem::Run;
use linkspan_gpu::{Gpu, GpuBuf, SimConfig, SimGpu};
use linkspan_net::Sent;
use linkspan_netdev::Received;
use linkspan_proto::head::HEAD_LEN;
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, Busy, Caps, Down, MemSlice, Poll, Rail, RailInfo, Sink, StaticBuf, Violation, WaitFd};

const POOL: usize = 64 << 12;
const PLACE: usize = 256 << 10;

/// What the fuzzer decides, for both streams.
#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    at: usize,
    /// Tokens that the kernel gave out and has not got back.
    out: BTreeSet<u32>,
    next: u32,
    /// It has lied; what it says of tokens afterwards means nothing.
    lied: bool,
}

impl Script {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes.get(self.at - 1).copied().unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn over(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

type Shared = Arc<Mutex<Script>>;

/// The control rail.
struct Control(Shared, RailInfo);

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Rail for Control {
    fn info(&self) -> &RailInfo {
        &self.1
    }

    fn ctrl(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn data(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn taken(&self) -> u64 {
        0
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        Ok(Poll::Idle)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        let mut script = self.0.lock().expect("one thread");
        let mut inner = Head::new(Kind::Chunk);
        match script.byte() % 16 {
            0..=8 => inner.len.set(script.word() % PLACE as u32),
            9 => inner = Head::new(Kind::Put),
            10 => inner = Head::new(Kind::Eager),
            11 => return Err(Down::PeerGone { path: String::new(), why: "fuzzed".into() }),
            _ => return Ok(Poll::Idle),
        }
        let mut outer = Head::new(Kind::Beside);
        let short = usize::from(script.byte() == 255);
        drop(script);
        outer.len.set((HEAD_LEN - short) as u32);
        let told = sink.ctrl(&outer, &inner.as_wire()[short..]);
        told.map_err(|v| Down::Protocol { path: String::new(), why: v.0 })?;
        Ok(Poll::Active)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None
    }
}

/// The kernel's side of the payload stream.
struct Kernel(Shared, &'static UdpSocket);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Socket for Kernel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn receive(&mut self, linear: MemSlice, control: &mut [u64]) -> io::Result<Option<Received>> {
        let mut script = self.0.lock().expect("one thread");
        let most = linear.len().max(1) as u32;
        let mut used = 0;
        let mut put = |words: &[u64]| {
            control[used..used + words.len()].copy_from_slice(words);
            used += words.len();
            used
        };
        match script.byte() % 16 {
            // Plain.
            0..=2 => {
                let bytes = 1 + (script.word() % most) as usize;
                let fits = linear.fill(0, &vec![7; bytes.min(linear.len())]);
                assert!(fits);
                Ok(Some(Received { bytes, control: 0 }))
            }
            // As kernels do.
            3..=10 => {
                let (mut bytes, mut end) = (0, 0);
                for _ in 0..1 + script.byte() % 8 {
                    let len = 1 + script.word() % 4096;
                    if bytes + len > most {
                        break;
                    }
                    let linear = script.byte() % 4 == 0;
                    let page = u64::from(script.byte() % 64);
                    let token = script.next;
                    let (kind, offset) = if linear { (78, 0) } else { (79, page * 4096) };
                    if !linear {
                        script.next += 1;
                        script.out.insert(token);
                    }
                    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
                    end = put(&[40, pair(1, kind), offset, pair(len, token), pair(1, 0)]);
                    bytes += len;
                }
                if bytes == 0 {
                    return Ok(None);
                }
                Ok(Some(Received { bytes: bytes as usize, control: end * 8 }))
            }
            // As none does.
            11 | 12 => {
                script.lied = true;
                let mut words: Vec<u64> =
                    (0..5).map(|_| u64::from(script.word()) | u64::from(script.word()) << 32).collect();
                if script.byte() % 2 == 0 {
                    (words[0], words[1]) = (40, 1 | 79 << 32);
                }
                let end = put(&words);
                Ok(Some(Received { bytes: (script.word() % most) as usize, control: end * 8 }))
            }
            13 => Ok(Some(Received { bytes: 0, control: 0 })),
            14 => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(None),
        }
    }

    fn give_back(&mut self, runs: &[Run]) -> io::Result<u64> {
        let mut script = self.0.lock().expect("one thread");
        assert!(runs.len() <= 128);
        let mut freed = 0;
        for token in runs.iter().flat_map(|r| (0..r.count).map(|n| r.start.wrapping_add(n))).take(1024) {
            assert!(script.out.remove(&token) || script.lied, "token {token} given back twice, or never given out");
            freed += 1;
        }
        Ok(freed)
    }

    fn send(&mut self, _: MemSlice) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn send_lent(&mut self, _: u32, _: u64, _: usize) -> io::Result<Option<usize>> {
        Ok(None)
    }

    fn notice(&mut self) -> io::Result<Option<Sent>> {
        Ok(None)
    }

    fn bind(&mut self, gpu: &Arc<dyn Gpu>) -> Result<Pool, Error> {
        let memory = GpuBuf::new(gpu, POOL)?;
        // SAFETY: the pool keeps the memory.
        let mem = unsafe { memory.slice() };
        Ok(Pool { mem, id: 1, lent: Arc::default(), held: Arc::default(), guard: Box::new(memory) })
    }

    fn lend(&mut self, _: &Arc<dyn Gpu>, _: MemSlice) -> Result<Lent, Error> {
        Err(Error::NotLent { path: String::new(), device: String::new(), why: "fuzzed".into(), lasting: true })
    }

    fn cut(&mut self) {}

    fn path(&self) -> &str {
        "fuzzed"
    }
}

/// Gives places on both sides and nowhere, and looks at the order.
struct Places {
    device: GpuBuf,
    host: StaticBuf,
    placed: VecDeque<Head>,
    n: usize,
}

impl Sink for Places {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.placed.push_back(*head);
        assert!(self.placed.len() <= 64, "more places than the contract allows");
        self.n += 1;
        // SAFETY: the rail is dropped before the sink.
        let mem = if self.n % 3 == 0 { self.host.slice() } else { unsafe { self.device.slice() } };
        Ok(if self.n % 7 == 0 { None } else { mem.sub(0, head.len.get().into()) })
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        assert_eq!(self.placed.pop_front(), Some(*head), "landed in another order");
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    // A process makes 4096 devices known at most: one serves all inputs.
    static GPU: OnceLock<Arc<SimGpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| SimGpu::new(SimConfig::default()).expect("a device")).clone();
    let any: Arc<dyn Gpu> = gpu.clone();
    let script: Shared = Arc::new(Mutex::new(Script { bytes: bytes.to_vec(), ..Script::default() }));
    let caps = Caps { one_sided: false, device_memory: false, ordered: true, chunk: 1 << 20, speed: 0, local: true, tells_end: true };
    let info = RailInfo::new("fuzz", String::new(), String::new(), caps);
    static FD: OnceLock<UdpSocket> = OnceLock::new();
    let fd = FD.get_or_init(|| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let kernel = Kernel(script.clone(), fd);
    let mut rail =
        DevmemRail::new(Control(script.clone(), info), Box::new(kernel), RailConfig::default()).expect("a descriptor");
    rail.attach(&any).expect("simulated memory");
    let mut places = Places {
        device: GpuBuf::new(&any, PLACE).expect("simulated memory"),
        host: StaticBuf::new(PLACE),
        placed: VecDeque::new(),
        n: 0,
    };
    for _ in 0..4096 {
        if rail.poll(&mut places).is_err() || script.lock().expect("one thread").over() {
            break;
        }
    }
    drop(rail);
    assert_eq!(gpu.fault(), None);
});
