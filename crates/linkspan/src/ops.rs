//! Operations from their call to their report: what waits to be posted, what is under way, what is done.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Cancel, ChannelError, MemSlice, OpError, RemoteSlice, Ticket};
use linkspan_proto::head::EAGER_MAX;

use crate::hello::{Refused, is_refused};
use crate::memory::Hold;
use crate::stats::TransportStats;

mod kept;
mod path;
mod waits;

pub(crate) use path::Path;
use path::Posted;

/// Parts of one batch in flight at a time: what a rail alone has in flight, which leaves an eighth of a connection's operations to others.
const WINDOW: usize = 448;

/// Names an operation until its report was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpId {
    index: u32,
    generation: u32,
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Read,
    Send(u32),
    Recv(u32),
    /// Waits for a notification.
    Wait,
    /// Waits for a peer.
    Connect,
}

/// One piece of memory here and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) local: MemSlice,
    pub(crate) remote: RemoteSlice,
}

/// A notification to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    pub(crate) value: u64,
    pub(crate) fence: bool,
}

impl Notify {
    /// Counts only; its value is 0.
    pub const COUNT: Notify = Notify { value: 0, fence: false };

    /// A notification with this value.
    pub const fn value(value: u64) -> Notify {
        Notify { value, fence: false }
    }

    /// Covers all earlier writes of this transport too, not only its own.
    #[must_use]
    pub const fn fenced(self) -> Notify {
        Notify { fence: true, ..self }
    }
}

/// A notification that has left its path, behind its number there.
pub(crate) type Numbered = (u64, u64);

/// Why an operation failed, as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    Timeout,
    Unrevoked,
    Aborted,
    Broken,
    Interrupted,
    /// The state knows why.
    Connect,
    Op(OpError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// The notification, if any, goes with the one part.
    None,
    /// It is to follow in an empty write of its own.
    Due,
    Posted,
}

struct Op {
    generation: u32,
    live: bool,
    kind: Kind,
    seq: u64,
    parts: Vec<Part>,
    /// Parts posted; parts that have reported.
    next: usize,
    done: usize,
    window: VecDeque<Ticket>,
    bytes: u64,
    notify: Option<Notify>,
    tail: Tail,
    /// A notification of it was given to the connection.
    emitted: bool,
    hold: Option<Hold>,
    holds: Vec<Hold>,
    deadline: Option<Instant>,
    /// Its time, until the clock was looked at and the deadline is known.
    timeout: Option<Duration>,
    /// Something of it was given to a path whose end the peer has not confirmed, and not taken back before it left.
    touched: bool,
    /// Its time was up while it was under way.
    expired: bool,
    /// The report will not be taken.
    detached: bool,
    fail: Option<OpError>,
    result: Option<Result<u64, Fail>>,
    waker: Option<Waker>,
}

/// What is to be done once the lock is open.
#[derive(Default)]
pub(crate) struct Leftovers {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) holds: Vec<Hold>,
}

impl Leftovers {
    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.holds.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct Ops {
    table: Vec<Op>,
    free: Vec<u32>,
    next_seq: u64,
    /// Not yet posted to the end, in order.
    unposted: VecDeque<OpId>,
    /// Receives that the connection has not taken: apart, because the sends before them may wait for what they take away.
    receives: VecDeque<OpId>,
    /// Posted, at least in part, and not reported.
    active: VecDeque<OpId>,
    /// Those whose notification follows in a write of its own, in order.
    tails: VecDeque<OpId>,
    /// Those whose notification was given to the connection, in that order, from the first that has not reported.
    emitted: VecDeque<OpId>,
    /// Notifications given to the connection before those.
    resolved: u64,
    waits: VecDeque<OpId>,
    /// Messages of paths that have ended.
    kept: VecDeque<kept::Kept>,
    /// No deadline is earlier.
    soonest: Option<Instant>,
    /// There may be operations whose deadline is not known yet.
    undated: bool,
    /// Reports since the last query.
    pub(crate) finished: u32,
    /// Unreported operations with a waker.
    pub(crate) woken_later: u32,
    stats: TransportStats,
    /// Operations that were done without the peer.
    pub(crate) alone: u32,
    /// Messages of the path have been reported as sent.
    pub(crate) sent: bool,
    pub(crate) left: Leftovers,
}

impl Ops {
    fn get(&self, id: OpId) -> Option<&Op> {
        self.table.get(id.index as usize).filter(|op| op.live && op.generation == id.generation)
    }

    fn open(&mut self, id: OpId) -> Option<&mut Op> {
        let op = self.table.get_mut(id.index as usize)?;
        (op.live && op.generation == id.generation && op.result.is_none()).then_some(op)
    }

    fn is_open(&self, id: OpId) -> bool {
        self.get(id).is_some_and(|op| op.result.is_none())
    }

    /// A new operation, without parts yet.
    pub(crate) fn start(&mut self, kind: Kind, notify: Option<Notify>, deadline: Option<Instant>) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Op {
                generation: 1,
                live: false,
                kind,
                seq: 0,
                parts: Vec::with_capacity(1),
                next: 0,
                done: 0,
                window: VecDeque::with_capacity(2),
                bytes: 0,
                notify: None,
                tail: Tail::None,
                emitted: false,
                hold: None,
                holds: Vec::new(),
                deadline: None,
                timeout: None,
                touched: false,
                expired: false,
                detached: false,
                fail: None,
                result: None,
                waker: None,
            });
            self.table.len() as u32 - 1
        });
        let seq = self.next_seq;
        self.next_seq += 1;
        let op = &mut self.table[index as usize];
        op.live = true;
        op.kind = kind;
        op.seq = seq;
        op.next = 0;
        op.done = 0;
        op.bytes = 0;
        op.notify = notify;
        op.tail = Tail::None;
        op.emitted = false;
        op.deadline = deadline;
        op.timeout = None;
        op.touched = false;
        op.expired = false;
        op.detached = false;
        op.fail = None;
        op.result = None;
        let id = OpId { index, generation: op.generation };
        if let Some(deadline) = deadline {
            self.soonest = Some(self.soonest.map_or(deadline, |s| s.min(deadline)));
        }
        id
    }

    /// As [`Ops::start`], with a time that begins at the next reading of the clock: the driving thread reads it every
    /// few steps, so that is microseconds later, and an operation that is done by then never asks for the time.
    #[inline]
    pub(crate) fn start_within(&mut self, kind: Kind, notify: Option<Notify>, timeout: Option<Duration>) -> OpId {
        let id = self.start(kind, notify, None);
        if timeout.is_some() {
            self.table[id.index as usize].timeout = timeout;
            self.undated = true;
        }
        id
    }

    /// Gives those a deadline that have none yet.
    pub(crate) fn date(&mut self, now: Instant) {
        if !std::mem::take(&mut self.undated) {
            return;
        }
        for op in self.table.iter_mut().filter(|op| op.live && op.result.is_none()) {
            // A time beyond what the clock can tell is none.
            let Some(deadline) = op.timeout.take().and_then(|timeout| now.checked_add(timeout)) else { continue };
            op.deadline = Some(deadline);
            self.soonest = Some(self.soonest.map_or(deadline, |s| s.min(deadline)));
        }
    }

    /// Gives a new operation its one part.
    pub(crate) fn part(&mut self, id: OpId, part: Part, hold: Hold) {
        if let Some(op) = self.open(id) {
            op.parts.push(part);
            op.hold = Some(hold);
        }
    }

    /// Gives a new operation its parts. Neighbours on both sides become one, and memory is held once for parts in a row.
    pub(crate) fn parts(&mut self, id: OpId, parts: impl Iterator<Item = (Part, Hold)>) {
        let Some(op) = self.open(id) else { return };
        for (part, hold) in parts {
            let same = op.holds.last().is_some_and(|last| last.is_same(&hold));
            if same && let Some(last) = op.parts.last_mut() {
                let end = last.remote.offset.checked_add(last.local.len() as u64);
                let next = last.remote.key == part.remote.key && end == Some(part.remote.offset);
                if next && let Some(joined) = hold.joined(last.local, part.local) {
                    last.local = joined;
                    continue;
                }
            }
            op.parts.push(part);
            if !same {
                op.holds.push(hold);
            }
        }
    }

    /// What has reported, and how much has not.
    pub(crate) fn stats(&self) -> TransportStats {
        let pending = self.table.iter().filter(|op| op.live && op.result.is_none()).count() as u64;
        TransportStats { pending, ..self.stats }
    }

    /// The operation is complete and waits for its turn.
    pub(crate) fn submit(&mut self, id: OpId) {
        match self.get(id).map(|op| op.kind) {
            Some(Kind::Wait) => {
                // Those that timed out behind one that waits forever.
                if self.waits.len() >= 64 && self.waits.len().is_power_of_two() {
                    let mut waits = std::mem::take(&mut self.waits);
                    waits.retain(|&id| self.is_open(id));
                    self.waits = waits;
                }
                self.waits.push_back(id);
            }
            Some(Kind::Connect) | None => {}
            Some(Kind::Recv(_)) => self.receives.push_back(id),
            _ => self.unposted.push_back(id),
        }
    }

    /// Reports an operation.
    pub(crate) fn finish(&mut self, id: OpId, result: Result<u64, Fail>) {
        let Some(op) = self.open(id) else { return };
        op.result = Some(result);
        let kind = op.kind;
        let waker = op.waker.take();
        let detached = op.detached;
        self.stats.count(kind, result);
        self.finished += 1;
        if let Some(waker) = waker {
            self.woken_later -= 1;
            self.left.wakers.push(waker);
        }
        if detached {
            self.release(id);
        }
    }

    fn release(&mut self, id: OpId) {
        let Some(op) = self.table.get_mut(id.index as usize).filter(|op| op.live && op.generation == id.generation)
        else {
            return;
        };
        op.live = false;
        op.generation = op.generation.wrapping_add(1);
        op.parts.clear();
        op.window.clear();
        if op.waker.take().is_some() {
            self.woken_later -= 1;
        }
        self.left.holds.extend(op.hold.take());
        self.left.holds.append(&mut op.holds);
        self.free.push(id.index);
    }

    /// Whether it waits for something of the peer's.
    #[inline]
    pub(crate) fn is_arrival(&self, id: OpId) -> bool {
        self.get(id).is_some_and(|op| matches!(op.kind, Kind::Wait | Kind::Recv(_)))
    }

    /// Whether the report is there.
    #[inline]
    pub(crate) fn is_reported(&self, id: OpId) -> bool {
        self.get(id).is_none_or(|op| op.result.is_some())
    }

    /// The report of an operation; after it the operation is gone.
    #[inline]
    pub(crate) fn take(&mut self, id: OpId) -> Option<(Result<u64, Fail>, Option<Hold>)> {
        let result = self.get(id)?.result?;
        // Dropped by the caller, once the lock is open: the end of memory may be anything.
        let hold = self.table[id.index as usize].hold.take();
        self.release(id);
        Some((result, hold))
    }

    /// Keeps a waker for the report.
    pub(crate) fn wake_by(&mut self, id: OpId, waker: &Waker) {
        let Some(op) = self.open(id) else { return };
        match &mut op.waker {
            Some(old) => old.clone_from(waker),
            none => {
                *none = Some(waker.clone());
                self.woken_later += 1;
            }
        }
    }

    /// Takes a message back that the connection holds until its receive is posted. True: it is as if the path had never seen it.
    fn withdraw(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        let Some(op) = self.open(id).filter(|op| matches!(op.kind, Kind::Send(_))) else { return false };
        while op.window.back().is_some_and(|&last| ch.cancel(last) == Cancel::Withdrawn) {
            op.window.pop_back();
            op.next -= 1;
        }
        op.touched = op.next > 0;
        !op.touched
    }

    /// Takes every message back that can be: the path is about to end, and they are to go over the next one.
    pub(crate) fn withdraw_all(&mut self, ch: &mut impl Path) {
        for at in 0..self.active.len() {
            self.withdraw(self.active[at], ch);
        }
    }

    /// The report will not be taken any more. Returns a notification that had been given to it, and whether the connection
    /// still uses its memory.
    pub(crate) fn forget(&mut self, id: OpId, ch: Option<&mut impl Path>) -> (Option<Numbered>, bool) {
        if let Some(ch) = ch {
            self.withdraw(id, ch);
        }
        let Some(op) = self.get(id) else { return (None, false) };
        if op.result.is_some() {
            let unread = self.given(id);
            self.release(id);
            return (unread, false);
        }
        if matches!(op.kind, Kind::Wait | Kind::Connect) || !op.touched {
            self.release(id);
            return (None, false);
        }
        // Small writes were copied when they were posted, small messages when they left.
        let small = |p: &Part| p.local.len() <= EAGER_MAX;
        let copied = matches!(op.kind, Kind::Write | Kind::Send(_)) && op.parts.iter().all(small);
        let posted = op.next == op.parts.len();
        if copied && posted {
            if let Some(op) = self.open(id) {
                op.detached = true;
                if op.waker.take().is_some() {
                    self.woken_later -= 1;
                }
            }
            return (None, false);
        }
        (None, true)
    }

    /// Whether a write before `seq` is not done.
    fn earlier_open(&self, seq: u64) -> bool {
        let open =
            |&id: &OpId| self.get(id).is_some_and(|op| op.kind == Kind::Write && op.result.is_none() && op.seq < seq);
        self.active.iter().any(open) || self.unposted.iter().any(open)
    }

    /// Gives the connection what it takes.
    pub(crate) fn pump(&mut self, ch: &mut impl Path) {
        while let Some(&id) = self.receives.front() {
            if !self.take_up(id, ch) {
                break;
            }
            self.receives.pop_front();
        }
        while let Some(&id) = self.unposted.front() {
            if !self.take_up(id, ch) {
                break;
            }
            self.unposted.pop_front();
        }
        while let Some(&id) = self.tails.front() {
            if !self.post_tail(id, ch) {
                break;
            }
            self.tails.pop_front();
        }
    }

    /// True: the operation waits no longer to be posted.
    fn take_up(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        if !self.is_open(id) {
            return true;
        }
        if self.copy_alone(id, ch) {
            return true;
        }
        self.begin(id);
        let before = self.table[id.index as usize].next;
        let all = self.post(id, ch);
        if all || self.table[id.index as usize].next > before {
            self.touch(id);
        }
        all
    }

    /// Whether something waits for the connection to take it.
    #[inline]
    pub(crate) fn has_unposted(&self) -> bool {
        !self.unposted.is_empty() || !self.receives.is_empty() || !self.tails.is_empty()
    }

    /// Decides how the notification of an operation goes of which nothing was given to the path yet.
    fn begin(&mut self, id: OpId) {
        let Some(op) = self.get(id).filter(|op| !op.touched) else { return };
        let (alone, seq) = (op.parts.len() == 1 && op.next == 0, op.seq);
        let follows = op
            .notify
            .is_some_and(|notify| !alone || !self.tails.is_empty() || (notify.fence && self.earlier_open(seq)));
        self.table[id.index as usize].tail = if follows { Tail::Due } else { Tail::None };
    }

    /// The path has been given something of it.
    fn touch(&mut self, id: OpId) {
        let op = &mut self.table[id.index as usize];
        if std::mem::replace(&mut op.touched, true) {
            return;
        }
        if op.tail == Tail::Due {
            self.tails.push_back(id);
        }
        self.active.push_back(id);
    }

    /// Posts parts of the operation. False: not all of them.
    fn post(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        let op = &mut self.table[id.index as usize];
        while op.next < op.parts.len() && op.fail.is_none() && !op.expired {
            if op.window.len() >= WINDOW {
                return false;
            }
            let Part { local, remote } = op.parts[op.next];
            // Pages that lie anywhere begin with a wait for memory each; so the next one's is over by then.
            if let (Kind::Write, Some(after)) = (op.kind, op.parts.get(op.next + 1)) {
                after.local.fetch_ahead();
            }
            let notify = op.notify.filter(|_| op.tail == Tail::None);
            let posted = posting(ch, |ch| match op.kind {
                Kind::Write => ch.post_write(local, remote, notify.map(|n| n.value)),
                Kind::Read => ch.post_read(local, remote),
                Kind::Send(tag) => ch.post_send(tag, local),
                Kind::Recv(tag) => ch.post_recv(tag, local),
                Kind::Wait | Kind::Connect => Ok(None),
            });
            match posted {
                Ok(Some(ticket)) => {
                    op.window.push_back(ticket);
                    op.next += 1;
                    if notify.is_some() {
                        op.emitted = true;
                        self.emitted.push_back(id);
                    }
                }
                Ok(None) | Err(ChannelError::Lost | ChannelError::Closed) => return false,
                Err(ChannelError::Op(error)) => op.fail = Some(error),
                Err(_) => return false,
            }
        }
        true
    }

    /// Posts the notification that follows an operation. False: not yet.
    fn post_tail(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        let Some(op) = self.get(id).filter(|op| op.result.is_none() && op.fail.is_none() && !op.expired) else {
            return true;
        };
        let Some((notify, last)) = op.notify.zip(op.parts.last().copied()) else { return true };
        if op.next < op.parts.len() || !op.window.is_empty() || (notify.fence && self.earlier_open(op.seq)) {
            return false;
        }
        let nothing = MemSlice::EMPTY;
        match posting(ch, |ch| ch.post_write(nothing, last.remote, Some(notify.value))) {
            Ok(Some(ticket)) => {
                let op = &mut self.table[id.index as usize];
                op.window.push_back(ticket);
                op.tail = Tail::Posted;
                op.emitted = true;
                self.emitted.push_back(id);
                true
            }
            Err(ChannelError::Op(error)) => {
                self.table[id.index as usize].fail = Some(error);
                true
            }
            _ => false,
        }
    }

    /// Reports what is done.
    pub(crate) fn reap(&mut self, ch: &mut impl Path) {
        let mut at = 0;
        while let Some(&id) = self.active.get(at) {
            if self.reap_one(id, ch) {
                self.active.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// True: the operation has reported.
    fn reap_one(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        let Some(op) = self.open(id) else { return true };
        while let Some(&ticket) = op.window.front() {
            match ch.test(ticket) {
                Ok(Some(bytes)) => op.bytes += bytes,
                Ok(None) => break,
                Err(ChannelError::Op(error)) => {
                    op.fail.get_or_insert(error);
                }
                Err(_) => break,
            }
            op.window.pop_front();
            op.done += 1;
        }
        let through = op.next == op.parts.len() && op.tail != Tail::Due;
        if !op.window.is_empty() || !(through || op.fail.is_some()) {
            return false;
        }
        let result = match op.fail {
            None => Ok(op.bytes),
            Some(error) => Err(Fail::Op(error)),
        };
        let sent = matches!(op.kind, Kind::Send(_)) && result.is_ok();
        // The connection drops the notification of a large write that was refused, and of one whose memory could not be read; that of a
        // small one that has left follows in its turn.
        let alone = op.parts.len() == 1 && op.tail == Tail::None;
        let dropped = alone && (op.parts[0].local.len() > EAGER_MAX || op.fail == Some(OpError::Memory));
        if op.emitted && op.fail.is_some() && dropped {
            self.emitted.retain(|&e| e != id);
        }
        self.sent |= sent;
        self.finish(id, result);
        while self.emitted.front().is_some_and(|&id| !self.is_open(id)) {
            self.emitted.pop_front();
            self.resolved += 1;
        }
        true
    }

    /// The peer has confirmed that nothing of the old path lands any more, and that `seen` notifications of it had come, some of
    /// them of writes that it refused: reports what is decided by that, and queues the rest again, in order.
    pub(crate) fn relink(&mut self, seen: u64, refused: &Refused) {
        let emitted = std::mem::take(&mut self.emitted);
        for (number, &id) in (self.resolved..seen).zip(&emitted) {
            let Some(op) = self.open(id) else { continue };
            let bytes = op.parts.iter().map(|p| p.local.len() as u64).sum();
            let key = op.parts.last().map_or(0, |p| p.remote.key);
            let result =
                if is_refused(refused, number) { Err(Fail::Op(OpError::RemoteAccess { key })) } else { Ok(bytes) };
            self.finish(id, result);
        }
        self.resolved = 0;
        self.tails.clear();
        let mut again: Vec<(u64, OpId)> = Vec::new();
        let (active, unposted) = (std::mem::take(&mut self.active), std::mem::take(&mut self.unposted));
        for id in active.into_iter().chain(unposted).chain(std::mem::take(&mut self.receives)) {
            let Some(op) = self.open(id) else { continue };
            op.window.clear();
            op.next = op.done.min(op.parts.len());
            op.tail = Tail::None;
            op.emitted = false;
            let touched = std::mem::replace(&mut op.touched, false);
            let (seq, two_sided) = (op.seq, matches!(op.kind, Kind::Send(_) | Kind::Recv(_)));
            if op.expired {
                self.finish(id, Err(Fail::Timeout));
            } else if let Some(error) = op.fail {
                // Nothing more of it is posted, so no report over the new path would end it.
                self.finish(id, Err(Fail::Op(error)));
            } else if touched && two_sided {
                self.finish(id, Err(Fail::Interrupted));
            } else if op.detached {
                // Its memory is its owner's again; whether it has happened is not known.
                self.finish(id, Err(Fail::Aborted));
            } else if !again.contains(&(seq, id)) {
                again.push((seq, id));
            }
        }
        again.sort_unstable_by_key(|a| a.0);
        for (_, id) in again {
            let receive = self.get(id).is_some_and(|op| matches!(op.kind, Kind::Recv(_)));
            if receive { self.receives.push_back(id) } else { self.unposted.push_back(id) }
        }
    }

    /// Looks for operations whose time is up. True: some of them are under way, and their path must be revoked. Messages that
    /// `ch` only holds for their receives are not.
    pub(crate) fn expire(&mut self, now: Instant, mut ch: Option<&mut impl Path>) -> bool {
        self.date(now);
        if self.soonest.is_none_or(|s| s > now) {
            return false;
        }
        let (mut under_way, mut soonest) = (false, None::<Instant>);
        for index in 0..self.table.len() {
            let op = &mut self.table[index];
            let Some(deadline) = op.deadline.filter(|_| op.live && op.result.is_none() && !op.expired) else {
                continue;
            };
            if deadline > now {
                soonest = Some(soonest.map_or(deadline, |s| s.min(deadline)));
                continue;
            }
            let id = OpId { index: index as u32, generation: op.generation };
            let (kind, touched) = (op.kind, op.touched);
            let withdrawn = touched && ch.as_mut().is_some_and(|ch| self.withdraw(id, *ch));
            match kind {
                Kind::Connect => self.finish(id, Err(Fail::Connect)),
                _ if touched && !withdrawn => {
                    self.table[index].expired = true;
                    under_way = true;
                }
                _ => self.finish(id, Err(Fail::Timeout)),
            }
        }
        self.soonest = soonest;
        under_way
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.soonest
    }

    /// Whether an expired operation waits for the peer to confirm.
    pub(crate) fn has_expired(&self) -> bool {
        self.table.iter().any(|op| op.live && op.expired && op.result.is_none())
    }

    /// Whether a path carries anything that has not reported.
    pub(crate) fn is_under_way(&self) -> bool {
        self.active.iter().any(|&id| self.get(id).is_some_and(|op| op.touched && op.result.is_none()))
    }

    /// Ends every operation that `which` names.
    pub(crate) fn end(&mut self, fail: Fail, which: impl Fn(Ending) -> bool) {
        for index in 0..self.table.len() {
            let op = &self.table[index];
            let ending = Ending { expired: op.expired, connect: op.kind == Kind::Connect };
            if op.live && op.result.is_none() && which(ending) {
                let id = OpId { index: index as u32, generation: op.generation };
                self.finish(id, Err(fail));
            }
        }
    }

    /// Ends one operation that the connection no longer knows.
    pub(crate) fn drop_now(&mut self, id: OpId) {
        self.release(id);
    }
}

/// What [`Ops::end`] asks after.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) expired: bool,
    pub(crate) connect: bool,
}

/// Posts, past errors of earlier messages: that an eager message met too small a receive is reported to the next
/// caller, and the receiver knows it.
#[inline]
fn posting<P: Path>(ch: &mut P, post: impl FnOnce(&mut P) -> Posted) -> Posted {
    while ch.late_error().is_some() {}
    post(ch)
}

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;
