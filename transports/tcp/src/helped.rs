//! A rail whose socket is served by a helper thread.
//!
//! The engine stays with the caller, the socket and all system calls that move bytes go to the thread. Between them
//! are bounded rings with one writer and one reader each: messages and heads to be sent one way, what has arrived the
//! other. Where a chunk goes only the engine knows, so the thread asks ([`WorkerEvent::Ask`]) and leaves the chunk in the
//! socket until the caller has answered; meanwhile it goes on sending. From then until [`WorkerEvent::Landed`], and from
//! [`HelpedRail::data`](Rail::data) until the item is taken, the memory is the thread's; a rail that is dropped waits
//! until the thread has let go of all of it.

mod queue;
mod slot;
mod worker;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use linkspan_net::TcpInfo;
use linkspan_proto::Head;
use linkspan_stream::health::{health, is_stalled};
use linkspan_transport::{Buf, Busy, Down, End, Health, MemSlice, Poll, Rail, RailInfo, Sink, Violation, WaitFd};
use rtrb::{Consumer, Producer};

use queue::{WorkerCommand, WorkerEvent, WorkerQueue};
use worker::Helper;
pub use worker::{HELPERS_MAX, Helpers};

/// Arrivals handed on by one poll: bounds the time until the caller gets to its other rails.
const POLL_MOST: usize = 256;

/// Turns of waiting for the thread's answer before the caller yields its processor, and then sleeps.
const SPIN_TURNS: u32 = 1000;
const YIELD_TURNS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// A rail over one TCP stream that a helper thread serves; [`Helpers::take`] makes it.
pub struct HelpedRail {
    info: RailInfo,
    queue: Arc<WorkerQueue>,
    helper: Arc<Helper>,
    posts: Producer<WorkerCommand>,
    bodies: Producer<u8>,
    answers: Producer<Option<MemSlice>>,
    arrivals: Consumer<WorkerEvent>,
    texts: Consumer<u8>,
    /// A message's text that lies around the end of its ring.
    whole: Vec<u8>,
    /// The stream, to ask the kernel about it.
    probe: Option<OwnedFd>,
    accepted: u64,
    /// What had been taken at the last poll.
    seen: u64,
    /// Something was posted that the thread was not told of.
    posted: bool,
    armed: bool,
    end: Option<End>,
    /// The process that the thread belongs to: a fork has none.
    process: u32,
}

impl HelpedRail {
    /// What the kernel knows of the stream, for statistics. A system call.
    ///
    /// # Errors
    /// The error of `getsockopt(TCP_INFO)`.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        match &self.probe {
            Some(socket) => linkspan_net::tcp_info(socket.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Waits for the thread's answer, or for its end.
    fn wait_until(&self, done: impl Fn(&WorkerQueue) -> bool) {
        let mut turns = 0;
        while !done(&self.queue) && !self.queue.gone.load(Acquire) {
            match turns {
                ..SPIN_TURNS => std::hint::spin_loop(),
                SPIN_TURNS..YIELD_TURNS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            turns = turns.saturating_add(1);
        }
    }

    fn ended(&mut self, end: End) -> Down {
        let down = end.down(&self.info.path);
        self.end = Some(end);
        down
    }

    fn push(&mut self, post: WorkerCommand) -> Result<u64, Busy> {
        self.posts.push(post).map_err(|_| Busy)?;
        self.posted = true;
        self.accepted += 1;
        Ok(self.accepted)
    }

    fn hand_on(&mut self, arrival: WorkerEvent, sink: &mut dyn Sink) -> Result<(), End> {
        let told = |v: Violation| End::Protocol(v.0);
        match arrival {
            WorkerEvent::Ctrl(head) => {
                let len = head.len.get() as usize;
                let lost = |_| End::Protocol("the helper thread lost a message's text".into());
                let chunk = self.texts.read_chunk(len).map_err(lost)?;
                let answer = match chunk.as_slices() {
                    (text, []) => sink.ctrl(&head, text),
                    (first, then) => {
                        self.whole.clear();
                        self.whole.extend_from_slice(first);
                        self.whole.extend_from_slice(then);
                        sink.ctrl(&head, &self.whole)
                    }
                };
                chunk.commit_all();
                answer.map_err(told)
            }
            WorkerEvent::Ask(head) => {
                let place = sink.place(&head).map_err(told)?;
                // One question at a time, and space for one answer.
                self.answers.push(place).map_err(|_| End::Protocol("the helper thread asked twice".into()))
            }
            WorkerEvent::Landed(head) => sink.landed(&head).map_err(told),
            WorkerEvent::End(end) => Err(end),
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: handles go through rings to the helper thread, which has a rail of its own; the drop of this one waits until that one is dropped.
unsafe impl Rail for HelpedRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        let len = body.len();
        debug_assert!(head.len.get() as usize == len);
        if self.posts.is_full() {
            return Err(Busy);
        }
        if len > 0 {
            let mut chunk = self.bodies.write_chunk(len).map_err(|_| Busy)?;
            let (first, then) = chunk.as_mut_slices();
            let inside = body.read(0, first) && body.read(first.len() as u64, then);
            debug_assert!(inside);
            chunk.commit_all();
        }
        self.push(WorkerCommand::Ctrl(*head))
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert!(head.len.get() as usize == src.len());
        self.push(WorkerCommand::Data(*head, src))
    }

    fn taken(&self) -> u64 {
        self.queue.taken.load(Acquire)
    }

    /// Never fails: the end comes behind what arrived before it, from `poll`.
    fn flush(&mut self) -> Result<Poll, Down> {
        if !std::mem::take(&mut self.posted) {
            return Ok(Poll::Idle);
        }
        self.helper.shared.notify();
        Ok(Poll::Active)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        if std::mem::take(&mut self.armed) {
            self.queue.caller.awake();
        }
        if let Some(end) = &self.end {
            return Err(end.down(&self.info.path));
        }
        let taken = self.taken();
        let left = std::mem::replace(&mut self.seen, taken) != taken;
        let mut n = 0;
        while n < POLL_MOST
            && let Ok(arrival) = self.arrivals.pop()
        {
            n += 1;
            self.hand_on(arrival, sink).map_err(|end| self.ended(end))?;
        }
        if n > 0 {
            // It may wait for an answer, or for space.
            self.helper.shared.notify();
        } else if self.queue.gone.load(Acquire) && self.arrivals.is_empty() {
            return Err(self.ended(End::Gone("its helper thread has ended".into())));
        }
        Ok(if n > 0 || left { Poll::Active } else { Poll::Idle })
    }

    fn stalled(&mut self) -> bool {
        self.tcp_info().is_ok_and(|info| is_stalled(&info))
    }

    fn health(&self) -> Health {
        self.tcp_info().map_or_else(|_| Health::default(), |info| health(&info))
    }

    /// Has the thread look at the socket, and waits until all that was there has arrived here or waits for a poll. It takes
    /// a few turns of the thread, none of which blocks.
    fn catch_up(&mut self) {
        if self.process == std::process::id() {
            let number = self.queue.look.load(Relaxed) + 1;
            self.queue.look.store(number, Release);
            self.helper.shared.notify();
            self.wait_until(|queue| queue.looked.load(Acquire) == number);
        }
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.queue.caller.arm();
        self.armed = true;
        let work = self.end.is_some()
            || !self.arrivals.is_empty()
            || self.taken() != self.seen
            || self.queue.gone.load(Acquire);
        (!work).then(|| self.queue.caller.wait_fd())
    }
}

impl Drop for HelpedRail {
    fn drop(&mut self) {
        // The thread's descriptor is then the last one: closing it is closing the stream.
        self.probe = None;
        if self.process != std::process::id() {
            return;
        }
        self.queue.stop.store(true, Release);
        self.helper.shared.notify();
        self.wait_until(|_| false);
    }
}
