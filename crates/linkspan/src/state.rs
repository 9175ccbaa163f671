//! One transport: its path, its operations, and what happens to both when the path is lost or revoked.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{
    Cancel, Channel, ChannelError, Connecting, Gpu, HANDLE_LEN, HostBuf, PeerState, Poll, SILENCE, WaitFd, chain,
};
use linkspan_proto::login::{PublicKey, Secret};

use crate::acceptor::{Acceptor, PendingHello};
use crate::context::Context;
use crate::endpoint::{Events, Member};
use crate::hello::{HELLO_LEN, HELLO_TAG, Hello, PAST, Refused};
use crate::ops::{Ending, Fail, Numbered, OpId, Ops};
use crate::regions::{Numbers, Regions};
use crate::{Error, Url, View};

mod making;

pub(crate) use making::refused;

/// How long a path may take to be made again before the transport is broken, at least: as long as a revocation may.
const REMAKE: Duration = Duration::from_secs(10);

/// How much later than one side the other may find the path silent: keepalive takes 15 to 25 s.
const LATER: Duration = Duration::from_secs(10);

/// How long the side with the smaller number holds its own dialling against a peer that dials at the same time.
const PRECEDENCE: Duration = Duration::from_millis(300);

/// Time between two tries to dial.
const RECONNECT: Duration = Duration::from_millis(20);

/// Steps between two looks at the acceptor while a path is up: an idle step takes 0.1 us or more, so a peer that makes the path
/// again waits for less than a millisecond.
const ACCEPTOR_STEPS: u32 = 4096;

/// Least time between two looks at keepalive connection and acceptor after sleeps: they are system calls, and a call that slept is wanted back
/// at once. What woke the sleeper there is readable still, and found by the next look.
const CHECK_EVERY: Duration = Duration::from_millis(1);

/// What a blocking caller does with an arrival within this time is an answer to it. Longer than a network's round trip pays
/// nothing: the acknowledgement alone is there sooner.
const ANSWER: Duration = Duration::from_micros(20);

/// Answers in a row after which the next one is expected, and the acknowledgement left to it.
const HABIT: u8 = 4;

/// Why there is no path where no try has come to its end.
const TIME_UP: &str = "the time was up";

/// What is said of a peer that is dead.
const DEAD: &str = "the peer's process has ended";

/// Notifications kept over the end of a path; as many as a connection itself keeps.
const MAX_CARRY: usize = 64 << 10;

/// What ends a transport that would keep more.
const UNWAITED: &str = "the peer sent more notifications than were waited for";
const UNRECEIVED: &str = "more than 1 MiB of messages had not been received when their paths ended";

/// Where a peer is dialled.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) handle: Secret<HANDLE_LEN>,
    /// Number of the transport wanted; 0: whatever the listener makes.
    pub(crate) to: u64,
    /// The key that must be proven there.
    pub(crate) key: Option<PublicKey>,
}

pub(crate) enum Phase {
    /// No peer yet.
    Idle,
    /// A path is being made.
    Making(Making),
    Up(Box<Channel>),
    /// Permanently; why.
    Broken(Arc<str>),
}

impl Phase {
    /// The path that the peer may reach our regions over. One whose hello is awaited is such a path: the peer may use it before its
    /// hello has been read here.
    pub(crate) fn exposing(&mut self) -> Option<&mut Channel> {
        match self {
            Phase::Up(ch) => Some(ch),
            Phase::Making(Making { dial: Dial::Join(pending), .. }) => Some(&mut pending.channel),
            _ => None,
        }
    }
}

pub(crate) struct Making {
    dial: Dial,
    since: Instant,
    until: Instant,
    /// When expired operations report that they were not confirmed.
    revoke_by: Option<Instant>,
    /// What is known of the peer's process. One that seems to have ended and cannot be dialled is dead.
    peer: PeerState,
}

enum Dial {
    Off,
    At(Instant),
    Connecting(Box<Connecting>),
    /// The path is up; the peer's hello is awaited.
    Join(Box<PendingHello>),
}

/// Who drives a transport at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Nobody,
    Awake,
    Asleep,
}

pub(crate) struct TransportState {
    pub(crate) ctx: Context,
    pub(crate) device: usize,
    pub(crate) id: u64,
    pub(crate) peer: u64,
    /// Number of the endpoint that the peer belongs to; 0 without one.
    peer_endpoint: u64,
    /// The key that the peer has proven, in a login by key pairs; known as soon as `peer` is.
    peer_key: Option<PublicKey>,
    pub(crate) phase: Phase,
    pub(crate) ops: Ops,
    pub(crate) regions: Regions,
    /// What its endpoint exposes to all of its peers.
    pub(crate) shared_regions: Regions,
    /// The endpoint that it belongs to.
    pub(crate) member: Option<Box<Member>>,
    /// The endpoint is to be told that there may be an event.
    pub(crate) news: bool,
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    /// The listener it came in by, which must live as long as it does.
    pub(crate) accepting: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) url: Option<Url>,
    pub(crate) target: Option<Target>,
    /// The call whose first path is being made.
    pub(crate) dials_for: Option<OpId>,
    pub(crate) driver: Driver,
    /// The engine thread sleeps on this transport's descriptors.
    pub(crate) armed: bool,
    /// Threads that wait for the driver.
    pub(crate) followers: u32,
    /// The GPU whose memory every path carries.
    pub(crate) gpu: Option<Arc<dyn Gpu>>,
    /// Why the last try to connect failed.
    pub(crate) why: Arc<str>,
    /// Paths made so far.
    pub(crate) epoch: u32,
    /// The highest number that a path was dialled with. One that came to nothing here may be up at the peer, which takes none that is not newer.
    dialled: u32,
    /// The last paths on which notifications came or messages were sent. Of any other one a hello would say nothing that its absence does not,
    /// and some of them in a row, that the peer was never on, must not displace one that it was on.
    past: [(u32, u64, Refused); PAST],
    /// Of our control messages on each of these, how many the peer was known to have; the low half of their number.
    acked: [u32; PAST],
    /// The last path that ended here, and the peer's control messages that came on it.
    ended: (u32, u64),
    /// Notifications of paths that have ended or that were put back, by their numbers.
    pub(crate) carry: VecDeque<Numbered>,
    /// Notifications that have left their paths, which so are numbered.
    came: u64,
    steps: u32,
    checked: Instant,
    /// When its driver went to sleep, where it does.
    pub(crate) asleep: Instant,
    /// The engine thread does not look at it until its driver has left, and is woken then.
    pub(crate) left_alone: bool,
    /// How often its driver has slept.
    pub(crate) sleeps: u32,
    /// Arrivals in a row that the caller has answered at once.
    answers: u8,
    /// Receives are posted ahead: what has arrived is acknowledged with what is sent next, or when nothing more comes.
    pub(crate) ahead: bool,
    /// When the last arrival was handed to a caller.
    handed: Option<Instant>,
}

impl TransportState {
    pub(crate) fn new(ctx: &Context, device: usize, id: u64) -> TransportState {
        TransportState {
            ctx: ctx.clone(),
            device,
            id,
            peer: 0,
            peer_endpoint: 0,
            peer_key: None,
            phase: Phase::Idle,
            ops: Ops::default(),
            regions: Regions::new(Numbers::ALL),
            shared_regions: Regions::new(Numbers::OF_ENDPOINT),
            member: None,
            news: false,
            acceptor: None,
            accepting: None,
            url: None,
            target: None,
            dials_for: None,
            driver: Driver::Nobody,
            armed: false,
            followers: 0,
            gpu: None,
            why: Arc::from("no peer has connected"),
            epoch: 0,
            dialled: 0,
            past: Default::default(),
            acked: [0; PAST],
            ended: (0, 0),
            carry: VecDeque::new(),
            came: 0,
            steps: 0,
            checked: Instant::now(),
            asleep: Instant::now(),
            left_alone: false,
            sleeps: 0,
            answers: 0,
            ahead: false,
            handed: None,
        }
    }

    /// Makes it one of an endpoint's; before anything else.
    pub(crate) fn join(&mut self, member: Member) {
        self.regions = Regions::new(Numbers::OF_PEER);
        self.member = Some(Box::new(member));
    }

    /// The peer's transport and endpoint, as remote buffers name them.
    #[inline]
    pub(crate) fn peer_numbers(&self) -> (u64, u64) {
        (self.peer, self.peer_endpoint)
    }

    /// Whether the peer has proven this key.
    pub(crate) fn has_proven(&self, key: &PublicKey) -> bool {
        self.peer_key.as_ref() == Some(key)
    }

    pub(crate) fn channel(&mut self) -> Option<&mut Channel> {
        match &mut self.phase {
            Phase::Up(ch) => Some(ch),
            _ => None,
        }
    }

    /// Whether operations can be accepted.
    #[inline]
    pub(crate) fn ready(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::Up(_) => Ok(()),
            Phase::Broken(why) => Err(Error::Broken(why.clone())),
            // An operation waits while a path is made again.
            Phase::Making(_) if self.epoch > 0 => Ok(()),
            _ => Err(Error::NotConnected),
        }
    }

    /// Whether memory of this view can be carried.
    #[inline]
    pub(crate) fn carries(&self, view: &View<'_>) -> Result<(), Error> {
        match view.gpu() {
            None => Ok(()),
            Some(gpu) => self.carries_gpu(gpu),
        }
    }

    fn carries_gpu(&self, gpu: &Arc<dyn Gpu>) -> Result<(), Error> {
        if self.gpu.as_ref().is_some_and(|ours| ours.place() == gpu.place()) {
            return Ok(());
        }
        let carries = self.gpu.as_ref().map_or_else(|| "host memory only".to_owned(), |ours| ours.info().id());
        Err(Error::Device { memory: gpu.info().id(), carries })
    }

    /// Every path carries memory of this GPU from now on.
    pub(crate) fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), Error> {
        if self.gpu.is_some() {
            return self.carries_gpu(gpu);
        }
        if let Phase::Up(ch) = &mut self.phase {
            ch.attach(gpu)?;
        }
        self.gpu = Some(gpu.clone());
        Ok(())
    }

    /// Gives a new path what it is to carry.
    fn outfit(&self, ch: &mut Channel) -> Result<(), Arc<str>> {
        if let Some(gpu) = &self.gpu {
            ch.attach(gpu).map_err(|error| Arc::from(chain(&error)))?;
        }
        self.regions.give(ch);
        self.shared_regions.give(ch);
        Ok(())
    }

    pub(crate) fn error(&self, fail: Fail) -> Error {
        match fail {
            Fail::Timeout => Error::Timeout,
            Fail::Unrevoked => Error::TimedOutUnrevoked,
            Fail::Aborted => Error::Aborted,
            Fail::Interrupted => Error::Interrupted,
            Fail::Connect => Error::Connect(match &self.member {
                Some(member) if !self.is_over() => member.named(&self.why),
                _ => self.why.clone(),
            }),
            Fail::Op(error) => Error::Op(error),
            Fail::Broken => Error::Broken(match &self.phase {
                Phase::Broken(why) => why.clone(),
                _ => self.why.clone(),
            }),
        }
    }

    /// Hands what waits to the path.
    #[inline]
    pub(crate) fn pump(&mut self) {
        if let Phase::Up(ch) = &mut self.phase {
            self.ops.pump(&mut **ch);
        }
    }

    /// Gives notifications that are there to those who wait.
    pub(crate) fn deliver(&mut self) {
        while self.ops.has_wait() {
            match self.carry.pop_front().or_else(|| self.take_notify()) {
                Some((number, value)) => self.ops.notified(number, value),
                None => return,
            }
        }
        if self.member.is_some() {
            // One is enough to see: the others stay where they are bounded.
            if self.carry.is_empty()
                && let Some(there) = self.take_notify()
            {
                self.carry.push_back(there);
            }
            self.news |= !self.carry.is_empty();
        }
    }

    /// The next notification of the path, with its number.
    fn take_notify(&mut self) -> Option<Numbered> {
        let value = self.channel()?.take_notify()?;
        self.came += 1;
        Some((self.came, value))
    }

    /// There are news for the endpoint: its queue, if this does not stand in it.
    pub(crate) fn queue(&mut self) -> Option<Arc<Events>> {
        self.news = false;
        self.member.as_mut().and_then(|member| member.queue())
    }

    /// The oldest notification that no wait has taken.
    pub(crate) fn take_notification(&mut self) -> Option<u64> {
        let oldest = self.carry.pop_front();
        self.deliver();
        oldest.map(|(_, value)| value)
    }

    /// Whether notifications of an ended path wait to be taken.
    pub(crate) fn has_carry(&self) -> bool {
        !self.carry.is_empty()
    }

    /// Whether a message with this tag has come over a path that has ended. While a path is made it is not known which of them may be given out.
    pub(crate) fn has_kept(&self, tag: u32) -> bool {
        !matches!(self.phase, Phase::Making(_)) && self.ops.keeps(tag)
    }

    /// Puts a notification back that its waiter did not take, among those that came before and after it.
    pub(crate) fn give_back(&mut self, number: u64, value: u64) {
        let at = self.carry.partition_point(|there| there.0 < number);
        self.carry.insert(at, (number, value));
        self.deliver();
    }

    /// Moves everything that can move. True where something did.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let active = match &mut self.phase {
            Phase::Up(ch) => match driven(ch, self.answers == HABIT || self.ahead) {
                Ok(Poll::Idle) => {
                    // Space on the medium may come without an arrival.
                    if self.ops.has_unposted() {
                        self.ops.pump(&mut **ch);
                    }
                    false
                }
                // An error of a message that had reported.
                Ok(Poll::Active) | Err(ChannelError::Op(_)) => true,
                Err(_) => {
                    self.lost();
                    return true;
                }
            },
            Phase::Making(_) => return self.make(),
            Phase::Idle => return self.poll_acceptor(),
            Phase::Broken(_) => return false,
        };
        if active {
            self.settle();
        }
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(ACCEPTOR_STEPS) {
            self.poll_acceptor();
        }
        active
    }

    fn settle(&mut self) {
        if let Phase::Up(ch) = &mut self.phase {
            self.ops.reap(&mut **ch);
            self.ops.pump(&mut **ch);
        }
        self.settle_leaving();
        self.deliver();
    }

    fn any_leaving(&self) -> bool {
        self.regions.any_leaving() || self.shared_regions.any_leaving()
    }

    /// Lets go of regions that were taken back, where a path has nothing more to do with them.
    fn settle_leaving(&mut self) {
        if self.any_leaving()
            && let Phase::Up(ch) = &mut self.phase
        {
            self.regions.settle(Some(ch), &mut self.ops.left.holds);
            self.shared_regions.settle(Some(ch), &mut self.ops.left.holds);
        }
    }

    /// Looks at clocks: deadlines and the making of paths.
    pub(crate) fn expire(&mut self, now: Instant) {
        // A first path has the deadline of the call that makes it, which ends together with it: the next call begins anew.
        let overdue = self.epoch == 0 && matches!(&self.phase, Phase::Making(making) if now >= making.until);
        if overdue && !self.dials_on(now) {
            self.give_up(&self.overdue());
        }
        let ch = match &mut self.phase {
            Phase::Up(ch) => Some(&mut **ch),
            _ => None,
        };
        if self.ops.expire(now, ch) {
            let grace = self.grace();
            match &mut self.phase {
                Phase::Up(_) => self.revoke("an operation timed out", now),
                Phase::Making(making) => {
                    making.revoke_by.get_or_insert(now + grace);
                }
                _ => self.ops.end(Fail::Timeout, |op| op.expired),
            }
        }
    }

    /// See [`Ops::forget`].
    pub(crate) fn drop_op(&mut self, id: OpId) -> (Option<Numbered>, bool) {
        let ch = match &mut self.phase {
            Phase::Up(ch) => Some(&mut **ch),
            _ => None,
        };
        let forgotten = self.ops.forget(id, ch);
        let dialled = self.dials_for == Some(id) && self.epoch == 0 && matches!(self.phase, Phase::Making(_));
        if dialled && !self.dials_on(Instant::now()) {
            self.give_up("the call that connected was cancelled");
        }
        forgotten
    }

    /// A blocking call has got what arrived. A caller that answers at once, time and again, has the acknowledgement
    /// carried by the answer: a system call less on either side.
    #[inline]
    pub(crate) fn handed_over(&mut self) {
        if self.answers < HABIT {
            self.handed = Some(Instant::now());
        }
    }

    /// A blocking call sends something.
    #[inline]
    pub(crate) fn answering(&mut self) {
        if let Some(handed) = self.handed.take() {
            self.answers = if handed.elapsed() < ANSWER { self.answers + 1 } else { 0 };
        }
    }

    /// The path is driven by a caller that sends nothing: an answer that was expected has not come.
    #[inline]
    pub(crate) fn unanswered(&mut self) {
        if self.answers == HABIT && matches!(&self.phase, Phase::Up(ch) if ch.owes_ack()) {
            self.answers = 0;
        }
    }

    /// Ends the path on this side: from here on nothing of it touches our memory. Tells what is known of the peer, if there
    /// was a path.
    pub(crate) fn cut(&mut self, why: &str) -> Option<PeerState> {
        if !matches!(self.phase, Phase::Up(_)) {
            return None;
        }
        let Phase::Up(mut ch) = std::mem::replace(&mut self.phase, Phase::Idle) else { return None };
        let _ = ch.drive();
        self.ops.reap(&mut *ch);
        self.ops.withdraw_all(&mut *ch);
        while let Some(value) = ch.take_notify() {
            self.came += 1;
            self.carry.push_back((self.came, value));
        }
        while let Some(message) = ch.take_unexpected() {
            self.ops.keep(message);
        }
        let (heard, acked) = ch.control_counts();
        self.ended = (self.epoch, heard);
        if std::mem::take(&mut self.ops.sent) || ch.notifies_seen() > 0 {
            self.past.rotate_right(1);
            self.acked.rotate_right(1);
            self.past[0] = (self.epoch, ch.notifies_seen(), ch.notifies_refused());
            self.acked[0] = acked as u32;
        }
        ch.cut(why);
        let peer_state = ch.peer_state();
        self.settle_regions();
        self.deliver();
        Some(peer_state)
    }

    /// How long a timed-out operation waits for the peer to confirm that it reads the old path no longer. A living peer's
    /// engine thread answers within a connection's set-up, milliseconds.
    fn grace(&self) -> Duration {
        self.ctx.fabric().config().revoke
    }

    /// Ends the path and makes it again in a new epoch.
    pub(crate) fn revoke(&mut self, why: &str, now: Instant) {
        if let Some(peer_state) = self.cut(why) {
            self.ctx.fabric().log().info(&format!("path revoked: {why}"));
            let revoke_by = self.ops.has_expired().then(|| now + self.grace());
            self.remake(now, revoke_by, peer_state);
        }
    }

    /// Ends the path over which the peer reaches a region that was taken back, be it one whose hello is awaited.
    pub(crate) fn revoke_reach(&mut self, now: Instant) {
        let why = "a region was taken back";
        if self.cut_join(why, Dial::At(now)) {
            self.settle_regions();
        } else {
            self.revoke(why, now);
        }
    }

    /// Cuts the path whose hello is awaited. The peer may use it already: cut, it is made again; closed in good order, it would tell the
    /// peer that this transport was closed. False: there is none.
    fn cut_join(&mut self, why: &str, next: Dial) -> bool {
        let Phase::Making(Making { dial: dial @ Dial::Join(_), .. }) = &mut self.phase else { return false };
        if let Dial::Join(mut pending) = std::mem::replace(dial, next) {
            pending.channel.cut(why);
        }
        true
    }

    /// What is said where more is kept of ended paths than may be.
    fn carries_too_much(&self) -> Option<&'static str> {
        let notifications = self.carry.len() > MAX_CARRY;
        if notifications { Some(UNWAITED) } else { self.ops.keeps_too_much().then_some(UNRECEIVED) }
    }

    fn remake(&mut self, now: Instant, revoke_by: Option<Instant>, peer: PeerState) {
        if matches!(peer, PeerState::Gone) && self.target.is_none() {
            self.ends_with_peer();
            return;
        }
        if let Some(why) = self.carries_too_much() {
            return self.breaks(why);
        }
        let dial = if self.target.is_some() { Dial::At(now) } else { Dial::Off };
        let until = now + patience(self.target.is_some(), self.grace(), &peer);
        self.phase = Phase::Making(Making { dial, since: now, until, revoke_by, peer });
        self.why = Arc::from(why_remade(&self.target));
    }

    /// The path has ended by itself.
    fn lost(&mut self) {
        let (goaway, why) = match &self.phase {
            Phase::Up(ch) => (ch.peer_sent_goaway(), ch.lost().unwrap_or_else(|| "lost".into())),
            _ => return,
        };
        if goaway {
            self.cut("the peer closed the transport");
            return self.breaks("the peer closed its transport");
        }
        let Some(peer_state) = self.cut(&why) else { return };
        self.remake(Instant::now(), None, peer_state);
        self.why = Arc::from(format!("the path was lost ({why}) and the peer did not come back"));
    }

    /// The peer is dead as far as its streams tell. That is no proof that nothing of ours lands there any more: they may have
    /// been ended on the way.
    fn ends_with_peer(&mut self) -> bool {
        self.ops.end(Fail::Unrevoked, |op| op.expired);
        self.breaks(DEAD);
        true
    }

    /// Breaks the transport permanently.
    pub(crate) fn breaks(&mut self, why: &str) {
        self.cut(why);
        if let Phase::Broken(_) = self.phase {
            return;
        }
        let mut why = Arc::from(why);
        if let Some(member) = &mut self.member {
            why = member.breaks(&why);
            (self.why, self.news) = (why.clone(), true);
        }
        self.phase = Phase::Broken(why);
        self.ops.meet_all();
        self.ops.end(Fail::Connect, |op: Ending| op.connect);
        self.ops.end(Fail::Broken, |_| true);
        self.settle_regions();
        self.acceptor = None;
    }

    /// Without a path nothing lands in a region any more.
    fn settle_regions(&mut self) {
        self.regions.settle(None, &mut self.ops.left.holds);
        self.shared_regions.settle(None, &mut self.ops.left.holds);
    }

    /// Ends everything that is pending. A path that carries some of it is revoked and made again.
    pub(crate) fn abort(&mut self) {
        if let Phase::Up(ch) = &mut self.phase {
            self.ops.withdraw_all(&mut **ch);
        }
        if self.ops.is_under_way() {
            self.revoke("aborted", Instant::now());
        }
        self.ops.end(Fail::Aborted, |_| true);
        if self.epoch == 0 && matches!(self.phase, Phase::Making(_)) {
            self.phase = Phase::Idle;
            self.peer = 0;
            self.target = None;
        }
    }

    /// The owner has no more use for it: closes the connection and ends everything.
    pub(crate) fn close(&mut self, why: &str) {
        if !self.is_over() {
            let phase = std::mem::replace(&mut self.phase, Phase::Broken(Arc::from(why)));
            if let Phase::Up(mut ch) = phase {
                let _ = ch.drive();
                self.ops.reap(&mut *ch);
            }
            if let Some(member) = &mut self.member {
                member.closed();
                self.carry.clear();
            }
        }
        self.ops.end(Fail::Aborted, |_| true);
        self.ops.keep_nothing();
        self.regions.clear(&mut self.ops.left.holds);
        self.shared_regions.clear(&mut self.ops.left.holds);
        self.acceptor = None;
        self.accepting = None;
    }

    /// Prepares to sleep: adds what to wait for and says for how long at most, or `None` where there is work.
    pub(crate) fn arm(&mut self, fds: &mut Vec<WaitFd>, now: Instant) -> Option<Duration> {
        // That the peer copies no more from or to a region is said by no event.
        let (mut most, leaving) = (Duration::from_secs(1), self.any_leaving());
        if let Some(acceptor) = &self.acceptor {
            most = acceptor.arm(fds)?;
        }
        match &mut self.phase {
            Phase::Up(ch) => {
                if !ch.arm(fds) {
                    return None;
                }
                most = most.min(ch.patience());
                if leaving {
                    most = most.min(CHECK_EVERY);
                }
            }
            Phase::Making(making) => {
                let mut until = making.until.min(making.revoke_by.unwrap_or(making.until));
                if let PeerState::Ask(liveness) = &making.peer {
                    fds.push(liveness.wait_fd());
                }
                match &mut making.dial {
                    Dial::Off => {}
                    Dial::At(when) => until = until.min(*when),
                    // Shared memory is set up by polling; a millisecond is a tenth of what the whole takes.
                    Dial::Connecting(connecting) => {
                        connecting.wait_fds(fds);
                        until = until.min(now + Duration::from_millis(1));
                    }
                    Dial::Join(pending) => {
                        if !pending.channel.arm(fds) {
                            return None;
                        }
                        until = until.min(now + RECONNECT);
                    }
                }
                most = most.min(until.saturating_duration_since(now));
            }
            Phase::Idle | Phase::Broken(_) => {}
        }
        self.ops.date(now);
        if let Some(deadline) = self.ops.next_deadline() {
            most = most.min(deadline.saturating_duration_since(now));
        }
        Some(most)
    }

    /// Runs the periodic checks after a sleep, at most every [`CHECK_EVERY`].
    pub(crate) fn after_sleep(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.checked) < CHECK_EVERY {
            return;
        }
        self.checked = now;
        self.settle_leaving();
        // It may bring a rail that the path then takes back.
        self.poll_acceptor();
        if let Phase::Up(ch) = &mut self.phase {
            ch.after_sleep();
        }
    }

    /// Whether nothing at all is to be looked after.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Broken(_))
    }
}

/// How long a path may take to be made again. A side that cannot dial waits until the other one knows, too, and has dialled.
fn patience(can_dial: bool, grace: Duration, peer: &PeerState) -> Duration {
    let dials = REMAKE.max(grace);
    match peer {
        _ if can_dial => dials,
        PeerState::Ask(_) => SILENCE + dials,
        PeerState::Silent => LATER + dials,
        PeerState::Gone | PeerState::Open => dials.max(2 * grace),
    }
}

/// Moves a path on. Where an answer is expected, the acknowledgement of what has come is left to it.
#[inline]
fn driven(ch: &mut Channel, answered: bool) -> Result<Poll, ChannelError> {
    ch.hold_acks(answered);
    ch.progress()
}

/// Tells a peer that it is not taken, so that it knows why.
pub(crate) fn refuse(ch: &mut Channel, hello: Hello) {
    say(ch, hello);
}

fn why_remade(target: &Option<Target>) -> &'static str {
    if target.is_some() { "the peer did not answer in time" } else { "the peer did not come back" }
}

/// Sends our hello. It is small and the path is new, so it is sent at once or not at all.
fn say(ch: &mut Channel, hello: Hello) -> bool {
    let buf = HostBuf::new(HELLO_LEN);
    let fits = buf.fill(0, &hello.encode());
    #[allow(unsafe_code)]
    // SAFETY: so small a message is copied when it leaves; one that is accepted and waits is withdrawn at once.
    let mem = unsafe { buf.slice() };
    let posted = if fits { ch.post_send(HELLO_TAG, mem) } else { Ok(None) };
    let said = matches!(posted, Ok(Some(ticket)) if ch.cancel(ticket) == Cancel::UnderWay);
    ch.flush();
    said
}

#[cfg(test)]
pub(crate) mod tests;
