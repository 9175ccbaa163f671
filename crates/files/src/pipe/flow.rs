//! The frames of a pipe: pieces of the stream, its end, and what became of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use linkspan::{Memory, Op};

use super::lock;
use crate::Error;
use crate::link::Line;
use crate::wire::{Fault, Malformed, Reader, Writer};

/// Tag of the frames.
const TAG: u32 = 2;

/// Most bytes of the stream in one frame.
pub(super) const PIECE: usize = 256 << 10;

/// Frames under way in one direction. With [`PIECE`] all that a pipe holds of it at either end.
const WINDOW: usize = 4;

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Data(&'a [u8]),
    /// Nothing follows in this direction.
    End,
    /// All of the other direction has been written, and its end been passed on.
    Taken,
    /// This end was cut off.
    Failed(Fault),
    /// The service's program has ended, and all that it had to say has been said.
    Exit(u8),
}

impl<'a> Frame<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let r = &mut Reader(bytes);
        let frame = match r.u8()? {
            0 => return Ok(Frame::Data(r.0)),
            1 => Frame::End,
            2 => Frame::Taken,
            3 => Frame::Failed(Fault::decode(r)?),
            4 => Frame::Exit(r.u8()?),
            _ => return Err(Malformed("a frame of a pipe is of no known kind")),
        };
        if r.0.is_empty() { Ok(frame) } else { Err(Malformed("a frame of a pipe is longer than its fields")) }
    }
}

/// Frames that go out, from any thread.
#[derive(Clone)]
pub(super) struct Sender(Arc<Mutex<Out>>);

struct Out {
    under: VecDeque<Op<'static>>,
    slots: Vec<Memory>,
    next: usize,
    line: Arc<Line>,
}

impl Out {
    fn send(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Error> {
        if self.under.len() == self.slots.len()
            && let Some(oldest) = self.under.pop_front()
        {
            oldest.wait().map_err(cut)?;
        }
        let slot = &self.slots[self.next % self.slots.len()];
        self.next += 1;
        slot.fill(0, &[kind])?;
        slot.fill(1, bytes)?;
        let view = slot.slice(0, 1 + bytes.len())?.shared();
        self.under.push_back(self.line.transport().send(TAG, &view, None));
        Ok(())
    }
}

impl Sender {
    /// Waits while the window is full.
    pub(super) fn data(&self, bytes: &[u8]) -> Result<(), Error> {
        lock(&self.0).send(0, bytes)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        self.last(1, &[])
    }

    pub(super) fn taken(&self) -> Result<(), Error> {
        self.last(2, &[])
    }

    pub(super) fn failed(&self, fault: &Fault) -> Result<(), Error> {
        let mut w = Writer::default();
        fault.encode(&mut w);
        self.last(3, &w.0)
    }

    pub(super) fn exit(&self, code: u8) -> Result<(), Error> {
        self.last(4, &[code])
    }

    /// A frame behind which nothing may come: with all before it, it is with the peer.
    fn last(&self, kind: u8, bytes: &[u8]) -> Result<(), Error> {
        let mut out = lock(&self.0);
        out.send(kind, bytes)?;
        while let Some(oldest) = out.under.pop_front() {
            oldest.wait().map_err(cut)?;
        }
        Ok(())
    }
}

/// Frames that come in.
pub(super) struct Flow {
    under: VecDeque<Op<'static>>,
    slots: Vec<Memory>,
    next: usize,
    line: Arc<Line>,
    /// The frame that is looked at, in memory of ours: the peer could still write where it came in.
    frame: Vec<u8>,
}

impl Flow {
    pub(super) fn new(line: &Arc<Line>) -> Result<(Flow, Sender), Error> {
        let slots = || (0..WINDOW).map(|_| Memory::host(PIECE + 1)).collect::<Vec<_>>();
        let sender = Out { under: VecDeque::new(), slots: slots(), next: 0, line: line.clone() };
        let mut flow =
            Flow { under: VecDeque::new(), slots: slots(), next: 0, line: line.clone(), frame: vec![0; PIECE + 1] };
        (0..WINDOW).try_for_each(|slot| flow.post(slot))?;
        Ok((flow, Sender(Arc::new(Mutex::new(sender)))))
    }

    fn post(&mut self, slot: usize) -> Result<(), Error> {
        let view = self.slots[slot].view_mut()?.shared();
        self.under.push_back(self.line.transport().recv(TAG, &view, None));
        Ok(())
    }

    /// Waits for the next frame.
    pub(super) fn next(&mut self) -> Result<Frame<'_>, Error> {
        let Some(oldest) = self.under.pop_front() else { return Err(Error::Cut("it is over".into())) };
        let len = (oldest.wait().map_err(cut)? as usize).min(self.frame.len());
        let slot = self.next % WINDOW;
        self.next += 1;
        self.slots[slot].read(0, &mut self.frame[..len])?;
        self.post(slot)?;
        Ok(Frame::decode(&self.frame[..len])?)
    }
}

fn cut(error: linkspan::Error) -> Error {
    Error::Cut(error.to_string())
}

#[cfg(test)]
mod tests;
