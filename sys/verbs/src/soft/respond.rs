//! The responder: checks what comes, lets it land, answers.

use super::net::{Denied, Net};
use super::pair::Inbound;
use super::wire::{Body, Nak, Packet, extend, psn};
use crate::{Access, AsyncEvent, Completion, Status, What};

/// How a packet was taken.
enum Taken {
    Well,
    /// A complaint, after which the connection goes on.
    Wait(Nak),
    /// The end of it.
    Broken(Nak),
}

impl Net {
    fn answer(&mut self, request: &Packet, seq: u64, body: Body) {
        let Some(pair) = self.nics[request.to].pairs.get(&request.qpn) else { return };
        let packet = Packet {
            from: request.to,
            to: request.from,
            qpn: request.source,
            source: request.qpn,
            pkey: pair.pkey,
            psn: psn(pair.peer_psn, seq),
            body,
        };
        self.send(packet);
    }

    /// A request has come.
    pub(super) fn requested(&mut self, packet: Packet) {
        let (nic, qpn) = (packet.to, packet.qpn);
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        let Some(seq) = extend(pair.peer_psn, pair.expect, packet.psn) else { return };
        if seq > pair.expect {
            // Something is missing; said once per gap (specification, 9.7.5.2.2).
            if !std::mem::replace(&mut pair.complained, true) {
                let expect = pair.expect;
                self.answer(&packet, expect, Body::Nak(Nak::Sequence));
            }
            return;
        }
        if seq < pair.expect {
            // Came before: answered again, done again only where that changes nothing.
            let have = pair.expect - 1;
            match packet.body {
                Body::Read { addr, rkey, len } => {
                    let _ = self.read(&packet, seq, addr, rkey, len);
                }
                _ => self.answer(&packet, have, Body::Ack),
            }
            return;
        }
        let (taken, packets, ack) = match &packet.body {
            Body::Send { first, last, imm, ack, data } => (self.receive(nic, qpn, *first, *last, *imm, data), 1, *ack),
            Body::Write { last, addr, rkey, imm, ack, data, .. } => {
                (self.written(nic, qpn, *last, *addr, *rkey, *imm, data), 1, *ack)
            }
            Body::Read { addr, rkey, len } => {
                let mtu = self.nics[nic].pairs.get(&qpn).map_or(1, |p| p.mtu.bytes()) as u64;
                (self.read(&packet, seq, *addr, *rkey, *len), len.div_ceil(mtu).max(1), false)
            }
            _ => return,
        };
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        match taken {
            Taken::Well => {
                pair.expect += packets;
                pair.complained = false;
                if ack {
                    self.answer(&packet, seq, Body::Ack);
                }
            }
            Taken::Wait(nak) => self.answer(&packet, seq, Body::Nak(nak)),
            Taken::Broken(nak) => {
                self.answer(&packet, seq, Body::Nak(nak));
                self.tell(nic, AsyncEvent::QpError(qpn));
                self.fail(nic, qpn);
            }
        }
    }

    fn receive(&mut self, nic: usize, qpn: u32, first: bool, last: bool, imm: Option<u32>, data: &[u8]) -> Taken {
        let device = &mut self.nics[nic];
        let Some(pair) = device.pairs.get_mut(&qpn) else { return Taken::Broken(Nak::Operation) };
        if first {
            match pair.rq.pop_front() {
                Some(recv) => pair.inbound = Some(Inbound { recv: Some(recv), bytes: 0 }),
                None => return Taken::Wait(Nak::NotReady(pair.min_rnr)),
            }
        }
        let Some(inbound) = &mut pair.inbound else { return Taken::Broken(Nak::Invalid) };
        let Some(recv) = inbound.recv else { return Taken::Broken(Nak::Invalid) };
        let (at, pd) = (inbound.bytes, pair.pd);
        inbound.bytes += data.len() as u64;
        let total = inbound.bytes;
        let space = recv.range.map_or(0, |r| u64::from(r.len));
        let fault = if total > space {
            Some((Status::LocalLength, Nak::Invalid))
        } else {
            let stored = match recv.range {
                Some(range) if !data.is_empty() => {
                    device.store(pd, range.lkey, range.addr + at, data, Access::LOCAL_WRITE)
                }
                _ => Ok(()),
            };
            stored.err().map(|_| (Status::LocalProtection, Nak::Operation))
        };
        let done = |status| Completion { id: recv.id, status, what: What::Received, bytes: total as u32, imm, qpn };
        if let Some((status, nak)) = fault {
            self.forget(nic, qpn);
            self.complete(nic, qpn, done(status));
            return Taken::Broken(nak);
        }
        if last {
            self.forget(nic, qpn);
            self.complete(nic, qpn, done(Status::Success));
        }
        Taken::Well
    }

    fn forget(&mut self, nic: usize, qpn: u32) {
        if let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) {
            pair.inbound = None;
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one packet
    fn written(
        &mut self,
        nic: usize,
        qpn: u32,
        last: bool,
        addr: u64,
        rkey: u32,
        imm: Option<u32>,
        data: &[u8],
    ) -> Taken {
        let device = &mut self.nics[nic];
        let Some(pair) = device.pairs.get(&qpn) else { return Taken::Broken(Nak::Operation) };
        if imm.is_some() && pair.rq.is_empty() {
            return Taken::Wait(Nak::NotReady(pair.min_rnr));
        }
        // A write of nothing needs no key (specification, 9.7.4.1.1).
        if !data.is_empty() {
            let allowed = pair.access.allows(Access::REMOTE_WRITE);
            let stored = if allowed {
                device.store(pair.pd, rkey, addr, data, Access::REMOTE_WRITE)
            } else {
                Err(Denied::Rights)
            };
            if stored.is_err() {
                return Taken::Broken(Nak::Access);
            }
        }
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return Taken::Broken(Nak::Operation) };
        let inbound = pair.inbound.get_or_insert(Inbound { recv: None, bytes: 0 });
        inbound.bytes += data.len() as u64;
        let bytes = inbound.bytes as u32;
        if last {
            pair.inbound = None;
            if imm.is_some()
                && let Some(recv) = pair.rq.pop_front()
            {
                let status = Status::Success;
                self.complete(nic, qpn, Completion { id: recv.id, status, what: What::Written, bytes, imm, qpn });
            }
        }
        Taken::Well
    }

    fn read(&mut self, packet: &Packet, seq: u64, addr: u64, rkey: u32, len: u64) -> Taken {
        let (nic, qpn) = (packet.to, packet.qpn);
        let device = &self.nics[nic];
        let Some(pair) = device.pairs.get(&qpn) else { return Taken::Broken(Nak::Operation) };
        let (mtu, pd) = (pair.mtu.bytes() as u64, pair.pd);
        let allowed = pair.access.allows(Access::REMOTE_READ);
        if len > 0 && (!allowed || device.check(pd, rkey, addr, len, Access::REMOTE_READ).is_err()) {
            return Taken::Broken(Nak::Access);
        }
        for n in 0..len.div_ceil(mtu).max(1) {
            let mut data = vec![0; (len - n * mtu).min(mtu) as usize];
            if len > 0 && self.nics[nic].load(pd, rkey, addr + n * mtu, &mut data, Access::REMOTE_READ).is_err() {
                return Taken::Broken(Nak::Access);
            }
            self.answer(packet, seq + n, Body::Reply { data });
        }
        Taken::Well
    }
}
