//! The net: devices, packets under way, timers.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use linkspan_transport::{Buf, MemSlice};

use super::pair::Pair;
use super::wire::Packet;
use super::{Faults, Notifier, SoftConfig};
use crate::{Access, Address, AsyncEvent, Completion, Keys, QpState, Sge, Status, What};

/// A registered region.
pub(super) struct MrEntry {
    pub(super) keys: Keys,
    mem: MemSlice,
    access: Access,
    pd: u32,
}

/// A completion queue.
pub(super) struct Queue {
    depth: usize,
    pub(super) entries: VecDeque<Completion>,
    pub(super) armed: bool,
    pub(super) notifier: Notifier,
    pub(super) broken: bool,
}

/// A device.
pub(super) struct Device {
    pub(super) config: SoftConfig,
    pub(super) active: bool,
    pub(super) gone: bool,
    pub(super) regions: HashMap<u32, MrEntry>,
    pub(super) queues: HashMap<u32, Queue>,
    pub(super) pairs: HashMap<u32, Pair>,
    pub(super) events: VecDeque<AsyncEvent>,
    pub(super) event_notifier: Notifier,
    pub(super) next: u32,
    pub(super) next_qpn: u32,
    /// Protection domains made beside the first, which is 0.
    pub(super) pds: u32,
}

/// Why a device may not touch memory.
pub(super) enum Denied {
    Key,
    Bounds,
    Rights,
}

impl Device {
    pub(super) fn register(&mut self, pd: u32, mem: MemSlice, addr: u64, access: Access) -> Keys {
        // Keys are never used twice in the life of a device, so that an old one is refused.
        self.next += 1;
        let key = self.next << 8 | (self.next.wrapping_mul(0x9E37) & 0xff);
        let keys = Keys { addr, len: mem.len() as u64, lkey: key, rkey: key };
        self.regions.insert(key, MrEntry { keys, mem, access, pd });
        keys
    }

    pub(super) fn targets(&self) -> Vec<Keys> {
        let targets = self.regions.values().filter(|region| region.access.allows(Access::REMOTE_WRITE));
        targets.map(|region| region.keys).collect()
    }

    /// Memory as a queue pair of a protection domain reaches it.
    fn range(&self, pd: u32, key: u32, addr: u64, len: u64, access: Access) -> Result<MemSlice, Denied> {
        let region = self.regions.get(&key).filter(|region| region.pd == pd).ok_or(Denied::Key)?;
        if !region.access.allows(access) {
            return Err(Denied::Rights);
        }
        let offset = addr.checked_sub(region.keys.addr).ok_or(Denied::Bounds)?;
        region.mem.sub(offset, len).ok_or(Denied::Bounds)
    }

    pub(super) fn store(&self, pd: u32, key: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Denied> {
        let range = self.range(pd, key, addr, bytes.len() as u64, access)?;
        let inside = range.fill(0, bytes);
        debug_assert!(inside);
        Ok(())
    }

    pub(super) fn load(&self, pd: u32, key: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Denied> {
        let range = self.range(pd, key, addr, out.len() as u64, access)?;
        let inside = range.read(0, out);
        debug_assert!(inside);
        Ok(())
    }

    pub(super) fn check(&self, pd: u32, key: u32, addr: u64, len: u64, access: Access) -> Result<(), Denied> {
        self.range(pd, key, addr, len, access).map(|_| ())
    }

    /// The part of gathered ranges that begins `skip` bytes in.
    pub(super) fn gather(&self, pd: u32, ranges: &[Sge], mut skip: u64, out: &mut [u8]) -> Result<(), Denied> {
        let mut done = 0;
        for sge in ranges {
            let len = u64::from(sge.len);
            if skip >= len {
                skip -= len;
                continue;
            }
            let n = ((len - skip) as usize).min(out.len() - done);
            self.load(pd, sge.lkey, sge.addr + skip, &mut out[done..done + n], Access::LOCAL_READ)?;
            done += n;
            skip = 0;
        }
        if done == out.len() { Ok(()) } else { Err(Denied::Bounds) }
    }

    /// The same the other way.
    pub(super) fn scatter(&self, pd: u32, ranges: &[Sge], mut skip: u64, bytes: &[u8]) -> Result<(), Denied> {
        let mut done = 0;
        for sge in ranges {
            let len = u64::from(sge.len);
            if skip >= len {
                skip -= len;
                continue;
            }
            let n = ((len - skip) as usize).min(bytes.len() - done);
            self.store(pd, sge.lkey, sge.addr + skip, &bytes[done..done + n], Access::LOCAL_WRITE)?;
            done += n;
            skip = 0;
        }
        if done == bytes.len() { Ok(()) } else { Err(Denied::Bounds) }
    }
}

enum Clock {
    Real(Instant),
    Virtual(u64),
}

struct Late {
    due: u64,
    order: u64,
    packet: Packet,
}

impl PartialEq for Late {
    fn eq(&self, other: &Late) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}
impl Eq for Late {}
impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Late) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Late {
    fn cmp(&self, other: &Late) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

/// Everything behind the lock.
pub(super) struct Net {
    pub(super) nics: Vec<Device>,
    /// By device and inode.
    pub(super) dmabufs: HashMap<(u64, u64), MemSlice>,
    pub(super) faults: Faults,
    clock: Clock,
    rng: u64,
    under_way: VecDeque<Packet>,
    /// Queue pairs that nothing is delivered to, and what would have been.
    held: Vec<(usize, u32, VecDeque<Packet>)>,
    late: BinaryHeap<Reverse<Late>>,
    order: u64,
    /// Queue pairs that may have something to send.
    ready: VecDeque<(usize, u32)>,
    /// When to look after a queue pair.
    timers: BTreeSet<(u64, usize, u32)>,
    pub(super) delivered: u64,
}

/// Packets moved by one poll: enough to fill the caller's list of completions, little enough not to hold the lock.
pub(super) const STEP: usize = 128;

impl Net {
    pub(super) fn new(seed: u64, real: bool) -> Net {
        Net {
            nics: Vec::new(),
            dmabufs: HashMap::new(),
            faults: Faults::default(),
            clock: if real { Clock::Real(Instant::now()) } else { Clock::Virtual(0) },
            rng: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            under_way: VecDeque::new(),
            held: Vec::new(),
            late: BinaryHeap::new(),
            order: 0,
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            delivered: 0,
        }
    }

    pub(super) fn add(&mut self, config: SoftConfig) -> usize {
        let next_qpn = config.first_qpn;
        self.nics.push(Device {
            config,
            active: true,
            gone: false,
            regions: HashMap::new(),
            queues: HashMap::new(),
            pairs: HashMap::new(),
            events: VecDeque::new(),
            event_notifier: Notifier::new(),
            next: 0,
            next_qpn,
            pds: 0,
        });
        self.nics.len() - 1
    }

    pub(super) fn queue(&mut self, nic: usize, depth: usize) -> (u32, Notifier) {
        let device = &mut self.nics[nic];
        device.next += 1;
        let notifier = Notifier::new();
        let entries = VecDeque::with_capacity(depth);
        let queue = Queue { depth, entries, armed: false, notifier: notifier.clone(), broken: false };
        device.queues.insert(device.next, queue);
        (device.next, notifier)
    }

    pub(super) fn now(&self) -> u64 {
        match self.clock {
            Clock::Real(since) => since.elapsed().as_nanos() as u64,
            Clock::Virtual(now) => now,
        }
    }

    pub(super) fn advance(&mut self, time: Duration) {
        if let Clock::Virtual(now) = &mut self.clock {
            *now += time.as_nanos() as u64;
        }
    }

    /// Xorshift (Marsaglia 2003, 64 bits): chance, not secrecy.
    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random() % 1_000_000 < u64::from(ppm)
    }

    /// The device that an address leads to.
    pub(super) fn find(&self, to: Address) -> Option<usize> {
        self.nics.iter().position(|nic| match to {
            Address::Lid { lid, .. } => lid != 0 && nic.config.lid == lid,
            Address::Gid { gid, .. } => nic.config.gids.iter().any(|e| e.gid == gid),
        })
    }

    pub(super) fn send(&mut self, packet: Packet) {
        if !self.nics[packet.from].active || !self.nics[packet.to].active || self.chance(self.faults.loss) {
            return;
        }
        let twice = self.chance(self.faults.duplicate).then(|| packet.clone());
        for packet in [Some(packet), twice].into_iter().flatten() {
            if self.chance(self.faults.late) {
                let by = self.random() % (self.faults.delay.as_nanos() as u64).max(1);
                self.order += 1;
                self.late.push(Reverse(Late { due: self.now() + by, order: self.order, packet }));
            } else {
                self.under_way.push_back(packet);
            }
        }
    }

    pub(super) fn wake(&mut self, nic: usize, qpn: u32) {
        if let Some(pair) = self.nics[nic].pairs.get_mut(&qpn)
            && !std::mem::replace(&mut pair.listed, true)
        {
            self.ready.push_back((nic, qpn));
        }
    }

    pub(super) fn timer(&mut self, due: u64, nic: usize, qpn: u32) {
        self.timers.insert((due, nic, qpn));
    }

    /// Moves what is due, `budget` packets at most.
    pub(super) fn run(&mut self, mut budget: usize) {
        if !self.late.is_empty() || !self.timers.is_empty() {
            let now = self.now();
            while self.late.peek().is_some_and(|l| l.0.due <= now) {
                if let Some(Reverse(late)) = self.late.pop() {
                    self.under_way.push_back(late.packet);
                }
            }
            while let Some(&(due, nic, qpn)) = self.timers.first() {
                if due > now {
                    break;
                }
                self.timers.pop_first();
                self.timeout(nic, qpn, now);
            }
        }
        loop {
            if let Some(packet) = self.under_way.pop_front() {
                self.deliver(packet);
            } else if let Some((nic, qpn)) = self.ready.pop_front() {
                if let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) {
                    pair.listed = false;
                    self.transmit(nic, qpn);
                }
            } else {
                return;
            }
            budget = budget.saturating_sub(1);
            if budget == 0 {
                return;
            }
        }
    }

    pub(super) fn hold(&mut self, nic: usize, qpn: u32) {
        self.held.push((nic, qpn, VecDeque::new()));
    }

    pub(super) fn release(&mut self) {
        for (.., packets) in self.held.drain(..) {
            self.under_way.extend(packets);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        use super::wire::Body;
        if let Some((.., held)) = self.held.iter_mut().find(|h| (h.0, h.1) == (packet.to, packet.qpn)) {
            // As much as a long cable holds; the rest is lost.
            if held.len() < 4096 {
                held.push_back(packet);
            }
            return;
        }
        let device = &self.nics[packet.to];
        if !device.active || device.gone {
            return;
        }
        let Some(pair) = device.pairs.get(&packet.qpn) else { return };
        // A packet is for its queue pair when that expects this peer, and both are members of one partition, one of
        // them a full one (specification, 10.9.3).
        let ours = pair.pkey;
        let partition = (ours ^ packet.pkey) & 0x7fff == 0 && (ours | packet.pkey) & 0x8000 != 0;
        if pair.peer_qpn != packet.source || !partition || !matches!(pair.state, QpState::Rtr | QpState::Rts) {
            return;
        }
        self.delivered += 1;
        match packet.body {
            Body::Ack | Body::Nak(_) | Body::Reply { .. } => self.answered(packet),
            _ => self.requested(packet),
        }
    }

    /// Puts a completion on a queue pair's queue.
    pub(super) fn complete(&mut self, nic: usize, qpn: u32, completion: Completion) {
        let device = &mut self.nics[nic];
        let Some(cq) = device.pairs.get(&qpn).map(|p| p.cq) else { return };
        let Some(queue) = device.queues.get_mut(&cq) else { return };
        if queue.broken {
            return;
        }
        if queue.entries.len() >= queue.depth {
            queue.broken = true;
            let pairs: Vec<u32> = device.pairs.values().filter(|p| p.cq == cq).map(|p| p.number).collect();
            self.tell(nic, AsyncEvent::CqError);
            for qpn in pairs {
                self.fail(nic, qpn);
            }
            return;
        }
        queue.entries.push_back(completion);
        if std::mem::take(&mut queue.armed) {
            queue.notifier.signal();
        }
    }

    pub(super) fn tell(&mut self, nic: usize, event: AsyncEvent) {
        let device = &mut self.nics[nic];
        // A device keeps a bounded number; a program that never asks loses the newest.
        if device.events.len() < 4096 {
            device.events.push_back(event);
        }
        device.event_notifier.signal();
    }

    /// Breaks a queue pair: all that was posted comes back flushed.
    pub(super) fn fail(&mut self, nic: usize, qpn: u32) {
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        if matches!(pair.state, QpState::Error | QpState::Reset) {
            return;
        }
        pair.state = QpState::Error;
        let sends: Vec<u64> = pair.sq.drain(..).map(|w| w.wr.id).collect();
        let half = pair.inbound.take().and_then(|i| i.recv).map(|r| r.id);
        let recvs: Vec<u64> = half.into_iter().chain(pair.rq.drain(..).map(|r| r.id)).collect();
        for (id, what) in sends.iter().map(|id| (*id, What::Sent)).chain(recvs.iter().map(|id| (*id, What::Received))) {
            self.complete(nic, qpn, flushed(id, what, qpn));
        }
    }

    pub(super) fn remove(&mut self, nic: usize) {
        let pairs: Vec<u32> = self.nics[nic].pairs.keys().copied().collect();
        for qpn in pairs {
            self.fail(nic, qpn);
        }
        self.nics[nic].active = false;
        self.nics[nic].gone = true;
        self.tell(nic, AsyncEvent::DeviceGone);
        let device = &mut self.nics[nic];
        for queue in device.queues.values_mut() {
            queue.notifier.signal();
        }
    }
}

pub(super) fn flushed(id: u64, what: What, qpn: u32) -> Completion {
    Completion { id, status: Status::Flushed, what, bytes: 0, imm: None, qpn }
}
