//! One cable: its link, the two directions of its wire, and the buffers at its ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::link::Width;
use crate::nhi::Frame;
use crate::time::Time;
use crate::topology::{CableSpec, End};

/// Bytes of payload in one packet on the wire; a frame is cut into as many as it needs.
pub const PACKET: usize = 256;

/// A frame on its way out of a TX ring or a software peer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) frame: Arc<Frame>,
    /// Packets sent.
    pub(crate) next: usize,
    /// Packets altogether.
    pub(crate) packets: usize,
    pub(crate) cable: usize,
    pub(crate) side: usize,
    pub(crate) hop: u16,
    /// Times it is to be sent in addition: the duplication fault.
    pub(crate) again: u8,
}

/// One packet of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) frame: Arc<Frame>,
    pub(crate) hop: u16,
    pub(crate) at: usize,
    pub(crate) last: bool,
}

impl Packet {
    /// Payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        let from = self.at * PACKET;
        let end = (from + PACKET).min(self.frame.data.len());
        self.frame.data.get(from..end).unwrap_or(&[])
    }
}

/// Packets that a frame of this length needs.
pub(crate) fn packets(len: usize) -> usize {
    len.div_ceil(PACKET).max(1)
}

/// Who sends: a TX ring, or a hop of a software peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Ring(usize),
    Peer(u16),
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// The packet that is being sent.
    pub(crate) busy: Option<Packet>,
    /// Tells an event of an earlier link from one of this.
    pub(crate) epoch: u64,
    /// Round robin among equals: who was served last, and how often he may be served again by his weight.
    pub(crate) last: Option<Source>,
    pub(crate) turns: u8,
    /// Part of a nanosecond that the last packet took.
    pub(crate) carry: u64,
}

/// Packets that arrived at one end and have not been taken, per HopID.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    pub(crate) queues: BTreeMap<u16, VecDeque<Packet>>,
}

impl Ingress {
    pub(crate) fn total(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    pub(crate) fn held(&self, hop: u16) -> usize {
        self.queues.get(&hop).map_or(0, VecDeque::len)
    }

    /// Whole frames that are held for a HopID: packets that end one.
    pub(crate) fn ends(&self, hop: u16) -> usize {
        self.queues.get(&hop).map_or(0, |q| q.iter().filter(|p| p.last).count())
    }
}

/// Counters of one cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CableStats {
    /// Frames that began, from either side.
    pub frames: u64,
    /// Packets, from either side.
    pub packets: u64,
    /// Packets for which there was no buffer: credits were not respected.
    pub packets_lost: u64,
    /// XDomain messages carried.
    pub messages: u64,
    /// Times the link came up.
    pub ups: u64,
    /// Nanoseconds during which the first side's direction was busy.
    pub busy_ns: [u64; 2],
}

/// One cable.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) name: String,
    pub(crate) ends: [End; 2],
    /// Highest generation of the cable.
    pub(crate) generation: u8,
    /// Speed and width of the link, the width as the first end sees it.
    pub(crate) speed: u8,
    pub(crate) width: Width,
    /// Width after training.
    pub(crate) trained: Width,
    /// By fault: the second lane does not come up.
    pub(crate) one_lane: bool,
    /// By fault: the link trains at this generation at most.
    pub(crate) at_most: u8,
    pub(crate) plugged: bool,
    pub(crate) up: bool,
    /// The link trains: until then.
    pub(crate) training: Option<Time>,
    pub(crate) wires: [Wire; 2],
    pub(crate) ingress: [Ingress; 2],
    /// XDomain messages on their way.
    pub(crate) crossing: usize,
    pub(crate) stats: CableStats,
}

impl Cable {
    /// `hosts` are the highest generation and the lanes of either end.
    pub(crate) fn new(spec: &CableSpec, hosts: [(u8, u8); 2]) -> Cable {
        let lanes = hosts[0].1.min(hosts[1].1);
        let generation = spec.generation.min(hosts[0].0).min(hosts[1].0);
        // Generation 4 has no link of one lane.
        let generation = if lanes == 1 { generation.min(3) } else { generation };
        Cable {
            name: spec.name.clone(),
            ends: spec.ends,
            generation,
            speed: generation,
            width: spec.width,
            trained: spec.width,
            one_lane: false,
            at_most: generation,
            plugged: spec.plugged,
            up: false,
            training: None,
            wires: Default::default(),
            ingress: Default::default(),
            crossing: 0,
            stats: CableStats::default(),
        }
    }

    /// Side of a host's port.
    pub(crate) fn side(&self, host: usize, port: usize) -> Option<usize> {
        self.ends.iter().position(|e| *e == End { host, port })
    }

    /// The width as a side sees it.
    pub(crate) fn width_at(&self, side: usize) -> Width {
        if side == 0 { self.width } else { self.width.mirrored() }
    }

    /// The generation at which the link trains.
    pub(crate) fn best(&self) -> u8 {
        self.generation.min(self.at_most)
    }

    /// Forgets all that was on the way.
    pub(crate) fn clear(&mut self) {
        for wire in &mut self.wires {
            *wire = Wire { epoch: wire.epoch + 1, ..Wire::default() };
        }
        self.ingress = Default::default();
    }
}
