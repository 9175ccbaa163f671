//! A connection: the protocol of `linkspan-proto` over one or several rails of any transports.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use linkspan_proto::Head;
use linkspan_proto::conn::{Access, Action, Body, Broken, Config, Engine, MAX_RAILS, OpError, Outcome, Refused};
use linkspan_proto::conn::{Cancel, MAX_GROUP, RemoteSlice, Ticket, Traffic};

use crate::{Busy, Down, MemSlice, Poll, Rail, RailInfo, Sink, Violation, WaitFd};

/// Why a call on a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation itself failed; the connection stays usable.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The connection is lost for good; [`Conn::lost`] tells why.
    #[error("LS0110 the connection is lost, see the reason given when it happened; make a new one")]
    Lost,
    /// The peer closed the connection in good order and this operation can never complete.
    #[error("LS0111 the peer closed the connection")]
    Closed,
    /// Memory of a device on a connection none of whose rails can move it.
    #[error("LS0112 this connection moves host memory only; connect with staging to use device memory")]
    DeviceMemory,
}

/// A rail has come or gone; for logs and counters.
#[derive(Debug)]
pub struct RailLost {
    /// Which one.
    pub info: RailInfo,
    /// Why.
    pub why: Down,
    /// How many are left.
    pub left: usize,
}

struct Rails<R: Rail + ?Sized> {
    up: [Option<Box<R>>; MAX_RAILS],
    /// Slots that were ever used.
    used: usize,
    /// Rails that stand by: they are given no chunk. What they were given before goes on.
    idle: [bool; MAX_RAILS],
    /// What each rail had taken when it was lost: operations that were done by then still say so.
    taken: [u64; MAX_RAILS],
    /// What peers had copied by themselves over rails that were lost, and nobody has asked for yet.
    copied: [u64; 2],
}

impl<R: Rail + ?Sized> Rails<R> {
    /// Gives a rail what the engine has for it. Returns the item's number.
    #[inline]
    fn take(&mut self, action: Action<'_, MemSlice>) -> Result<u64, Busy> {
        match action {
            Action::Ctrl { rail, head, body: Body::Mem(mem) } => self.rail(rail)?.ctrl(head, mem),
            Action::Ctrl { rail, head, body: Body::Bytes(bytes) } => {
                MemSlice::with_bytes(bytes, |mem| self.rail(rail)?.ctrl(head, mem))
            }
            Action::Grant { rail, head, into } => {
                self.up[..self.used].iter_mut().flatten().for_each(|rail| rail.granted(head.id.get(), into));
                self.rail(rail)?.ctrl(head, MemSlice::NONE)
            }
            Action::Data { rail, head, src, whole } => {
                if let Some(whole) = whole {
                    self.prepare(whole, false);
                }
                self.rail(rail)?.data(head, src)
            }
        }
    }

    #[inline]
    fn rail(&mut self, slot: usize) -> Result<&mut R, Busy> {
        self.up[slot].as_deref_mut().ok_or(Busy)
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        let carrying = self.up[..self.used].iter_mut().zip(&self.idle).filter(|(_, idle)| !**idle);
        for rail in carrying.filter_map(|(rail, _)| rail.as_mut()) {
            rail.prepare(mem, target);
        }
    }

    /// Those that are up.
    fn all(&mut self) -> impl Iterator<Item = &mut R> {
        self.up[..self.used].iter_mut().filter_map(|rail| rail.as_deref_mut())
    }

    fn exposed(&mut self, key: u32, mem: MemSlice, access: Access) {
        self.all().for_each(|rail| rail.exposed(key, mem, access));
    }

    /// What the peer has copied by itself since the last call: see [`Rail::copied_by_peer`].
    fn copied_by_peer(&mut self) -> [u64; 2] {
        let lost = std::mem::take(&mut self.copied);
        self.all().fold(lost, |sum, rail| plus(sum, rail.copied_by_peer()))
    }

    /// False: a peer may be copying still.
    fn unexposed(&mut self, key: u32) -> bool {
        let mut at_rest = true;
        self.all().for_each(|rail| at_rest &= rail.unexposed(key));
        at_rest
    }

    #[inline]
    fn taken(&self, slot: usize) -> u64 {
        self.up[slot].as_ref().map_or(self.taken[slot], |r| r.taken())
    }
}

fn plus(sum: [u64; 2], more: [u64; 2]) -> [u64; 2] {
    std::array::from_fn(|n| sum[n].wrapping_add(more[n]))
}

/// Polls after which a broken rail is dropped although it still brings something. What had arrived before it broke
/// fits into the medium's buffers, a few MiB; a poll brings at least some KiB.
const DRAIN_POLLS: usize = 4096;

/// A rail that was heard of so lately carries, beside one that has stalled: that takes longer (1.4 s over TCP), so this is none that
/// was heard of before all of them stopped.
const HEARD: Duration = Duration::from_secs(1);

/// The engine as one rail sees it.
struct EngineSink<'a> {
    engine: &'a mut Engine<MemSlice>,
    rail: usize,
}

fn violation(broken: Broken) -> Violation {
    Violation(broken.0)
}

impl Sink for EngineSink<'_> {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.engine.on_ctrl(self.rail, head, payload).map_err(violation)
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.engine.place(self.rail, head).map_err(violation)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        self.engine.landed(self.rail, head).map_err(violation)
    }
}

/// A connection between two processes.
///
/// Driven by the caller, one thread at a time: post, [`Conn::progress`], [`Conn::test`]. No call blocks. After set-up
/// no call allocates, locks or logs until something goes wrong. Dropping it ends every access to local memory and
/// sends the peer a close message if the medium takes it at that moment.
///
/// Over rails of any transports, unless a caller names the type of all of them (tests and benchmarks do).
pub struct Conn<R: Rail + ?Sized = dyn Rail + Send> {
    rails: Rails<R>,
    engine: Engine<MemSlice>,
    lost: Option<Down>,
    events: VecDeque<RailLost>,
    next_id: u32,
    /// Every rail moves device memory.
    device: bool,
    /// When idle rails were given something to carry, beside one that has stalled.
    asked: Option<Instant>,
}

impl<R: Rail + ?Sized> Conn<R> {
    /// A connection over its first rails, which both sides give in the same order. `acked`: operations report when
    /// the peer has acknowledged them; implied by more than one rail, needed for one-sided operations, and the same
    /// on both sides.
    ///
    /// # Panics
    /// No rail, or more than [`MAX_RAILS`].
    pub fn new(rails: impl IntoIterator<Item: Into<Box<R>>>, acked: bool) -> Conn<R> {
        let mut slots: [Option<Box<R>>; MAX_RAILS] = std::array::from_fn(|_| None);
        let mut n = 0;
        for rail in rails {
            assert!(n < MAX_RAILS, "at most {MAX_RAILS} rails");
            slots[n] = Some(rail.into());
            n += 1;
        }
        assert!(n > 0, "a connection needs a rail");
        let mut engine = Engine::new(Config { acked: acked || n > 1 });
        for (slot, rail) in slots.iter().flatten().enumerate() {
            let fresh = engine.rail_up(slot, slot as u32, rail.info().caps.chunk);
            debug_assert!(fresh, "the first rails are numbered from 0");
            engine.rail_rests(slot, rail.info().standby);
        }
        let device = slots.iter().flatten().all(|r| r.info().caps.device_memory);
        let idle = slots.each_ref().map(|rail| rail.as_ref().is_some_and(|r| r.info().standby));
        Conn {
            device,
            rails: Rails { idle, up: slots, used: n, taken: [0; MAX_RAILS], copied: [0; 2] },
            engine,
            lost: None,
            asked: None,
            events: VecDeque::new(),
            next_id: n as u32,
        }
    }

    /// Adds a rail to a connection that was made `acked`, or gives it back. `id` numbers the rails of the connection
    /// over its life and is agreed with the peer; the first ones are 0, 1, ...
    ///
    /// # Errors
    /// The rail itself, unused: no slot is free, the connection is lost or was made without `acked`, or the peer has
    /// closed the rail before it came up here.
    pub fn add_rail(&mut self, rail: impl Into<Box<R>>, id: u32) -> Result<(), Box<R>> {
        let mut rail = rail.into();
        let caps = rail.info().caps;
        match self.engine.free_rail().filter(|_| !self.device || caps.device_memory) {
            Some(slot)
                if self.lost.is_none() && self.engine.is_acked() && self.engine.rail_up(slot, id, caps.chunk) =>
            {
                self.engine.exposures().for_each(|(key, mem, access)| rail.exposed(key, mem, access));
                self.rails.idle[slot] = rail.info().standby;
                self.engine.rail_rests(slot, rail.info().standby);
                self.rails.up[slot] = Some(rail);
                self.rails.used = self.rails.used.max(slot + 1);
                self.next_id = self.next_id.max(id.saturating_add(1));
                Ok(())
            }
            _ => Err(rail),
        }
    }

    /// A rail number that was never used on this connection.
    pub fn next_rail_id(&self) -> u32 {
        self.next_id
    }

    /// Posts a tagged message. It waits, by reference, while its receive is not posted, or, small, while it lacks credit or a rail
    /// is busy: a ticket does not mean that bytes were copied or have left. `Ok(None)`: busy, progress and ask again.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`]: no rail can move the memory. [`Error::Closed`], [`Error::Lost`].
    #[inline]
    pub fn post_send(&mut self, tag: u32, src: MemSlice) -> Result<Option<Ticket>, Error> {
        self.check_memory(src)?;
        let answer = self.engine.post_send(tag, src);
        if let Err(Refused::Failed(_)) = answer {
            // The receiver is told now: a caller that gets an error may never call again.
            // Not `progress`: it would swallow the error of an earlier message.
            let _ = self.drive();
        }
        self.posted(answer)
    }

    /// Withdraws a send that waits; see [`Engine::cancel`].
    pub fn cancel(&mut self, ticket: Ticket) -> Cancel {
        self.engine.cancel(ticket)
    }

    /// Posts a receive of 1 to [`MAX_GROUP`] tagged parts that report together. `Ok(None)`: busy.
    ///
    /// # Errors
    /// [`Error::Op`] for a group of no parts or too many. [`Error::DeviceMemory`]: no rail can move the memory.
    /// [`Error::Closed`], [`Error::Lost`].
    #[inline]
    pub fn post_recv(&mut self, parts: &[(u32, MemSlice)]) -> Result<Option<Ticket>, Error> {
        self.check()?;
        if !self.device && parts.iter().any(|(_, mem)| !mem.is_host()) {
            return Err(Error::DeviceMemory);
        }
        let answer = self.engine.post_recv(parts);
        self.posted(answer)
    }

    /// Writes into a region the peer has exposed. `Ok(None)`: busy.
    ///
    /// # Errors
    /// [`Error::Op`] for a range that no region can have, or a connection made without `acked`.
    /// [`Error::DeviceMemory`]: no rail can move the memory. [`Error::Closed`], [`Error::Lost`].
    pub fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Result<Option<Ticket>, Error> {
        self.check_memory(src)?;
        let answer = self.engine.post_write(src, to, notify);
        self.posted(answer)
    }

    /// Reads from a region the peer has exposed. `Ok(None)`: busy.
    ///
    /// # Errors
    /// As [`Conn::post_write`].
    pub fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Result<Option<Ticket>, Error> {
        self.check_memory(dst)?;
        self.rails.prepare(dst, true);
        let answer = self.engine.post_read(dst, from);
        self.posted(answer)
    }

    /// Copies all of `mem` to (`write`) or from a region of the peer without telling it, where a rail can; see [`Rail::copy_alone`]. It is
    /// done when this returns true, and was not begun otherwise: then it is to be posted.
    pub fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        self.lost.is_none() && self.rails.all().any(|rail| rail.copy_alone(mem, place, write))
    }

    /// Bytes that the peer has copied by itself since the last call, into regions and out of them.
    pub fn copied_by_peer(&mut self) -> [u64; 2] {
        self.rails.copied_by_peer()
    }

    /// Exposes memory to the peer; see [`Engine::expose`]. `None` also for memory of a device where the rails move host
    /// memory only.
    pub fn expose(&mut self, mem: MemSlice, access: Access) -> Option<u32> {
        if !self.device && !mem.is_host() {
            return None;
        }
        self.rails.prepare(mem, access != Access::Read);
        let key = self.engine.expose(mem, access)?;
        self.rails.exposed(key, mem, access);
        Some(key)
    }

    /// Takes access back; see [`Engine::unexpose`].
    pub fn unexpose(&mut self, key: u32) -> bool {
        let at_rest = self.rails.unexposed(key);
        self.engine.unexpose(key) && at_rest
    }

    /// Exposes memory under a key that the caller has chosen; see [`Engine::expose_at`]. `false` also for memory of a device where the
    /// rails move host memory only.
    #[must_use]
    pub fn expose_at(&mut self, key: u32, mem: MemSlice, access: Access) -> bool {
        if !self.device && !mem.is_host() {
            return false;
        }
        let fresh = self.engine.expose_at(key, mem, access);
        if fresh {
            self.rails.exposed(key, mem, access);
        }
        fresh
    }

    /// Notifications that have come so far; see [`Engine::notifies_seen`].
    pub fn notifies_seen(&self) -> u64 {
        self.engine.notifies_seen()
    }

    /// Which of them were of refused writes; see [`Engine::notifies_refused`].
    pub fn notifies_refused(&self) -> [u64; 8] {
        self.engine.notifies_refused()
    }

    /// The oldest notification not taken yet.
    pub fn take_notify(&mut self) -> Option<u64> {
        self.engine.take_notify()
    }

    /// See [`Engine::take_unexpected`].
    pub fn take_unexpected(&mut self) -> Option<(u64, u32, &[u8])> {
        self.engine.take_unexpected()
    }

    /// See [`Engine::control_counts`].
    pub fn control_counts(&self) -> (u64, u64) {
        self.engine.control_counts()
    }

    /// Moves everything that can move. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// [`Error::Lost`]: no rail is left. [`Error::Closed`]: the peer closed the connection in good order.
    pub fn progress(&mut self) -> Result<Poll, Error> {
        self.check()?;
        self.drive()
    }

    /// [`Conn::progress`] for callers that have nobody to tell the error of an earlier message to: it is left for the next call that
    /// does.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Closed`]: as [`Conn::progress`].
    pub fn drive(&mut self) -> Result<Poll, Error> {
        if self.lost.is_some() {
            return Err(self.gone());
        }
        let mut active = false;
        for slot in 0..self.rails.used {
            let Some(rail) = &mut self.rails.up[slot] else {
                continue;
            };
            let port = &mut EngineSink { engine: &mut self.engine, rail: slot };
            match rail.flush().map(|out| (out, rail.poll(port))) {
                Ok((Poll::Idle, Ok(Poll::Idle))) => {}
                Ok((_, Ok(_))) => active = true,
                Ok((_, Err(why))) => self.drop_rail(slot, why)?,
                Err(why) => {
                    let why = self.drain_rail(slot).unwrap_or(why);
                    self.drop_rail(slot, why)?;
                }
            }
        }
        while let Some(id) = self.engine.ended_grant() {
            self.rails.up[..self.rails.used].iter_mut().flatten().for_each(|rail| rail.granted(id, MemSlice::NONE));
        }
        self.round(active);
        self.drop_closed()?;
        for slot in 0..self.rails.used {
            let Some(rail) = &mut self.rails.up[slot] else {
                continue;
            };
            if let Err(why) = rail.flush() {
                let why = self.drain_rail(slot).unwrap_or(why);
                self.drop_rail(slot, why)?;
            }
        }
        // What was drained may name another rail, whose memory counts as handed back from then on.
        self.drop_closed()?;
        Ok(if active { Poll::Active } else { Poll::Idle })
    }

    /// Drops the rails that the peer has given up.
    #[inline]
    fn drop_closed(&mut self) -> Result<(), Error> {
        while let Some(slot) = self.engine.peer_closed() {
            let path = self.rails.up[slot].as_mut().map(|rail| {
                rail.closed_by_peer();
                rail.info().path.clone()
            });
            let path = path.unwrap_or_default();
            self.drop_rail(slot, Down::PeerGone { path, why: "the peer has given this rail up".into() })?;
        }
        Ok(())
    }

    /// Gives the rails what leaves after a round of arrivals.
    #[inline]
    fn round(&mut self, active: bool) {
        if self.engine.round(|slot| self.rails.taken(slot), active) {
            self.carry();
        }
    }

    /// Gives the rails what the engine has for them.
    fn carry(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match self.rails.take(action) {
                Ok(item) => self.engine.accepted(item),
                Err(Busy) => self.engine.busy(),
            }
        }
    }

    #[inline]
    fn posted(&mut self, post: Result<(), Refused>) -> Result<Option<Ticket>, Error> {
        match post {
            Ok(()) => {
                self.carry();
                Ok(self.engine.posted())
            }
            Err(Refused::Busy) => Ok(None),
            Err(Refused::Failed(error)) => Err(error.into()),
        }
    }

    /// Hands what was posted to the medium now, without looking for arrivals. A rail that fails here is found by the next
    /// [`Conn::progress`].
    pub fn flush(&mut self) {
        for rail in self.rails.up[..self.rails.used].iter_mut().flatten() {
            let _ = rail.flush();
        }
    }

    /// Asks after an operation without progressing. `Ok(Some(bytes))`: done, and the ticket is dead. An operation
    /// that was done before the connection was lost still says so.
    ///
    /// # Errors
    /// [`Error::Op`]: the operation failed, or the ticket is not in flight. [`Error::Closed`], [`Error::Lost`]: it can
    /// never complete. In each case its memory is free again and the ticket is no longer valid.
    #[inline]
    pub fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, Error> {
        match self.engine.test(|slot| self.rails.taken(slot), ticket) {
            Outcome::Done(bytes) => Ok(Some(bytes)),
            Outcome::Failed(error) => Err(error.into()),
            Outcome::Pending if self.lost.is_some() => Err(self.gone()),
            Outcome::Pending => Ok(None),
        }
    }

    /// Sizes of the parts of a group, in posting order, once [`Conn::test`] has said that it is done and until the next
    /// operation is posted.
    pub fn sizes(&self, ticket: Ticket) -> &[u64; MAX_GROUP] {
        self.engine.sizes(ticket)
    }

    /// Prepares to sleep: fills `fds` with what to wait for. False: there is work, do not sleep.
    pub fn arm(&mut self, fds: &mut Vec<WaitFd>) -> bool {
        if self.lost.is_some() {
            return false;
        }
        self.engine.flush_lazy();
        self.round(false);
        for rail in self.rails.up.iter_mut().flatten() {
            // What has just left may be what the caller is going to wait for.
            if !matches!(rail.flush(), Ok(Poll::Idle)) {
                return false;
            }
            match rail.arm() {
                Some(fd) => fds.push(fd),
                None => return false,
            }
        }
        true
    }

    /// Gives a rail up, as when it has stalled. Nothing is lost while another one is up.
    ///
    /// # Errors
    /// [`Error::Lost`]: it was the last rail.
    pub fn give_up_rail(&mut self, slot: usize, why: Down) -> Result<(), Error> {
        if self.rails.up.get(slot).is_some_and(Option::is_some) { self.drop_rail(slot, why) } else { Ok(()) }
    }

    /// Ends the connection for a reason that the rails cannot see, as when the peer's host is down.
    pub fn fail(&mut self, why: Down) {
        if self.lost.is_none() {
            self.drop_all();
            self.lost = Some(why);
        }
    }

    /// A rail whose path has stopped carrying while another one carries. Where none is known to, as when all cables are out for a
    /// while, the others are given something to carry: two sides that each closed all rails but one might keep different ones.
    pub fn stalled_rail(&mut self) -> Option<(usize, String)> {
        if self.engine.live_rails() < 2 {
            return None;
        }
        let rails = &mut self.rails.up[..self.rails.used];
        // All of them: one that is asked whether it has stalled looks at its peer.
        let mut stalled = [false; MAX_RAILS];
        stalled
            .iter_mut()
            .zip(&mut *rails)
            .for_each(|(is, rail)| *is = rail.as_mut().is_some_and(|rail| rail.stalled()));
        if !stalled.contains(&true) {
            self.asked = None;
            return None;
        }
        // A caller may look more seldom than that.
        let lately = self.asked.map_or(HEARD, |at| at.elapsed().max(HEARD));
        for (slot, rail) in rails.iter().enumerate().filter(|(slot, _)| stalled[*slot]) {
            // A stream that stands by may have taken messages that no other rail has. Until it is dead it stays beside rails on its own
            // interface, whose cable may just be back, and beside those of which nothing is known, which may be as dead.
            let stays = rail.as_deref().filter(|rail| rail.info().standby && !rail.health().dead);
            let interface = stays.map(|rail| rail.info().interface.clone());
            let elsewhere = |rail: &R| interface.as_ref() != Some(&rail.info().interface);
            let heard = |rail: &R| rail.health().heard.map_or(interface.is_none(), |at| at < lately && elsewhere(rail));
            let mut others = rails.iter().enumerate().filter(|(other, _)| *other != slot);
            if others.any(|(_, rail)| rail.as_deref().is_some_and(heard)) {
                return rail.as_ref().map(|rail| (slot, rail.info().path.clone()));
            }
        }
        self.asked = Some(Instant::now());
        let head = self.engine.report();
        for rail in rails.iter_mut().flatten() {
            if !rail.stalled() {
                // Where it is busy there is something to carry.
                let _ = rail.ctrl(&head, MemSlice::NONE);
            }
        }
        None
    }

    /// Whether some rail is not known to have stopped carrying. A system call or so for each.
    pub fn carries(&mut self) -> bool {
        self.rails.up.iter_mut().flatten().any(|rail| !rail.stalled())
    }

    /// The rails that are up, with their slots.
    pub fn rails(&self) -> impl Iterator<Item = (usize, &R)> {
        self.rails.up.iter().enumerate().filter_map(|(slot, rail)| rail.as_deref().map(|r| (slot, r)))
    }

    /// Looks at every rail that is up, in the order of the slots, until one of them fails.
    ///
    /// # Errors
    /// What `f` returned as `Err` for the first rail that it refused.
    pub fn try_each_rail<E>(&mut self, mut f: impl FnMut(&mut R) -> Result<(), E>) -> Result<(), E> {
        self.rails.up.iter_mut().flatten().try_for_each(|rail| f(rail))
    }

    /// From now on rails on standby carry chunks, or no more. Returns the paths of those for which that is another state than before.
    pub fn switch_standby(&mut self, active: bool) -> Vec<(String, bool)> {
        let mut switched = Vec::new();
        for (slot, (rail, idle)) in self.rails.up.iter().zip(&mut self.rails.idle).enumerate() {
            if let Some(rail) = rail.as_ref().filter(|rail| rail.info().standby && *idle == active) {
                *idle = !active;
                self.engine.rail_rests(slot, !active);
                switched.push((rail.info().path.clone(), active));
            }
        }
        switched
    }

    /// See [`Rail::catch_up`].
    pub fn catch_up(&mut self) {
        self.rails.up.iter_mut().flatten().for_each(|rail| rail.catch_up());
    }

    /// Why the connection was lost, if it was.
    pub fn lost(&self) -> Option<&Down> {
        self.lost.as_ref()
    }

    /// The next loss of a rail that this has not returned yet.
    pub fn events(&mut self) -> Option<RailLost> {
        self.events.pop_front()
    }

    /// See [`Engine::hold_acks`].
    #[inline]
    pub fn hold_acks(&mut self, hold: bool) {
        self.engine.hold_acks(hold);
    }

    /// See [`Engine::owes_ack`].
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.engine.owes_ack()
    }

    /// Takes an error of a message that had already reported, which the next call would tell otherwise; for callers that post
    /// for several others.
    pub fn late_error(&mut self) -> Option<OpError> {
        self.engine.late_error()
    }

    /// Whether the peer closed the connection regularly.
    pub fn peer_sent_goaway(&self) -> bool {
        self.engine.peer_sent_goaway()
    }

    /// See [`Engine::credit_is_low`].
    #[inline]
    pub fn credit_is_low(&self) -> bool {
        self.engine.credit_is_low()
    }

    /// See [`Engine::waiting`].
    #[inline]
    pub fn waiting(&self) -> usize {
        self.engine.waiting()
    }

    /// See [`Engine::moving`].
    #[inline]
    pub fn moving(&self) -> usize {
        self.engine.moving()
    }

    /// See [`Engine::traffic`].
    pub fn traffic(&self) -> Traffic {
        self.engine.traffic()
    }

    fn check(&mut self) -> Result<(), Error> {
        if self.lost.is_some() {
            return Err(self.gone());
        }
        match self.engine.late_error() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn check_memory(&mut self, mem: MemSlice) -> Result<(), Error> {
        self.check()?;
        if self.device || mem.is_host() { Ok(()) } else { Err(Error::DeviceMemory) }
    }

    fn gone(&self) -> Error {
        if self.engine.peer_sent_goaway() { Error::Closed } else { Error::Lost }
    }

    /// Reads what had arrived on a rail that cannot be written to any more: a peer that closes has sent its last
    /// messages, its acknowledgements and its close message before.
    #[cold]
    fn drain_rail(&mut self, slot: usize) -> Option<Down> {
        for _ in 0..DRAIN_POLLS {
            let rail = self.rails.up[slot].as_mut()?;
            let port = &mut EngineSink { engine: &mut self.engine, rail: slot };
            match rail.poll(port) {
                Ok(Poll::Active) => {}
                Ok(Poll::Idle) => return None,
                Err(why) => return Some(why).filter(|why| matches!(why, Down::Protocol { .. })),
            }
        }
        None
    }

    fn drop_all(&mut self) {
        for slot in 0..self.rails.used {
            if let Some(mut rail) = self.rails.up[slot].take() {
                self.rails.taken[slot] = rail.taken();
                self.rails.copied = plus(self.rails.copied, rail.copied_by_peer());
                rail.abandon();
                drop(rail);
                self.engine.rail_down(slot);
            }
        }
    }

    #[cold]
    fn drop_rail(&mut self, slot: usize, why: Down) -> Result<(), Error> {
        let Some(mut rail) = self.rails.up[slot].take() else {
            return Ok(());
        };
        let info = rail.info().clone();
        self.rails.taken[slot] = rail.taken();
        self.rails.copied = plus(self.rails.copied, rail.copied_by_peer());
        // Dropped first: from here on nothing lands through it, which is what the engine tells the peer.
        drop(rail);
        if self.engine.rail_down(slot) {
            self.events.push_back(RailLost { info, why, left: self.engine.live_rails() });
            Ok(())
        } else {
            self.drop_all();
            self.lost = Some(why);
            Err(self.gone())
        }
    }
}

impl<R: Rail + ?Sized> Drop for Conn<R> {
    fn drop(&mut self) {
        if self.lost.is_none() {
            self.engine.goaway();
            self.round(false);
            for rail in self.rails.up.iter_mut().flatten() {
                let _ = rail.flush();
            }
        }
    }
}
