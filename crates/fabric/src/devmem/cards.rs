//! Cards of this machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use linkspan_devmem::{Cards, KernelSocket, Lent, NotLent, Pool, Socket};
use linkspan_gpu::{Gpu, GpuBuf};
use linkspan_netdev::{Binding, Error as NetdevError, Rule, bind_receive, bind_send};
use linkspan_stream::Stream;
use linkspan_transport::{Buf, MemSlice, MemoryDomain};
use rustix::io::Errno;

use super::client::{self, Session};
use super::stream::Held;
use super::{DevmemConfig, Ports};
use crate::chain;

/// The interfaces of the machine. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct KernelPorts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: DevmemConfig,
    folder: PathBuf,
    /// One pool for each card and GPU, for as long as a connection has it.
    pools: Mutex<HashMap<(String, MemoryDomain), Weak<Bound>>>,
    /// Device memory that may be sent from where it lies.
    registered: Mutex<Vec<Weak<Registration>>>,
}

/// GPU memory bound to queues.
#[derive(Debug)]
struct Bound {
    // The binding ends before the memory does.
    by: By,
    id: u32,
    memory: GpuBuf,
    interface: String,
    /// Pages that NCCL's kernels have.
    lent: Arc<AtomicU64>,
    /// Pieces that streams hold.
    held: Arc<AtomicU64>,
}

#[derive(Debug)]
enum By {
    /// Bound by `lspan devmem up`.
    Daemon(Mutex<Session>),
    /// Bound by this process, to these queues; the next stream goes to the next of them.
    Us { _binding: Binding, queues: Vec<u32>, next: AtomicU32 },
}

impl By {
    /// Whether no stream can be steered there any more.
    fn is_over(&self) -> bool {
        // One that is being asked is told how it is.
        matches!(self, By::Daemon(session) if session.try_lock().is_ok_and(|session| session.is_over()))
    }
}

/// Memory with a dma-buf at hand, and its bindings by interface.
struct Registration {
    mem: MemSlice,
    offset: u64,
    fd: OwnedFd,
    alive: Arc<AtomicBool>,
    bindings: Mutex<HashMap<u32, Binding>>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registration({:?})", self.mem)
    }
}

/// Keeps a registration; the memory is taken back when it is dropped.
struct Keeps(Arc<Registration>);

impl Drop for Keeps {
    fn drop(&mut self) {
        self.0.alive.store(false, Ordering::Release);
    }
}

/// What a rail's pool keeps: the binding, and the rule that steers its stream. The rule ends first.
struct Guard {
    _rule: Steered,
    _bound: Arc<Bound>,
}

enum Steered {
    Daemon(Arc<Bound>, u32),
    Us(#[expect(dead_code, reason = "ends when it is dropped")] Rule),
}

impl Drop for Steered {
    fn drop(&mut self) {
        if let Steered::Daemon(bound, rule) = self
            && let By::Daemon(session) = &bound.by
        {
            // A daemon that is gone has ended its rules.
            let _ = session.lock().unwrap_or_else(|e| e.into_inner()).release(*rule);
        }
    }
}

impl KernelPorts {
    pub(super) fn new(config: &DevmemConfig) -> KernelPorts {
        KernelPorts(Arc::new(Inner {
            config: config.clone(),
            folder: Path::new(client::FOLDER).to_owned(),
            pools: Mutex::default(),
            registered: Mutex::default(),
        }))
    }
}

fn index(interface: &str) -> Result<u32, String> {
    let all = linkspan_net::interfaces().map_err(|e| e.to_string())?;
    let found = all.into_iter().find(|i| i.name == interface);
    found.map(|i| i.index).ok_or_else(|| format!("there is no interface {interface}"))
}

impl Inner {
    /// The queues of this interface that this process binds itself.
    fn own(&self, interface: &str) -> Option<Vec<u32>> {
        let (name, first, last) = self.config.queues.as_ref()?;
        (name == interface).then(|| (*first..=*last).collect())
    }

    fn bound(&self, interface: &str, gpu: &Arc<dyn Gpu>) -> Result<Arc<Bound>, String> {
        let mut pools = self.pools.lock().unwrap_or_else(|e| e.into_inner());
        let key = (interface.to_owned(), gpu.place());
        if let Some(bound) = pools.get(&key).and_then(Weak::upgrade).filter(|bound| !bound.by.is_over()) {
            return Ok(bound);
        }
        let memory = GpuBuf::new(gpu, self.config.pool).map_err(|e| e.to_string())?;
        #[allow(unsafe_code)]
        // SAFETY: the memory lives as long as the binding that the dma-buf goes into, see `Bound`.
        let dmabuf = gpu.export(unsafe { memory.slice() }).map_err(|e| e.to_string())?;
        if dmabuf.offset != 0 {
            return Err(format!("{} gives memory that begins {} bytes into its pages", gpu.info().id(), dmabuf.offset));
        }
        let (by, id) = match self.own(interface) {
            Some(queues) => {
                let binding =
                    bind_receive(index(interface)?, &queues, dmabuf.fd.as_fd()).map_err(|error| chain(&error))?;
                let id = binding.id();
                (By::Us { _binding: binding, queues, next: AtomicU32::new(0) }, id)
            }
            None => {
                let session = Session::open(&client::path(&self.folder, interface))?;
                let id = session.bind(dmabuf.fd.as_fd(), dmabuf.len as u64)?;
                (By::Daemon(Mutex::new(session)), id)
            }
        };
        let interface = interface.to_owned();
        let bound = Arc::new(Bound { by, id, memory, interface, lent: Arc::default(), held: Arc::default() });
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.insert(key, Arc::downgrade(&bound));
        Ok(bound)
    }
}

#[allow(unsafe_code)]
// SAFETY: handles are kept as long as the binding that they are a part of.
unsafe impl Cards for KernelPorts {
    fn bind(
        &self,
        interface: &str,
        (local, peer): (SocketAddr, SocketAddr),
        stream: BorrowedFd<'_>,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<Pool, String> {
        let bound = self.0.bound(interface, gpu)?;
        let rule = match &bound.by {
            By::Daemon(session) => {
                let rule = session.lock().unwrap_or_else(|e| e.into_inner()).steer(local, peer, stream)?;
                Steered::Daemon(bound.clone(), rule)
            }
            By::Us { queues, next, .. } => {
                let queue = queues[next.fetch_add(1, Ordering::Relaxed) as usize % queues.len()];
                Steered::Us(Rule::steer(&bound.interface, local, peer, queue).map_err(|e| chain(&e))?)
            }
        };
        #[allow(unsafe_code)]
        // SAFETY: the pool keeps the binding, and so the memory.
        let mem = unsafe { bound.memory.slice() };
        let (id, lent, held) = (bound.id, bound.lent.clone(), bound.held.clone());
        Ok(Pool { mem, id, lent, held, guard: Box::new(Guard { _rule: rule, _bound: bound }) })
    }

    fn lend(&self, interface: &str, _gpu: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, NotLent> {
        let mut registered = self.0.registered.lock().unwrap_or_else(|e| e.into_inner());
        registered.retain(|r| r.strong_count() > 0);
        let covers = |r: &Registration| {
            let at = (mem.as_ptr() as u64).checked_sub(r.mem.as_ptr() as u64);
            let inside = at.is_some_and(|at| r.mem.sub(at, mem.len() as u64).is_some());
            inside && mem.place() == r.mem.place() && r.alive.load(Ordering::Acquire)
        };
        let found = registered.iter().filter_map(Weak::upgrade).find(|r| covers(r));
        let not = |why| NotLent { why, lasting: false };
        let found = found.ok_or_else(|| not("its owner has not registered it with a dma-buf".to_owned()))?;
        drop(registered);
        let index = index(interface).map_err(not)?;
        let mut bindings = found.bindings.lock().unwrap_or_else(|e| e.into_inner());
        let id = match bindings.get(&index) {
            Some(binding) => binding.id(),
            None => {
                let cannot = |e: &NetdevError| {
                    matches!(e, NetdevError::NoFamily(_)) || e.errno() == Some(Errno::OPNOTSUPP.raw_os_error())
                };
                let binding = bind_send(index, found.fd.as_fd());
                let binding = binding.map_err(|e| NotLent { why: chain(&e), lasting: cannot(&e) })?;
                let id = binding.id();
                bindings.insert(index, binding);
                id
            }
        };
        Ok(Lent { mem: found.mem, id, offset: found.offset, alive: found.alive.clone() })
    }
}

#[allow(unsafe_code)]
// SAFETY: what is registered is kept no longer than the value returned.
unsafe impl Ports for KernelPorts {
    fn ready(&self, interface: &str) -> Result<(), String> {
        if let Some(queues) = self.0.own(interface) {
            let lacks = |queue: &u32| !Path::new(&format!("/sys/class/net/{interface}/queues/rx-{queue}")).exists();
            return match queues.iter().find(|queue| lacks(queue)) {
                Some(queue) => {
                    Err(format!("LINKSPAN_DEVMEM_QUEUES names receive queue {queue}, which {interface} does not have"))
                }
                None => Ok(()),
            };
        }
        let ready = client::path(&self.0.folder, interface).exists();
        if ready { Ok(()) } else { Err(String::new()) }
    }

    fn socket(&self, stream: Stream) -> Box<dyn Socket> {
        let (interface, path) = (stream.interface(), stream.path());
        Box::new(KernelSocket::new(Held::new(stream), interface, path, Arc::new(self.clone())))
    }

    fn register(&self, dmabuf: BorrowedFd<'_>, offset: u64, mem: MemSlice) -> Option<Box<dyn Send + Sync>> {
        let fd = dmabuf.try_clone_to_owned().ok()?;
        let alive = Arc::new(AtomicBool::new(true));
        let made = Arc::new(Registration { mem, offset, fd, alive, bindings: Mutex::default() });
        let mut registered = self.0.registered.lock().unwrap_or_else(|e| e.into_inner());
        registered.push(Arc::downgrade(&made));
        Some(Box::new(Keeps(made)))
    }
}

#[cfg(test)]
mod tests;
