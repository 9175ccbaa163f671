//! Software peers in the world.

use std::collections::{BTreeMap, VecDeque};

use super::cable::{Outgoing, Packet};
use super::guest::Partial;
use super::{Event, Kind, World};
use crate::nhi::Frame;
use crate::nhi::regs::MAX_FRAME;
use crate::peer::{Mute, Peer, PeerIo, PeerOut};
use crate::topology::HostSpec;
use crate::trace::{Direction, What};

/// Frames that wait in a peer for one HopID; further ones are refused with a note.
const QUEUE: usize = 8_192;

/// A host in software.
pub(crate) struct PeerHost {
    pub(crate) logic: Box<dyn Peer>,
    pub(crate) lanes: u8,
    /// Ports whose lanes the peer wants to bond: one bit each.
    pub(crate) bonding: u16,
    /// HopIDs that take nothing for now, by fault: one bit each.
    pub(crate) stalled: u64,
    queues: BTreeMap<(usize, u16), VecDeque<Frame>>,
    /// Frame in progress per port and HopID.
    pub(crate) outgoing: BTreeMap<(usize, u16), Outgoing>,
    partial: BTreeMap<(usize, u16), Partial>,
}

impl PeerHost {
    pub(crate) fn new(spec: &HostSpec) -> PeerHost {
        PeerHost {
            logic: Box::new(Mute),
            lanes: spec.lanes,
            bonding: 0,
            stalled: 0,
            queues: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            partial: BTreeMap::new(),
        }
    }

    /// HopIDs of a port with something to send.
    pub(crate) fn waiting(&self, port: usize) -> Vec<u16> {
        let mut hops: Vec<u16> =
            self.queues.iter().filter(|((p, _), q)| *p == port && !q.is_empty()).map(|((_, h), _)| *h).collect();
        hops.extend(self.outgoing.keys().filter(|(p, _)| *p == port).map(|(_, h)| *h));
        hops.sort_unstable();
        hops.dedup();
        hops
    }

    pub(crate) fn next_frame(&mut self, port: usize, hop: u16) -> Option<Frame> {
        self.queues.get_mut(&(port, hop))?.pop_front()
    }
}

impl World {
    /// Calls a peer and does what it asks. Nothing happens when the host is a guest.
    pub(super) fn with_peer(&mut self, host: usize, call: impl FnOnce(&mut dyn Peer, &mut PeerIo)) {
        let mut io = PeerIo { now: self.now, out: Vec::new() };
        match self.hosts.get_mut(host).map(|h| &mut h.kind) {
            Some(Kind::Peer(peer)) => call(&mut *peer.logic, &mut io),
            _ => return,
        }
        self.peer_out(host, io.out);
    }

    fn peer_out(&mut self, host: usize, out: Vec<PeerOut>) {
        for out in out {
            match out {
                PeerOut::Timer { at, token } => self.at(at.max(self.now + 1), Event::PeerTimer { host, token }),
                PeerOut::Note(text) => self.note(host, &text),
                PeerOut::Bond { port } => {
                    if let Some(Kind::Peer(peer)) = self.hosts.get_mut(host).map(|h| &mut h.kind) {
                        peer.bonding |= 1 << (port & 15);
                    }
                    self.try_bonding(host, port);
                }
                PeerOut::Message { port, pdf, words } => {
                    if self.traced() {
                        let bytes = crate::control::seal(&words);
                        self.record(host, What::Control { direction: Direction::Out, pdf, bytes: &bytes });
                    }
                    if let Some((at, side)) = self.cable_at(host, port).filter(|(at, _)| self.cables[*at].up) {
                        self.message(at, side, pdf, words);
                    }
                }
                PeerOut::Frame { port, hop, frame } => self.queue_frame(host, port, hop, frame),
            }
        }
    }

    fn queue_frame(&mut self, host: usize, port: usize, hop: u16, frame: Frame) {
        if frame.data.is_empty() || frame.data.len() > MAX_FRAME {
            return self.note(host, &format!("peer: a frame of {} bytes cannot be sent", frame.data.len()));
        }
        let linked = self.cable_at(host, port).is_some_and(|(at, _)| self.cables[at].up);
        let Some(Kind::Peer(peer)) = self.hosts.get_mut(host).map(|h| &mut h.kind) else { return };
        let queue = peer.queues.entry((port, hop)).or_default();
        if !linked || queue.len() >= QUEUE {
            self.hosts[host].stats.unrouted += 1;
            return;
        }
        queue.push_back(frame);
    }

    pub(super) fn peer_message(&mut self, host: usize, pdf: u8, words: &[u32]) {
        let route = crate::control::route(words);
        let port = (route as usize).div_ceil(2);
        if self.traced() {
            let bytes = crate::control::seal(words);
            self.record(host, What::Control { direction: Direction::In, pdf, bytes: &bytes });
        }
        self.with_peer(host, |peer, io| peer.message(io, port, pdf, words));
    }

    pub(super) fn peer_link_down(&mut self, host: usize, port: usize) {
        if let Some(Kind::Peer(peer)) = self.hosts.get_mut(host).map(|h| &mut h.kind) {
            peer.bonding &= !(1 << (port & 15));
            peer.queues.retain(|(p, _), _| *p != port);
            peer.outgoing.retain(|(p, _), _| *p != port);
            peer.partial.retain(|(p, _), _| *p != port);
        }
        self.with_peer(host, |peer, io| peer.link(io, port, None));
    }

    /// A packet for a peer; with the last one of a frame the peer gets it.
    pub(super) fn peer_packet(&mut self, host: usize, port: usize, packet: &Packet) {
        let Some(Kind::Peer(peer)) = self.hosts.get_mut(host).map(|h| &mut h.kind) else { return };
        let key = (port, packet.hop);
        if packet.at == 0 {
            peer.partial.remove(&key);
        }
        let partial = peer.partial.entry(key).or_default();
        partial.broken |= partial.next != packet.at;
        partial.next = packet.at + 1;
        partial.data.extend_from_slice(packet.bytes());
        if !packet.last {
            return;
        }
        let whole = peer.partial.remove(&key).unwrap_or_default();
        let stats = &mut self.hosts[host].stats;
        if whole.broken {
            stats.broken += 1;
            return;
        }
        stats.frames_received += 1;
        stats.bytes_received += whole.data.len() as u64;
        let frame = Frame { data: whole.data, ..(*packet.frame).clone() };
        let what = What::Frame {
            direction: Direction::In,
            hop: packet.hop,
            ring: 0,
            sof: frame.sof,
            eof: frame.eof,
            damaged: frame.damaged,
            bytes: &frame.data,
        };
        self.record(host, what);
        self.with_peer(host, |peer, io| peer.frame(io, port, packet.hop, frame));
    }

    pub(super) fn peer_command(&mut self, host: usize, words: &[String]) -> Result<String, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut answer = Err(format!("{} is a guest, not a software peer", self.host_name(host)));
        self.with_peer(host, |peer, io| answer = peer.command(io, &words));
        answer
    }
}
