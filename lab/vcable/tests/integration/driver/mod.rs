//! A small model of a driver: programs host interfaces in the order in which Linux does, in strict memory windows.

use std::collections::VecDeque;

use linkspan_vcable::control::{pdf, seal, unseal};
use linkspan_vcable::memory::{Ram, Window};
use linkspan_vcable::nhi::regs::*;
use linkspan_vcable::router::Path;
use linkspan_vcable::router::layout::*;
use linkspan_vcable::time::{MS, Time, US};
use linkspan_vcable::topology::Topology;
use linkspan_vcable::world::{Action, Options, World};

/// Bus addresses are not memory addresses: everything goes through windows.
const IOVA: u64 = 0x7_0000_0000;

/// A received frame: payload, SOF, EOF, descriptor flags.
pub(crate) type Received = (Vec<u8>, u8, u8, u32);

#[derive(Default)]
struct Ring {
    size: u16,
    desc: u64,
    head: u16,
    tail: u16,
    buffers: Vec<u64>,
}

pub(crate) struct Driver {
    pub(crate) ram: Ram,
    next: u64,
    tx: Vec<Ring>,
    rx: Vec<Ring>,
    ports: usize,
    seq: u32,
    /// Control packets that are no answers: kind and words.
    pub(crate) events: VecDeque<(u8, Vec<u32>)>,
    /// Interrupts per vector.
    pub(crate) interrupts: [u64; 16],
    pub(crate) wakes: u64,
}

/// A world with a driver on each guest.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) drivers: Vec<Driver>,
}

impl Lab {
    pub(crate) fn new(topology: &str) -> Lab {
        Lab::with(topology, Options::default())
    }

    pub(crate) fn with(topology: &str, options: Options) -> Lab {
        let topology = Topology::preset(topology).map_or_else(|| Topology::parse(topology), Ok).unwrap();
        let mut world = World::new(&topology, options);
        let mut drivers = Vec::new();
        for (host, spec) in topology.hosts.iter().enumerate() {
            let ram = Ram::new(16 << 20);
            if !spec.peer {
                world.attach(host, Box::new(ram.clone()));
            }
            drivers.push(Driver {
                ram,
                next: 0,
                tx: (0..spec.hops).map(|_| Ring::default()).collect(),
                rx: (0..spec.hops).map(|_| Ring::default()).collect(),
                ports: spec.ports,
                seq: 0,
                events: VecDeque::new(),
                interrupts: [0; 16],
                wakes: 0,
            });
        }
        Lab { world, drivers }
    }

    /// Drivers on all guests, links trained.
    pub(crate) fn up(topology: &str) -> Lab {
        let mut lab = Lab::new(topology);
        lab.start_all();
        lab
    }

    pub(crate) fn start_all(&mut self) {
        for host in 0..self.drivers.len() {
            self.start(host);
        }
        self.run(100 * MS);
    }

    /// Interrupt and control bookkeeping after anything that may have moved the world.
    pub(crate) fn poll(&mut self) {
        for action in self.world.take_actions() {
            match action {
                Action::Interrupt { host, vector } => self.drivers[host].interrupts[usize::from(vector)] += 1,
                Action::Wake { host } => self.drivers[host].wakes += 1,
            }
        }
        for host in 0..self.drivers.len() {
            for (data, _, eof, _) in self.reap(host, 0) {
                if let Ok(words) = unseal(&data) {
                    if eof == pdf::EVENT {
                        // Answered at once, as Linux does.
                        self.control(host, pdf::ERROR, &[0, 0, 7 | (words[2] & 0x3f) << 8 | 2 << 30]);
                    }
                    self.drivers[host].events.push_back((eof, words));
                } else {
                    self.drivers[host].events.push_back((0xff, Vec::new()));
                }
            }
        }
    }

    pub(crate) fn run(&mut self, time: Time) {
        let end = self.world.now() + time;
        while let Some(next) = self.world.next_event().filter(|t| *t <= end) {
            self.world.advance(next);
            self.poll();
        }
        self.world.advance(end);
        self.poll();
    }

    fn w(&mut self, host: usize, offset: u32, value: u32) {
        self.world.bar_write(host, offset, value);
    }

    /// Memory that the device may use: its address in RAM.
    pub(crate) fn alloc(&mut self, host: usize, len: u64, writable: bool) -> u64 {
        let driver = &mut self.drivers[host];
        let at = driver.next;
        driver.next += len.next_multiple_of(64);
        driver.ram.map(Window { iova: IOVA + at, len, at, writable });
        at
    }

    pub(crate) fn unmap(&mut self, host: usize, at: u64, len: u64) {
        self.drivers[host].ram.unmap(IOVA + at, len);
    }

    pub(crate) fn buffer(&self, host: usize, rx: bool, ring: usize, index: usize) -> u64 {
        let d = &self.drivers[host];
        if rx { d.rx[ring].buffers[index] } else { d.tx[ring].buffers[index] }
    }

    /// Interrupt number to vector: TX ring n to 2n, RX ring n to 2n+1, the higher ones share the last two.
    pub(crate) fn vector(ring: usize, rx: bool) -> usize {
        (2 * ring + usize::from(rx)).min(14 + usize::from(rx))
    }

    fn enable_interrupt(&mut self, host: usize, ring: usize, rx: bool) {
        let hops = self.drivers[host].tx.len();
        let bit = if rx { hops + ring } else { ring };
        let at = VECTOR + bit as u32 / 8 * 4;
        let shift = bit % 8 * 4;
        let old = self.world.bar_read(host, at);
        self.w(host, at, old & !(0xf << shift) | (Lab::vector(ring, rx) as u32) << shift);
        let misc = self.world.bar_read(host, DMA_MISC);
        self.w(host, DMA_MISC, misc | READ_KEEPS);
        let at = INTERRUPT + bit as u32 / 32 * 4;
        let old = self.world.bar_read(host, at);
        self.w(host, at, old | 1 << (bit % 32));
    }

    /// `options` without ENABLE; E2E is set in a second write, as Linux does.
    pub(crate) fn start_tx(&mut self, host: usize, ring: usize, size: u16, options: u32) {
        let desc = self.alloc(host, u64::from(size) * DESC_LEN, true);
        let buffers = (0..size).map(|_| self.alloc(host, 4096, false)).collect();
        self.drivers[host].tx[ring] = Ring { size, desc, buffers, ..Ring::default() };
        let base = TX_RINGS + 16 * ring as u32;
        self.w(host, base, (IOVA + desc) as u32);
        self.w(host, base + 4, ((IOVA + desc) >> 32) as u32);
        self.w(host, base + 12, size.into());
        let at = TX_OPTIONS + 32 * ring as u32;
        self.w(host, at, ENABLE | options & !E2E);
        if options & E2E != 0 {
            self.w(host, at, ENABLE | options);
        }
        self.enable_interrupt(host, ring, false);
    }

    pub(crate) fn start_rx(&mut self, host: usize, ring: usize, size: u16, options: u32, masks: u32) {
        let desc = self.alloc(host, u64::from(size) * DESC_LEN, true);
        let frame = if options & RAW != 0 { 256 } else { 4096 };
        let buffers = (0..size).map(|_| self.alloc(host, frame, true)).collect();
        self.drivers[host].rx[ring] = Ring { size, desc, buffers, ..Ring::default() };
        let base = RX_RINGS + 16 * ring as u32;
        self.w(host, base, (IOVA + desc) as u32);
        self.w(host, base + 4, ((IOVA + desc) >> 32) as u32);
        self.w(host, base + 12, u32::from(size) | if options & RAW != 0 { 256 << 16 } else { 0 });
        let at = RX_OPTIONS + 32 * ring as u32;
        self.w(host, at + 4, masks);
        self.w(host, at, ENABLE | options & RAW);
        if options & E2E != 0 {
            self.w(host, at, ENABLE | options);
        }
        self.enable_interrupt(host, ring, true);
    }

    pub(crate) fn stop(&mut self, host: usize, ring: usize, rx: bool) {
        let (options, base) = if rx { (RX_OPTIONS, RX_RINGS) } else { (TX_OPTIONS, TX_RINGS) };
        self.w(host, options + 32 * ring as u32, 0);
        for at in [0, 4, 8, 12] {
            self.w(host, base + 16 * ring as u32 + at, 0);
        }
    }

    /// Posts receive descriptors.
    pub(crate) fn post(&mut self, host: usize, ring: usize, count: u16) {
        for _ in 0..count {
            let d = &mut self.drivers[host];
            let r = &mut d.rx[ring];
            assert_ne!((r.head + 1) % r.size, r.tail, "the ring is full");
            let buffer = IOVA + r.buffers[usize::from(r.head)];
            let mut raw = buffer.to_le_bytes().to_vec();
            raw.extend(((DESC_INTERRUPT | DESC_OVERRUN) << 20).to_le_bytes()); // 4: posted, to Linux
            raw.extend([0; 4]);
            d.ram.poke(r.desc + u64::from(r.head) * DESC_LEN, &raw);
            r.head = (r.head + 1) % r.size;
            let head = r.head;
            self.w(host, RX_RINGS + 16 * ring as u32 + 8, head.into());
        }
    }

    /// Descriptors of the ring that the driver could still post or fill.
    pub(crate) fn free(&self, host: usize, ring: usize, rx: bool) -> u16 {
        let r = if rx { &self.drivers[host].rx[ring] } else { &self.drivers[host].tx[ring] };
        (r.tail + r.size - 1 - r.head) % r.size
    }

    pub(crate) fn send(&mut self, host: usize, ring: usize, data: &[u8], sof: u8, eof: u8) {
        assert!(self.try_send(host, ring, data, sof, eof), "the ring is full");
    }

    pub(crate) fn try_send(&mut self, host: usize, ring: usize, data: &[u8], sof: u8, eof: u8) -> bool {
        self.reap_tx(host, ring);
        if self.free(host, ring, false) == 0 {
            return false;
        }
        let d = &mut self.drivers[host];
        let r = &mut d.tx[ring];
        let buffer = r.buffers[usize::from(r.head)];
        d.ram.poke(buffer, data);
        let mut raw = (IOVA + buffer).to_le_bytes().to_vec();
        let word = data.len() as u32 & 0xfff | u32::from(eof) << 12 | u32::from(sof) << 16 | DESC_INTERRUPT << 20;
        raw.extend(word.to_le_bytes());
        raw.extend([0; 4]);
        d.ram.poke(r.desc + u64::from(r.head) * DESC_LEN, &raw);
        r.head = (r.head + 1) % r.size;
        let head = r.head;
        self.w(host, TX_RINGS + 16 * ring as u32 + 8, u32::from(head) << 16);
        true
    }

    fn word(&self, host: usize, at: u64) -> u32 {
        let raw = self.drivers[host].ram.peek(at, 4);
        u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])
    }

    /// Completed transmit descriptors.
    pub(crate) fn reap_tx(&mut self, host: usize, ring: usize) -> u64 {
        let mut done = 0;
        loop {
            let r = &self.drivers[host].tx[ring];
            if r.size == 0 || r.tail == r.head {
                return done;
            }
            if self.word(host, r.desc + u64::from(r.tail) * DESC_LEN + 8) >> 20 & DESC_COMPLETED == 0 {
                return done;
            }
            let r = &mut self.drivers[host].tx[ring];
            r.tail = (r.tail + 1) % r.size;
            done += 1;
        }
    }

    /// Received frames; control descriptors are posted again.
    pub(crate) fn reap(&mut self, host: usize, ring: usize) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let r = &self.drivers[host].rx[ring];
            if r.size == 0 || r.tail == r.head {
                return all;
            }
            let word = self.word(host, r.desc + u64::from(r.tail) * DESC_LEN + 8);
            if word >> 20 & DESC_COMPLETED == 0 {
                return all;
            }
            let len = if word & 0xfff == 0 { 4096 } else { (word & 0xfff) as usize };
            let data = self.drivers[host].ram.peek(r.buffers[usize::from(r.tail)], len);
            all.push((data, (word >> 16 & 0xf) as u8, (word >> 12 & 0xf) as u8, word >> 20));
            let r = &mut self.drivers[host].rx[ring];
            r.tail = (r.tail + 1) % r.size;
            if ring == 0 {
                self.post(host, 0, 1);
            }
        }
    }

    /// Sends a control packet.
    pub(crate) fn control(&mut self, host: usize, kind: u8, words: &[u32]) {
        self.send(host, 0, &seal(words), 0, kind);
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, host: usize, kind: u8, words: &[u32]) -> Option<(u8, Vec<u32>)> {
        self.poll();
        let before = self.drivers[host].events.len();
        self.control(host, kind, words);
        self.poll();
        let events = &mut self.drivers[host].events;
        let at = (before..events.len()).find(|i| events[*i].0 != pdf::EVENT)?;
        events.remove(at)
    }

    fn address(&mut self, host: usize, adapter: usize, space: u32, offset: usize, len: usize) -> u32 {
        let d = &mut self.drivers[host];
        d.seq = (d.seq + 1) & 3;
        offset as u32 | (len as u32) << 13 | (adapter as u32) << 19 | space << 25 | d.seq << 27
    }

    pub(crate) fn read(
        &mut self,
        host: usize,
        adapter: usize,
        space: u32,
        offset: usize,
        len: usize,
    ) -> Result<Vec<u32>, u32> {
        let address = self.address(host, adapter, space, offset, len);
        match self.request(host, pdf::READ, &[0, 0, address]) {
            Some((pdf::READ, words)) => {
                assert_eq!(words[0], 1 << 31);
                assert_eq!(words.len(), 3 + len);
                Ok(words[3..].to_vec())
            }
            Some((pdf::ERROR, words)) => Err(words[2] & 0xff),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write(&mut self, host: usize, adapter: usize, space: u32, offset: usize, data: &[u32]) {
        let mut words = vec![0, 0, self.address(host, adapter, space, offset, data.len())];
        words.extend_from_slice(data);
        let answer = self.request(host, pdf::WRITE, &words);
        assert!(matches!(answer, Some((pdf::WRITE, _))), "{answer:?}");
    }

    /// Control channel, enumeration, ports opened: what `tb_start` does.
    pub(crate) fn start(&mut self, host: usize) {
        if self.world.report().hosts[host].kind == "peer" {
            return;
        }
        self.start_tx(host, 0, 10, RAW);
        self.start_rx(host, 0, 10, RAW, 0xffff_ffff);
        self.post(host, 0, 9);
        let header = self.read(host, 0, 2, 0, 5).unwrap();
        assert_eq!(header[4] >> 29, if self.version_2(host) { 2 } else { 1 });
        self.write(host, 0, 2, 1, &[header[1], 0, 1 << 31, header[4]]);
        for port in 1..=self.drivers[host].ports {
            let lane = lane_adapter(port);
            let words = self.read(host, lane, 1, 0, 8).unwrap();
            self.write(host, lane, 1, 5, &[words[5] & !(1 << 31)]);
            for on in [1, 0] {
                self.write(host, lane, 1, PORT_CS_19, &[on]);
            }
        }
    }

    fn version_2(&mut self, host: usize) -> bool {
        self.world.bar_read(host, CAPS) >> 16 & 0xff >= 0x40
    }

    /// Bits 29:26 of lane status.
    pub(crate) fn lane_state(&mut self, host: usize, port: usize) -> u32 {
        self.read(host, lane_adapter(port), 1, CAP_PHY + 1, 1).unwrap()[0] >> 26 & 0xf
    }

    /// Speed and width fields of lane status.
    pub(crate) fn lane_rate(&mut self, host: usize, port: usize) -> (u32, u32) {
        let word = self.read(host, lane_adapter(port), 1, CAP_PHY + 1, 1).unwrap()[0];
        (word >> 16 & 0xf, word >> 20 & 0x3f)
    }

    /// A path out: TX ring to HopID on a port's link.
    pub(crate) fn path_out(&mut self, host: usize, ring: usize, port: usize, hop: u16) {
        let path = Path {
            next_hop: hop,
            out_adapter: lane_adapter(port) as u8,
            credits: 14,
            weight: 1,
            priority: 5,
            ingress_fc: true,
        };
        let nhi = 2 * self.drivers[host].ports + 1;
        self.write(host, nhi, 0, 2 * ring, &path.encode());
    }

    /// A path in: HopID of a port's link to an RX ring.
    pub(crate) fn path_in(&mut self, host: usize, port: usize, hop: u16, ring: usize, credits: u8) {
        let nhi = 2 * self.drivers[host].ports + 1;
        let path =
            Path { next_hop: ring as u16, out_adapter: nhi as u8, credits, weight: 1, priority: 5, ingress_fc: true };
        self.write(host, lane_adapter(port), 0, 2 * usize::from(hop), &path.encode());
    }

    /// Rings with end-to-end flow control both ways between the first ports of two hosts, as USB4STREAM has them:
    /// TX and RX ring `ring`, HopID 8 + ring - 1.
    pub(crate) fn stream(&mut self, hosts: [usize; 2], ring: usize, size: u16) {
        let hop = FIRST_HOP + ring as u16 - 1;
        for host in hosts {
            self.start_tx(host, ring, size, E2E);
            self.start_rx(host, ring, size, E2E | (ring as u32) << 12, 1 << 17 | 1 << 2 | 1 << 3);
            self.path_in(host, 1, hop, ring, 14);
            self.path_out(host, ring, 1, hop);
        }
    }

    /// No driver made a mistake, and no packet was lost for want of a buffer.
    pub(crate) fn assert_clean(&self) {
        assert!(self.world.failures().is_empty(), "{:?}", self.world.failures());
        for cable in self.world.report().cables {
            assert_eq!(cable.stats.packets_lost, 0, "{}", cable.name);
        }
    }
}

pub(crate) fn us(n: u64) -> Time {
    n * US
}
