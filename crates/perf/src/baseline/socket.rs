//! A non-blocking socket and the three ways of waiting for it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::idle::Idle;
use crate::interrupt::Interrupt;
use crate::spec::{SPIN, WaitMode};

/// Bytes per system call: the fastest chunk on loopback (bench/records).
const CHUNK: usize = 1 << 20;

/// The congestion control that transports prefer, so that both loops run under the same one: BBR costs 3x on loopback.
const CONGESTION: &str = "cubic";

/// Idle turns of a spinning side between two looks at its patience.
const LOOK: u32 = 1 << 12;

/// Calls that move something between two looks at it.
const GLANCE: u32 = 1 << 8;

/// Longest sleep before patience is looked at again.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a side of the bare loop waits at most. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    base: Instant,
    /// End of it, ns since `base`.
    until: Arc<AtomicU64>,
    /// The serving side's.
    idle: Idle,
    pub(super) interrupt: Interrupt,
}

impl Patience {
    /// Without end.
    pub(super) fn new(interrupt: &Interrupt) -> Patience {
        Patience::of_session(interrupt, Idle::new(None))
    }

    /// Ends when nothing happens in a session for too long.
    pub(super) fn of_session(interrupt: &Interrupt, idle: Idle) -> Patience {
        let until = Arc::new(AtomicU64::new(u64::MAX));
        Patience { base: Instant::now(), until, idle, interrupt: interrupt.clone() }
    }

    /// It ends after this time from now on.
    pub(super) fn set(&self, time: Option<Duration>) {
        let until = time.map_or(u64::MAX, |time| (self.base.elapsed() + time).as_nanos() as u64);
        self.until.store(until, Ordering::Release);
    }

    pub(super) fn check(&self) -> io::Result<()> {
        let until = self.until.load(Ordering::Acquire);
        let ends = until != u64::MAX && self.base.elapsed().as_nanos() as u64 >= until;
        if ends || self.interrupt.raised() || self.idle.over().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Something has moved; it may have to end nevertheless.
    pub(super) fn moved(&self) -> io::Result<()> {
        self.idle.touch();
        self.check()
    }
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) patience: Patience,
    calls: u32,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, patience: Patience) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // A kernel without it keeps its own choice; the record names what is in force.
        let _ = rustix::net::sockopt::set_tcp_congestion(&stream, CONGESTION);
        Ok(Socket { stream, patience, calls: 0 })
    }

    pub(super) fn congestion(&self) -> String {
        rustix::net::sockopt::tcp_congestion(&self.stream).unwrap_or_default()
    }

    pub(super) fn read(&mut self, buf: &mut [u8], wait: WaitMode) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + CHUNK);
            done += self.retry(wait, PollFlags::IN, |stream| some(stream.read(&mut buf[done..end])))?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, buf: &[u8], wait: WaitMode) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let end = buf.len().min(done + CHUNK);
            done += self.retry(wait, PollFlags::OUT, |stream| some(stream.write(&buf[done..end])))?;
        }
        Ok(())
    }

    /// Sends `count` messages of `size` bytes out of a window, whatever of it is free in one call, and takes back
    /// what [`Socket::swallow`] says it has.
    pub(super) fn feed(&mut self, window: &[u8], size: u64, count: u64, wait: WaitMode) -> io::Result<()> {
        let (total, capacity) = (size * count, window.len() as u64);
        let (mut moved, mut acked) = (0u64, 0u64);
        let (mut word, mut have) = ([0u8; 8], 0);
        while acked < total {
            let free = (acked + capacity - moved).min(total - moved);
            let at = (moved % capacity) as usize;
            let end = window.len().min(at + free as usize);
            let flags = if free > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let (sent, got) = self.retry(wait, flags, |stream| {
                let sent = if free > 0 { maybe(some(stream.write(&window[at..end])))? } else { 0 };
                let got = maybe(some(stream.read(&mut word[have..])))?;
                if sent + got > 0 { Ok((sent, got)) } else { Err(io::ErrorKind::WouldBlock.into()) }
            })?;
            moved += sent as u64;
            have += got;
            if have == word.len() {
                let said = u64::from_le_bytes(word);
                if said <= acked || said > moved {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "more taken than was sent"));
                }
                (acked, have) = (said, 0);
            }
        }
        Ok(())
    }

    /// Takes `count` messages of `size` bytes and says after each read how many bytes of whole ones there were.
    pub(super) fn swallow(&mut self, window: &mut [u8], size: u64, count: u64, wait: WaitMode) -> io::Result<()> {
        let (total, mut moved, mut acked) = (size * count, 0u64, 0u64);
        while moved < total {
            let end = window.len().min((total - moved).min(usize::MAX as u64) as usize);
            moved += self.retry(wait, PollFlags::IN, |stream| some(stream.read(&mut window[..end])))? as u64;
            let whole = moved / size * size;
            if whole > acked {
                acked = whole;
                self.write(&acked.to_le_bytes(), wait)?;
            }
        }
        Ok(())
    }

    fn retry<T>(
        &mut self,
        wait: WaitMode,
        flags: PollFlags,
        mut call: impl FnMut(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut since, mut turns) = (None, 0u32);
        loop {
            match call(&mut self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => {
                    self.calls = self.calls.wrapping_add(1);
                    if self.calls.is_multiple_of(GLANCE) {
                        self.patience.moved()?;
                    }
                    return other;
                }
            }
            let sleep = match wait {
                WaitMode::Spin => false,
                WaitMode::Sleep => true,
                WaitMode::Adaptive => since.get_or_insert_with(Instant::now).elapsed() >= SPIN,
            };
            turns = turns.wrapping_add(1);
            if sleep {
                match poll(&mut [PollFd::new(&self.stream, flags)], Some(&NAP)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => self.patience.check()?,
                    Err(errno) => return Err(errno.into()),
                }
            } else if turns.is_multiple_of(LOOK) {
                self.patience.check()?;
            }
        }
    }
}

/// The end of the stream is an error here.
fn some(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => other,
    }
}

/// Nothing at the moment is nothing.
fn maybe(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}
