//! The control stream: numbered, acknowledged, replayed over another rail when its rail is lost.

use std::collections::VecDeque;

use super::log::Log;
use super::rails::Rails;
use super::{Broken, Engine, Outlet};
use crate::{Buf, Head, Kind};

/// Messages the state machine itself may have waiting to be sent. Peers cause some of them (refusals), so it is
/// bounded; one that causes more without reading breaks the protocol.
const MAX_QUEUE: usize = 1024;

#[derive(Debug)]
pub(super) struct Control {
    next_seq: u32,
    peer_has: u32,
    rx_next: u32,
    /// Messages received that the peer has not been told of.
    owes_ack: bool,
    queue: VecDeque<Head>,
    log: Option<Log>,
    /// Next message to send again, while a replay is under way.
    replay: Option<u32>,
}

/// Where and as what a control message went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) rail: usize,
    pub(super) pos: u64,
    pub(super) seq: u32,
}

impl Control {
    pub(super) fn new(acked: bool) -> Control {
        Control {
            next_seq: 0,
            peer_has: 0,
            rx_next: 0,
            owes_ack: false,
            queue: VecDeque::with_capacity(64),
            log: acked.then(Log::new),
            replay: None,
        }
    }

    /// Control messages that the peer has processed.
    pub(super) fn acked(&self) -> u32 {
        self.peer_has
    }

    pub(super) fn queue(&mut self, head: Head) {
        self.queue.push_back(head);
    }

    pub(super) fn queue_is_full(&self) -> bool {
        self.queue.len() >= MAX_QUEUE
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && !self.owes_ack && self.replay.is_none()
    }

    /// Begins to send everything unacknowledged again, over the rail that carries control now.
    pub(super) fn rewind(&mut self) {
        if self.log.as_ref().is_some_and(|log| log.len() > 0) {
            self.replay = Some(self.peer_has);
        }
    }

    pub(super) fn replaying(&self) -> bool {
        self.replay.is_some()
    }

    pub(super) fn replay<B: Buf>(&mut self, out: &mut impl Outlet<B>, rails: &Rails<B>) {
        let (Some(mut at), Some(log), Some(rail)) = (self.replay, &self.log, rails.control())
        else {
            return;
        };
        if (at.wrapping_sub(self.peer_has) as i32) < 0 {
            at = self.peer_has;
        }
        while let Some((head, body)) = log.get(at.wrapping_sub(self.peer_has) as usize) {
            if out.ctrl_bytes(rail, head, body).is_none() {
                self.replay = Some(at);
                return;
            }
            at = at.wrapping_add(1);
        }
        self.replay = None;
    }

    /// Sends a message now, or returns `None` and changes nothing.
    pub(super) fn emit<B: Buf>(
        &mut self,
        out: &mut impl Outlet<B>,
        rails: &Rails<B>,
        mut head: Head,
        body: B,
    ) -> Option<Sent> {
        let rail = rails.control()?;
        if self.replay.is_some() {
            return None;
        }
        let seq = self.next_seq;
        head.len.set(body.len() as u32);
        head.seq.set(seq);
        head.ack.set(self.rx_next);
        let head = head.sealed();
        let pos = match &mut self.log {
            None => out.ctrl(rail, &head, body)?,
            Some(log) => {
                let kept = log.push(head, body.len(), |to| {
                    let inside = body.read(0, to);
                    debug_assert!(inside);
                })?;
                match out.ctrl_bytes(rail, &head, kept) {
                    Some(pos) => pos,
                    None => {
                        log.unpush();
                        return None;
                    }
                }
            }
        };
        self.next_seq = seq.wrapping_add(1);
        self.owes_ack = false;
        Some(Sent { rail, pos, seq })
    }

    /// Checks numbers. `Ok(false)`: a repetition, to be ignored.
    pub(super) fn admit(&mut self, rail: usize, head: &Head, kind: Kind) -> Result<bool, Broken> {
        let ack = head.ack.get();
        if (self.next_seq.wrapping_sub(ack) as i32) < 0 {
            return Err(Broken(format!(
                "{ack} control messages acknowledged, {} were sent",
                self.next_seq
            )));
        }
        if (ack.wrapping_sub(self.peer_has) as i32) > 0 {
            self.peer_has = ack;
            if let Some(log) = &mut self.log {
                log.trim(ack);
            }
        }
        let ahead = head.seq.get().wrapping_sub(self.rx_next) as i32;
        if ahead == 0 {
            self.rx_next = self.rx_next.wrapping_add(1);
            self.owes_ack |= self.log.is_some() && kind != Kind::Ack;
            return Ok(true);
        }
        if ahead < 0 && self.log.is_some() {
            // Told again, in case the acknowledgement was what got lost.
            self.owes_ack = true;
            return Ok(false);
        }
        Err(Broken(format!(
            "control message {} on rail slot {rail} where {} was due",
            head.seq.get(),
            self.rx_next
        )))
    }
}

impl<B: Buf> Engine<B> {
    /// Sends what the state machine itself has to say.
    pub(super) fn pump_control(&mut self, out: &mut impl Outlet<B>, idle: bool) {
        while let Some(head) = self.control.queue.front().copied() {
            if self
                .control
                .emit(out, &self.rails, head, B::EMPTY)
                .is_none()
            {
                return;
            }
            self.control.queue.pop_front();
        }
        self.pump_grants(out, idle);
        self.pump_notifies(out);
        while let Some((slot, id, landed)) = self.rails.take_owed_ack() {
            let mut head = Head::new(Kind::Ack);
            head.id.set(id);
            head.total.set(u64::from(landed));
            if self
                .control
                .emit(out, &self.rails, head, B::EMPTY)
                .is_none()
            {
                self.rails.owe_ack(slot);
                return;
            }
        }
        if self.control.owes_ack {
            let mut head = Head::new(Kind::Ack);
            head.id.set(u32::MAX);
            let _ = self.control.emit(out, &self.rails, head, B::EMPTY);
        }
    }

    pub(super) fn on_ack(&mut self, head: &Head) -> Result<(), Broken> {
        if head.id.get() == u32::MAX {
            return Ok(()); // the count of control messages in every head was all it had to say
        }
        self.account(head.id.get(), head.total.get()).map(|_| ())
    }

    fn account(&mut self, rail_id: u32, landed: u64) -> Result<Option<usize>, Broken> {
        let landed = u32::try_from(landed)
            .map_err(|_| Broken(format!("{landed} chunks landed on rail {rail_id}")))?;
        let ops = &mut self.ops;
        self.rails.acked(rail_id, landed, |piece| {
            if let Some(ticket) = piece.ticket {
                ops.chunk_back(ticket);
            }
        })
    }

    pub(super) fn on_rail_down(&mut self, head: &Head) -> Result<(), Broken> {
        if let Some(slot) = self.account(head.id.get(), head.total.get())? {
            let again = &mut self.sends.again;
            self.rails.settle(slot, |piece| again.push_back(piece));
        }
        Ok(())
    }
}
