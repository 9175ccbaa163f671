//! A connection as callers of the fabric see it: a [`Conn`] over rails of any rooms, with its sentinel, its log lines
//! and its lost rails coming back.

mod offload;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_gpu::offload::Queue;
use linkspan_gpu::{Gpu, GpuError};
use linkspan_net::WaitSet;
use linkspan_proto::handle::{Addr, Handle};
use linkspan_proto::head::EAGER_MAX;
use linkspan_tcp::{Ended, Sentinel};
use linkspan_topology::mesh::{ROUTES_MAX, Way};
use linkspan_transport::{
    Access, Buf, Conn, Down, Error as ConnError, MemSlice, Poll, Rail, RemoteSlice, Ticket, WaitFd,
};

use crate::listener::Desk;
use crate::lost::Lost;
use crate::meter::Meter;
use crate::rdma::Memory;
use crate::reach::Reach;
use crate::redial::{Back, Redial, rail_id};
use crate::room::{AnyRail, first_word};
use crate::staged::PathRail;
use crate::stats::Counter;
use crate::{Fabric, chain};

/// Progress calls between two looks at the clock (24 ns): under 1 % of a spinning caller's time.
const TICK_CALLS: u32 = 64;

/// Bursts of small messages that leave before arrivals are looked at again. To look costs a system call, and a sender needs what
/// its peer says once in some hundred messages.
const UNHEARD: u32 = 8;

/// Least time between two rounds of house-keeping: sentinel, stalled rails, rails that come back.
const TICK: Duration = Duration::from_millis(100);

/// Longest sleep of a caller that waits. The end of the peer wakes it at once; a second bounds what only the clock sees.
const SLEEP: Duration = Duration::from_secs(1);

/// How long no path may carry after the sentinel was lost with its own: as long as keepalive takes (25 s, `SILENCE` of the
/// TCP room).
const GRACE: Duration = Duration::from_secs(25);

/// Rounds in which the rails are read once more when the sentinel has ended. A round brings up to a MiB and the kernel
/// holds some tens at most, so an honest peer's last words fit; one that floods us does not keep us here.
const LAST_LOOKS: usize = 256;

/// Time between two looks for a way around a path that does not carry.
const DETOUR: Duration = Duration::from_millis(500);

/// How long nothing has moved on a connection that is stuck.
const STUCK: Duration = Duration::from_secs(1);

/// The same where nothing is in flight: a sender that waits for a grant has nothing under way that could be missed, and only
/// the mesh tells it that the cable is gone.
const STUCK_IDLE: Duration = Duration::from_secs(3);

/// Most ways that one connection remembers: as many rails twice over.
const MAX_WAYS: usize = 2 * linkspan_transport::MAX_RAILS;

/// How lost rails come back.
pub(crate) enum Returns {
    /// They do not: there is one rail, or it is not TCP.
    Never,
    /// The peer dials again, our listener's desk receives.
    Accepts { desk: Arc<Mutex<Desk>>, conn: u64 },
    /// We dial again, each time under the next number: a stream logs in once.
    Dials { handle: Handle, conn: u64, next: u16, redials: Vec<Redial> },
}

/// A connection to a peer process. Driven by one thread at a time; no call blocks but [`Channel::wait`].
pub struct Channel {
    conn: Conn<PathRail>,
    meter: Meter,
    fabric: Fabric,
    sentinel: Option<Sentinel>,
    unwatched: Option<Unwatched>,
    returns: Returns,
    calls: u32,
    /// Bursts since arrivals were looked at; see [`UNHEARD`].
    unheard: u32,
    /// What was sent last went as one control message.
    small: bool,
    last_tick: Instant,
    last_active: Instant,
    /// When anything moved last.
    last_moved: Instant,
    rails_lost: u64,
    missed: Lost,
    told_lost: bool,
    /// How the sentinel ended.
    ended: Option<Ended>,
    /// The message posted last was alone in flight.
    lonely: bool,
    /// It was made over RDMA: streams are in reserve behind queue pairs.
    rdma: bool,
    /// The device whose memory it carries.
    gpu: Option<Arc<dyn Gpu>>,
    /// What tells NCCL's kernels where pieces are.
    queue: Option<Arc<Queue>>,
    /// When a way around was looked for last.
    looked: Instant,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({})", self.describe())
    }
}

/// What is known of the end of a peer whose path was lost.
#[derive(Debug)]
pub enum Fate {
    /// Its process has ended, or has let go of the connection for good.
    Gone,
    /// It has ended the path and lives, or nothing is known.
    Open,
    /// Not known yet: ask the witness.
    Ask(Witness),
}

/// The sentinel of a connection whose rails are lost already.
#[derive(Debug)]
pub struct Witness(Sentinel);

impl Witness {
    /// What is known by now. One system call.
    pub fn ask(mut self) -> Fate {
        if self.0.check().is_ok() {
            return Fate::Ask(self);
        }
        match self.0.ended() {
            Some(Ended::Closed) => Fate::Gone,
            _ => Fate::Open,
        }
    }

    /// What to wait for before asking again.
    pub fn wait_fd(&self) -> WaitFd {
        self.0.wait_fd()
    }
}

/// A sentinel that was lost with its path.
struct Unwatched {
    /// When another path was last known to carry.
    since: Instant,
    /// Whether a line told it.
    told: bool,
    why: Down,
}

/// What a channel is made of.
pub(crate) struct Parts {
    pub(crate) conn: Conn<PathRail>,
    pub(crate) sentinel: Option<Sentinel>,
    pub(crate) returns: Returns,
    /// Name of the device it belongs to.
    pub(crate) device: String,
    /// Which side this is: `connected` or `accepted`.
    pub(crate) verb: &'static str,
    /// Paths that were tried in vain.
    pub(crate) left_out: Vec<String>,
}

impl Channel {
    pub(crate) fn new(fabric: &Fabric, parts: Parts) -> Channel {
        let now = Instant::now();
        let room = parts.conn.rails().next().map_or("none", |(_, rail)| rail.info().room);
        let channel = Channel {
            meter: Meter::new(fabric.stats(), &parts.device, room),
            conn: parts.conn,
            fabric: fabric.clone(),
            sentinel: parts.sentinel,
            unwatched: None,
            returns: parts.returns,
            calls: 0,
            unheard: 0,
            small: false,
            last_tick: now,
            last_active: now,
            last_moved: now,
            rails_lost: 0,
            missed: Lost::default(),
            told_lost: false,
            ended: None,
            lonely: true,
            rdma: room == "verbs",
            gpu: None,
            queue: None,
            looked: now,
        };
        let mut line = format!("{} via {}", parts.verb, channel.describe());
        if !parts.left_out.is_empty() {
            line.push_str(&format!("; not used: {}", parts.left_out.join("; ")));
        }
        fabric.log().info(&line);
        channel
    }

    /// Names the GPU whose memory the connection carries from now on, beside host memory. Paths that do not reach it are
    /// staged, and [`Channel::describe`] says so. One GPU for each connection.
    ///
    /// # Errors
    /// A path reaches host memory only and staging is off, or the connection has another GPU.
    pub fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        if self.gpu.as_ref().is_some_and(|ours| ours.place() == gpu.place()) {
            return Ok(());
        }
        let attached = self.conn.try_each_rail(|rail| rail.attach(gpu));
        self.tell_news();
        attached?;
        self.gpu = Some(gpu.clone());
        self.fabric.log().info(&format!("{} memory via {}", gpu.info().id(), self.describe()));
        Ok(())
    }

    /// What the rooms want people to know.
    fn tell_news(&mut self) {
        let log = self.fabric.log();
        let told = self.conn.try_each_rail(|rail| {
            while let Some(line) = rail.news() {
                log.warn(&line);
            }
            Ok::<(), std::convert::Infallible>(())
        });
        debug_assert!(told.is_ok());
    }

    /// The GPU whose memory it carries.
    #[inline]
    pub fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        self.gpu.as_ref()
    }

    /// Whether some path writes device memory by itself, so that what has arrived must be flushed before the GPU looks.
    pub fn writes_device_memory(&self) -> bool {
        self.gpu.is_some() && self.conn.rails().any(|(_, rail)| rail.writes_devices())
    }

    /// Which path carries the connection and why, one line.
    pub fn describe(&self) -> String {
        let rails: Vec<String> = self
            .conn
            .rails()
            .map(|(_, r)| format!("{} {} ({})", r.info().room, r.info().path, r.info().reason))
            .collect();
        match rails.len() {
            0 => "no rail".into(),
            1 => rails.into_iter().next().unwrap_or_default(),
            n => format!("{n} rails: {}", rails.join(", ")),
        }
    }

    /// The rails that are up: room, path and reason of each.
    pub fn rails(&self) -> impl Iterator<Item = &linkspan_transport::RailInfo> {
        self.conn.rails().map(|(_, r)| r.info())
    }

    /// Rails lost so far; those that came back count too.
    pub fn rails_lost(&self) -> u64 {
        self.rails_lost
    }

    /// See [`Conn::post_send`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn post_send(&mut self, tag: u32, src: MemSlice) -> Result<Option<Ticket>, ConnError> {
        let answer = self.conn.post_send(tag, src);
        self.small = src.len() <= EAGER_MAX;
        self.meter.add(Counter::TxOps, 1);
        self.meter.posted(answer, Counter::TxBytes, src.len() as u64)
    }

    /// Hands what was posted to the medium now if it is likely to stay alone: nothing else is in flight, nor was when the
    /// one before was posted. The messages of a burst leave together with the next call.
    #[inline]
    pub fn flush_first(&mut self) {
        let alone = self.conn.in_flight() == 1;
        if alone && std::mem::replace(&mut self.lonely, true) {
            self.conn.flush();
        } else {
            self.lonely = alone;
        }
    }

    /// See [`Conn::post_recv`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn post_recv(&mut self, parts: &[(u32, MemSlice)]) -> Result<Option<Ticket>, ConnError> {
        let answer = self.conn.post_recv(parts);
        self.meter.posted(answer, Counter::RxBytes, 0)
    }

    /// See [`Conn::post_write`].
    ///
    /// # Errors
    /// See there.
    pub fn post_write(
        &mut self,
        src: MemSlice,
        to: RemoteSlice,
        notify: Option<u64>,
    ) -> Result<Option<Ticket>, ConnError> {
        let answer = self.conn.post_write(src, to, notify);
        self.meter.add(Counter::TxOps, 1);
        self.meter.posted(answer, Counter::TxBytes, src.len() as u64)
    }

    /// See [`Conn::post_read`].
    ///
    /// # Errors
    /// See there.
    pub fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Result<Option<Ticket>, ConnError> {
        let answer = self.conn.post_read(dst, from);
        self.meter.posted(answer, Counter::RxBytes, 0)
    }

    /// See [`Conn::expose`].
    pub fn expose(&mut self, mem: MemSlice, access: Access) -> Option<u32> {
        self.conn.expose(mem, access)
    }

    /// See [`Conn::unexpose`].
    pub fn unexpose(&mut self, key: u32) -> bool {
        self.conn.unexpose(key)
    }

    /// See [`Conn::take_notify`].
    pub fn take_notify(&mut self) -> Option<u64> {
        self.conn.take_notify()
    }

    /// See [`Conn::expose_at`].
    #[must_use]
    pub fn expose_at(&mut self, key: u32, mem: MemSlice, access: Access) -> bool {
        self.conn.expose_at(key, mem, access)
    }

    /// See [`Conn::notifies_seen`].
    pub fn notifies_seen(&self) -> u64 {
        self.conn.notifies_seen()
    }

    /// See [`Conn::flush`].
    pub fn flush(&mut self) {
        self.conn.flush();
    }

    /// See [`Conn::hold_acks`].
    #[inline]
    pub fn hold_acks(&mut self, hold: bool) {
        self.conn.hold_acks(hold);
    }

    /// See [`Conn::owes_ack`].
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.conn.owes_ack()
    }

    /// See [`Conn::late_error`].
    #[inline]
    pub fn late_error(&mut self) -> Option<linkspan_transport::OpError> {
        self.conn.late_error()
    }

    /// Whether the peer ended the connection in good order, as opposed to having died.
    pub fn peer_said_bye(&self) -> bool {
        self.conn.peer_said_bye()
    }

    /// Ends the connection without a goodbye: when this returns, nothing of ours reads or writes any memory given to it. The
    /// peer learns that we live.
    pub fn cut(&mut self, why: &str) {
        self.told_lost = true;
        if let Some(sentinel) = &mut self.sentinel {
            if sentinel.check().is_err() {
                self.ended = sentinel.ended();
            }
            sentinel.leave();
        }
        self.conn.fail(Down::PeerGone { path: String::new(), why: why.to_owned() });
    }

    /// See [`Conn::test`].
    ///
    /// # Errors
    /// See there.
    #[inline]
    pub fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ConnError> {
        let done = self.conn.test(ticket);
        if let Ok(Some(_)) = done {
            self.meter.done(ticket);
        }
        done
    }

    /// [`Conn::test`] of a send, after moving what can be moved if it was not done. A small message is done when the medium
    /// has taken it: that is tried first, and what the peer has to say is looked at when it was not enough, and now and then.
    ///
    /// # Errors
    /// See [`Conn::test`].
    #[inline]
    pub fn test_sent(&mut self, ticket: Ticket) -> Result<Option<u64>, ConnError> {
        if let Some(bytes) = self.test(ticket)? {
            return Ok(Some(bytes));
        }
        if self.small && self.unheard < UNHEARD {
            self.unheard += 1;
            self.conn.flush();
            if let Some(bytes) = self.test(ticket)? {
                return Ok(Some(bytes));
            }
        }
        // A loss is reported by the test below, unless the operation was done before it.
        let _ = self.progress();
        self.test(ticket)
    }

    /// [`Conn::test`] of a receive: true when it is done, with the size of each of its parts in `sizes`.
    ///
    /// # Errors
    /// See [`Conn::test`].
    #[inline]
    pub fn test_sizes(&mut self, ticket: Ticket, sizes: &mut [usize]) -> Result<bool, ConnError> {
        let Some(bytes) = self.conn.test(ticket)? else { return Ok(false) };
        self.meter.done(ticket);
        self.meter.add(Counter::RxOps, 1);
        self.meter.add(Counter::RxBytes, bytes);
        for (size, found) in sizes.iter_mut().zip(self.conn.sizes(ticket)) {
            *size = *found as usize;
        }
        Ok(true)
    }

    /// Moves everything that can move.
    ///
    /// # Errors
    /// See [`Conn::progress`].
    pub fn progress(&mut self) -> Result<Poll, ConnError> {
        self.calls = self.calls.wrapping_add(1);
        self.unheard = 0;
        let result = self.conn.progress();
        if self.calls.is_multiple_of(TICK_CALLS) {
            self.tick(matches!(result, Ok(Poll::Active)));
        }
        if result.is_err() {
            self.report_loss();
        }
        result
    }

    /// Sleeps until something may have happened, at most `most` and at most a second, so that the house is kept.
    pub fn wait(&mut self, most: Duration) {
        wait_any(&mut [self], most);
    }

    /// Prepares to sleep: adds what to wait for, or returns false where there is work. For callers that sleep on more than
    /// channels; [`Channel::after_sleep`] follows. The next [`Channel::progress`] undoes it.
    pub fn arm(&mut self, fds: &mut Vec<WaitFd>) -> bool {
        if !self.conn.arm(fds) {
            return false;
        }
        fds.extend(self.sentinel.as_ref().map(Sentinel::wait_fd));
        true
    }

    /// Longest sleep: shorter while something has to be looked after by the clock.
    pub fn patience(&self) -> Duration {
        let mending = match &self.returns {
            Returns::Never => false,
            Returns::Accepts { .. } => self.rails_lost > 0,
            Returns::Dials { redials, .. } => redials.iter().any(Redial::is_busy),
        };
        let watched =
            self.conn.in_flight() > 0 && (self.conn.rails().count() > 1 || self.fabric.config().stall.is_some());
        if mending || watched { TICK } else { SLEEP }
    }

    /// Keeps house after a sleep that [`Channel::arm`] prepared.
    pub fn after_sleep(&mut self) {
        self.last_tick = self.last_tick.checked_sub(TICK).unwrap_or(self.last_tick);
        self.tick(false);
    }

    /// Why the connection was lost, if it was.
    pub fn lost(&self) -> Option<String> {
        self.conn.lost().map(|down| chain(down))
    }

    #[cold]
    fn report_loss(&mut self) {
        if let (false, Some(why)) = (self.told_lost, self.conn.lost()) {
            self.told_lost = true;
            self.meter.add(Counter::Failures, 1);
            self.fabric.log().info(&format!("connection ended: {}", chain(why)));
        }
    }

    #[cold]
    fn tick(&mut self, active: bool) {
        let now = Instant::now();
        self.meter.tell();
        linkspan_tcp::linger::sweep();
        if active || self.conn.in_flight() == 0 {
            self.last_active = now;
        }
        if active {
            self.last_moved = now;
        }
        if now.duration_since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = now;
        self.watch(now);
        let silence = now.duration_since(self.last_active);
        if self.fabric.config().stall.is_some_and(|stall| silence > stall) {
            let why = format!("silent for {} ms with operations in flight (LINKSPAN_STALL_MS)", silence.as_millis());
            self.conn.fail(Down::PeerGone { path: self.describe(), why });
        }
        self.watch_unguarded();
        if let Some((slot, path)) = self.conn.stalled_rail() {
            let why = "the path carries nothing any more: packets are not acknowledged".into();
            let _ = self.conn.give_up_rail(slot, Down::PeerGone { path, why });
        }
        while let Some(lost) = self.conn.news() {
            self.rails_lost += 1;
            self.missed.note(&lost.info);
            self.meter.add(Counter::RailsLost, 1);
            let why = chain(&lost.why);
            self.fabric
                .log()
                .warn(&format!("rail lost: {} {}: {why}; {} left", lost.info.room, lost.info.path, lost.left));
            if let Returns::Dials { redials, .. } = &mut self.returns {
                redials.iter_mut().for_each(|r| r.lost(&lost.info.path, now));
            }
            self.call_reserve();
        }
        self.tell_news();
        self.detour(now);
        self.take_back(now);
        let retries = self.conn.rails().filter_map(|(_, rail)| rail.room().tcp_info());
        let retries = retries.map(|info| u64::from(info.retransmitted)).sum();
        self.meter.retries(retries);
    }

    /// Where no queue pair or cable is left, what is in reserve carries on; it rests when there is one again.
    fn call_reserve(&self) {
        let beside = |rail: &AnyRail| matches!(rail, AnyRail::Verbs(_) | AnyRail::Thunderbolt(_));
        let left = self.conn.rails().any(|(_, rail)| beside(rail.room()));
        for (_, rail) in self.conn.rails() {
            let AnyRail::Reserve(rail) = rail.room() else { continue };
            let (path, lost) = (&rail.info().path, if self.rdma { "RDMA" } else { "the cable" });
            if left && rail.rest() {
                self.fabric.log().info(&format!("{lost} carries again, TCP is in reserve: {path}"));
            } else if !left && rail.call() {
                self.fabric.log().warn(&format!("downgrade: TCP carries on in place of {lost}: {path}"));
            }
        }
    }

    /// The memory of the RDMA devices and cables under this connection; empty where there are none.
    pub fn memory(&self) -> Memory {
        let memory = Memory::of(self.conn.rails().map(|(_, rail)| rail.room()));
        let lends = self.conn.rails().any(|(_, rail)| matches!(rail.room(), AnyRail::Devmem(_)));
        if lends { memory.and_ports(self.fabric.devmem()) } else { memory }
    }

    /// Asks the sentinel. Its end proves that the process is gone; its silence or a reset that its own path is, and the peer
    /// with it where no other path carries.
    fn watch(&mut self, now: Instant) {
        if let Some(sentinel) = self.sentinel.as_mut()
            && let Err(why) = sentinel.check()
        {
            let path_lost = sentinel.path_lost();
            self.ended = sentinel.ended();
            // We live, whatever has become of the peer: it may be asking the same.
            sentinel.leave();
            // The end of the sentinel may overtake bytes that are still in the rails: read them first.
            for _ in 0..LAST_LOOKS {
                self.conn.rails().for_each(|(_, rail)| rail.room().look());
                if !matches!(self.conn.progress(), Ok(Poll::Active)) {
                    break;
                }
            }
            self.sentinel = None;
            self.unwatched = Some(Unwatched { since: now, told: false, why });
            if !path_lost {
                self.end_unwatched();
            }
        }
        let Some(gone) = self.unwatched.as_mut() else { return };
        // Rails over the sentinel's own interface prove nothing: idle ones end a little later.
        let interface = first_word(gone.why.path());
        if self.conn.carries(|rail| gone.told || rail.room().interface() != interface) {
            // From here on the rails' own keepalive, and the grace, tell a dead host.
            gone.since = now;
            if !std::mem::replace(&mut gone.told, true) {
                let line = format!("nothing watches the peer any more, other paths carry on: {}", chain(&gone.why));
                self.fabric.log().warn(&line);
            }
        } else if !gone.told || now.duration_since(gone.since) >= GRACE {
            self.end_unwatched();
        }
    }

    /// What is known of the peer of a connection that is lost.
    pub fn fate(mut self) -> Fate {
        match (self.ended, self.sentinel.take()) {
            (Some(Ended::Closed), _) => Fate::Gone,
            (Some(_), _) | (None, None) => Fate::Open,
            (None, Some(sentinel)) => Witness(sentinel).ask(),
        }
    }

    /// No sentinel watches a peer that is reached over other hosts: there the rails' own word counts. Keepalive alone would not
    /// do, for it waits while bytes are outstanding.
    fn watch_unguarded(&mut self) {
        if self.sentinel.is_some() || self.unwatched.is_some() {
            return;
        }
        let mut rails = self.conn.rails();
        let (some, dead) = (rails.next(), |rail: &PathRail| rail.room().unanswered());
        if some.is_some_and(|(_, rail)| dead(rail)) && rails.all(|(_, rail)| dead(rail)) {
            drop(rails);
            let why = "nothing has been acknowledged for more than 12 s, and no other path is left".into();
            self.conn.fail(Down::PeerGone { path: self.describe(), why });
        }
    }

    fn end_unwatched(&mut self) {
        if let Some(gone) = self.unwatched.take() {
            self.conn.fail(gone.why);
        }
    }

    /// In a mesh: where no path carries any more, others may lead around.
    fn detour(&mut self, now: Instant) {
        if !self.fabric.config().meshes() || now.duration_since(self.looked) < DETOUR || self.conn.lost().is_some() {
            return;
        }
        self.looked = now;
        let Returns::Dials { handle, redials, .. } = &mut self.returns else { return };
        let Ok(Some(mesh)) = self.fabric.mesh() else { return };
        let addrs: Vec<SocketAddr> = handle.addrs().iter().map(Addr::socket).collect();
        let relayed = redials.iter().any(|r| r.reach().relays() > 0);
        let cabled = relayed || matches!(mesh.way(handle.host, addrs.clone(), false), Way::Direct(_));
        // That the mesh no longer hears the peer may be a busy processor; that nothing moves either is a cut cable.
        let stuck = self.conn.in_flight() > 0 && now.duration_since(self.last_active) > STUCK
            || now.duration_since(self.last_moved) > STUCK_IDLE;
        if self.conn.carries(|_| true) && (cabled || !stuck) {
            if relayed {
                widen(&self.fabric, redials, mesh.way(handle.host, addrs, false), self.rdma);
            }
            return;
        }
        let Way::Over(routes) = mesh.way(handle.host, addrs, true) else { return };
        for route in routes {
            let over = route.over.join(", ");
            let reach = Reach::Over(route);
            if redials.iter().any(|r| r.reach().is_same(&reach)) || !room_for_one(redials) {
                continue;
            }
            let what = format!("LS1423 the way to the peer carries nothing any more; relaying over {over}");
            if self.fabric.config().strict {
                self.fabric.log().warn(&format!("LINKSPAN_STRICT=1 forbids this downgrade: {what}"));
                return;
            }
            self.fabric.log().warn(&format!("downgrade: {what}"));
            redials.push(Redial::now(reach));
        }
    }

    fn take_back(&mut self, now: Instant) {
        let mut back: Vec<Back> = Vec::new();
        match &mut self.returns {
            Returns::Never => {}
            Returns::Accepts { desk, conn } => {
                let mut desk = desk.lock().unwrap_or_else(|e| e.into_inner());
                back.extend(desk.returned(*conn));
            }
            Returns::Dials { handle, conn, next, redials } => {
                back.extend(redials.iter_mut().filter_map(|r| r.poll(&self.fabric, handle, *conn, next, now)));
            }
        }
        let some = !back.is_empty();
        for Back { number, secured, rails } in back {
            if !rails.is_empty() {
                // The stream has done its part.
                drop(secured);
                for (n, rail) in rails.into_iter().enumerate() {
                    self.add(rail, rail_id(number, n), now);
                }
                continue;
            }
            let made =
                if self.rdma { self.fabric.reserve(secured) } else { self.fabric.tcp_rail(secured, "came back", None) };
            match made {
                Ok(rail) => self.add(rail, u32::from(number), now),
                Err(error) => self.fabric.log().warn(&chain(&error)),
            }
        }
        if some {
            self.call_reserve();
        }
    }

    fn add(&mut self, rail: AnyRail, id: u32, now: Instant) {
        let info = rail.info().clone();
        let (room, path) = (info.room, &info.path);
        let mut rail = self.fabric.path_rail(rail);
        let attached = self.gpu.as_ref().map_or(Ok(()), |gpu| rail.attach(gpu));
        if let Err(error) = &attached {
            self.fabric.log().warn(&chain(error));
        }
        if let Some(queue) = &self.queue {
            rail.offload(queue);
        }
        if attached.is_err() || self.conn.add_rail(rail, id).is_err() {
            if let Returns::Dials { redials, .. } = &mut self.returns {
                redials.iter_mut().for_each(|r| r.lost(path, now));
            }
        } else if self.missed.is_back(&info) {
            self.meter.add(Counter::RailsBack, 1);
            self.fabric.log().info(&format!("rail back: {room} {path}"));
        } else {
            let now = self.conn.rails().count();
            self.fabric.log().info(&format!("rail added: {room} {path}: it can be reached now; {now} in all"));
        }
    }
}

/// A connection that is relayed takes what the mesh has learnt since: another way round, or a cable of its own.
fn widen(fabric: &Fabric, redials: &mut Vec<Redial>, way: Way, rdma: bool) {
    let (reaches, over): (Vec<Reach>, bool) = match way {
        Way::Direct(links) => (links.iter().map(Reach::link).collect(), false),
        Way::Over(routes) => (routes.into_iter().map(Reach::Over).collect(), true),
        Way::None(_) => return,
    };
    for reach in reaches {
        let ways = redials.iter().filter(|r| r.is_up() && r.reach().relays() > 0).count();
        let known = redials.iter().any(|r| r.reach().is_same(&reach));
        if known || over && ways >= ROUTES_MAX || !room_for_one(redials) {
            continue;
        }
        let what = match &reach {
            Reach::Over(route) => format!("another way, over {}", route.over.join(", ")),
            Reach::Plain { to, .. } => format!("a cable to {}", to.ip()),
        };
        fabric.log().info(&format!("the mesh has learnt of {what}"));
        redials.push(Redial::now(reach).wanting(rdma && !over));
    }
}

/// Whether one more way can be remembered; one over others that carries nothing makes room.
fn room_for_one(redials: &mut Vec<Redial>) -> bool {
    if redials.len() >= MAX_WAYS
        && let Some(idle) = redials.iter().position(|r| !r.is_up() && !r.is_busy() && r.reach().relays() > 0)
    {
        redials.remove(idle);
    }
    redials.len() < MAX_WAYS
}

/// Sleeps until something may have happened on any of the channels, at most `most` and at most a second. Returns at
/// once where one of them has work. One system call, however many channels.
pub fn wait_any(channels: &mut [&mut Channel], most: Duration) {
    let mut fds = Vec::new();
    let mut most = most;
    let mut idle = true;
    for channel in channels.iter_mut() {
        most = most.min(channel.patience());
        idle &= channel.arm(&mut fds);
    }
    if idle {
        let mut set = WaitSet::new();
        for fd in &fds {
            set.add(*fd);
        }
        // An interrupted or failed sleep is a short one.
        let _ = set.wait(Some(most));
    }
    for channel in channels {
        channel.after_sleep();
    }
}

#[cfg(test)]
mod tests;
