//! A NIC in software: reliable connections as the specification has them (InfiniBand Architecture, volume 1, chapter
//! 9), between devices of one process, without `unsafe`.
//!
//! A [`SoftNet`] is the cables: every [`SoftNic`] made on it reaches every other by GID or LID. Messages are cut into
//! packets of the path MTU with 24-bit sequence numbers; the responder checks them against what it expects, the key,
//! the bounds and the rights; the requester sends again after a NAK or a timeout, waits after receiver-not-ready, and
//! gives up when its retries are used up. The wire loses, delays and doubles packets from a seed ([`Faults`]).
//!
//! There is no thread in it: any poll or post on any device moves the whole net a bounded step. Callers that sleep on
//! a completion channel need a thread that keeps polling; [`SoftNet::engine`] is that.

mod handles;
mod net;
mod pair;
mod request;
mod respond;
mod wire;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use handles::{SoftCq, SoftMr, SoftNic, SoftQp};
use net::Net;

use linkspan_transport::MemSlice;

use crate::{AsyncEvent, Gid, GidEntry, GidKind, Limits, LinkLayer, Mtu, PostError, SendWr};

/// What the wire does to packets. Probabilities in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Packets that vanish.
    pub loss: u32,
    /// Packets that come twice.
    pub duplicate: u32,
    /// Packets that are late.
    pub late: u32,
    /// ... by up to this much; others overtake them.
    pub delay: Duration,
}

/// What a software NIC is to be.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// Name, as in `soft0`.
    pub name: String,
    /// Wiring of its one port.
    pub link: LinkLayer,
    /// MTU of the link.
    pub mtu: Mtu,
    /// The port's GID table.
    pub gids: Vec<GidEntry>,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Partition table.
    pub pkeys: Vec<u16>,
    /// Limits.
    pub limits: Limits,
    /// Most bytes inside a request.
    pub inline: u32,
    /// First queue pair number.
    pub first_qpn: u32,
    /// It takes memory of devices by dma-bufs that the net was told of ([`SoftNet::dmabuf`]).
    pub dmabuf: bool,
    /// It takes memory of devices by address, as with a peer memory module.
    pub peer_memory: bool,
    /// Most bytes that may be registered at a time, as with RLIMIT_MEMLOCK.
    pub locked: u64,
}

impl SoftConfig {
    /// A RoCE device: link-local entry first, then RoCE v1 and v2 of an IPv4 address, as kernels order them.
    pub fn roce(name: &str, ip: std::net::Ipv4Addr, ifindex: u32) -> SoftConfig {
        let mut local = [0; 16];
        local[..2].copy_from_slice(&[0xfe, 0x80]);
        local[12..].copy_from_slice(&ip.octets());
        let entry = |index, gid, kind| GidEntry { index, gid, kind, ifindex };
        SoftConfig {
            name: name.to_owned(),
            link: LinkLayer::Ethernet,
            mtu: Mtu::B4096,
            gids: vec![
                entry(0, Gid(local), GidKind::RoceV1),
                entry(1, Gid(local), GidKind::RoceV2),
                entry(2, Gid::v4(ip), GidKind::RoceV1),
                entry(3, Gid::v4(ip), GidKind::RoceV2),
            ],
            lid: 0,
            pkeys: vec![0xffff],
            limits: LIMITS,
            inline: 256,
            first_qpn: 0x11,
            dmabuf: false,
            peer_memory: false,
            locked: u64::MAX,
        }
    }

    /// An InfiniBand device.
    pub fn infiniband(name: &str, lid: u16) -> SoftConfig {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[14..].copy_from_slice(&lid.to_be_bytes());
        SoftConfig {
            link: LinkLayer::InfiniBand,
            gids: vec![GidEntry { index: 0, gid: Gid(gid), kind: GidKind::Ib, ifindex: 0 }],
            lid,
            ..SoftConfig::roce(name, std::net::Ipv4Addr::UNSPECIFIED, 0)
        }
    }
}

/// As soft-RoCE of Linux has them, where it matters (`drivers/infiniband/sw/rxe/rxe_param.h`).
const LIMITS: Limits = Limits {
    qp: 65_536,
    qp_wr: 16_384,
    sge: 32,
    cq: 65_536,
    cqe: 32_767,
    mr: 65_536,
    mr_size: u64::MAX,
    rd_atomic: 128,
    init_rd_atomic: 128,
    ports: 1,
};

/// The cables between software NICs.
#[derive(Clone)]
pub struct SoftNet(Arc<Mutex<Net>>);

impl SoftNet {
    /// A net without devices, in real time. `seed` decides every fault.
    pub fn new(seed: u64) -> SoftNet {
        SoftNet(Arc::new(Mutex::new(Net::new(seed, true))))
    }

    /// The same with a clock that only [`SoftNet::advance`] moves.
    pub fn in_virtual_time(seed: u64) -> SoftNet {
        SoftNet(Arc::new(Mutex::new(Net::new(seed, false))))
    }

    fn lock(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A new device.
    pub fn nic(&self, config: SoftConfig) -> SoftNic {
        let mut net = self.lock();
        let index = net.add(config);
        let nic = &net.nics[index];
        SoftNic::new(self.clone(), index, nic.config.name.clone(), nic.event_notifier.clone())
    }

    /// From now on `fd` is a dma-buf that holds this memory of a device.
    ///
    /// # Errors
    /// The error of `fstat(2)` on the descriptor.
    pub fn dmabuf(&self, fd: BorrowedFd<'_>, mem: MemSlice) -> std::io::Result<()> {
        let id = handles::file(fd)?;
        self.lock().dmabufs.insert(id, mem);
        Ok(())
    }

    /// Faults from now on.
    pub fn faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Moves a virtual clock.
    pub fn advance(&self, time: Duration) {
        let mut net = self.lock();
        net.advance(time);
        net.run(usize::MAX);
    }

    /// Moves packets and timers that are due.
    pub fn run(&self) {
        self.lock().run(usize::MAX);
    }

    /// Takes the cable of a device's port out, or puts it in.
    pub fn cable(&self, nic: &SoftNic, plugged: bool) {
        let mut net = self.lock();
        net.nics[nic.index()].active = plugged;
        net.tell(nic.index(), if plugged { AsyncEvent::PortUp(1) } else { AsyncEvent::PortDown(1) });
    }

    /// Changes an entry of a device's GID table.
    pub fn readdress(&self, nic: &SoftNic, entry: usize, gid: Gid) {
        let mut net = self.lock();
        if let Some(e) = net.nics[nic.index()].config.gids.get_mut(entry) {
            e.gid = gid;
        }
        net.tell(nic.index(), AsyncEvent::Addresses(1));
    }

    /// Takes a device out of the machine.
    pub fn remove(&self, nic: &SoftNic) {
        self.lock().remove(nic.index());
    }

    /// Holds back what is for this queue pair of a device, from now on.
    pub fn hold(&self, nic: &SoftNic, qpn: u32) {
        self.lock().hold(nic.index(), qpn);
    }

    /// Ends a queue pair of a device as the kernel does when its process is gone: what it had not sent is never sent, and
    /// what comes for it is dropped.
    pub fn destroy(&self, nic: &SoftNic, qpn: u32) {
        self.lock().nics[nic.index()].pairs.remove(&qpn);
    }

    /// Posts a request on a queue pair of a device behind its holder's back, as a program that means harm may do with its own. The
    /// device looks for the request's ranges in the protection domain of `nic`.
    ///
    /// # Errors
    /// As [`Qp::post_send`](crate::Qp::post_send); ENODEV where there is no such queue pair.
    pub fn forge(&self, nic: &SoftNic, qpn: u32, wr: SendWr) -> Result<(), PostError> {
        nic.forge(qpn, wr)
    }

    /// Delivers all that was held back.
    pub fn release(&self) {
        self.lock().release();
    }

    /// Packets delivered so far, for tests that must know that something travelled.
    pub fn packets(&self) -> u64 {
        self.lock().delivered
    }

    /// Devices so far.
    #[cfg(test)]
    fn nics(&self) -> u16 {
        self.lock().nics.len() as u16
    }

    /// A thread that keeps the net going while the value lives, for callers that sleep.
    pub fn engine(&self) -> Engine {
        let stop = Arc::new(AtomicBool::new(false));
        let (net, stopped) = (self.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                net.run();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Engine { stop, thread: Some(thread) }
    }
}

/// See [`SoftNet::engine`].
pub struct Engine {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A descriptor that becomes readable when signaled.
#[derive(Clone)]
struct Notifier(Arc<std::os::fd::OwnedFd>);

impl Notifier {
    fn new() -> Notifier {
        use rustix::event::{EventfdFlags, eventfd};
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("a descriptor for a software NIC");
        Notifier(Arc::new(fd))
    }

    fn signal(&self) {
        // Full means that it was signaled 2^64 - 2 times: it is readable.
        let _ = rustix::io::write(self.0.as_fd(), &1u64.to_ne_bytes());
    }

    fn calm(&self) {
        let _ = rustix::io::read(self.0.as_fd(), &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests;
