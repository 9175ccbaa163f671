//! The sending half: payload of accepted chunks, in their order, over the second stream.

mod notices;
mod staging;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use linkspan_gpu::{Gpu, GpuError, StageMemory};
use linkspan_transport::{Buf, MemSlice, peer_gone};

use crate::{Error, Lent, Socket};
use notices::Notices;
use staging::Staging;

/// Chunks that wait.
pub(crate) const ITEMS: usize = 256;

/// Most bytes of one call, and of one flush.
const CALL: usize = 1 << 20;
const FLUSH: usize = 1 << 20;

/// Ranges of device memory that the card sends from.
const LENT: usize = 64;

/// linux: asm-generic/errno.h and errno-base.h.
const ENOBUFS: i32 = 105;
const ENOMEM: i32 = 12;

/// How a chunk leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    /// From host memory.
    Host,
    /// From where it lies on the device.
    Lent { binding: u32, offset: u64 },
    /// From the device by way of pinned memory.
    Staged,
}

struct Item {
    number: u64,
    src: MemSlice,
    way: SendMode,
    sent: usize,
    /// Bytes that are on their way to pinned memory, or there; only for [`SendMode::Staged`].
    copied: usize,
}

pub(crate) struct Outgoing {
    queue: VecDeque<Item>,
    /// Chunks that the stream has, and how many calls from device memory must be settled before they are gone.
    open: VecDeque<(u64, u32)>,
    notices: Notices,
    lent: Vec<Lent>,
    /// Ranges that were refused by themselves, newest first: to ask again costs system calls.
    unlent: VecDeque<MemSlice>,
    /// Nothing is sent from where it lies any more.
    lends_nothing: bool,
    gpu: Option<Arc<dyn Gpu>>,
    memory: StageMemory,
    staging: Option<Staging>,
    /// Why device memory is not sent from where it lies, for whoever takes it; told once of single ranges.
    pub(crate) refused: Option<String>,
}

impl Outgoing {
    pub(crate) fn new(memory: StageMemory) -> Outgoing {
        Outgoing {
            queue: VecDeque::with_capacity(ITEMS),
            open: VecDeque::with_capacity(ITEMS),
            notices: Notices::default(),
            lent: Vec::with_capacity(LENT),
            unlent: VecDeque::with_capacity(LENT),
            lends_nothing: false,
            gpu: None,
            memory,
            staging: None,
            refused: None,
        }
    }

    pub(crate) fn attach(&mut self, gpu: &Arc<dyn Gpu>) {
        self.gpu = Some(gpu.clone());
    }

    /// Chunks will be cut from this memory: the card is asked to send from it, once.
    pub(crate) fn prepare(&mut self, socket: &mut dyn Socket, mem: MemSlice) {
        let known = self.lends_nothing || self.unlent.contains(&mem) || self.lent.iter().any(|l| l.at(mem).is_some());
        if mem.is_host() || known {
            return;
        }
        let Some(gpu) = &self.gpu else { return };
        self.lent.retain(|l| l.alive.load(std::sync::atomic::Ordering::Acquire));
        if self.lent.len() == LENT {
            // The oldest; what is under way of it goes on, and what comes later of it is asked for again.
            self.lent.remove(0);
        }
        match socket.lend(gpu, mem) {
            Ok(lent) => self.lent.push(lent),
            Err(error) => {
                self.lends_nothing = !matches!(error, Error::NotLent { lasting: false, .. });
                if self.lends_nothing || self.unlent.is_empty() {
                    self.refused = Some(error.to_string());
                }
                self.unlent.truncate(LENT - 1);
                self.unlent.push_front(mem);
            }
        }
    }

    /// Whether a chunk more can be accepted.
    pub(crate) fn has_space(&self) -> bool {
        self.queue.len() < ITEMS && self.open.len() < ITEMS
    }

    /// Accepts a chunk, which [`Outgoing::has_space`] has space for. False: device memory on a rail that has no GPU, or has
    /// another.
    pub(crate) fn push(&mut self, number: u64, src: MemSlice) {
        let way = if src.is_host() || src.is_empty() {
            SendMode::Host
        } else {
            let found = self.lent.iter().find_map(|l| Some(SendMode::Lent { binding: l.id, offset: l.at(src)? }));
            found.unwrap_or(SendMode::Staged)
        };
        self.queue.push_back(Item { number, src, way, sent: 0, copied: 0 });
    }

    /// Whether this memory can be sent.
    pub(crate) fn covers(&self, mem: MemSlice) -> Result<(), GpuError> {
        if mem.is_host() {
            return Ok(());
        }
        let gpu = self.gpu.as_ref().ok_or(GpuError::NotAttached)?;
        if mem.place() == gpu.place() {
            return Ok(());
        }
        let (device, why) = (gpu.info().id(), "it is memory of another device than the connection's");
        Err(GpuError::Range { device, addr: mem.as_ptr() as u64, len: mem.len(), why })
    }

    /// Number of the last chunk before the first that is not gone; `None`: all are.
    pub(crate) fn gone_before(&self) -> Option<u64> {
        let first = self.open.front().map(|o| o.0).or(self.queue.front().map(|i| i.number));
        first.map(|n| n - 1)
    }

    /// Whether payload waits for the stream.
    pub(crate) fn pending(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether what comes next waits for the GPU and not for the stream.
    pub(crate) fn copying(&self) -> bool {
        self.queue.front().is_some_and(|i| i.way == SendMode::Staged)
    }

    /// Whether the card still reads device memory.
    pub(crate) fn lent(&self) -> bool {
        self.notices.open() > 0
    }

    /// Hands the stream what it takes, within bounds. Returns whether anything moved.
    pub(crate) fn flush(&mut self, socket: &mut dyn Socket) -> Result<bool, Trouble> {
        let mut moved = false;
        moved |= self.collect(socket).map_err(Trouble::Recv)?;
        moved |= self.stage()?;
        let mut total = 0;
        while let Some(item) = self.queue.front_mut() {
            let rest = item.src.len() - item.sent;
            if rest > 0 {
                if total >= FLUSH {
                    break;
                }
                let took = match item.way {
                    SendMode::Host => socket.send(part(item.src, item.sent, rest.min(CALL))),
                    SendMode::Lent { .. } if self.notices.full() => Ok(None),
                    SendMode::Lent { binding, offset } => {
                        match socket.send_lent(binding, offset + item.sent as u64, rest.min(CALL)) {
                            Ok(Some(n)) => {
                                self.notices.made();
                                Ok(Some(n))
                            }
                            // What the socket's notices stand for counts as its memory, or there is none now: what is open gives some back.
                            Err(e) if is_short(&e) && self.notices.open() > 0 => Ok(None),
                            Err(e) if peer_gone(&e).is_none() => {
                                // The card's part, not the peer's: what is left goes by way of the host.
                                self.refuse(format!("LS1345 sendmsg(2) from device memory bound as {binding}: {e}"));
                                moved |= self.stage()?;
                                continue;
                            }
                            other => other,
                        }
                    }
                    SendMode::Staged => match &mut self.staging {
                        Some(staging) => match staging.ready()? {
                            Some(ready) => socket.send(ready),
                            None => Ok(None),
                        },
                        None => Ok(None),
                    },
                };
                let Some(n) = took.map_err(Trouble::Send)? else { break };
                item.sent += n;
                total += n;
                moved = true;
                if let (SendMode::Staged, Some(staging)) = (item.way, &mut self.staging) {
                    staging.sent(n);
                }
                if item.sent < item.src.len() {
                    continue;
                }
            }
            moved = true;
            let number = item.number;
            self.queue.pop_front();
            self.open.push_back((number, self.notices.calls()));
        }
        while self.open.front().is_some_and(|o| self.notices.settled(o.1)) {
            self.open.pop_front();
            moved = true;
        }
        moved |= self.stage()?;
        Ok(moved)
    }

    /// Takes the notices that have come. Returns whether any did.
    fn collect(&mut self, socket: &mut dyn Socket) -> io::Result<bool> {
        let mut any = false;
        while self.lent() {
            let Some(sent) = socket.notice()? else { break };
            self.notices.settle(sent.first, sent.last);
            any = true;
        }
        Ok(any)
    }

    /// Takes the notices of a stream that was cut until the card reads nothing more. What it has begun on it sends within a millisecond;
    /// one that does not get on is not waited for.
    pub(crate) fn wait_given_back(&mut self, socket: &mut dyn Socket) {
        for _ in 0..100 {
            let found = self.collect(socket);
            if !self.lent() {
                return;
            }
            if !matches!(found, Ok(true)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Nothing is sent from where it lies any more.
    #[cold]
    fn refuse(&mut self, why: String) {
        self.refused = Some(why);
        self.lends_nothing = true;
        self.lent.clear();
        for item in self.queue.iter_mut().filter(|i| matches!(i.way, SendMode::Lent { .. })) {
            (item.way, item.copied) = (SendMode::Staged, item.sent);
        }
    }

    /// Begins to copy what comes next into pinned memory.
    fn stage(&mut self) -> Result<bool, GpuError> {
        let (Some(gpu), memory) = (&self.gpu, &self.memory) else { return Ok(false) };
        let mut moved = false;
        // Not beyond what is sent from where it lies: that may have to be copied after all, and copies leave in the order of the queue.
        let before = self.queue.iter_mut().take_while(|i| !matches!(i.way, SendMode::Lent { .. }));
        for item in before.filter(|i| i.way == SendMode::Staged && i.copied < i.src.len()) {
            let staging = match &mut self.staging {
                Some(staging) => staging,
                none => none.insert(Staging::new(gpu, memory)?),
            };
            while item.copied < item.src.len() {
                let rest = part(item.src, item.copied, item.src.len() - item.copied);
                let n = staging.copy(rest)?;
                if n == 0 {
                    return Ok(moved);
                }
                item.copied += n;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Waits until no copy of ours reads device memory any more.
    pub(crate) fn finish(&mut self) {
        if let Some(staging) = &mut self.staging {
            staging.finish();
        }
    }
}

/// Why sending ended.
pub(crate) enum Trouble {
    /// sendmsg(2).
    Send(io::Error),
    /// recvmsg(2) of the error queue.
    Recv(io::Error),
    Gpu(GpuError),
}

impl From<GpuError> for Trouble {
    fn from(e: GpuError) -> Trouble {
        Trouble::Gpu(e)
    }
}

/// Whether a call found no memory: ENOBUFS (net.core.optmem_max), ENOMEM.
fn is_short(error: &io::Error) -> bool {
    [ENOBUFS, ENOMEM].map(Some).contains(&error.raw_os_error())
}

fn part(mem: MemSlice, at: usize, len: usize) -> MemSlice {
    mem.sub(at as u64, len as u64).unwrap_or(MemSlice::NONE)
}

#[cfg(test)]
pub(crate) mod tests;
