//! The requester: cuts messages into packets, takes acknowledgements, sends again.

use super::net::Net;
use super::pair::{Pair, Posted};
use super::wire::{Body, Nak, Packet, extend, psn, rnr_time};
use crate::{Completion, QpState, SendOp, Status, What};

/// Packets under way per queue pair.
const WINDOW: u64 = 64;

/// An acknowledgement is asked for with the last packet of a message, and with each of this many in between.
const ACK_EVERY: u64 = 16;

impl Net {
    /// Sends what the window allows.
    pub(super) fn transmit(&mut self, nic: usize, qpn: u32) {
        let now = self.now();
        let Some(to) = self.nics[nic].pairs.get(&qpn).and_then(|p| p.to).map(|to| self.find(to)) else { return };
        loop {
            let device = &self.nics[nic];
            let Some(pair) = device.pairs.get(&qpn) else { return };
            let open = pair.tx < pair.next && pair.tx - pair.una < WINDOW;
            if pair.state != QpState::Rts || !open || pair.quiet.is_some_and(|until| until > now) {
                break;
            }
            let Some(posted) = pair.sq.iter().find(|w| pair.tx < w.end()) else { break };
            let in_flight = |w: &&Posted| w.is_read() && w.seq < pair.tx;
            if posted.is_read() && pair.sq.iter().filter(in_flight).count() >= usize::from(pair.reads.max(1)) {
                break;
            }
            let body = match self.body(nic, pair, posted) {
                Some(body) => body,
                None if pair.una == pair.tx => {
                    self.fail_first(nic, qpn, Status::LocalProtection);
                    return;
                }
                // Those in front of it end first.
                None => break,
            };
            let packet = Packet {
                from: nic,
                to: to.unwrap_or(nic),
                qpn: pair.peer_qpn,
                source: qpn,
                pkey: pair.pkey,
                psn: psn(pair.first_psn, pair.tx),
                body,
            };
            let step = if posted.is_read() { posted.end() - pair.tx } else { 1 };
            // No host has the address: the packet is lost, as on a real wire.
            if to.is_some() {
                self.send(packet);
            }
            let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
            pair.tx += step;
            pair.sent = pair.sent.max(pair.tx);
        }
        self.watch(nic, qpn, now);
    }

    /// Sets the timer of a queue pair that waits for something.
    fn watch(&mut self, nic: usize, qpn: u32, now: u64) {
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        if pair.una == pair.sent {
            pair.deadline = None;
        } else if pair.deadline.is_none()
            && let Some(patience) = pair.patience()
        {
            pair.deadline = Some(now + patience);
            self.timer(now + patience, nic, qpn);
        }
    }

    fn body(&self, nic: usize, pair: &Pair, posted: &Posted) -> Option<Body> {
        let mtu = pair.mtu.bytes() as u64;
        let (at, total) = (pair.tx - posted.seq, posted.wr.len());
        let offset = at * mtu;
        if let SendOp::Read { addr, rkey } = posted.wr.op {
            return Some(Body::Read { addr: addr.wrapping_add(offset), rkey, len: total - offset });
        }
        let mut data = vec![0; (total - offset).min(mtu) as usize];
        match &posted.inline {
            Some(bytes) => {
                let at = offset as usize;
                let part = bytes.get(at..at + data.len())?;
                data.copy_from_slice(part);
            }
            None => self.nics[nic].gather(pair.pd, posted.wr.ranges(), offset, &mut data).ok()?,
        }
        let (first, last) = (at == 0, at + 1 == posted.packets);
        let ack = last || at % ACK_EVERY == ACK_EVERY - 1;
        Some(match posted.wr.op {
            SendOp::Send => Body::Send { first, last, imm: None, ack, data },
            SendOp::SendImm(imm) => Body::Send { first, last, imm: Some(imm).filter(|_| last), ack, data },
            SendOp::Write { addr, rkey } => {
                Body::Write { last, addr: addr.wrapping_add(offset), rkey, imm: None, ack, data }
            }
            SendOp::WriteImm { addr, rkey, imm } => {
                let imm = Some(imm).filter(|_| last);
                Body::Write { last, addr: addr.wrapping_add(offset), rkey, imm, ack, data }
            }
            SendOp::Read { .. } => return None,
        })
    }

    /// The first request ended badly: it says so, the rest is flushed.
    fn fail_first(&mut self, nic: usize, qpn: u32, status: Status) {
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        if let Some(posted) = pair.sq.pop_front() {
            let what = if posted.is_read() { What::Read } else { What::Sent };
            self.complete(nic, qpn, Completion { id: posted.wr.id, status, what, bytes: 0, imm: None, qpn });
        }
        self.fail(nic, qpn);
    }

    /// Everything before `seq` has arrived. Reads end with their data, not so.
    fn acknowledged(&mut self, nic: usize, qpn: u32, seq: u64, now: u64) {
        loop {
            let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
            let Some(front) = pair.sq.front() else { break };
            let stop = if front.is_read() { pair.una.max(front.seq) } else { seq.min(front.end()) };
            if stop > pair.una {
                pair.una = stop;
                pair.tx = pair.tx.max(stop);
                pair.retries = pair.retry;
                pair.rnrs = pair.rnr_retry;
                pair.deadline = None;
            }
            if pair.una < front.end() {
                break;
            }
            let bytes = front.wr.len() as u32;
            let read = front.is_read();
            let (id, signalled) = (front.wr.id, front.wr.signalled);
            pair.sq.pop_front();
            if signalled {
                let what = if read { What::Read } else { What::Sent };
                self.complete(nic, qpn, Completion { id, status: Status::Success, what, bytes, imm: None, qpn });
            }
        }
        self.watch(nic, qpn, now);
        self.wake(nic, qpn);
    }

    /// An answer has come.
    pub(super) fn answered(&mut self, packet: Packet) {
        let (nic, qpn, now) = (packet.to, packet.qpn, self.now());
        let Some(pair) = self.nics[nic].pairs.get(&qpn) else { return };
        if pair.state != QpState::Rts {
            return;
        }
        let Some(seq) = extend(pair.first_psn, pair.una, packet.psn) else { return };
        // What was never sent cannot be answered, and what was answered before says nothing new.
        if seq >= pair.sent || seq < pair.una {
            return;
        }
        match packet.body {
            Body::Ack => self.acknowledged(nic, qpn, seq + 1, now),
            Body::Reply { data } => {
                self.acknowledged(nic, qpn, seq, now);
                self.reply(nic, qpn, seq, &data, now);
            }
            Body::Nak(nak) => {
                self.acknowledged(nic, qpn, seq, now);
                self.refused(nic, qpn, seq, nak, now);
            }
            _ => {}
        }
    }

    fn reply(&mut self, nic: usize, qpn: u32, seq: u64, data: &[u8], now: u64) {
        let device = &mut self.nics[nic];
        let Some(pair) = device.pairs.get(&qpn) else { return };
        let Some(front) = pair.sq.front().filter(|w| w.is_read() && pair.una == seq) else { return };
        let offset = (seq - front.seq) * pair.mtu.bytes() as u64;
        let last = seq + 1 == front.end();
        let (ranges, pd) = (front.wr, pair.pd);
        if device.scatter(pd, ranges.ranges(), offset, data).is_err() {
            self.fail_first(nic, qpn, Status::LocalProtection);
            return;
        }
        let Some(pair) = device.pairs.get_mut(&qpn) else { return };
        pair.una = seq + 1;
        pair.tx = pair.tx.max(pair.una);
        pair.retries = pair.retry;
        pair.deadline = None;
        if last {
            self.acknowledged(nic, qpn, seq + 1, now);
        } else {
            self.watch(nic, qpn, now);
        }
    }

    fn refused(&mut self, nic: usize, qpn: u32, seq: u64, nak: Nak, now: u64) {
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        if pair.state != QpState::Rts || pair.una != seq {
            return;
        }
        let status = match nak {
            Nak::Sequence => {
                pair.tx = pair.una;
                self.wake(nic, qpn);
                return;
            }
            Nak::NotReady(code) => {
                // 7 is without limit (specification, 11.2.4.2).
                if pair.rnr_retry != 7 {
                    if pair.rnrs == 0 {
                        self.fail_first(nic, qpn, Status::RnrExceeded);
                        return;
                    }
                    pair.rnrs -= 1;
                }
                let until = now + rnr_time(code);
                pair.tx = pair.una;
                pair.quiet = Some(until);
                pair.deadline = None;
                self.timer(until, nic, qpn);
                return;
            }
            Nak::Invalid => Status::RemoteInvalid,
            Nak::Access => Status::RemoteAccess,
            Nak::Operation => Status::RemoteOperation,
        };
        self.fail_first(nic, qpn, status);
    }

    /// A timer went off; it may be an old one.
    pub(super) fn timeout(&mut self, nic: usize, qpn: u32, now: u64) {
        let Some(pair) = self.nics[nic].pairs.get_mut(&qpn) else { return };
        if pair.state != QpState::Rts {
            return;
        }
        if pair.quiet.is_some_and(|until| until <= now) {
            pair.quiet = None;
            self.wake(nic, qpn);
            return;
        }
        if pair.quiet.is_none() && pair.deadline.is_some_and(|due| due <= now) {
            pair.deadline = None;
            if pair.retries == 0 {
                self.fail_first(nic, qpn, Status::RetryExceeded);
                return;
            }
            pair.retries -= 1;
            pair.tx = pair.una;
            self.wake(nic, qpn);
        }
    }
}
