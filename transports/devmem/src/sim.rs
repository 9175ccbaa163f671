//! A simulated device-memory stream: real TCP underneath, a card that puts payload at random pages of a simulated GPU's memory,
//! and a kernel that tells it as the kernel does.
//!
//! What it does beyond moving bytes, always in the same way for the same seed:
//!
//! * Segments of any size end anywhere; each lies in a page of its own or shares one with the segment before.
//! * Some segments come with their first bytes, or all of them, copied to the host (the header split missed); some in packets
//!   that were not steered. A call returns either the one kind or the other.
//! * Calls end where the buffer or the control buffer ends, also inside of a fragment; then the rest has a token of its own.
//! * Tokens are the lowest free numbers. At most 128 runs and 1024 pages go back in a call; unknown ones do not count.
//! * Pages are few. Without a free one nothing is taken from the wire. A page that goes back is overwritten.
//! * What the card has written may be invisible until the device is flushed ([`SimGpu::nic_write`]).
//! * Memory that is lent is read late, in pieces, and its notices come later still, in ranges. With too many calls open the stream is
//!   full, or the kernel has no memory for one more.

mod card;
mod lending;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linkspan_gpu::devmem::Run;
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_net::Sent;
use linkspan_netdev::Received;
use linkspan_transport::{Buf, MemSlice};

use crate::kernel::Owner;
use crate::{Error, Lent, Pool, Socket};
use card::{Card, Tokens};
use lending::SimZeroCopy;

/// How the stream behaves.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Everything that looks like chance comes from it.
    pub seed: u64,
    /// Pages of the pool.
    pub pages: u32,
    /// Longest segment, bytes: at most 64 KiB.
    pub mss: usize,
    /// Of so many segments one is partly or wholly copied to the host; 0: none.
    pub linear: u64,
    /// Of so many segments one begins an episode of packets that were not steered; 0: none.
    pub plain: u64,
    /// Whether the card sends from device memory.
    pub lends: bool,
    /// So many times it is asked for memory that it does not know before it lends any.
    pub unregistered: u32,
    /// Why it binds no memory for receiving.
    pub refuses: Option<&'static str>,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig { seed: 1, pages: 512, mss: 1448, linear: 23, plain: 61, lends: true, unregistered: 0, refuses: None }
    }
}

/// What a segment is.
#[derive(Debug)]
enum Segment {
    /// Bytes copied to the host, then bytes in pages: page, offset in it, length.
    Steered { linear: VecDeque<u8>, pages: VecDeque<(u32, u32, u32)> },
    /// A packet like any other.
    Plain(VecDeque<u8>),
}

/// The stream.
#[derive(Debug)]
pub struct SimSocket<O> {
    owner: O,
    path: String,
    config: SimConfig,
    /// What the card's writes go through; another device's memory is written at once.
    gpu: Option<Arc<SimGpu>>,
    rng: u64,
    card: Option<Card>,
    tokens: Tokens,
    segments: VecDeque<Segment>,
    /// Segments of the episode of plain packets that are left.
    unsteered: u64,
    end: bool,
    failed: Option<i32>,
    lending: SimZeroCopy,
}

/// linux: asm-generic/errno.h and include/linux/errno.h.
const EINVAL: i32 = 22;
const ETOOSMALL: i32 = 525;

impl<O: Owner> SimSocket<O> {
    /// Over the stream of `owner`, with memory of this device.
    pub fn new(owner: O, path: String, gpu: Arc<SimGpu>, config: SimConfig) -> SimSocket<O> {
        let mut socket = SimSocket::beside_any(owner, path, config);
        socket.gpu = Some(gpu);
        socket
    }

    /// The same with memory of any device: what the card writes is visible at once.
    pub fn beside_any(owner: O, path: String, config: SimConfig) -> SimSocket<O> {
        SimSocket {
            owner,
            path,
            gpu: None,
            rng: config.seed,
            card: None,
            tokens: Tokens::default(),
            segments: VecDeque::new(),
            unsteered: 0,
            end: false,
            failed: None,
            lending: SimZeroCopy::default(),
            config,
        }
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn below(&mut self, n: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }

    /// One time in `n`; never for 0.
    fn chance(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// Takes segments from the wire while there are pages for them.
    fn take_in(&mut self) {
        while self.segments.len() < 64 && !self.end && self.failed.is_none() {
            let need = self.config.mss.div_ceil(4096) + 1;
            if self.card.as_ref().is_some_and(|c| c.free() < need) {
                return;
            }
            let all = if self.chance(4) { 1 + self.below(self.config.mss as u64) as usize } else { self.config.mss };
            let mut bytes = vec![0; all];
            match linkspan_net::recv(self.owner.as_fd(), &mut bytes) {
                Ok(None) => return,
                Ok(Some(0)) => self.end = true,
                Ok(Some(n)) => {
                    bytes.truncate(n);
                    let segment = self.segment(bytes);
                    self.segments.push_back(segment);
                }
                Err(e) => self.failed = Some(e.raw_os_error().unwrap_or(0)),
            }
        }
    }

    fn segment(&mut self, bytes: Vec<u8>) -> Segment {
        if self.unsteered == 0 && self.chance(self.config.plain) {
            self.unsteered = 1 + self.below(20);
        }
        if self.card.is_none() || self.unsteered > 0 {
            self.unsteered = self.unsteered.saturating_sub(1);
            return Segment::Plain(bytes.into());
        }
        let linear = match self.chance(self.config.linear) {
            true if self.chance(2) => bytes.len(),
            true => self.below(bytes.len() as u64) as usize,
            false => 0,
        };
        let (linear, rest) = bytes.split_at(linear);
        let mut pages = VecDeque::new();
        let mut rest = rest;
        while !rest.is_empty() {
            let (draw, share) = (self.below(u64::MAX), self.chance(3));
            let Some(card) = &mut self.card else { break };
            let (page, at, space) = card.place(draw, share);
            let (now, then) = rest.split_at(rest.len().min(space as usize));
            if let Some(to) = card.pool.sub(u64::from(page) * 4096 + u64::from(at), now.len() as u64) {
                match &self.gpu {
                    Some(gpu) => gpu.nic_write(to, now),
                    None => {
                        let written = to.fill(0, now);
                        debug_assert!(written);
                    }
                }
            }
            card.filled(page, at + now.len() as u32);
            pages.push_back((page, at, now.len() as u32));
            rest = then;
        }
        Segment::Steered { linear: linear.iter().copied().collect(), pages }
    }

    /// Nothing of a page is wanted any more where this was its last fragment.
    fn drop_page(&mut self, page: u32) {
        let Some(card) = &mut self.card else { return };
        if card.release(page) {
            // What is still on its way to it must not come after the next segment.
            let _ = self.gpu.as_ref().map(|gpu| gpu.flush_writes());
            let whole = card.pool.sub(u64::from(page) * 4096, 4096).unwrap_or(MemSlice::NONE);
            let poisoned = whole.fill(0, &[0xBD; 4096]);
            debug_assert!(poisoned);
        }
    }
}

impl<O> Drop for SimSocket<O> {
    fn drop(&mut self) {
        // An unbound card writes nothing any more: what is on its way lands before the pool is freed.
        let _ = self.gpu.as_ref().map(|gpu| gpu.flush_writes());
        assert!(
            std::thread::panicking() || self.lending.is_settled(),
            "the stream is gone, and the card reads for it still"
        );
    }
}

/// A control message as the kernel writes it: `struct cmsghdr` (length u64, level i32, type i32), `struct dmabuf_cmsg`
/// (offset u64; size, token, binding, flags u32).
fn message(kind: u32, offset: u64, size: u32, token: u32, binding: u32) -> [u8; 40] {
    let mut out = [0; 40];
    out[0] = 40;
    out[8] = 1;
    out[12..16].copy_from_slice(&kind.to_le_bytes());
    out[16..24].copy_from_slice(&offset.to_le_bytes());
    out[24..28].copy_from_slice(&size.to_le_bytes());
    out[28..32].copy_from_slice(&token.to_le_bytes());
    out[32..36].copy_from_slice(&binding.to_le_bytes());
    out
}

/// Puts a message into the control buffer. False: no space.
fn put(control: &mut [u64], used: &mut usize, message: &[u8; 40]) -> bool {
    let Some(to) = control.get_mut(*used..*used + 5) else { return false };
    for (word, bytes) in to.iter_mut().zip(message.chunks_exact(8)) {
        let mut all = [0; 8];
        all.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(all);
    }
    *used += 5;
    true
}

#[allow(unsafe_code)]
// SAFETY: memory is named to the kernel within the call, or until the notice of the send that names it.
unsafe impl<O: Owner> Socket for SimSocket<O> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.owner.as_fd()
    }

    fn receive(&mut self, linear: MemSlice, control: &mut [u64]) -> io::Result<Option<Received>> {
        self.lending.push(&self.owner)?;
        self.take_in();
        let (mut bytes, mut used, mut kind) = (0, 0, None);
        let most = match self.chance(5) {
            true => 1 + self.below(linear.len() as u64) as usize,
            false => linear.len(),
        };
        let binding = self.card.as_ref().map_or(0, |c| c.id);
        // Where the call's own buffer goes on.
        let mut copied = 0;
        while bytes < most {
            let space = most - bytes;
            match self.segments.front_mut() {
                None => break,
                Some(Segment::Plain(_)) if kind == Some(true) => break,
                Some(Segment::Steered { .. }) if kind == Some(false) => break,
                Some(Segment::Plain(data)) => {
                    kind = Some(false);
                    let part: Vec<u8> = data.drain(..data.len().min(space)).collect();
                    let fits = linear.fill(copied as u64, &part);
                    debug_assert!(fits);
                    (bytes, copied) = (bytes + part.len(), copied + part.len());
                    if data.is_empty() {
                        self.segments.pop_front();
                    }
                }
                Some(Segment::Steered { linear: head, pages }) => {
                    kind = Some(true);
                    if !head.is_empty() {
                        let n = head.len().min(space);
                        if !put(control, &mut used, &message(78, 0, n as u32, 0, 0)) {
                            break;
                        }
                        let part: Vec<u8> = head.drain(..n).collect();
                        let fits = linear.fill(copied as u64, &part);
                        debug_assert!(fits);
                        (bytes, copied) = (bytes + n, copied + n);
                    } else if let Some(&(page, at, len)) = pages.front() {
                        let n = (len as usize).min(space) as u32;
                        let token = self.tokens.next();
                        let offset = u64::from(page) * 4096 + u64::from(at);
                        if !put(control, &mut used, &message(79, offset, n, token, binding)) {
                            break;
                        }
                        self.tokens.give(token, page);
                        bytes += n as usize;
                        if n == len {
                            pages.pop_front();
                        } else {
                            pages[0] = (page, at + n, len - n);
                            // The rest holds the page by itself.
                            if let Some(card) = &mut self.card {
                                card.hold(page);
                            }
                        }
                    } else {
                        self.segments.pop_front();
                    }
                }
            }
        }
        if bytes > 0 {
            return Ok(Some(Received { bytes, control: used * 8 }));
        }
        match (self.segments.front(), self.failed) {
            (Some(Segment::Steered { linear, pages }), _) if linear.len() + pages.len() > 0 => {
                Err(io::Error::from_raw_os_error(ETOOSMALL))
            }
            (None, Some(code)) => Err(io::Error::from_raw_os_error(code)),
            (None, None) if self.end => Ok(Some(Received { bytes: 0, control: 0 })),
            _ => Ok(None),
        }
    }

    fn give_back(&mut self, runs: &[Run]) -> io::Result<u64> {
        if runs.len() > 128 {
            return Err(io::Error::from_raw_os_error(EINVAL));
        }
        let mut freed = 0;
        let tokens = runs.iter().flat_map(|r| (0..r.count).map(|n| r.start.wrapping_add(n)));
        for token in tokens.take(1024) {
            if let Some(page) = self.tokens.take(token) {
                self.drop_page(page);
                freed += 1;
            }
        }
        Ok(freed)
    }

    fn send(&mut self, mem: MemSlice) -> io::Result<Option<usize>> {
        if self.lending.push(&self.owner)? {
            return Ok(None);
        }
        let n = match self.chance(4) {
            true => 1 + self.below(mem.len() as u64),
            false => mem.len() as u64,
        };
        linkspan_net::send_mem(self.owner.as_fd(), mem.sub(0, n).unwrap_or(mem))
    }

    fn send_lent(&mut self, binding: u32, offset: u64, len: usize) -> io::Result<Option<usize>> {
        self.lending.push(&self.owner)?;
        let n = match self.chance(3) {
            true => 1 + self.below(len as u64) as usize,
            false => len,
        };
        let short = self.chance(2);
        self.lending.take(binding, offset, n, short)
    }

    fn notice(&mut self) -> io::Result<Option<Sent>> {
        self.lending.push(&self.owner)?;
        let range = 1 + self.below(3) as u32;
        Ok(if self.chance(3) { None } else { self.lending.notice(range) })
    }

    fn bind(&mut self, gpu: &Arc<dyn Gpu>) -> Result<Pool, Error> {
        if let Some(why) = self.config.refuses {
            return Err(Error::NotBound { path: self.path.clone(), device: gpu.info().id(), why: why.to_owned() });
        }
        let card = Card::new(gpu, self.config.pages)?;
        let pool = Pool {
            mem: card.pool,
            id: card.id,
            lent: Arc::default(),
            held: Arc::default(),
            guard: Box::new(card.memory.clone()),
        };
        self.card = Some(card);
        Ok(pool)
    }

    fn lend(&mut self, gpu: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, Error> {
        let not = |why: &str, lasting| {
            let (path, device) = (self.path.clone(), gpu.info().id());
            Err(Error::NotLent { path, device, why: why.to_owned(), lasting })
        };
        if !self.config.lends {
            return not("this simulated card does not send from device memory", true);
        }
        if self.config.unregistered > 0 {
            self.config.unregistered -= 1;
            return not("its owner has not registered it with a dma-buf", false);
        }
        Ok(self.lending.lend(mem))
    }

    fn cut(&mut self) {
        self.owner.cut();
        self.lending.cut();
    }

    fn path(&self) -> &str {
        &self.path
    }
}
