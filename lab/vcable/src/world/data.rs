//! Frames on their way: from a TX ring over the wire into the buffers of the other end and its RX ring.
//!
//! A frame travels as packets of 256 bytes. A sender starts a frame of a ring with end-to-end flow control only when
//! the receiving ring has a descriptor for it that no other frame is on its way to. It sends a packet only when the
//! receiving adapter holds a free buffer of that path: the path entry's credits. So a path that is stuck fills its own
//! buffers and stops, and other paths of the link go on.

use std::sync::Arc;

use super::cable::{Outgoing, Packet, Source, packets};
use super::guest::Partial;
use super::{Event, Kind, World, frame_bytes, lane_of};
use crate::failure::Misuse;
use crate::fault::Damage;
use crate::link::wire_time;
use crate::nhi::regs::DESC_CRC_ERROR;
use crate::nhi::{Frame, Ring};
use crate::router::Path;
use crate::trace::{Direction, What};

/// Credits of a path into a software peer: what Linux gives to DMA paths.
pub(super) const PEER_CREDITS: usize = 14;

/// What a sender knows of the buffers at the other end.
enum Space {
    /// No path there: packets are thrown away on arrival.
    Nowhere,
    /// This many packets may be held for the path.
    Credits(usize),
    /// No flow control on the path.
    Unlimited,
}

impl World {
    fn space(&self, at: usize, side: usize, hop: u16) -> Space {
        let cable = &self.cables[at];
        match &self.hosts[cable.ends[side].host].kind {
            Kind::Peer(_) => Space::Credits(PEER_CREDITS),
            Kind::Guest(guest) => match guest.router.path(lane_of(cable, side), hop) {
                None => Space::Nowhere,
                Some(path) if path.ingress_fc => Space::Credits(path.credits.into()),
                Some(_) => Space::Unlimited,
            },
        }
    }

    /// The ring where a HopID of a cable's end leads to.
    fn receiver(&self, at: usize, side: usize, hop: u16) -> Option<(usize, u16)> {
        let cable = &self.cables[at];
        let host = cable.ends[side].host;
        let guest = self.guest(host)?;
        let path = guest.router.path(lane_of(cable, side), hop)?;
        (usize::from(path.out_adapter) == guest.router.nhi_adapter()).then_some((host, path.next_hop))
    }

    /// A frame may be sent to a HopID at `side` under end-to-end flow control.
    fn granted(&self, at: usize, side: usize, hop: u16) -> bool {
        let cable = &self.cables[at];
        if let Kind::Peer(peer) = &self.hosts[cable.ends[side].host].kind {
            return peer.stalled >> (hop & 63) & 1 == 0;
        }
        let Some((host, ring)) = self.receiver(at, side, hop) else { return false };
        let Some(guest) = self.guest(host) else { return false };
        let Some(rx) = guest.nhi.rx(ring.into()).filter(|r| r.enabled() && r.e2e()) else { return false };
        // Credits come back on the path of the TX ring that the RX ring names: it must lead out on this link.
        let back = guest.router.path(guest.router.nhi_adapter(), rx.e2e_hop());
        if back.is_none_or(|p| usize::from(p.out_adapter) != lane_of(cable, side)) {
            return false;
        }
        let coming = self.coming(at, side, hop);
        usize::from(rx.posted().saturating_sub(rx.unsaid)) > coming
    }

    /// Frames that are on their way to a HopID at `side`.
    fn coming(&self, at: usize, side: usize, hop: u16) -> usize {
        let cable = &self.cables[at];
        let started = match &self.hosts[cable.ends[1 - side].host].kind {
            Kind::Guest(guest) => guest
                .outgoing
                .iter()
                .flatten()
                .filter(|o| (o.cable, o.side, o.hop) == (at, 1 - side, hop))
                .map(|o| 1 + usize::from(o.again))
                .sum(),
            Kind::Peer(peer) => usize::from(peer.outgoing.contains_key(&(cable.ends[1 - side].port, hop))),
        };
        let flying = cable.wires[1 - side].busy.as_ref().is_some_and(|p| p.hop == hop && p.last);
        started + usize::from(flying) + cable.ingress[side].ends(hop)
    }

    /// Where a TX ring of a guest leads: cable, side, path. `None` without an enabled path or a link that is up.
    fn route_of_ring(&self, host: usize, ring: usize) -> Option<(usize, usize, Path)> {
        let guest = self.guest(host)?;
        let path = guest.router.path(guest.router.nhi_adapter(), ring as u16)?;
        // First lane adapters are the odd ones.
        let port = usize::from(path.out_adapter).div_ceil(2);
        if path.out_adapter % 2 == 0 || port > guest.router.ports() {
            return None;
        }
        let (at, side) = self.cable_at(host, port)?;
        self.cables[at].up.then_some((at, side, path))
    }

    /// Throws away frames that have no way to go: no path, or a link that is down. Rings with end-to-end flow control
    /// wait for a path as long as a link is up.
    pub(super) fn drop_unrouted(&mut self, host: usize) -> bool {
        let Some(guest) = self.guest(host) else { return false };
        let waiting: Vec<usize> = (1..guest.nhi.hops())
            .filter(|r| guest.nhi.tx(*r).is_some_and(|t| t.posted() > 0) && guest.outgoing[*r].is_none())
            .collect();
        let linked = self.cables.iter().any(|c| c.up && c.ends.iter().any(|e| e.host == host));
        let mut progress = false;
        for ring in waiting {
            let e2e = self.guest(host).and_then(|g| g.nhi.tx(ring)).is_some_and(Ring::e2e);
            if self.route_of_ring(host, ring).is_none() && !(e2e && linked) {
                self.hosts[host].stats.unrouted += 1;
                self.complete_tx(host, ring);
                progress = true;
            }
        }
        progress
    }

    fn complete_tx(&mut self, host: usize, ring: usize) {
        let Some(guest) = self.guest_mut(host) else { return };
        let bit = guest.nhi.irq.tx_bit(ring);
        let Some(tx) = guest.nhi.tx_mut(ring) else { return };
        match tx.complete_tx(&*guest.memory) {
            Ok(true) => self.raise(host, bit),
            Ok(false) => {}
            Err(fault) => self.fail(host, Misuse::Dma(fault)),
        }
    }

    /// Who could send a packet on this direction now: priority, weight and source.
    fn candidates(&self, at: usize, side: usize) -> Vec<(u8, u8, Source)> {
        let cable = &self.cables[at];
        let (host, port) = (cable.ends[side].host, cable.ends[side].port);
        let mut found = Vec::new();
        match &self.hosts[host].kind {
            Kind::Guest(guest) => {
                for ring in 1..guest.nhi.hops() {
                    let started = guest.outgoing[ring].as_ref();
                    if started.is_none() && guest.nhi.tx(ring).is_none_or(|t| t.posted() == 0) {
                        continue;
                    }
                    let Some((to, side_of, path)) = self.route_of_ring(host, ring) else { continue };
                    if (to, side_of) != (at, side) || !self.may_send(at, side, path.next_hop) {
                        continue;
                    }
                    let e2e = guest.nhi.tx(ring).is_some_and(Ring::e2e);
                    let credit = started.is_some()
                        || !e2e
                        || self.faults.ignore_credits
                        || self.granted(at, 1 - side, path.next_hop);
                    if credit {
                        found.push((path.priority, path.weight, Source::Ring(ring)));
                    }
                }
            }
            Kind::Peer(peer) => {
                for hop in peer.waiting(port) {
                    let started = peer.outgoing.contains_key(&(port, hop));
                    let e2e = self
                        .receiver(at, 1 - side, hop)
                        .and_then(|(host, ring)| self.guest(host)?.nhi.rx(ring.into()))
                        .is_some_and(Ring::e2e);
                    let credit = started || !e2e || self.faults.ignore_credits || self.granted(at, 1 - side, hop);
                    if credit && self.may_send(at, side, hop) {
                        found.push((5, 1, Source::Peer(hop)));
                    }
                }
            }
        }
        found
    }

    /// The other end has a buffer for a packet of this HopID.
    fn may_send(&self, at: usize, side: usize, hop: u16) -> bool {
        match self.space(at, 1 - side, hop) {
            Space::Nowhere | Space::Unlimited => true,
            Space::Credits(n) => self.faults.ignore_credits || self.cables[at].ingress[1 - side].held(hop) < n,
        }
    }

    /// Chooses by priority, then in turn by weight.
    fn choose(&mut self, at: usize, side: usize) -> Option<Source> {
        let mut found = self.candidates(at, side);
        let best = found.iter().map(|(priority, _, _)| *priority).min()?;
        found.retain(|(priority, _, _)| *priority == best);
        found.sort_by_key(|(_, _, source)| *source);
        let wire = &mut self.cables[at].wires[side];
        if let Some(last) = wire.last
            && wire.turns > 0
            && found.iter().any(|(_, _, s)| *s == last)
        {
            wire.turns -= 1;
            return Some(last);
        }
        let next = found.iter().find(|(_, _, s)| wire.last.is_none_or(|last| *s > last)).or(found.first())?;
        wire.last = Some(next.2);
        wire.turns = next.1.saturating_sub(1);
        Some(next.2)
    }

    /// Puts packets on the wire while it is free. True when something moved.
    pub(super) fn pump_wire(&mut self, at: usize, side: usize) -> bool {
        let mut progress = false;
        while self.cables[at].up && self.cables[at].wires[side].busy.is_none() {
            let Some(source) = self.choose(at, side) else { break };
            progress = true;
            let Some(packet) = self.next_packet(at, side, source) else { continue };
            let cable = &mut self.cables[at];
            cable.stats.packets += 1;
            let lanes = cable.width_at(side).tx_lanes();
            let (speed, len) = (cable.speed, packet.bytes().len());
            let carry = &mut cable.wires[side].carry;
            let time = if self.options.wire_time { wire_time(speed, lanes, len, carry) } else { 0 };
            cable.stats.busy_ns[side] += time;
            if time == 0 {
                self.arrive(at, 1 - side, packet);
            } else {
                let wire = &mut cable.wires[side];
                wire.busy = Some(packet);
                let epoch = wire.epoch;
                self.at(self.now + time, Event::Wire { cable: at, side, epoch });
            }
        }
        progress
    }

    /// A packet has reached the other end.
    pub(super) fn wire_done(&mut self, at: usize, side: usize, epoch: u64) {
        let wire = &mut self.cables[at].wires[side];
        if wire.epoch == epoch
            && let Some(packet) = wire.busy.take()
        {
            self.arrive(at, 1 - side, packet);
        }
    }

    /// The next packet of a source; starts its next frame if none is in progress.
    fn next_packet(&mut self, at: usize, side: usize, source: Source) -> Option<Packet> {
        let (host, port) = (self.cables[at].ends[side].host, self.cables[at].ends[side].port);
        let started = match (&self.hosts[host].kind, source) {
            (Kind::Guest(guest), Source::Ring(ring)) => guest.outgoing[ring].is_some(),
            (Kind::Peer(peer), Source::Peer(hop)) => peer.outgoing.contains_key(&(port, hop)),
            _ => return None,
        };
        if !started && !self.start_frame(at, side, source) {
            return None;
        }
        let outgoing = match (&mut self.hosts[host].kind, source) {
            (Kind::Guest(guest), Source::Ring(ring)) => guest.outgoing[ring].as_mut()?,
            (Kind::Peer(peer), Source::Peer(hop)) => peer.outgoing.get_mut(&(port, hop))?,
            _ => return None,
        };
        let last = outgoing.next + 1 == outgoing.packets;
        let packet = Packet { frame: outgoing.frame.clone(), hop: outgoing.hop, at: outgoing.next, last };
        outgoing.next += 1;
        if last {
            if outgoing.again > 0 {
                outgoing.again -= 1;
                outgoing.next = 0;
            } else {
                self.finish_frame(host, port, source);
            }
        }
        Some(packet)
    }

    fn finish_frame(&mut self, host: usize, port: usize, source: Source) {
        self.hosts[host].stats.frames_sent += 1;
        match (&mut self.hosts[host].kind, source) {
            (Kind::Guest(guest), Source::Ring(ring)) => {
                guest.outgoing[ring] = None;
                self.complete_tx(host, ring);
            }
            (Kind::Peer(peer), Source::Peer(hop)) => {
                peer.outgoing.remove(&(port, hop));
            }
            _ => {}
        }
    }

    /// Reads the next frame of a source. False when there is none after all, or a fault swallowed it.
    fn start_frame(&mut self, at: usize, side: usize, source: Source) -> bool {
        let (host, port) = (self.cables[at].ends[side].host, self.cables[at].ends[side].port);
        let (mut frame, hop, raw) = match source {
            Source::Ring(ring) => {
                let Some((_, _, path)) = self.route_of_ring(host, ring) else { return false };
                let Some(guest) = self.guest_mut(host) else { return false };
                let Some(tx) = guest.nhi.tx(ring) else { return false };
                let raw = tx.raw();
                match tx.fetch(&*guest.memory) {
                    Ok(frame) => (frame, path.next_hop, raw),
                    Err(fault) => {
                        self.fail(host, Misuse::Dma(fault));
                        self.complete_tx(host, ring);
                        return false;
                    }
                }
            }
            Source::Peer(hop) => match &mut self.hosts[host].kind {
                Kind::Peer(peer) => match peer.next_frame(port, hop) {
                    Some(frame) => (frame, hop, false),
                    None => return false,
                },
                Kind::Guest(_) => return false,
            },
        };
        if let (true, Source::Ring(ring)) = (raw && frame.data.len() > super::PACKET, source) {
            self.fail(host, Misuse::RawLength { ring, len: frame.data.len() });
            frame.data.truncate(super::PACKET);
        }
        self.cables[at].stats.frames += 1;
        let ring = if let Source::Ring(r) = source { r as u16 } else { 0 };
        self.record_frame(host, Direction::Out, hop, ring, &frame);
        let mut again = 0;
        match self.frame_fault(at, side, hop) {
            Some(Damage::Drop) => {
                self.finish_frame(host, port, source);
                return false;
            }
            Some(Damage::Corrupt) => {
                frame.damaged = true;
                let bit = self.rng.below(frame.data.len() as u64 * 8) as usize;
                if let Some(byte) = frame.data.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Some(Damage::Duplicate) => again = 1,
            _ => {}
        }
        let packets = packets(frame.data.len());
        let outgoing = Outgoing { frame: Arc::new(frame), next: 0, packets, cable: at, side, hop, again };
        match (&mut self.hosts[host].kind, source) {
            (Kind::Guest(guest), Source::Ring(ring)) => guest.outgoing[ring] = Some(outgoing),
            (Kind::Peer(peer), Source::Peer(hop)) => {
                peer.outgoing.insert((port, hop), outgoing);
            }
            _ => return false,
        }
        true
    }

    fn record_frame(&mut self, host: usize, direction: Direction, hop: u16, ring: u16, frame: &Frame) {
        let what = What::Frame {
            direction,
            hop,
            ring,
            sof: frame.sof,
            eof: frame.eof,
            damaged: frame.damaged,
            bytes: &frame.data,
        };
        self.record(host, what);
    }

    /// A packet arrives in the buffers of a side.
    fn arrive(&mut self, at: usize, side: usize, packet: Packet) {
        let host = self.cables[at].ends[side].host;
        let lane = lane_of(&self.cables[at], side);
        let buffers = match &self.hosts[host].kind {
            Kind::Guest(guest) => guest.router.buffers(lane) as usize,
            Kind::Peer(_) => crate::router::layout::BUFFERS as usize,
        };
        // The control path keeps its own.
        let buffers = buffers - crate::router::layout::CONTROL_CREDITS as usize;
        let cable = &mut self.cables[at];
        if cable.ingress[side].total() >= buffers {
            cable.stats.packets_lost += 1;
            let text = format!("HopID {}: no buffer for a packet of {} bytes", packet.hop, frame_bytes(&packet).len());
            self.note(host, &text);
            return;
        }
        cable.ingress[side].queues.entry(packet.hop).or_default().push_back(packet);
    }

    /// Takes packets out of the buffers of a side. True when something moved.
    pub(super) fn drain(&mut self, at: usize, side: usize) -> bool {
        let mut progress = false;
        let hops: Vec<u16> = self.cables[at].ingress[side].queues.keys().copied().collect();
        for hop in hops {
            while let Some(packet) = self.take(at, side, hop) {
                progress = true;
                self.consume(at, side, packet);
            }
            let (host, lane) = (self.cables[at].ends[side].host, lane_of(&self.cables[at], side));
            let queues = &mut self.cables[at].ingress[side].queues;
            if queues.get(&hop).is_some_and(|q| q.is_empty()) {
                queues.remove(&hop);
                if let Some(guest) = self.guest_mut(host)
                    && guest.router.path(lane, hop).is_none()
                {
                    guest.router.set_pending(lane, hop, false);
                }
            }
        }
        progress
    }

    /// The first packet of a HopID that the receiver takes now.
    fn take(&mut self, at: usize, side: usize, hop: u16) -> Option<Packet> {
        let stalled = match &self.hosts[self.cables[at].ends[side].host].kind {
            Kind::Peer(peer) => peer.stalled >> (hop & 63) & 1 == 1,
            Kind::Guest(guest) => {
                let to = self.receiver(at, side, hop);
                match to {
                    Some((_, ring)) => guest.stalls(ring.into()),
                    // A path that was switched off while its receiver was stuck drains when the receiver goes on.
                    None => guest.stalled >> 1 != 0,
                }
            }
        };
        if stalled {
            return None;
        }
        self.cables[at].ingress[side].queues.get_mut(&hop)?.pop_front()
    }

    fn consume(&mut self, at: usize, side: usize, packet: Packet) {
        let end = self.cables[at].ends[side];
        if matches!(self.hosts[end.host].kind, Kind::Peer(_)) {
            return self.peer_packet(end.host, end.port, &packet);
        }
        let Some((host, ring)) = self.receiver(at, side, packet.hop) else {
            self.hosts[end.host].stats.unrouted += u64::from(packet.last);
            return;
        };
        let Some(guest) = self.guest_mut(host) else { return };
        let Some(rx) = guest.nhi.rx(ring.into()).filter(|r| r.enabled()) else {
            self.hosts[host].stats.unrouted += u64::from(packet.last);
            return;
        };
        if rx.raw() {
            // Each packet fills a descriptor of its own.
            let frame = Frame { data: packet.bytes().to_vec(), sof: 0, ..(*packet.frame).clone() };
            return self.receive(host, ring, packet.hop, &frame);
        }
        let partial = guest.partial[usize::from(ring)].get_or_insert_with(Partial::default);
        if packet.at == 0 {
            let lost = !partial.data.is_empty();
            *partial = Partial { broken: false, ..Partial::default() };
            self.hosts[host].stats.broken += u64::from(lost);
        }
        let Some(slot) = self.guest_mut(host).map(|g| &mut g.partial[usize::from(ring)]) else { return };
        let Some(partial) = slot else { return };
        partial.broken |= partial.next != packet.at;
        partial.next = packet.at + 1;
        partial.data.extend_from_slice(packet.bytes());
        if !packet.last {
            return;
        }
        let Some(whole) = slot.take() else { return };
        if whole.broken {
            self.hosts[host].stats.broken += 1;
            return;
        }
        let frame = Frame { data: whole.data, ..(*packet.frame).clone() };
        self.receive(host, ring, packet.hop, &frame);
    }

    /// A whole frame for an RX ring.
    fn receive(&mut self, host: usize, ring: u16, hop: u16, frame: &Frame) {
        let Some(guest) = self.guest_mut(host) else { return };
        let Some(rx) = guest.nhi.rx(ring.into()) else { return };
        if !rx.accepts(frame.sof, frame.eof) {
            self.hosts[host].stats.masked += 1;
            let text = format!("rx ring {ring}: SOF {} EOF {} not in the masks", frame.sof, frame.eof);
            return self.note(host, &text);
        }
        if rx.posted() == 0 {
            guest.nhi.irq.overflow(ring.into());
            self.hosts[host].stats.overflows += 1;
            return self.note(host, &format!("rx ring {ring}: overflow"));
        }
        let stats = &mut self.hosts[host].stats;
        stats.frames_received += 1;
        stats.bytes_received += frame.data.len() as u64;
        self.record_frame(host, Direction::In, hop, ring, frame);
        self.fill(host, ring.into(), frame, if frame.damaged { DESC_CRC_ERROR } else { 0 });
    }

    /// Fills the next descriptor of an RX ring.
    pub(super) fn fill(&mut self, host: usize, ring: usize, frame: &Frame, flags: u32) {
        let Some(guest) = self.guest_mut(host) else { return };
        let bit = guest.nhi.irq.rx_bit(ring);
        let Some(rx) = guest.nhi.rx_mut(ring) else { return };
        match rx.fill(&*guest.memory, frame, flags) {
            Ok(true) => self.raise(host, bit),
            Ok(false) => {}
            Err(fault) => self.fail(host, Misuse::Dma(fault)),
        }
    }

    /// A link went down: frames in the middle of being sent are lost, their descriptors done.
    pub(super) fn abort_outgoing(&mut self, at: usize) {
        for host in self.cables[at].ends.map(|e| e.host) {
            let rings: Vec<usize> = self.guest(host).map_or(Vec::new(), |g| {
                let on = |(ring, o): (usize, &Option<Outgoing>)| o.as_ref().filter(|o| o.cable == at).map(|_| ring);
                g.outgoing.iter().enumerate().filter_map(on).collect()
            });
            for ring in rings {
                if let Some(guest) = self.guest_mut(host) {
                    guest.outgoing[ring] = None;
                }
                self.hosts[host].stats.unrouted += 1;
                self.complete_tx(host, ring);
            }
        }
    }

    /// A path entry changed: credits must fit the buffers, packets of a disabled path are waited out.
    pub(super) fn path_changed(&mut self, host: usize, adapter: usize, hop: u16) {
        let Some(guest) = self.guest(host) else { return };
        let (path, buffers) = (guest.router.path(adapter, hop), guest.router.buffers(adapter));
        let promised: u32 =
            guest.router.paths(adapter).filter(|(_, p)| p.ingress_fc).map(|(_, p)| u32::from(p.credits)).sum();
        let is_nhi = adapter == guest.router.nhi_adapter();
        if self.traced() {
            let text = match path {
                Some(p) => format!(
                    "path adapter {adapter} HopID {hop} -> adapter {} {} {}, {} credits",
                    p.out_adapter,
                    if usize::from(p.out_adapter) == guest.router.nhi_adapter() { "ring" } else { "HopID" },
                    p.next_hop,
                    p.credits
                ),
                None => format!("path adapter {adapter} HopID {hop} off"),
            };
            self.note(host, &text);
        }
        if promised > buffers && path.is_some() {
            self.fail(host, Misuse::Credits { adapter, promised, buffers });
        }
        if is_nhi || path.is_some() {
            return;
        }
        let port = adapter.div_ceil(2);
        let held = self.cable_at(host, port).is_some_and(|(at, side)| self.cables[at].ingress[side].held(hop) > 0);
        if held && let Some(guest) = self.guest_mut(host) {
            guest.router.set_pending(adapter, hop, true);
        }
    }
}
