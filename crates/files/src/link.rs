//! The two connections of a session: one for control, and while something is transferred one for its bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linkspan::{Access, Memory, RemoteBuffer, Transport};

use crate::engine::{Geometry, LinkLost, Outlet, SlotReader};
use crate::wire::{MESSAGE_MAX, Message, REMOTE_LEN};
use crate::{Error, sink, source};

/// Tag of control messages.
const TAG: u32 = 1;

/// Messages and reports that wait to be looked at. Either side has far fewer under way; a peer that sends more waits.
const INBOX: usize = 1024;

/// What arrives at a session.
pub(crate) enum Incoming {
    Message(Message),
    /// The bulk connection of this session.
    Bulk(Transport),
    Sent(source::Done),
    Sunk(sink::Done),
    Lost(String),
    Malformed(crate::wire::Malformed),
}

/// A transport whose waiting calls end when it is closed.
pub(crate) struct Line {
    transport: Transport,
    closed: Arc<AtomicBool>,
}

impl Line {
    pub(crate) fn new(transport: Transport) -> Arc<Line> {
        let closed = Arc::new(AtomicBool::new(false));
        let asked = closed.clone();
        transport.stop_waiting_when(move || asked.load(Ordering::Relaxed));
        Arc::new(Line { transport, closed })
    }

    /// Ends every call that waits, now and later.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.transport.abort();
    }

    pub(crate) fn path(&self) -> Option<String> {
        self.transport.path()
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

/// The control connection.
pub(crate) struct Control {
    line: Arc<Line>,
    out: Mutex<Memory>,
    pub(crate) inbox: Receiver<Incoming>,
    pub(crate) post: SyncSender<Incoming>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Control {
    pub(crate) fn new(line: Arc<Line>) -> Result<Control, Error> {
        let (post, inbox) = sync_channel(INBOX);
        let (from, to) = (line.clone(), post.clone());
        let reader = thread::Builder::new()
            .name("files control".into())
            .spawn(move || read_all(&from, &to))
            .map_err(|error| Error::system("a thread", error))?;
        Ok(Control { line, out: Mutex::new(Memory::host(MESSAGE_MAX)), inbox, post, reader: Some(reader) })
    }

    pub(crate) fn path(&self) -> Option<String> {
        self.line.path()
    }

    pub(crate) fn send(&self, message: &Message) -> Result<(), Error> {
        let out = self.out.lock().unwrap_or_else(|e| e.into_inner());
        send(&self.line.transport, &out, message)
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

fn send(transport: &Transport, memory: &Memory, message: &Message) -> Result<(), Error> {
    let bytes = message.encode();
    memory.fill(0, &bytes)?;
    let view = memory.slice(0, bytes.len())?;
    transport.send_blocking(TAG, &view, None).map(drop).map_err(lost)
}

fn lost(error: linkspan::Error) -> Error {
    Error::Lost(error.to_string())
}

fn read_all(line: &Line, to: &SyncSender<Incoming>) {
    let memory = Memory::host(MESSAGE_MAX);
    loop {
        let next = match receive(&line.transport, &memory, None) {
            Ok(bytes) => match Message::decode(&bytes) {
                Ok(message) => Incoming::Message(message),
                Err(malformed) => Incoming::Malformed(malformed),
            },
            Err(error) => Incoming::Lost(error.to_string()),
        };
        let last = !matches!(next, Incoming::Message(_));
        if to.send(next).is_err() || last {
            return;
        }
    }
}

/// The next message's bytes, in memory of ours: the peer could still write where they came in.
fn receive(transport: &Transport, memory: &Memory, timeout: Option<Duration>) -> Result<Vec<u8>, linkspan::Error> {
    let len = transport.recv_blocking(TAG, &memory.view_mut()?, timeout)?;
    let mut bytes = vec![0; (len as usize).min(MESSAGE_MAX)];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The first message on a connection that was accepted. One that says nothing in time is of no use any more.
pub(crate) fn first_message(transport: &Transport, patience: Duration) -> Result<Message, Error> {
    let bytes = receive(transport, &Memory::host(MESSAGE_MAX), Some(patience)).map_err(lost)?;
    Ok(Message::decode(&bytes)?)
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
    fn stage(&mut self, at: usize, bytes: &[u8]) {
        let fits = self.memory.fill(at, bytes);
        debug_assert!(fits.is_ok());
    }

    fn write(&mut self, slot: u16, len: usize) -> Result<(), LinkLost> {
        let to = self.remote.slice(u64::from(slot) * self.geometry.slot(), len as u64).map_err(|_| LinkLost)?;
        let view = self.memory.slice(0, len).map_err(|_| LinkLost)?;
        // Without a time limit: one would revoke the path of every other slot.
        self.line.transport.write_blocking(&view, &to, None, None).map(drop).map_err(|_| LinkLost)
    }
}
