//! The ring driver's device: channels with credits, messages met by receives, as `linkspan.ko` has them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use linkspan_tbring::{Access, Completion, Error, Operation, abi};
use linkspan_transport::{Buf, MemSlice};

use super::Notifier;
use crate::device::{Registrar, RingDevice};
use crate::tier::{CableAddress, OpenCable, OpenedCable};

/// Entries of the submission queue, as [`linkspan_tbring::Options`] has by default.
const SUBMISSIONS: usize = 256;

const EPIPE: i32 = 32;
const EBUSY: i32 = 16;
const EBADF: i32 = 9;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EMSGSIZE: i32 = 90;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Registered memory.
#[derive(Debug)]
pub struct SoftRegion {
    mem: MemSlice,
    /// Bytes before it, which are unused.
    head: u64,
    access: Access,
    /// What is to have its bytes back.
    locked: Option<SoftRingLink>,
}

impl Drop for SoftRegion {
    fn drop(&mut self) {
        if let Some(link) = &self.locked
            && let Some(left) = &mut link.lock().locked
        {
            *left += self.mem.len() as u64;
        }
    }
}

impl SoftRegion {
    fn sub(&self, offset: u64, length: u64) -> Result<MemSlice, Error> {
        let inside = offset.checked_sub(self.head).and_then(|at| self.mem.sub(at, length));
        inside.ok_or(Error::Range { offset, length, region: self.head + self.mem.len() as u64 })
    }
}

#[derive(Clone, Copy, Debug)]
struct Op {
    file: usize,
    operation: Operation,
    channel: u32,
    mem: MemSlice,
    cookie: u64,
}

#[derive(Debug)]
enum Message {
    Short(Vec<u8>),
    /// Still in the sender's memory.
    Long(Op),
}

/// One host's end of a channel.
#[derive(Debug, Default)]
struct Channel {
    /// The file that has opened it.
    owner: usize,
    /// The peer has closed what it shared with our owner.
    hup: bool,
    /// The peer has opened it since we have.
    met: bool,
    sends: VecDeque<Op>,
    messages: VecDeque<Message>,
    receives: VecDeque<Op>,
}

#[derive(Debug)]
struct File {
    side: usize,
    done: VecDeque<Completion>,
    notifier: Notifier,
}

#[derive(Debug, Default)]
struct World {
    channels: [BTreeMap<u32, Channel>; 2],
    files: Vec<Option<File>>,
    /// Bytes that may be delivered yet; `None`: all.
    left: Option<u64>,
    unplugged: bool,
    /// How often it was pulled: what was opened before is dead.
    epoch: u32,
    /// Bytes of messages that have met receives.
    moved: u64,
    /// Bytes that may be registered yet by every file together; `None`: without limit.
    locked: Option<u64>,
    /// No dma-buf can be reached.
    no_dmabufs: bool,
    /// Regions that were registered so far.
    registered: u64,
    /// Doorbells so far that may wait.
    waits: u64,
}

/// A link between two hosts.
#[derive(Clone, Debug, Default)]
pub struct SoftRingLink(Arc<Mutex<World>>);

/// A side of it that is not open.
#[derive(Debug)]
struct RingEnd(SoftRingLink, usize);

impl OpenCable for RingEnd {
    fn open(&self, _: Duration) -> Result<OpenedCable, Error> {
        Ok(OpenedCable::Ring(Box::new(self.0.open(self.1)?)))
    }
}

/// One open file of one side.
#[derive(Debug)]
pub struct SoftRing {
    link: SoftRingLink,
    side: usize,
    file: usize,
    epoch: u32,
    fd: RawFd,
    put: VecDeque<Op>,
}

impl SoftRingLink {
    /// Plugged in and up.
    pub fn new() -> SoftRingLink {
        SoftRingLink::default()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Opens the device of side 0 or 1.
    ///
    /// # Errors
    /// [`Error::Gone`]: the cable is unplugged. [`Error::Refused`]: the OS refuses a descriptor.
    pub fn open(&self, side: usize) -> Result<SoftRing, Error> {
        let mut world = self.lock();
        if world.unplugged {
            return Err(Error::Gone);
        }
        let notifier = Notifier::new().map_err(|source| Error::Refused { call: "opening", source, hint: "" })?;
        let fd = notifier.fd();
        world.files.push(Some(File { side: side.min(1), done: VecDeque::new(), notifier }));
        let file = world.files.len() - 1;
        let epoch = world.epoch;
        Ok(SoftRing { link: self.clone(), side: side.min(1), file, epoch, fd, put: VecDeque::new() })
    }

    /// Where side 0 or 1 opens it.
    pub fn address(&self, side: usize) -> CableAddress {
        CableAddress::new(RingEnd(self.clone(), side))
    }

    /// Regions that both sides have registered so far, without those by dma-buf.
    pub fn registered(&self) -> u64 {
        self.lock().registered
    }

    /// Doorbells of both sides so far that may wait.
    pub fn waits(&self) -> u64 {
        self.lock().waits
    }

    /// Delivers so many bytes yet and then holds everything back, also in the middle of a message; `None`: lets all go.
    pub fn stall(&self, after: Option<u64>) {
        let mut world = self.lock();
        world.left = after;
        world.step();
    }

    /// Closes the files of a side, as the kernel does when their process is gone.
    pub fn kill(&self, side: usize) {
        let mut world = self.lock();
        let channels: Vec<u32> = world.channels[side].keys().copied().collect();
        for id in channels {
            world.close(side, id);
        }
        world.forget(side, |_| true);
    }

    /// Pulls the cable: everything fails, and every open file is dead.
    pub fn unplug(&self) {
        let mut world = self.lock();
        (world.unplugged, world.epoch) = (true, world.epoch + 1);
        let channels = std::mem::take(&mut world.channels);
        for channel in channels.into_iter().flatten().map(|(_, channel)| channel) {
            let long = channel.messages.into_iter().filter_map(|m| match m {
                Message::Long(op) => Some(op),
                Message::Short(_) => None,
            });
            for op in channel.sends.into_iter().chain(channel.receives).chain(long) {
                world.complete(op, Err(ENODEV), 0);
            }
        }
        world.files.iter_mut().flatten().for_each(|file| file.notifier.signal());
    }

    /// Bytes of messages that it has brought so far, both ways.
    pub fn moved(&self) -> u64 {
        self.lock().moved
    }

    /// Plugs it in again; what was opened before stays dead.
    pub fn replug(&self) {
        self.lock().unplugged = false;
    }

    /// Refuses dma-bufs from now on, as the driver does with those that its controller cannot reach.
    pub fn refuse_dmabufs(&self) {
        self.lock().no_dmabufs = true;
    }

    /// Lets no more than so many bytes be registered at a time, beside what is registered now.
    pub fn limit(&self, bytes: u64) {
        self.lock().locked = Some(bytes);
    }
}

/// As frames do.
fn copy(from: MemSlice, to: MemSlice, len: usize) {
    for at in (0..len).step_by(4096) {
        let mut frame = [0; 4096];
        let frame = &mut frame[..4096.min(len - at)];
        let inside = from.read(at as u64, frame) && to.fill(at as u64, frame);
        debug_assert!(inside);
    }
}

impl World {
    fn complete(&mut self, op: Op, result: Result<(), i32>, length: u64) {
        if let Some(Some(file)) = self.files.get_mut(op.file) {
            let Op { operation, cookie, channel, .. } = op;
            file.done.push_back(Completion { operation, cookie, channel, length, result });
            file.notifier.signal();
        }
    }

    fn step(&mut self) {
        if self.left == Some(0) || self.unplugged {
            return;
        }
        for side in 0..2 {
            let ids: Vec<u32> = self.channels[side].keys().copied().collect();
            for id in ids {
                self.send(side, id);
                self.meet(1 - side, id);
            }
        }
    }

    /// Messages of this side's channel go to the other's.
    fn send(&mut self, side: usize, id: u32) {
        let [a, b] = &mut self.channels;
        let (own, peer) = if side == 0 { (a, b) } else { (b, a) };
        let mut done = Vec::new();
        if let (Some(own), Some(peer)) = (own.get_mut(&id), peer.get_mut(&id)) {
            if own.hup || peer.hup {
                return;
            }
            (own.met, peer.met) = (true, true);
            while peer.messages.len() < abi::CREDITS as usize {
                let Some(op) = own.sends.pop_front() else { break };
                if op.mem.len() as u64 <= abi::EAGER_BYTES {
                    peer.messages.push_back(Message::Short(op.mem.to_vec()));
                    done.push(op);
                } else {
                    peer.messages.push_back(Message::Long(op));
                }
            }
        }
        for op in done {
            self.complete(op, Ok(()), op.mem.len() as u64);
        }
    }

    /// Receives of this side meet messages.
    fn meet(&mut self, side: usize, id: u32) {
        let mut done = Vec::new();
        let Some(channel) = self.channels[side].get_mut(&id) else { return };
        while let (Some(message), Some(receive)) = (channel.messages.front(), channel.receives.front().copied()) {
            let len = match message {
                Message::Short(bytes) => bytes.len(),
                Message::Long(op) => op.mem.len(),
            };
            if let Some(left) = self.left.filter(|left| *left < len as u64) {
                // The first frames are in place, and more may follow for as long as the receive is posted.
                if let Message::Long(op) = message {
                    copy(op.mem, receive.mem, left.min(receive.mem.len() as u64) as usize);
                }
                self.left = Some(0);
                break;
            }
            self.left = self.left.map(|left| left - len as u64);
            channel.receives.pop_front();
            if len > receive.mem.len() {
                done.push((receive, Err(EMSGSIZE), len));
                continue;
            }
            match channel.messages.pop_front() {
                Some(Message::Short(bytes)) => {
                    let inside = receive.mem.fill(0, &bytes);
                    debug_assert!(inside);
                }
                Some(Message::Long(op)) => {
                    copy(op.mem, receive.mem, len);
                    done.push((op, Ok(()), len));
                }
                None => {}
            }
            self.moved += len as u64;
            done.push((receive, Ok(()), len));
        }
        if channel.hup && channel.messages.is_empty() {
            done.extend(channel.receives.drain(..).chain(channel.sends.drain(..)).map(|op| (op, Err(EPIPE), 0)));
        }
        for (op, result, len) in done {
            self.complete(op, result, len as u64);
        }
    }

    fn take(&mut self, side: usize, op: Op) {
        let Some(channel) = self.channels[side].get_mut(&op.channel).filter(|c| c.owner == op.file) else {
            return self.complete(op, Err(EBADF), 0);
        };
        match op.operation {
            _ if channel.hup && (op.operation == Operation::Send || channel.messages.is_empty()) => {
                self.complete(op, Err(EPIPE), 0);
            }
            Operation::Send => channel.sends.push_back(op),
            Operation::Receive => channel.receives.push_back(op),
        }
    }

    /// Everything of a channel ends on this side, and the other is told.
    fn close(&mut self, side: usize, id: u32) {
        let Some(channel) = self.channels[side].remove(&id) else { return };
        for message in channel.messages {
            if let Message::Long(op) = message {
                self.complete(op, Err(EPIPE), 0);
            }
        }
        if let Some(peer) = self.channels[1 - side].get_mut(&id).filter(|_| channel.met && !channel.hup) {
            peer.hup = true;
            // Announced messages will not be sent any more; short ones are there, but for those that came after such a one.
            let there = peer.messages.iter().take_while(|m| matches!(m, Message::Short(_))).count();
            peer.messages.truncate(there);
        }
        self.meet(1 - side, id);
    }

    /// These files of a side are closed: nothing may look at their memory from here on.
    fn forget(&mut self, side: usize, which: impl Fn(usize) -> bool) {
        let World { files, channels, .. } = self;
        for (n, file) in files.iter_mut().enumerate().filter(|(n, _)| which(*n)) {
            if file.take_if(|file| file.side == side).is_none() {
                continue;
            }
            for channel in channels.iter_mut().flat_map(|c| c.values_mut()) {
                channel.sends.retain(|op| op.file != n);
                channel.receives.retain(|op| op.file != n);
                channel.messages.retain(|m| !matches!(m, Message::Long(op) if op.file == n));
            }
        }
    }
}

impl SoftRing {
    fn check(&self) -> Result<MutexGuard<'_, World>, Error> {
        let world = self.link.lock();
        let closed = world.files.get(self.file).is_none_or(Option::is_none);
        if closed || world.unplugged || world.epoch != self.epoch { Err(Error::Gone) } else { Ok(world) }
    }

    fn put(&mut self, op: Op) -> Result<bool, Error> {
        drop(self.check()?);
        if self.put.len() == SUBMISSIONS {
            return Ok(false);
        }
        self.put.push_back(op);
        Ok(true)
    }
}

/// Registers dma-bufs with a ring in software: what the descriptor is of does not matter, the bytes are those at the address.
struct SoftRegistrar(SoftRingLink, u32);

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl Registrar<SoftRegion> for SoftRegistrar {
    fn register_dmabuf(
        &self,
        _: BorrowedFd<'_>,
        offset: u64,
        head: u64,
        mem: MemSlice,
        access: Access,
    ) -> Result<SoftRegion, Error> {
        let world = self.0.lock();
        match () {
            () if world.unplugged || world.epoch != self.1 => Err(Error::Gone),
            () if world.no_dmabufs => Err(refused("registering memory", EOPNOTSUPP)),
            () if !offset.is_multiple_of(4096) => Err(refused("registering memory", EINVAL)),
            () => Ok(SoftRegion { mem, head, access, locked: None }),
        }
    }
}

fn refused(call: &'static str, code: i32) -> Error {
    Error::Refused { call, source: io::Error::from_raw_os_error(code), hint: "" }
}

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl RingDevice for SoftRing {
    type Region = SoftRegion;

    fn registrar(&self) -> Arc<dyn Registrar<SoftRegion>> {
        Arc::new(SoftRegistrar(self.link.clone(), self.epoch))
    }

    fn register(&mut self, mem: MemSlice, access: Access) -> Result<SoftRegion, Error> {
        let mut world = self.check()?;
        if let Some(left) = &mut world.locked {
            *left = left.checked_sub(mem.len() as u64).ok_or(refused("registering memory", ENOMEM))?;
        }
        world.registered += 1;
        let locked = world.locked.is_some().then(|| self.link.clone());
        Ok(SoftRegion { mem, head: 0, access, locked })
    }

    fn open_channel(&mut self, channel: u32) -> Result<(), Error> {
        let mut world = self.check()?;
        if world.channels[self.side].contains_key(&channel) || channel >= abi::CHANNELS {
            return Err(refused("opening a channel", EBUSY));
        }
        world.channels[self.side].insert(channel, Channel { owner: self.file, ..Channel::default() });
        Ok(())
    }

    fn close_channel(&mut self, channel: u32) -> Result<(), Error> {
        let mut world = self.check()?;
        if world.channels[self.side].get(&channel).is_none_or(|c| c.owner != self.file) {
            return Err(refused("closing a channel", EBADF));
        }
        world.close(self.side, channel);
        Ok(())
    }

    fn send(
        &mut self,
        channel: u32,
        region: &SoftRegion,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool, Error> {
        let mem = region.sub(offset, length)?;
        if region.access == Access::Receive {
            return Err(refused("sending", EACCES));
        }
        self.put(Op { file: self.file, operation: Operation::Send, channel, mem, cookie })
    }

    fn receive(
        &mut self,
        channel: u32,
        region: &SoftRegion,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool, Error> {
        let mem = region.sub(offset, length)?;
        if region.access == Access::Send {
            return Err(refused("receiving", EACCES));
        }
        self.put(Op { file: self.file, operation: Operation::Receive, channel, mem, cookie })
    }

    fn doorbell(&mut self, _: u32, wait: Duration, _: bool) -> Result<(), Error> {
        let put = std::mem::take(&mut self.put);
        let mut world = self.check()?;
        world.waits += u64::from(!wait.is_zero());
        for op in put {
            world.take(self.side, op);
        }
        world.step();
        Ok(())
    }

    fn waiting(&self) -> bool {
        !self.put.is_empty()
    }

    fn pop(&mut self) -> Result<Option<Completion>, Error> {
        let mut world = self.link.lock();
        world.step();
        let gone = world.unplugged || world.epoch != self.epoch;
        let Some(Some(file)) = world.files.get_mut(self.file) else { return Err(Error::Gone) };
        let done = file.done.pop_front();
        if file.done.is_empty() && !gone {
            file.notifier.quiet();
        }
        if done.is_none() && gone { Err(Error::Gone) } else { Ok(done) }
    }

    fn wait_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for SoftRing {
    fn drop(&mut self) {
        let mut world = self.link.lock();
        let own = world.channels[self.side].iter().filter(|(_, c)| c.owner == self.file).map(|(id, _)| *id);
        let own: Vec<u32> = own.collect();
        for id in own {
            world.close(self.side, id);
        }
        world.forget(self.side, |file| file == self.file);
    }
}
