//! One guest's side: host interface, router, memory, and what is on its way to the driver.

use std::collections::VecDeque;

use crate::control::{Address, seal};
use crate::memory::{GuestMemory, NoMemory};
use crate::nhi::{Frame, Nhi};
use crate::pci::{PciConfig, PciShape};
use crate::router::{Path, Router, Shape, Space};
use crate::topology::HostSpec;
use crate::world::cable::Outgoing;

/// Control packets that wait for a receive descriptor before further ones are lost. A driver posts about ten.
pub(crate) const BACKLOG: usize = 64;

/// Counters of one host interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HostStats {
    /// Control packets that the driver sent.
    pub control_sent: u64,
    /// Control packets that the driver was given.
    pub control_received: u64,
    /// Frames that left this host.
    pub frames_sent: u64,
    /// Frames that this host was given.
    pub frames_received: u64,
    /// Payload bytes that this host was given.
    pub bytes_received: u64,
    /// Frames that left without a path, or met a link that was down.
    pub unrouted: u64,
    /// Frames that the masks of the receive ring kept out.
    pub masked: u64,
    /// Frames that the driver had posted for sending when it switched their ring off: they were never sent.
    pub taken_back: u64,
    /// Frames that found no receive descriptor.
    pub overflows: u64,
    /// Frames of which a part was lost in the buffers.
    pub broken: u64,
    /// Frames that faults removed.
    pub faulted: u64,
    /// Control packets that the reordering fault let a later one overtake.
    pub overtaken: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Interrupts that faults removed.
    pub interrupts_lost: u64,
    /// Reads of BAR 0.
    pub reads: u64,
    /// Writes of BAR 0.
    pub writes: u64,
    /// Writes of ring indices: the driver's doorbells.
    pub doorbells: u64,
    /// Wake events.
    pub wakes: u64,
}

/// A hot plug event that the driver has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlugEvent {
    pub(crate) port: usize,
    pub(crate) unplug: bool,
    pub(crate) tries: u8,
}

/// A frame that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) data: Vec<u8>,
    pub(crate) next: usize,
    pub(crate) broken: bool,
}

pub(crate) struct Guest {
    pub(crate) nhi: Nhi,
    pub(crate) router: Router,
    pub(crate) pci: PciConfig,
    pub(crate) memory: Box<dyn GuestMemory>,
    /// A driver can be there.
    pub(crate) attached: bool,
    /// Control packets for the driver.
    pub(crate) inbox: VecDeque<(u8, Vec<u8>)>,
    pub(crate) backlog_reported: bool,
    pub(crate) events: Vec<PlugEvent>,
    /// Frame in progress of each TX ring.
    pub(crate) outgoing: Vec<Option<Outgoing>>,
    /// Frame in progress of each RX ring.
    pub(crate) partial: Vec<Option<Partial>>,
    /// RX rings that take nothing for now, by fault: one bit each.
    pub(crate) stalled: u64,
    /// By fault: HopIDs of cables, by bits, by which no path may come in.
    pub(crate) refused: u64,
}

impl Guest {
    pub(crate) fn new(index: usize, spec: &HostSpec) -> Guest {
        let nhi = Nhi::new(spec.hops, spec.version_2, spec.edge, spec.strict_credits);
        let hops = nhi.hops();
        let router = Router::new(Shape {
            id: index as u32,
            ports: spec.ports,
            hops,
            version_2: spec.version_2,
            generation: spec.generation,
            lanes: spec.lanes,
        });
        let shape = PciShape { id: index as u16, intel: spec.intel, msi: spec.msi, pm: spec.pm };
        Guest {
            nhi,
            router,
            pci: PciConfig::new(shape),
            memory: Box::new(NoMemory),
            attached: false,
            inbox: VecDeque::new(),
            backlog_reported: false,
            events: Vec::new(),
            outgoing: (0..hops).map(|_| None).collect(),
            partial: (0..hops).map(|_| None).collect(),
            stalled: 0,
            refused: 0,
        }
    }

    /// Everything but the PCI function and the memory back to the start.
    pub(crate) fn reset(&mut self) {
        self.nhi.reset();
        self.router.reset();
        self.inbox.clear();
        self.backlog_reported = false;
        self.events.clear();
        self.outgoing.iter_mut().for_each(|o| *o = None);
        self.partial.iter_mut().for_each(|p| *p = None);
    }

    /// The control channel runs.
    pub(crate) fn listens(&self) -> bool {
        self.nhi.rx(0).is_some_and(crate::nhi::Ring::enabled)
    }

    pub(crate) fn stalls(&self, ring: usize) -> bool {
        self.stalled >> ring & 1 == 1
    }

    /// By fault: what enables a path that comes in by one of these HopIDs of a cable.
    pub(crate) fn refuses(&self, at: Address, data: &[u32]) -> bool {
        let &[low, high, ..] = data else { return false };
        at.space == Space::Path
            && at.adapter != self.router.nhi_adapter()
            && Path::decode(low, high).is_some()
            && (at.offset / 2) < 64
            && self.refused >> (at.offset / 2) & 1 == 1
    }

    /// The next control packet for the driver, if there is one and a descriptor for it.
    pub(crate) fn next_control(&mut self) -> Option<Frame> {
        if self.nhi.rx(0)?.posted() == 0 || self.stalls(0) {
            return None;
        }
        let (pdf, data) = self.inbox.pop_front()?;
        self.backlog_reported = false;
        // Linux wants SOF 0 on the control channel.
        Some(Frame { data, sof: 0, eof: pdf, damaged: false })
    }

    /// Queues a packet for the driver; false when the queue is full.
    pub(crate) fn post(&mut self, pdf: u8, words: &[u32]) -> bool {
        let space = self.inbox.len() < BACKLOG;
        if space {
            self.inbox.push_back((pdf, seal(words)));
        }
        space
    }
}
