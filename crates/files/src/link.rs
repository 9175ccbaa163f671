//! The two connections of a session: one for control, and while something is transferred one for its bytes.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linkspan::{Access, Memory, Op, RemoteBuffer, Transport};

use crate::engine::{Geometry, LinkLost, Outlet, SlotReader};
use crate::serve::Places;
use crate::wire::{Answer, BYTES_HEAD, MESSAGE_MAX, Message, REMOTE_LEN};
use crate::{Error, lock, sink, source};

/// Tag of control messages.
const TAG: u32 = 1;

/// Messages and reports that wait to be looked at. Either side has far fewer under way; a peer that sends more waits.
const INBOX: usize = 1024;

/// What arrives at a session.
pub(crate) enum Incoming {
    Message(Message),
    /// The bulk connection of this session, and its place among those of the peer.
    Bulk(Transport, Places),
    Sent(source::Done),
    Sunk(sink::Done),
    Lost(String),
    Malformed(crate::wire::Malformed),
}

/// Memory of a short message: those of up to 8 KiB are copied when they leave.
const EAGER: usize = 8 << 10;

/// Bytes of messages of ours that may be under way; a further one waits until the first of them has arrived.
const OUT_BYTES: usize = 1 << 20;

/// Above so many bytes under way it is looked which have arrived, and before a message whose memory is large. Each look moves the path on, so
/// that messages sent ahead would leave one by one.
const LOOK_FROM: usize = OUT_BYTES / 4;

/// Receives of the side that asks: that many answers with data come without waiting for one another.
pub(crate) const ASKING: usize = 8;

/// Receives of the side that answers: the requests that have come are carried out before the answers leave, together.
pub(crate) const ANSWERING: usize = 8;

/// A transport that several threads use.
pub(crate) struct Line {
    transport: Transport,
}

impl Line {
    pub(crate) fn new(transport: Transport) -> Arc<Line> {
        Arc::new(Line { transport })
    }

    /// Ends every call that waits, now and later. The peer hears of it at once, and lets go of what it holds.
    pub(crate) fn close(&self) {
        self.transport.close();
    }

    pub(crate) fn path(&self) -> Option<String> {
        self.transport.path()
    }

    /// Whether it has ended for good; a path that is made again has not.
    pub(crate) fn is_over(&self) -> bool {
        // Nobody here waits for writes, and such a wait touches nothing else.
        let waits = self.transport.wait_for_write_blocking(Some(Duration::ZERO));
        matches!(waits, Err(linkspan::Error::Broken(_)))
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({:?})", self.path())
    }
}

/// Messages that have been given to the path and have not arrived, each with its memory.
#[derive(Default)]
struct Outbox {
    under_way: VecDeque<(Op<'static>, Memory, usize)>,
    bytes: usize,
    /// Memory of the two sizes that there are.
    spare: [Vec<Memory>; 2],
}

impl Outbox {
    /// Takes out what has arrived, and waits until at most so many bytes are still under way.
    fn settle(&mut self, most: usize) -> Result<(), Error> {
        while let Some((mut op, memory, len)) = self.under_way.pop_front() {
            let reported = match op.test() {
                None if self.bytes > most => Some(op.wait()),
                None => {
                    self.under_way.push_front((op, memory, len));
                    return Ok(());
                }
                reported => reported,
            };
            self.bytes -= len;
            let large = usize::from(memory.len() > EAGER);
            if self.spare[large].len() < [LOOK_FROM / EAGER, ASKING][large] {
                self.spare[large].push(memory);
            }
            reported.transpose().map_err(lost)?;
        }
        Ok(())
    }

    /// Memory for a message that nobody else uses.
    fn memory(&mut self, len: usize) -> Result<Memory, Error> {
        let large = len > EAGER;
        if large || self.bytes > LOOK_FROM {
            self.settle(OUT_BYTES.saturating_sub(len.max(EAGER)))?;
        }
        let new = || Memory::host(if large { MESSAGE_MAX.max(len) } else { EAGER });
        Ok(self.spare[usize::from(large)].pop().filter(|memory| len <= memory.len()).unwrap_or_else(new))
    }
}

/// The control connection. One thread asks or answers; while it waits it receives by itself, until a transfer begins: from then on a
/// thread of its own does, so that messages meet what the transfer's threads report.
pub(crate) struct Control {
    line: Arc<Line>,
    out: Mutex<Outbox>,
    pub(crate) inbox: Receiver<Incoming>,
    pub(crate) post: SyncSender<Incoming>,
    reads: Mutex<Option<Reads>>,
    reader: OnceLock<JoinHandle<()>>,
}

impl Control {
    /// With so many receives at a time.
    pub(crate) fn new(line: Arc<Line>, receives: usize) -> Control {
        let (post, inbox) = sync_channel(INBOX);
        let reads = Mutex::new(Some(Reads { line: line.clone(), posted: VecDeque::new(), most: receives }));
        Control { line, out: Mutex::default(), inbox, post, reads, reader: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> Option<String> {
        self.line.path()
    }

    /// A transfer begins.
    pub(crate) fn listen(&self) -> Result<(), Error> {
        let Some(mut reads) = lock(&self.reads).take() else { return Ok(()) };
        let to = self.post.clone();
        let body = move || {
            loop {
                let next = reads.next();
                let last = !matches!(next, Incoming::Message(_));
                if to.send(next).is_err() || last {
                    return;
                }
            }
        };
        let reader = thread::Builder::new().name("files control".into()).spawn(body);
        let _ = self.reader.set(reader.map_err(|error| Error::system("a thread", error))?);
        Ok(())
    }

    /// What arrives next, where no transfer has begun on this connection; `None` where one has.
    pub(crate) fn arrival(&self) -> Option<Incoming> {
        lock(&self.reads).as_mut().map(Reads::next)
    }

    /// Sends a message, without waiting until it has arrived.
    pub(crate) fn send(&self, message: &Message) -> Result<(), Error> {
        let bytes = message.encode();
        self.send_with(bytes.len(), |out| {
            out.copy_from_slice(&bytes);
            Some(bytes.len())
        })
    }

    /// Sends a message that is made in its place: as many of so many bytes as `make` says, or none.
    pub(crate) fn send_with(&self, len: usize, make: impl FnOnce(&mut [u8]) -> Option<usize>) -> Result<(), Error> {
        let mut out = lock(&self.out);
        let mut memory = out.memory(len)?;
        let Some(bytes) = memory.get_mut() else {
            return Err(Error::Lost("memory of a message is in use".into()));
        };
        let Some(len) = make(&mut bytes[..len]) else { return Ok(()) };
        let view = memory.slice(0, len)?.shared();
        // Whoever receives by himself does so next; else nobody is there to move it on but the reader.
        let op = match lock(&self.reads).is_some() {
            true => self.line.transport.send_ahead(TAG, &view, None),
            false => self.line.transport.send(TAG, &view, None),
        };
        drop(view);
        let counted = len.max(EAGER);
        out.bytes += counted;
        out.under_way.push_back((op, memory, counted));
        Ok(())
    }

    /// Waits until everything that was sent has arrived.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        lock(&self.out).settle(0)
    }

    /// Ends it: what still arrives belongs to something that is over.
    pub(crate) fn close(&self) {
        self.line.close();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.line.close();
        if let Some(reader) = self.reader.take() {
            // It may wait for space in the inbox, which nobody reads any more.
            while !reader.is_finished() {
                let _ = self.inbox.recv_timeout(Duration::from_millis(10));
            }
            let _ = reader.join();
        }
    }
}

/// The receives of a control connection.
struct Reads {
    line: Arc<Line>,
    posted: VecDeque<(Op<'static>, Memory)>,
    most: usize,
}

impl Reads {
    fn next(&mut self) -> Incoming {
        match self.receive() {
            Ok(Ok(message)) => Incoming::Message(message),
            Ok(Err(malformed)) => Incoming::Malformed(malformed),
            Err(error) => Incoming::Lost(error.to_string()),
        }
    }

    fn receive(&mut self) -> Result<Result<Message, crate::wire::Malformed>, linkspan::Error> {
        while self.posted.len() < self.most {
            self.post(Memory::host(MESSAGE_MAX))?;
        }
        let Some((op, memory)) = self.posted.pop_front() else { return Err(linkspan::Error::Aborted) };
        let message = decoded(&memory, op.wait()? as usize);
        self.post(memory)?;
        message
    }

    fn post(&mut self, memory: Memory) -> Result<(), linkspan::Error> {
        let op = self.line.transport.recv_ahead(TAG, &memory.view_mut()?.shared(), None);
        self.posted.push_back((op, memory));
        Ok(())
    }
}

/// A message, from memory that the peer could still write: what is decoded, and what is handed on, was copied before.
fn decoded(memory: &Memory, len: usize) -> Result<Result<Message, crate::wire::Malformed>, linkspan::Error> {
    let mut bytes = vec![0; len.min(BYTES_HEAD)];
    memory.read(0, &mut bytes)?;
    if let Some(number) = Message::bytes_head(&bytes, len) {
        bytes.resize(len - BYTES_HEAD, 0);
        memory.read(BYTES_HEAD, &mut bytes)?;
        return Ok(Ok(Message::Answer { number, result: Ok(Answer::Bytes(bytes)) }));
    }
    bytes.resize(len.min(MESSAGE_MAX), 0);
    memory.read(0, &mut bytes)?;
    Ok(Message::decode(&bytes))
}

fn send(transport: &Transport, memory: &Memory, message: &Message) -> Result<(), Error> {
    let bytes = message.encode();
    memory.fill(0, &bytes)?;
    let view = memory.slice(0, bytes.len())?;
    transport.send_blocking(TAG, &view, None).map(drop).map_err(lost)
}

fn lost(error: linkspan::Error) -> Error {
    Error::Lost(error.to_string())
}

/// The first message on a connection that was accepted. One that says nothing in time is of no use any more.
pub(crate) fn first_message(transport: &Transport, patience: Duration) -> Result<Message, Error> {
    let memory = Memory::host(MESSAGE_MAX);
    let len = transport.recv_blocking(TAG, &memory.view_mut()?, Some(patience)).map_err(lost)?;
    Ok(decoded(&memory, len as usize).map_err(lost)??)
}

/// Says the one thing that is said on a bulk connection.
pub(crate) fn say(transport: &Transport, message: &Message) -> Result<(), Error> {
    send(transport, &Memory::host(MESSAGE_MAX), message)
}

/// The receiver's slots.
pub(crate) struct Slots {
    _line: Arc<Line>,
    memory: Memory,
    geometry: Geometry,
}

impl Slots {
    /// Exposes them on the bulk connection, and what to tell the sender.
    pub(crate) fn expose(line: &Arc<Line>, geometry: Geometry) -> Result<(Slots, Message), Error> {
        let memory = Memory::host(geometry.slot() as usize * usize::from(geometry.slots));
        let remote = line.transport.expose(&memory.view(), Access::Write)?.remote();
        let message = Message::Slots { remote: remote.encode(), size: geometry.slot() as u32, count: geometry.slots };
        Ok((Slots { _line: line.clone(), memory, geometry }, message))
    }
}

impl SlotReader for Slots {
    fn read(&self, slot: u16, at: usize, out: &mut [u8]) {
        let from = usize::from(slot) * self.geometry.slot() as usize + at;
        // The engine has checked the slot and the length: what fails here is a bug, and the hash finds it.
        if self.memory.read(from, out).is_err() {
            out.fill(0);
        }
    }
}

/// Where one thread of the sender writes.
pub(crate) struct Writer {
    line: Arc<Line>,
    remote: RemoteBuffer,
    memory: Memory,
    geometry: Geometry,
}

impl Writer {
    /// As many as are wanted, for the slots that the receiver has named.
    pub(crate) fn all(
        line: &Arc<Line>,
        slots: &Message,
        geometry: Geometry,
        count: usize,
    ) -> Result<Vec<Writer>, Error> {
        let remote = |remote: &[u8; REMOTE_LEN]| RemoteBuffer::decode(remote);
        let Message::Slots { remote: encoded, size, count: slots } = slots else {
            return Err(crate::engine::Violation("it says something else where its slots belong").into());
        };
        let remote = remote(encoded)?;
        let whole = u64::from(*size) * u64::from(*slots);
        if u64::from(*size) != geometry.slot() || remote.len() < whole {
            return Err(crate::engine::Violation("its slots have another size").into());
        }
        let one = || Writer { line: line.clone(), remote, memory: Memory::host(geometry.slot() as usize), geometry };
        Ok((0..count).map(|_| one()).collect())
    }
}

impl Outlet for Writer {
    fn staging(&mut self) -> &mut [u8] {
        if self.memory.get_mut().is_none() {
            self.memory = Memory::host(self.geometry.slot() as usize);
        }
        self.memory.get_mut().unwrap_or_default()
    }

    fn write(&mut self, slot: u16, len: usize) -> Result<(), LinkLost> {
        let to = self.remote.slice(u64::from(slot) * self.geometry.slot(), len as u64).map_err(|_| LinkLost)?;
        let view = self.memory.slice(0, len).map_err(|_| LinkLost)?;
        // Without a time limit: one would revoke the path of every other slot.
        self.line.transport.write_blocking(&view, &to, None, None).map(drop).map_err(|_| LinkLost)
    }
}
