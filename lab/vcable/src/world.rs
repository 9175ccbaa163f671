//! Hosts, cables, virtual time: the deterministic core.
//!
//! The world does no I/O. A front end (the vfio-user server, or a test) passes in register accesses and the time, and
//! carries out the [`Action`]s that come back. The same calls with the same seed give the same results.

mod cable;
mod control;
mod data;
mod faults;
mod guest;
mod links;
mod mmio;
mod peers;
mod report;

pub use cable::{CableStats, PACKET};
pub use guest::HostStats;
pub use report::{CableReport, HostReport, Report};

use std::collections::BTreeMap;

use cable::{Cable, Packet};
use faults::Faults;
use guest::Guest;
use peers::PeerHost;

use crate::failure::{Failure, Misuse};
use crate::fault::Script;
use crate::memory::{GuestMemory, NoMemory};
use crate::nhi::irq::IrqOut;
use crate::peer::Peer;
use crate::rng::Rng;
use crate::time::Time;
use crate::topology::Topology;
use crate::trace::{Record, Sink, What};

/// What the front end has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an interrupt vector to a guest; with MSI it is always 0.
    Interrupt {
        /// Index of the host.
        host: usize,
        /// Vector.
        vector: u8,
    },
    /// A suspended host interface has set its wake status.
    Wake {
        /// Index of the host.
        host: usize,
    },
}

/// What is due at a time.
#[derive(Clone, Debug)]
enum Event {
    Train { cable: usize },
    Vector { host: usize, vector: u8 },
    Wire { cable: usize, side: usize, epoch: u64 },
    Control { host: usize, pdf: u8, words: Vec<u32> },
    Message { cable: usize, side: usize, ups: u64, pdf: u8, words: Vec<u32> },
    Held { host: usize },
    PlugAck { host: usize, port: usize, unplug: bool },
    PeerTimer { host: usize, token: u64 },
    Script { line: usize },
    Release { host: usize, hop: u16 },
}

enum Kind {
    Guest(Box<Guest>),
    Peer(PeerHost),
}

struct Host {
    name: String,
    machine: String,
    kind: Kind,
    stats: HostStats,
    /// By fault: packets of this host get lost on the way out.
    silent: bool,
}

/// How a world runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of everything that chance decides.
    pub seed: u64,
    /// Packets take time on the wire. Without it they arrive at once, which suits guests that are slower than any
    /// cable.
    pub wire_time: bool,
    /// Time that an XDomain message takes from one host to the other.
    pub latency: Time,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 1, wire_time: true, latency: 0 }
    }
}

/// Most failures that are kept; the count goes on.
const MAX_FAILURES: usize = 1000;

/// Hosts and cables in virtual time.
pub struct World {
    now: Time,
    options: Options,
    order: u64,
    events: BTreeMap<(Time, u64), Event>,
    hosts: Vec<Host>,
    cables: Vec<Cable>,
    faults: Faults,
    rng: Rng,
    actions: Vec<Action>,
    irqs: Vec<IrqOut>,
    failures: Vec<Failure>,
    failure_count: u64,
    sink: Option<Box<dyn Sink>>,
}

impl World {
    /// A world at time 0. Guests are detached; software peers are [`crate::peer::Mute`] until set.
    pub fn new(topology: &Topology, options: Options) -> World {
        let hosts: Vec<Host> = topology
            .hosts
            .iter()
            .enumerate()
            .map(|(index, spec)| Host {
                name: spec.name.clone(),
                machine: spec.machine.clone(),
                kind: if spec.peer {
                    Kind::Peer(PeerHost::new(spec))
                } else {
                    Kind::Guest(Box::new(Guest::new(index, spec)))
                },
                stats: HostStats::default(),
                silent: false,
            })
            .collect();
        let rate = |host: usize| (topology.hosts[host].generation, topology.hosts[host].lanes);
        let cables = topology.cables.iter().map(|c| Cable::new(c, c.ends.map(|e| rate(e.host)))).collect::<Vec<_>>();
        World {
            now: 0,
            options,
            order: 0,
            events: BTreeMap::new(),
            hosts,
            cables,
            faults: Faults::default(),
            rng: Rng::new(options.seed),
            actions: Vec::new(),
            irqs: Vec::new(),
            failures: Vec::new(),
            failure_count: 0,
            sink: None,
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Index of a host.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|h| h.name == name)
    }

    /// Index of a cable.
    pub fn cable(&self, name: &str) -> Option<usize> {
        self.cables.iter().position(|c| c.name == name)
    }

    /// Name of a host.
    pub fn host_name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("world", |h| &h.name)
    }

    /// Sends records to a sink from now on.
    pub fn set_sink(&mut self, sink: Option<Box<dyn Sink>>) {
        self.sink = sink;
    }

    /// Lets the sink hand on what it holds.
    pub fn flush_sink(&mut self) {
        if let Some(sink) = &mut self.sink {
            sink.flush();
        }
    }

    /// Gives a software peer its behaviour. False when the host is a guest.
    pub fn set_peer(&mut self, host: usize, peer: Box<dyn Peer>) -> bool {
        match self.hosts.get_mut(host).map(|h| &mut h.kind) {
            Some(Kind::Peer(p)) => {
                p.logic = peer;
                true
            }
            _ => false,
        }
    }

    /// A guest is there, with memory that its device may use.
    pub fn attach(&mut self, host: usize, memory: Box<dyn GuestMemory>) {
        if let Some(guest) = self.guest_mut(host) {
            guest.memory = memory;
            guest.attached = true;
        }
        self.note(host, "guest attached");
    }

    /// The guest is gone, as when its machine lost power.
    pub fn detach(&mut self, host: usize) {
        self.device_reset(host);
        if let Some(guest) = self.guest_mut(host) {
            guest.memory = Box::new(NoMemory);
            guest.attached = false;
        }
        self.note(host, "guest detached");
    }

    /// Runs a script: commands take effect at their time.
    pub fn load(&mut self, script: Script) {
        for (line, at) in self.faults.load(script) {
            self.at(at.max(self.now), Event::Script { line });
        }
        self.settle();
    }

    /// The next time at which something is due.
    pub fn next_event(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves time forward and does all that falls due.
    pub fn advance(&mut self, to: Time) {
        self.settle();
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > to {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(event);
            self.settle();
        }
        self.now = self.now.max(to);
    }

    /// What the front end has to do since the last call.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// There is something for the front end to do.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// What drivers did that no driver may do; the first thousand.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    fn at(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Train { cable } => self.trained(cable),
            Event::Vector { host, vector } => self.vector_timer(host, vector),
            Event::Wire { cable, side, epoch } => self.wire_done(cable, side, epoch),
            Event::Control { host, pdf, words } => self.post_control(host, pdf, &words),
            Event::Message { cable, side, ups, pdf, words } => self.arrived(cable, side, ups, pdf, words),
            Event::Held { host } => self.release_held(host),
            Event::PlugAck { host, port, unplug } => self.plug_again(host, port, unplug),
            Event::PeerTimer { host, token } => self.with_peer(host, |peer, io| peer.timer(io, token)),
            Event::Script { line } => self.run_line(line),
            Event::Release { host, hop } => self.set_stalled(host, hop, false),
        }
    }

    fn guest(&self, host: usize) -> Option<&Guest> {
        match self.hosts.get(host).map(|h| &h.kind) {
            Some(Kind::Guest(guest)) => Some(guest),
            _ => None,
        }
    }

    fn guest_mut(&mut self, host: usize) -> Option<&mut Guest> {
        match self.hosts.get_mut(host).map(|h| &mut h.kind) {
            Some(Kind::Guest(guest)) => Some(guest),
            _ => None,
        }
    }

    fn fail(&mut self, host: usize, what: Misuse) {
        self.failure_count += 1;
        let failure = Failure { at: self.now, host: self.host_name(host).to_owned(), what };
        self.note(host, &format!("FAILURE {}", failure.what));
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }

    fn note(&mut self, host: usize, text: &str) {
        self.record(host, What::Event(text));
    }

    fn record(&mut self, host: usize, what: What<'_>) {
        if let Some(sink) = &mut self.sink {
            sink.record(&Record { at: self.now, host, what });
        }
    }

    fn traced(&self) -> bool {
        self.sink.is_some()
    }

    /// Moves everything that can move now.
    fn settle(&mut self) {
        loop {
            let mut progress = false;
            for host in 0..self.hosts.len() {
                progress |= self.pump_control(host);
                progress |= self.drop_unrouted(host);
            }
            for cable in 0..self.cables.len() {
                for side in 0..2 {
                    progress |= self.pump_wire(cable, side);
                    progress |= self.drain(cable, side);
                }
            }
            if !progress {
                break;
            }
        }
    }

    /// Turns what interrupt units asked for into actions and events.
    fn flush_irqs(&mut self, host: usize) {
        for out in std::mem::take(&mut self.irqs) {
            match out {
                IrqOut::Timer(vector, at) => self.at(at, Event::Vector { host, vector }),
                IrqOut::Fire(vector) if self.faults.loses_interrupt(host, vector) => {
                    self.hosts[host].stats.interrupts_lost += 1;
                    self.note(host, &format!("fault: interrupt vector {vector} lost"));
                }
                IrqOut::Fire(vector) => {
                    self.hosts[host].stats.interrupts += 1;
                    self.actions.push(Action::Interrupt { host, vector });
                }
            }
        }
    }

    fn raise(&mut self, host: usize, bit: usize) {
        let now = self.now;
        let mut irqs = std::mem::take(&mut self.irqs);
        if let Some(guest) = self.guest_mut(host) {
            guest.nhi.irq.raise(bit, now, &mut irqs);
        }
        self.irqs = irqs;
        self.flush_irqs(host);
    }

    fn vector_timer(&mut self, host: usize, vector: u8) {
        let now = self.now;
        let mut irqs = std::mem::take(&mut self.irqs);
        if let Some(guest) = self.guest_mut(host) {
            guest.nhi.irq.timer(vector, now, &mut irqs);
        }
        self.irqs = irqs;
        self.flush_irqs(host);
    }

    /// The cable at a port of a host, and the host's side of it.
    fn cable_at(&self, host: usize, port: usize) -> Option<(usize, usize)> {
        self.cables.iter().enumerate().find_map(|(at, c)| Some((at, c.side(host, port)?)))
    }
}

/// The lane adapter of a side's port.
fn lane_of(cable: &Cable, side: usize) -> usize {
    crate::router::layout::lane_adapter(cable.ends[side].port)
}

/// Names a packet's frame for traces.
fn frame_bytes(packet: &Packet) -> &[u8] {
    &packet.frame.data
}
