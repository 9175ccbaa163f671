//! One rail on its helper thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use linkspan_proto::head::EAGER_MAX;
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, End, HostBuf, MemSlice, Poll, Rail, Sink, Violation, WaitFd};
use rtrb::{Consumer, Producer};

use super::queue::{WorkerCommand, WorkerEvent, WorkerQueue};
use crate::TcpRail;

/// Rounds in which what was accepted before the end still goes to the socket: a GOAWAY behind a few chunks.
const LAST_ROUNDS: usize = 8;

/// A rail as its thread drives it.
pub(crate) struct WorkerSlot {
    rail: Option<TcpRail>,
    queue: Arc<WorkerQueue>,
    posts: Consumer<WorkerCommand>,
    bodies: Consumer<u8>,
    /// The body that is being handed to the rail.
    body: HostBuf,
    /// The rail takes no further post at the moment.
    full: bool,
    /// What the caller was told of items taken.
    told: u64,
    /// The last look that was answered.
    looked: u64,
    out: Out,
    end: Ending,
}

enum Ending {
    Open,
    /// To be told to the caller.
    Found(End),
    Told,
}

/// What a turn came to.
#[derive(PartialEq, Eq)]
pub(crate) enum Turn {
    Active,
    Idle,
    /// The rail is being dropped: so must this be.
    Over,
}

/// The way to the caller.
struct Out {
    arrivals: Producer<WorkerEvent>,
    texts: Producer<u8>,
    answers: Consumer<Option<MemSlice>>,
    /// An answer is owed to us.
    asked: bool,
    /// The next message waits.
    waits: bool,
    /// Something was told since the caller's doorbell was looked at.
    told: bool,
}

impl Out {
    fn tell(&mut self, arrival: WorkerEvent) -> Result<(), Violation> {
        self.told = true;
        // `ready` has seen the free space; only this thread fills it.
        self.arrivals.push(arrival).map_err(|_| Violation("no space for what has arrived".into()))
    }

    /// Space for the next message, whichever it is: a chunk's question and its landing, or a text of full length.
    fn has_space(&self) -> bool {
        self.arrivals.slots() >= 2 && self.texts.slots() >= EAGER_MAX
    }

    /// What the next message waits for has come.
    fn may_go_on(&self) -> bool {
        self.waits && if self.asked { !self.answers.is_empty() } else { self.has_space() }
    }
}

impl Sink for Out {
    /// Space here, and of a chunk the caller's answer, which is asked for once.
    fn ready(&mut self, head: &Head) -> bool {
        let ready = if Kind::from_u8(head.kind).is_some_and(Kind::is_payload) {
            self.asked = self.asked || (self.has_space() && self.tell(WorkerEvent::Ask(*head)).is_ok());
            self.asked && !self.answers.is_empty()
        } else {
            self.has_space()
        };
        self.waits = !ready;
        ready
    }

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.texts.push_entire_slice(payload).map_err(|_| Violation("no space for a message's text".into()))?;
        self.tell(WorkerEvent::Ctrl(*head))
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        self.asked = false;
        // `ready` has seen the answer; only this thread takes it.
        self.answers.pop().map_err(|_| Violation("no place for what has arrived".into()))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.tell(WorkerEvent::Landed(*head))
    }
}

/// The thread's ends of a rail's rings.
pub(crate) struct Ends {
    pub(crate) posts: Consumer<WorkerCommand>,
    pub(crate) bodies: Consumer<u8>,
    pub(crate) answers: Consumer<Option<MemSlice>>,
    pub(crate) arrivals: Producer<WorkerEvent>,
    pub(crate) texts: Producer<u8>,
}

impl WorkerSlot {
    pub(crate) fn new(rail: TcpRail, queue: Arc<WorkerQueue>, ends: Ends) -> WorkerSlot {
        let Ends { posts, bodies, answers, arrivals, texts } = ends;
        let out = Out { arrivals, texts, answers, asked: false, waits: false, told: false };
        let body = HostBuf::new(EAGER_MAX);
        WorkerSlot {
            rail: Some(rail),
            queue,
            posts,
            bodies,
            body,
            full: false,
            told: 0,
            looked: 0,
            out,
            end: Ending::Open,
        }
    }

    /// Takes the rail back from a slot that no thread has got.
    pub(crate) fn vacate(&mut self) -> Option<TcpRail> {
        self.rail.take()
    }

    /// Moves what can move, a bounded amount.
    pub(crate) fn turn(&mut self) -> Turn {
        if self.queue.stop.load(Acquire) {
            self.last_words();
            return Turn::Over;
        }
        let look = self.queue.look.load(Acquire);
        let mut active = false;
        if matches!(self.end, Ending::Open) {
            active = self.feed();
            if let Some(rail) = &mut self.rail {
                if self.out.may_go_on() || look != self.looked {
                    rail.catch_up();
                }
                let moved = rail.flush().and_then(|out| Ok((out, rail.take_in(&mut self.out)?)));
                active |= !matches!(moved, Ok((Poll::Idle, Poll::Idle)));
                let taken = rail.taken();
                if taken != self.told {
                    self.told = taken;
                    self.queue.taken.store(taken, Release);
                    self.out.told = true;
                }
                if moved.is_err() {
                    // A rail that fails always says why, again and again.
                    let end = rail.end().cloned();
                    self.end = Ending::Found(end.unwrap_or_else(|| End::Gone("end of stream".into())));
                }
            }
        }
        active |= self.tell_end();
        // Answered when all that was there has been told, or waits for the caller.
        if look != self.looked && !active {
            self.looked = look;
            self.queue.looked.store(look, Release);
        }
        if std::mem::take(&mut self.out.told) {
            self.queue.caller.notify();
        }
        if active { Turn::Active } else { Turn::Idle }
    }

    fn tell_end(&mut self) -> bool {
        if !matches!(self.end, Ending::Found(_)) || self.out.arrivals.is_full() {
            return false;
        }
        if let Ending::Found(end) = std::mem::replace(&mut self.end, Ending::Told) {
            let pushed = self.out.tell(WorkerEvent::End(end));
            debug_assert!(pushed.is_ok());
        }
        true
    }

    /// Hands posts to the rail as far as it takes them.
    fn feed(&mut self) -> bool {
        let Some(rail) = &mut self.rail else { return false };
        let mut any = false;
        self.full = false;
        while let Ok(post) = self.posts.peek() {
            let answer = match post {
                WorkerCommand::Data(head, src) => rail.data(head, *src),
                WorkerCommand::Ctrl(head) => {
                    let len = head.len.get();
                    // The caller has put the whole body there before the post.
                    let Ok(chunk) = self.bodies.read_chunk(len as usize) else { break };
                    let (first, then) = chunk.as_slices();
                    let fits = self.body.fill(0, first) && self.body.fill(first.len() as u64, then);
                    debug_assert!(fits);
                    #[allow(unsafe_code)]
                    // SAFETY: a body is read within the call.
                    let all = unsafe { self.body.slice() };
                    let answer = rail.ctrl(head, all.sub(0, len.into()).unwrap_or(MemSlice::EMPTY));
                    if answer.is_ok() {
                        chunk.commit_all();
                    }
                    answer
                }
            };
            if answer.is_err() {
                self.full = true;
                break;
            }
            let popped = self.posts.pop();
            debug_assert!(popped.is_ok());
            any = true;
        }
        any
    }

    /// What was accepted goes to the socket as far as that takes it now.
    fn last_words(&mut self) {
        for _ in 0..LAST_ROUNDS {
            let fed = self.feed();
            let left = self.rail.as_mut().is_some_and(|rail| matches!(rail.flush(), Ok(Poll::Active)));
            if !fed && !left {
                break;
            }
        }
    }

    /// Prepares for sleep: what to wait for beside the thread's own doorbell, if anything. Err: there is work.
    pub(crate) fn arm(&mut self) -> Result<Option<WaitFd>, ()> {
        if self.queue.stop.load(Acquire) || self.queue.look.load(Acquire) != self.looked {
            return Err(());
        }
        let Some(rail) = &mut self.rail else { return Ok(None) };
        match self.end {
            Ending::Open => {}
            Ending::Found(_) if !self.out.arrivals.is_full() => return Err(()),
            Ending::Found(_) | Ending::Told => return Ok(None),
        }
        if (!self.full && !self.posts.is_empty()) || self.out.may_go_on() {
            return Err(());
        }
        if self.out.waits { Ok(rail.arm_sending()) } else { rail.arm().map(Some).ok_or(()) }
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        drop(self.rail.take());
        self.queue.gone.store(true, Release);
        self.queue.caller.notify();
    }
}
