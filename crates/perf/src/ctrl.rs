//! Control messages over the link.

use linkspan_proto::Buf;
use zerocopy::{Immutable, IntoBytes};

use crate::error::PerfError;
use crate::link::{Link, LinkError, OpMemory, Ticket};
use crate::spec::WaitMode;
use crate::turn::Turner;
use crate::wire::{BadMessage, CTRL_LEN, Kind, Message, Reply, TAG_CTRL, decode};

/// Buffers of the control messages of one link. A receive is always posted, so that a peer's message never waits.
#[derive(Debug)]
pub(crate) struct Ctrl {
    out: OpMemory,
    inn: OpMemory,
    posted: Option<Ticket>,
}

impl Ctrl {
    pub(crate) fn new<L: Link + ?Sized>(link: &L) -> Ctrl {
        Ctrl { out: OpMemory::host(link, CTRL_LEN), inn: OpMemory::host(link, CTRL_LEN), posted: None }
    }

    /// Sends one message and waits until it has left.
    pub(crate) fn send<L: Link + ?Sized, M: IntoBytes + Immutable>(
        &mut self,
        link: &mut L,
        turner: &mut Turner,
        message: &M,
    ) -> Result<(), PerfError> {
        let inside = self.out.slice().fill(0, message.as_bytes());
        debug_assert!(inside);
        let ticket = loop {
            if let Some(ticket) = link.post_send(TAG_CTRL, self.out.slice())? {
                break ticket;
            }
            turner.turn(link, false)?;
        };
        self.out.posted();
        while link.test(ticket)?.is_none() {
            if let Err(error) = turner.turn(link, false) {
                // A close message that was sent may be answered by the end of the link before we know that it has.
                if !matches!(link.test(ticket), Ok(Some(_))) {
                    return Err(error);
                }
                break;
            }
        }
        self.out.reported();
        Ok(())
    }

    /// Posts the receive of the next message, if it is not posted yet. False: the link is busy.
    pub(crate) fn prime<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, LinkError> {
        if self.posted.is_none() {
            self.posted = link.post_recv(TAG_CTRL, self.inn.slice())?;
            if self.posted.is_some() {
                self.inn.posted();
            }
        }
        Ok(self.posted.is_some())
    }

    /// The next message, if it has come.
    pub(crate) fn poll<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<Option<Message>, PerfError> {
        if !self.prime(link)? {
            return Ok(None);
        }
        let Some(len) = self.posted.map(|ticket| link.test(ticket)).transpose()?.flatten() else { return Ok(None) };
        self.posted = None;
        self.inn.reported();
        if len != CTRL_LEN {
            return Err(BadMessage::Length(len).into());
        }
        let mut bytes = [0; CTRL_LEN];
        let inside = self.inn.slice().read(0, &mut bytes);
        debug_assert!(inside);
        Ok(Some(decode(&bytes)?))
    }

    /// Waits for the next message.
    pub(crate) fn recv<L: Link + ?Sized>(&mut self, link: &mut L, turner: &mut Turner) -> Result<Message, PerfError> {
        loop {
            if let Some(message) = self.poll(link)? {
                turner.heard();
                return Ok(message);
            }
            turner.turn(link, false)?;
        }
    }

    /// Waits for the start of a phase. False: the client closes the session instead.
    pub(crate) fn go<L: Link + ?Sized>(&mut self, link: &mut L, turner: &mut Turner) -> Result<bool, PerfError> {
        loop {
            match self.recv(link, turner)? {
                Message::Reply(Kind::Go, _) => return Ok(true),
                Message::Reply(Kind::GoAway, _) => return Ok(false),
                // It crossed our report of the phase before.
                Message::Reply(Kind::Stop, _) => {}
                Message::Reply(got, _) | Message::Params(got, _) => return Err(BadMessage::Kind(got as u8).into()),
            }
        }
    }

    /// Whether the client has said that it wants no more of this phase.
    pub(crate) fn stopped<L: Link + ?Sized>(&mut self, link: &mut L) -> Result<bool, PerfError> {
        match self.poll(link)? {
            None => Ok(false),
            Some(Message::Reply(Kind::Stop, _)) => Ok(true),
            Some(Message::Reply(got, _) | Message::Params(got, _)) => Err(BadMessage::Kind(got as u8).into()),
        }
    }

    /// Waits for a reply of this kind.
    pub(crate) fn expect<L: Link + ?Sized>(
        &mut self,
        link: &mut L,
        turner: &mut Turner,
        kind: Kind,
    ) -> Result<Reply, PerfError> {
        match self.recv(link, turner)? {
            Message::Reply(got, reply) if got == kind => Ok(reply),
            Message::Reply(Kind::Refused, reply) => Err(PerfError::Refused(reply.refusal())),
            Message::Reply(got, _) | Message::Params(got, _) => Err(BadMessage::Kind(got as u8).into()),
        }
    }
}

/// How control messages are waited for, whatever the test does: an idle side must not hold a processor.
pub(crate) const PATIENT: WaitMode = WaitMode::Adaptive;

#[cfg(test)]
mod tests;
