//! A plugin in memory, in safe Rust but for the promises of its traits: what the exported tables are driven with. It is a little network of its own:
//! listeners are known by a number in the handle, messages wait in queues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use linkspan_plugin::{
    Connecting, DeviceQueue, Fail, HANDLE_LEN, Init, ListenComm, Logger, Mem, MemKind, NetPlugin, Opened, OpenedRecv,
    OpenedSend, Part, Props, RecvComm, RecvHints, RegisterRange, SendComm,
};

/// Living objects, to see that all are freed.
pub static ALIVE: AtomicUsize = AtomicUsize::new(0);
/// Instances of the plugin, to see that it is made and dropped.
pub static PLUGINS: AtomicUsize = AtomicUsize::new(0);
/// Deregistrations and revocations.
pub static DEREGISTERED: AtomicUsize = AtomicUsize::new(0);
pub static REVOKED: AtomicUsize = AtomicUsize::new(0);
/// The next isend and test panic.
pub static PANIC: AtomicBool = AtomicBool::new(false);
/// The next receive's hints land here: 1 optional, 2 multi.
pub static HINTS: AtomicUsize = AtomicUsize::new(0);
/// Devices say that NCCL's kernels unpack; and where their queue is, 0: nowhere.
pub static UNPACKS: AtomicBool = AtomicBool::new(false);
pub static QUEUE: AtomicUsize = AtomicUsize::new(0);
/// Receives that NCCL's kernels have read.
pub static CONSUMED: AtomicUsize = AtomicUsize::new(0);
/// Merges of devices.
pub static MERGES: AtomicUsize = AtomicUsize::new(0);
/// Devices that are to be merged are not there.
pub static UNMERGEABLE: AtomicBool = AtomicBool::new(false);
pub static LAST_INIT: Mutex<Option<Init>> = Mutex::new(None);
pub static TRAFFIC_CLASS: Mutex<Option<Option<u8>>> = Mutex::new(None);

/// Tag that makes isend say "not now".
pub const TAG_BUSY: i32 = -77;
/// Tag that makes isend fail as if the peer was lost.
pub const TAG_LOST: i32 = -78;

static NET: Mutex<BTreeMap<u64, VecDeque<Wire>>> = Mutex::new(BTreeMap::new());

type Wire = Arc<Mutex<VecDeque<(i32, Vec<u8>)>>>;

struct Token;

impl Token {
    fn new() -> Token {
        ALIVE.fetch_add(1, Relaxed);
        Token
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Relaxed);
    }
}

pub struct Mock {
    next: AtomicUsize,
    log: Logger,
}

impl Drop for Mock {
    fn drop(&mut self) {
        PLUGINS.fetch_sub(1, Relaxed);
    }
}

pub struct Ctx(#[allow(dead_code)] Token);

pub struct Listen {
    port: u64,
    _token: Token,
}

impl Drop for Listen {
    fn drop(&mut self) {
        NET.lock().unwrap().remove(&self.port);
    }
}

pub struct Connect {
    port: u64,
    polls: u32,
    _token: Token,
}

pub struct Tx {
    wire: Wire,
    next: u64,
    done: BTreeMap<u64, usize>,
    _token: Token,
}

struct Post {
    mem: Mem,
    tag: i32,
    got: Option<usize>,
}

pub struct Rx {
    wire: Wire,
    next: u64,
    posted: BTreeMap<u64, Vec<Post>>,
    /// Receives that wait for NCCL's kernel, where it unpacks.
    kernel: Option<Vec<u64>>,
    _token: Token,
}

pub struct Mr {
    pub kind: MemKind,
    _token: Token,
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl NetPlugin for Mock {
    const NAME: &'static std::ffi::CStr = c"Mock";
    const MERGES: bool = true;
    type Ctx = Ctx;
    type Listen = Listen;
    type Connecting = Connect;
    type Send = Tx;
    type Recv = Rx;
    type Domain = ();
    type Mr = Mr;

    fn load(log: Logger) -> Result<Mock, Fail> {
        PLUGINS.fetch_add(1, Relaxed);
        log.info("loaded 100% %s %n");
        Ok(Mock { next: AtomicUsize::new(1), log })
    }

    fn devices(&self) -> usize {
        2
    }

    fn properties(&self, dev: usize) -> Result<Props, Fail> {
        Ok(Props {
            name: format!("mock{dev}"),
            pci_path: (dev == 1).then(|| "/sys/devices/x".to_owned()),
            guid: 100 + dev as u64,
            device_memory: true,
            unpack_since: UNPACKS.load(Relaxed).then_some(9),
            dma_buf: dev == 1,
            reg_is_global: true,
            force_flush: dev == 1,
            speed_mbps: 40_000,
            port: 3,
            latency_us: 2.5,
            max_comms: 17,
            max_recvs: 100,
            members: if dev == 1 { vec![0, 1] } else { vec![] },
            max_p2p_bytes: 1 << 30,
            max_coll_bytes: usize::MAX,
            max_multi_request: 1,
            rail: Some(4),
            plane: None,
        })
    }

    fn open(&self, init: Init) -> Result<Ctx, Fail> {
        *LAST_INIT.lock().unwrap() = Some(init);
        Ok(Ctx(Token::new()))
    }

    fn listen(&self, _: &Ctx, dev: usize, handle: &mut [u8; HANDLE_LEN]) -> Result<Listen, Fail> {
        static PORT: AtomicUsize = AtomicUsize::new(1);
        let port = PORT.fetch_add(1, Relaxed) as u64;
        handle[..8].copy_from_slice(&port.to_le_bytes());
        handle[8] = dev as u8;
        handle[HANDLE_LEN - 1] = 0xEE;
        NET.lock().unwrap().insert(port, VecDeque::new());
        self.next.fetch_add(1, Relaxed);
        Ok(Listen { port, _token: Token::new() })
    }

    fn connect(&self, _: &Ctx, _: usize, class: Option<u8>, handle: &[u8; HANDLE_LEN]) -> Result<Connect, Fail> {
        assert_eq!(handle[HANDLE_LEN - 1], 0xEE);
        *TRAFFIC_CLASS.lock().unwrap() = Some(class);
        self.log.trace("connect");
        let port = u64::from_le_bytes(handle[..8].try_into().unwrap());
        Ok(Connect { port, polls: 0, _token: Token::new() })
    }

    fn register((): &(), region: RegisterRange<'_>) -> Result<Mr, Fail> {
        let kind = match region.mem {
            Mem::Host(_) => MemKind::Host,
            Mem::Device(range) if range.addr() == 0xBAD => return Err(Fail::Gpu),
            Mem::Device(_) => MemKind::Device,
        };
        Ok(Mr { kind, _token: Token::new() })
    }

    fn deregister((): &(), mr: Mr) -> Result<(), Fail> {
        DEREGISTERED.fetch_add(1, Relaxed);
        drop(mr);
        Ok(())
    }

    fn merge(&self, members: &[usize]) -> Result<usize, Fail> {
        if members.len() != 2 {
            return Err(Fail::InvalidUsage);
        }
        if UNMERGEABLE.load(Relaxed) {
            return Err(Fail::InvalidArgument);
        }
        MERGES.fetch_add(1, Relaxed);
        Ok(9)
    }
}

impl ListenComm<Mock> for Listen {
    fn accept(&mut self) -> Result<Option<OpenedRecv<Mock>>, Fail> {
        let wire = NET.lock().unwrap().get_mut(&self.port).and_then(VecDeque::pop_front);
        let opened = |wire| Opened {
            path: Rx { wire, next: 0, posted: BTreeMap::new(), kernel: None, _token: Token::new() },
            domain: (),
        };
        Ok(wire.map(opened))
    }

    fn unpacks(&self) -> bool {
        UNPACKS.load(Relaxed)
    }
}

impl Connecting<Mock> for Connect {
    fn poll(&mut self) -> Result<Option<OpenedSend<Mock>>, Fail> {
        self.polls += 1;
        if self.polls < 5 {
            return Ok(None);
        }
        let wire = Wire::default();
        let mut net = NET.lock().unwrap();
        let Some(queue) = net.get_mut(&self.port) else {
            return Err(Fail::Remote);
        };
        queue.push_back(wire.clone());
        let path = Tx { wire, next: 0, done: BTreeMap::new(), _token: Token::new() };
        Ok(Some(Opened { path, domain: () }))
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl SendComm for Tx {
    type Mr = Mr;

    fn isend(&mut self, part: Part<'_, Mr>) -> Result<Option<u64>, Fail> {
        if PANIC.swap(false, Relaxed) {
            panic!("planted in isend");
        }
        match part.tag {
            TAG_BUSY => return Ok(None),
            TAG_LOST => return Err(Fail::Remote),
            _ => {}
        }
        assert_eq!(part.mr.map_or(MemKind::Host, |mr| mr.kind), MemKind::Host);
        let bytes = part.mem.host().unwrap().to_vec();
        self.next += 1;
        self.done.insert(self.next, bytes.len());
        self.wire.lock().unwrap().push_back((part.tag, bytes));
        Ok(Some(self.next))
    }

    fn test(&mut self, ticket: u64) -> Result<Option<usize>, Fail> {
        if PANIC.swap(false, Relaxed) {
            panic!("planted in test");
        }
        Ok(Some(self.done.remove(&ticket).expect("ticket in flight")))
    }

    fn revoke(&mut self, _: &Mr) {
        REVOKED.fetch_add(1, Relaxed);
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl RecvComm for Rx {
    type Mr = Mr;

    fn irecv(&mut self, parts: &[Part<'_, Mr>], hints: RecvHints) -> Result<Option<u64>, Fail> {
        HINTS.store(usize::from(hints.completion_optional) | usize::from(hints.multi) << 1, Relaxed);
        self.next += 1;
        let posts = parts.iter().map(|p| Post { mem: p.mem, tag: p.tag, got: None }).collect();
        self.posted.insert(self.next, posts);
        Ok(Some(self.next))
    }

    fn test(&mut self, ticket: u64, sizes: &mut [usize]) -> Result<bool, Fail> {
        let mut wire = self.wire.lock().unwrap();
        for post in self.posted.values_mut().flatten().filter(|p| p.got.is_none()) {
            if let Some(at) = wire.iter().position(|(tag, _)| *tag == post.tag) {
                let (_, bytes) = wire.remove(at).unwrap();
                let fits = linkspan_transport::Buf::fill(&post.mem.host().unwrap(), 0, &bytes);
                if !fits {
                    return Err(Fail::InvalidUsage);
                }
                post.got = Some(bytes.len());
            }
        }
        let posts = self.posted.get(&ticket).expect("ticket in flight");
        assert_eq!(posts.len(), sizes.len());
        if posts.iter().any(|p| p.got.is_none()) {
            return Ok(false);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.push(ticket);
        }
        for (size, post) in sizes.iter_mut().zip(self.posted.remove(&ticket).unwrap()) {
            *size = post.got.unwrap();
        }
        Ok(true)
    }

    fn unpack_queue(&mut self) -> Option<DeviceQueue> {
        let address = Some(QUEUE.load(Relaxed) as u64).filter(|&at| at != 0)?;
        self.kernel = Some(Vec::new());
        Some(DeviceQueue { address, len: 24 })
    }

    fn waits_for_kernel(&self, ticket: u64) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.contains(&ticket))
    }

    fn consumed(&mut self, ticket: u64) -> Result<(), Fail> {
        let kernel = self.kernel.as_mut().expect("a comm of which kernels unpack");
        kernel.remove(kernel.iter().position(|&t| t == ticket).expect("a receive that waits"));
        CONSUMED.fetch_add(1, Relaxed);
        Ok(())
    }

    fn flush(&mut self, parts: &[Part<'_, Mr>]) -> Result<Option<u64>, Fail> {
        if parts[0].mem.is_empty() {
            return Ok(None);
        }
        self.next += 1;
        let posts = parts.iter().map(|p| Post { mem: p.mem, tag: p.tag, got: Some(p.mem.len()) }).collect();
        self.posted.insert(self.next, posts);
        Ok(Some(self.next))
    }

    fn revoke(&mut self, _: &Mr) {
        REVOKED.fetch_add(1, Relaxed);
    }
}

linkspan_plugin::export_net_plugin!(Mock);

pub struct NoLl128;

impl linkspan_plugin::tuner::Tuner for NoLl128 {
    const NAME: &'static std::ffi::CStr = c"mock tuner";
    fn forbids_ll128(_ranks: usize, nodes: usize) -> bool {
        nodes > 1
    }
}

linkspan_plugin::export_tuner!(NoLl128);
