//! Direct copy, bare: both processes copy at once with process_vm_readv and process_vm_writev, one cursor between
//! them and no protocol. And a cache line thrown to and fro.
//!
//! The client offers a sealed memfd that carries the token as its nonce; the server opens it through
//! `/proc/PID/fd/N`. That works exactly where cross-memory attach itself may: same host, same user, same pid
//! namespace. Neither side touches the memory of a process that does not show the token, or that is another user's.

use std::fs::{self, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Instant;

use linkspan_proto::Buf;
use linkspan_shmring::cma::{AccessGuard, Remote};
use linkspan_shmring::layout::RING_MIN;
use linkspan_shmring::{Map, Side, peer};
use linkspan_transport::{HostBuf, MemSlice};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::shared::Shared;
use super::socket::Patience;
use crate::hist::Recorder;
use crate::spec::WaitMode;

/// Where the client's map and gate are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MapAt {
    pid: U32,
    fd: U32,
    guard: U64,
}

/// What the server says to it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Answer {
    /// 0: joined. Else why not: [`NOT_ALLOWED`], [`OTHER_USER`] or [`NOT_FOUND`].
    status: u8,
    zero: [u8; 3],
    pid: U32,
    guard: U64,
}

const NOT_ALLOWED: u8 = 1;
const OTHER_USER: u8 = 2;
const NOT_FOUND: u8 = 3;

/// Messages between two looks of the serving side at its patience.
const GLANCE: u64 = 1 << 8;

/// Most bytes that one side copies at a time, and least: as the shared-memory transport has it.
const SLICE: (usize, usize) = (16 << 10, 256 << 10);

/// The nonces of both sides.
fn nonces(token: [u8; 16]) -> [[u64; 2]; 2] {
    let word = |at: usize| u64::from_le_bytes(token[at..at + 8].try_into().unwrap_or_default());
    let (low, high) = (word(0), word(8));
    [[low, high], [!low, !high]]
}

/// The process, if it is our own user's.
fn process(pid: u32) -> io::Result<OwnedFd> {
    let pidfd = peer::of_pid(i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?)?;
    let user = fs::metadata(format!("/proc/{pid}"))?.uid();
    still(&pidfd)?;
    if user != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(pidfd)
}

/// What was just found by the number was the process's: it has not ended, so no other one has the number.
fn still(pidfd: &OwnedFd) -> io::Result<()> {
    if peer::ended(pidfd) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

/// A side that has made its offer.
#[derive(Debug)]
pub(super) struct Pending {
    map: Arc<Map>,
    guard: AccessGuard,
}

impl Pending {
    pub(super) fn new(token: [u8; 16]) -> io::Result<(Pending, MapAt)> {
        let [own, _] = nonces(token);
        let (map, guard) = (Map::create(RING_MIN)?, AccessGuard::new(own)?);
        map.set_nonce(Side::A, own);
        let offer = MapAt {
            pid: std::process::id().into(),
            fd: (map.fd().as_raw_fd() as u32).into(),
            guard: guard.address().into(),
        };
        Ok((Pending { map: Arc::new(map), guard }, offer))
    }

    /// The server's answer; an error says why it cannot be, for people.
    pub(super) fn joined(self, answer: &Answer, token: [u8; 16], patience: &Patience) -> Result<Split, String> {
        match answer.status {
            0 => {}
            NOT_ALLOWED => return Err("the other side has it switched off (LINKSPAN_CMA=0)".into()),
            OTHER_USER => return Err("the other side runs as another user".into()),
            _ => return Err("the other side cannot reach our memory: another pid namespace, or forbidden there".into()),
        }
        let [_, theirs] = nonces(token);
        let told = |error: io::Error| format!("the other side's memory cannot be reached: {error}");
        Split::new(self.map, self.guard, Side::A, (answer.pid.get(), answer.guard.get()), theirs, patience)
            .map_err(told)
    }
}

/// Answers an offer.
pub(super) fn answer(offer: &MapAt, token: [u8; 16], allowed: bool, patience: &Patience) -> (Option<Split>, Answer) {
    let refuse = |status| (None, Answer { status, zero: [0; 3], pid: U32::ZERO, guard: U64::ZERO });
    if !allowed {
        return refuse(NOT_ALLOWED);
    }
    match join(offer, token, patience) {
        Ok(split) => {
            let guard = split.guard.address().into();
            (Some(split), Answer { status: 0, zero: [0; 3], pid: std::process::id().into(), guard })
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refuse(OTHER_USER),
        Err(_) => refuse(NOT_FOUND),
    }
}

fn join(offer: &MapAt, token: [u8; 16], patience: &Patience) -> io::Result<Split> {
    let [theirs, own] = nonces(token);
    let pid = offer.pid.get();
    let pidfd = process(pid)?;
    let path = format!("/proc/{pid}/fd/{}", offer.fd.get());
    // Nothing but a memfd of ours is opened: other files may do something when they are.
    if !fs::read_link(&path)?.to_string_lossy().starts_with("/memfd:linkspan") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let map = Map::open(OpenOptions::new().read(true).write(true).open(path)?.into(), RING_MIN)?;
    still(&pidfd)?;
    if map.nonce(Side::A) != theirs {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Split::new(Arc::new(map), AccessGuard::new(own)?, Side::B, (pid, offer.guard.get()), theirs, patience)
}

/// One side.
#[derive(Debug)]
pub(super) struct Split {
    shared: Shared,
    guard: AccessGuard,
    patience: Patience,
    pidfd: Arc<OwnedFd>,
    /// A buffer was kept for good.
    pub(super) kept: bool,
}

impl Split {
    fn new(
        map: Arc<Map>,
        guard: AccessGuard,
        me: Side,
        (pid, address): (u32, u64),
        nonce: [u64; 2],
        patience: &Patience,
    ) -> io::Result<Split> {
        let pidfd = Arc::new(process(pid)?);
        let remote = Remote::new(pid as i32, address);
        remote.probe(nonce)?;
        still(&pidfd)?;
        // Asked while this side waits. Between that and a copy the process may end, and in theory its number be another's.
        let (waits, watched) = (patience.clone(), pidfd.clone());
        let watch = move || match peer::ended(&*watched) {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => waits.check(),
        };
        Ok(Split {
            shared: Shared::new(&map, me, remote, Box::new(watch)),
            guard,
            patience: patience.clone(),
            pidfd,
            kept: false,
        })
    }

    /// Runs a round over `buf`. After an error the peer may still be copying: the gate is closed to whatever comes
    /// late, and unless its process has ended the memory stays where a copy that was under way already may end.
    fn round<T>(
        &mut self,
        buf: HostBuf,
        wait: WaitMode,
        work: impl FnOnce(&mut Shared, MemSlice) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.set_wait(wait);
        #[allow(unsafe_code)]
        // SAFETY: each copy is awaited; after an error, when one may be under way, the buffer is kept for good, but where the peer's
        // process has ended, and all its calls with it.
        let mem = unsafe { buf.slice() };
        let result = work(&mut self.shared, mem);
        if result.is_err() {
            let closed = self.guard.close();
            debug_assert!(closed.is_ok());
            // A process that is killed closes its sockets a moment before it has ended.
            if !peer::ends_within(&*self.pidfd, 1) {
                self.kept = true;
                mem::forget(buf);
            }
        }
        result
    }

    /// `count` messages of `size` bytes from `buf` into the peer's buffer at `there`, from one place after the other.
    pub(super) fn send(&mut self, buf: HostBuf, there: u64, size: u64, count: u64, wait: WaitMode) -> io::Result<()> {
        self.round(buf, wait, |shared, mem| {
            each(mem, size, count, |part, at| shared.send(part, slice(size), there.wrapping_add(at)))
        })
    }

    /// The other side of [`Split::send`].
    pub(super) fn receive(
        &mut self,
        buf: HostBuf,
        there: u64,
        size: u64,
        count: u64,
        wait: WaitMode,
    ) -> io::Result<()> {
        let patience = self.patience.clone();
        self.round(buf, wait, |shared, mem| {
            each(mem, size, count, |part, at| {
                // Once for each use of the window.
                if at == 0 {
                    patience.moved()?;
                }
                shared.receive(part, slice(size), there.wrapping_add(at))
            })
        })
    }

    /// `count` round trips of all of `buf`.
    pub(super) fn ping(&mut self, buf: HostBuf, there: u64, count: u64, wait: WaitMode) -> io::Result<Recorder> {
        self.round(buf, wait, |shared, mem| {
            let slice = slice(mem.len() as u64);
            timed(count, || {
                shared.send(mem, slice, there)?;
                shared.receive(mem, slice, there)
            })
        })
    }

    /// The other side of [`Split::ping`].
    pub(super) fn pong(&mut self, buf: HostBuf, there: u64, count: u64, wait: WaitMode) -> io::Result<()> {
        let patience = self.patience.clone();
        self.round(buf, wait, |shared, mem| {
            let slice = slice(mem.len() as u64);
            (0..count).try_for_each(|number| {
                glance(&patience, number)?;
                shared.receive(mem, slice, there)?;
                shared.send(mem, slice, there)
            })
        })
    }

    /// `count` round trips of a cache line.
    pub(super) fn throw(&mut self, count: u64, wait: WaitMode) -> io::Result<Recorder> {
        self.round(HostBuf::new(8), wait, |shared, _| timed(count, || shared.throw()))
    }

    /// The other side of [`Split::throw`].
    pub(super) fn catch(&mut self, count: u64, wait: WaitMode) -> io::Result<()> {
        let patience = self.patience.clone();
        self.round(HostBuf::new(8), wait, |shared, _| {
            (0..count).try_for_each(|number| {
                glance(&patience, number)?;
                shared.catch()
            })
        })
    }
}

/// Looks now and then whether a side that never waits has to end.
fn glance(patience: &Patience, number: u64) -> io::Result<()> {
    if number.is_multiple_of(GLANCE) { patience.moved() } else { Ok(()) }
}

fn slice(size: u64) -> usize {
    (size as usize / 4).clamp(SLICE.0, SLICE.1)
}

fn each(mem: MemSlice, size: u64, count: u64, mut work: impl FnMut(MemSlice, u64) -> io::Result<()>) -> io::Result<()> {
    let places = (mem.len() as u64 / size).max(1);
    (0..count).try_for_each(|number| {
        let at = number % places * size;
        work(mem.sub(at, size).unwrap_or(MemSlice::EMPTY), at)
    })
}

fn timed(count: u64, mut trip: impl FnMut() -> io::Result<()>) -> io::Result<Recorder> {
    let (mut rec, mut since) = (Recorder::new(), Instant::now());
    for _ in 0..count {
        trip()?;
        let now = Instant::now();
        rec.record((now - since).as_nanos() as u64);
        since = now;
    }
    Ok(rec)
}

/// A buffer that is backed by memory already.
pub(super) fn touched(len: u64) -> HostBuf {
    let buf = HostBuf::new(len as usize);
    let ones = [1u8; 4096];
    for at in (0..len).step_by(ones.len()) {
        let filled = buf.fill(at, &ones[..ones.len().min((len - at) as usize)]);
        debug_assert!(filled);
    }
    buf
}
