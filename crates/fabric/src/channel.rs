//! A connection as callers of the fabric see it: a [`Conn`] over rails of any transports, with its keepalive connection, its log lines
//! and its lost rails coming back.

mod alive;
mod offload;
mod paths;
mod recovery;
mod swap;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_gpu::offload::Queue;
use linkspan_gpu::{Gpu, GpuError};
use linkspan_net::WaitSet;
use linkspan_proto::handle::Handle;
use linkspan_proto::head::EAGER_MAX;
use linkspan_proto::login::PublicKey;
use linkspan_setup::stats::Counter;
use linkspan_stream::{Ended, Keepalive};
use linkspan_transport::{
    Access, Buf, Cancel, Conn, Down, Error as ConnError, MemSlice, Poll, RemoteSlice, Ticket, WaitFd,
};

use crate::listener::{Acceptor, ConnId};
use crate::memory::{ConnMemory, Registered};
use crate::meter::Meter;
use crate::missing::MissingRails;
use crate::reconnect::Reconnector;
use crate::{Fabric, chain};

pub use alive::{PeerLiveness, PeerState};
pub use swap::SwapError;

use alive::Unwatched;

/// Progress calls between two looks at the clock (24 ns): under 1 % of a spinning caller's time.
const TICK_CALLS: u32 = 64;

/// Least time between two periodic checks: keepalive connection, stalled rails, rails to reconnect.
const TICK: Duration = Duration::from_millis(100);

/// Longest sleep of a caller that waits. The end of the peer wakes it at once; a second bounds what only the clock sees.
const SLEEP: Duration = Duration::from_secs(1);

/// How lost rails are reconnected.
pub(crate) enum ReconnectPolicy {
    /// They do not: there is one rail, or it is not TCP.
    Never,
    /// The peer dials again, our listener's acceptor receives. That other hosts relay it was told already, or not.
    Accepts { acceptor: Arc<Mutex<Acceptor>>, conn: Arc<ConnId>, relayed: bool },
    /// We dial again, each time under the next number: a stream logs in once. Behind the last one it begins again.
    Dials { handle: Handle, conn: u64, next: u16, reconnectors: Vec<Reconnector> },
}

/// A connection to a peer process. Driven by one thread at a time; no call blocks but [`Channel::wait`].
pub struct Channel {
    conn: Conn,
    meter: Meter,
    fabric: Fabric,
    keepalive: Option<Keepalive>,
    unwatched: Option<Unwatched>,
    policy: ReconnectPolicy,
    calls: u32,
    /// What was sent last went as one control message.
    small: bool,
    /// Something has moved since the last periodic check.
    moved: bool,
    /// A periodic check has read what the caller was not told of yet.
    unseen: bool,
    /// The first operation of those under way was posted since then. Sends that wait for a receive are not under way.
    fresh: bool,
    last_tick: Instant,
    /// No operation under way has been without an answer since before this.
    last_active: Instant,
    /// When anything moved last.
    last_moved: Instant,
    rails_lost: u64,
    /// Warnings of lost rails that are not given yet, since when, and of how many rails.
    untold: Vec<String>,
    untold_since: Instant,
    lost_untold: u64,
    missed: MissingRails,
    reported_lost: bool,
    /// How the keepalive connection ended, and when that was seen.
    ended: Option<(Ended, Instant)>,
    /// The transport whose rails it was made over, where other hosts may relay those: streams are on standby behind them.
    rdma: Option<&'static str>,
    /// The transport that it was made over.
    transport: &'static str,
    /// Its streams are on standby behind other rails.
    standbys: bool,
    /// What is registered with the devices under it.
    memory: ConnMemory,
    /// Memory that the peer may write by a key; dropped after the rails.
    exposed: HashMap<u32, Registered>,
    /// The device whose memory it carries.
    gpu: Option<Arc<dyn Gpu>>,
    /// What tells NCCL's kernels where pieces are.
    queue: Option<Arc<Queue>>,
    /// When a reroute was looked for last.
    looked: Instant,
    /// The peer's host in the mesh.
    peer: Option<u64>,
    peer_key: Option<PublicKey>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({})", self.describe())
    }
}

/// What a channel is made of.
pub(crate) struct Parts {
    pub(crate) conn: Conn,
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) policy: ReconnectPolicy,
    /// Name of the device it belongs to.
    pub(crate) device: String,
    /// Which side this is: `connected` or `accepted`.
    pub(crate) verb: &'static str,
    /// The key that the peer has proven.
    pub(crate) peer_key: Option<PublicKey>,
    /// Paths that were tried without success.
    pub(crate) left_out: Vec<String>,
}

impl Channel {
    pub(crate) fn new(fabric: &Fabric, parts: Parts) -> Channel {
        let now = Instant::now();
        let first = parts.conn.rails().next().map(|(_, rail)| rail.info());
        let transport = first.map_or("none", |info| info.transport);
        let name = parts.peer_key.map(|key| fabric.config().name_of(&key));
        let peer = name.as_deref().unwrap_or_default();
        let reason = first.map_or("", |info| &info.reason);
        let meter = Meter::new(fabric.stats(), &parts.device, transport, peer, reason);
        let provider = fabric.provider(transport).filter(|provider| provider.relayer().is_some());
        let rdma = provider.map(|provider| provider.name());
        let standbys = parts.conn.rails().any(|(_, rail)| rail.info().standby);
        let memory = ConnMemory::default();
        parts.conn.rails().for_each(|(_, rail)| {
            // Nothing is registered yet that it could refuse.
            let _ = memory.take_in(rail);
        });
        let peer = match &parts.policy {
            ReconnectPolicy::Dials { handle, .. } => Some(handle.host),
            ReconnectPolicy::Accepts { .. } | ReconnectPolicy::Never => None,
        };
        let channel = Channel {
            meter,
            conn: parts.conn,
            fabric: fabric.clone(),
            keepalive: parts.keepalive,
            unwatched: None,
            policy: parts.policy,
            untold: Vec::new(),
            untold_since: now,
            lost_untold: 0,
            calls: 0,
            small: false,
            moved: false,
            unseen: false,
            fresh: false,
            last_tick: now,
            last_active: now,
            last_moved: now,
            rails_lost: 0,
            missed: MissingRails::default(),
            reported_lost: false,
            ended: None,
            rdma,
            transport,
            standbys,
            memory,
            exposed: HashMap::new(),
            gpu: None,
            queue: None,
            looked: now,
            peer,
            peer_key: parts.peer_key,
        };
        let name = name.map(|name| format!(" {name}")).unwrap_or_default();
        let mut line = format!("{}{name} via {}", parts.verb, channel.describe());
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
    /// [`GpuError::OtherDevice`] where the connection has another GPU already; [`GpuError::Unsupported`] where a path
    /// reaches host memory only and staging is off, or strict mode forbids the slower way; any other [`GpuError`] of
    /// the device.
    pub fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        if self.gpu.as_ref().is_some_and(|ours| ours.place() == gpu.place()) {
            return Ok(());
        }
        let attached = self.conn.try_each_rail(|rail| rail.attach(gpu));
        self.report_events();
        attached?;
        self.gpu = Some(gpu.clone());
        self.fabric.log().info(&format!("{} memory via {}", gpu.info().id(), self.describe()));
        Ok(())
    }

    /// What the transports want people to know.
    fn report_events(&mut self) {
        let log = self.fabric.log();
        let told = self.conn.try_each_rail(|rail| {
            while let Some(line) = rail.event() {
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

    /// Whether a card fills device memory that was not registered with it, so that what has arrived must be flushed before the GPU looks.
    pub fn writes_device_memory(&self) -> bool {
        self.gpu.is_some() && self.conn.rails().any(|(_, rail)| rail.writes_devices())
    }

    /// The key that the peer has proven, in a login by key pairs.
    pub fn peer_key(&self) -> Option<&PublicKey> {
        self.peer_key.as_ref()
    }

    /// What the peer is called here, in a login by key pairs: the name that it was paired under, or else its key's fingerprint.
    pub fn peer_name(&self) -> Option<String> {
        Some(self.fabric.config().name_of(self.peer_key()?))
    }

    /// Which path carries the connection and why, one line.
    pub fn describe(&self) -> String {
        paths::line(self.rails())
    }

    /// The same in lines: one for each rail, below the reason that several have.
    pub fn path_lines(&self) -> Vec<String> {
        paths::lines(self.rails())
    }

    /// The rails that are up: transport, path and reason of each.
    pub fn rails(&self) -> impl Iterator<Item = &linkspan_transport::RailInfo> {
        self.conn.rails().map(|(_, r)| r.info())
    }

    /// Rails lost so far; those that were reconnected count too.
    pub fn rails_lost(&self) -> u64 {
        self.rails_lost
    }

    /// An operation is posted. What was before the first of those under way is no silence.
    #[inline]
    fn posts(&mut self) {
        self.fresh |= self.conn.moving() == 0;
    }

    /// See [`Conn::post_send`].
    ///
    /// # Errors
    /// As [`Conn::post_send`]: [`ConnError::DeviceMemory`], [`ConnError::Closed`], [`ConnError::Lost`].
    #[inline]
    pub fn post_send(&mut self, tag: u32, src: MemSlice) -> Result<Option<Ticket>, ConnError> {
        self.posts();
        let waiting = self.conn.waiting();
        let answer = self.conn.post_send(tag, src);
        self.small = src.len() <= EAGER_MAX;
        // One that waits is counted when it leaves.
        self.meter.posted(answer, (self.conn.waiting() == waiting).then_some(src))
    }

    /// See [`Conn::cancel`].
    pub fn cancel(&mut self, ticket: Ticket) -> Cancel {
        self.conn.cancel(ticket)
    }

    /// See [`Conn::waiting`].
    #[inline]
    pub fn waiting(&self) -> usize {
        self.conn.waiting()
    }

    /// See [`Conn::moving`].
    #[inline]
    pub fn moving(&self) -> usize {
        self.conn.moving()
    }

    /// See [`Conn::post_recv`].
    ///
    /// # Errors
    /// As [`Conn::post_recv`]: [`ConnError::Op`] for a group of no parts or too many; [`ConnError::DeviceMemory`],
    /// [`ConnError::Closed`], [`ConnError::Lost`].
    #[inline]
    pub fn post_recv(&mut self, parts: &[(u32, MemSlice)]) -> Result<Option<Ticket>, ConnError> {
        self.posts();
        let answer = self.conn.post_recv(parts);
        self.meter.posted(answer, None)
    }

    /// See [`Conn::post_write`].
    ///
    /// # Errors
    /// As [`Conn::post_write`]: [`ConnError::Op`] for a range that no region can have, or a connection without
    /// acknowledgements; [`ConnError::DeviceMemory`], [`ConnError::Closed`], [`ConnError::Lost`].
    pub fn post_write(
        &mut self,
        src: MemSlice,
        to: RemoteSlice,
        notify: Option<u64>,
    ) -> Result<Option<Ticket>, ConnError> {
        self.posts();
        let answer = self.conn.post_write(src, to, notify);
        self.meter.posted(answer, Some(src))
    }

    /// See [`Conn::post_read`].
    ///
    /// # Errors
    /// As [`Channel::post_write`].
    pub fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Result<Option<Ticket>, ConnError> {
        self.posts();
        let answer = self.conn.post_read(dst, from);
        self.meter.posted(answer, None)
    }

    /// See [`Conn::copy_alone`].
    pub fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        let copied = self.conn.copy_alone(mem, place, write);
        if copied {
            self.meter.copied(mem.len() as u64, write);
        }
        copied
    }

    /// See [`Conn::expose`].
    pub fn expose(&mut self, mem: MemSlice, access: Access) -> Option<u32> {
        let key = self.conn.expose(mem, access)?;
        self.expose_to_devices(key, mem, access);
        Some(key)
    }

    fn expose_to_devices(&mut self, key: u32, mem: MemSlice, access: Access) {
        if access != Access::Read {
            self.exposed.insert(key, self.memory.exposed(mem));
        }
    }

    /// See [`Conn::unexpose`]. When it has returned true RDMA devices do not let the peer write there either.
    pub fn unexpose(&mut self, key: u32) -> bool {
        let ended = self.conn.unexpose(key);
        if ended {
            self.exposed.remove(&key);
        }
        ended
    }

    /// See [`Conn::take_notify`].
    pub fn take_notify(&mut self) -> Option<u64> {
        self.conn.take_notify()
    }

    /// See [`Conn::take_unexpected`].
    pub fn take_unexpected(&mut self) -> Option<(u64, u32, &[u8])> {
        self.conn.take_unexpected()
    }

    /// See [`Conn::control_counts`].
    pub fn control_counts(&self) -> (u64, u64) {
        self.conn.control_counts()
    }

    /// See [`Conn::expose_at`].
    #[must_use]
    pub fn expose_at(&mut self, key: u32, mem: MemSlice, access: Access) -> bool {
        let fresh = self.conn.expose_at(key, mem, access);
        if fresh {
            self.expose_to_devices(key, mem, access);
        }
        fresh
    }

    /// See [`Conn::notifies_seen`].
    pub fn notifies_seen(&self) -> u64 {
        self.conn.notifies_seen()
    }

    /// See [`Conn::notifies_refused`].
    pub fn notifies_refused(&self) -> [u64; 8] {
        self.conn.notifies_refused()
    }

    /// See [`Conn::flush`].
    pub fn flush(&mut self) {
        self.conn.flush();
    }

    /// Sends that were posted leave. To look at arrivals costs a system call: that is done where the credit that they bring runs low.
    #[inline]
    pub fn leave(&mut self) {
        if self.conn.credit_is_low() {
            // A loss is told by the next test.
            let _ = self.drive();
        } else {
            self.conn.flush();
        }
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

    /// Whether the peer ended the connection regularly, as opposed to having ended without notice.
    pub fn peer_sent_goaway(&self) -> bool {
        self.conn.peer_sent_goaway()
    }

    /// Ends the connection without notice to the peer: when this returns, nothing of ours reads or writes any memory
    /// given to it. The peer learns that we live, where the connection was not lost already: then from the end of
    /// [`PeerLiveness`].
    pub fn cut(&mut self, why: &str) {
        self.reported_lost = true;
        let lost = self.conn.lost().is_some();
        if let Some(keepalive) = &mut self.keepalive {
            let ended = keepalive.check().is_err();
            if ended {
                self.ended = keepalive.ended().map(|ended| (ended, Instant::now()));
            }
            if ended || !lost {
                keepalive.leave();
            }
        }
        // Its end says something together with that of the rails, and these have not ended by themselves.
        if !lost && let Some((ended @ Ended::Closed, _)) = &mut self.ended {
            *ended = Ended::Broken;
        }
        self.conn.fail(Down::PeerGone { path: String::new(), why: why.to_owned() });
    }

    /// See [`Conn::test`].
    ///
    /// # Errors
    /// As [`Conn::test`]: [`ConnError::Op`] where the operation failed or the ticket is not in flight;
    /// [`ConnError::Closed`], [`ConnError::Lost`].
    #[inline]
    pub fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ConnError> {
        let done = self.conn.test(ticket);
        if let Ok(Some(_)) = done {
            self.meter.done(ticket);
        }
        done
    }

    /// [`Conn::test`] of a send, after moving what can be moved if it was not done. A small message is done when the medium
    /// has taken it: that is tried first, and what the peer has to say is looked at when it was not enough, where credit runs low,
    /// and while sends wait for it.
    ///
    /// # Errors
    /// As [`Channel::test`].
    #[inline]
    pub fn test_sent(&mut self, ticket: Ticket) -> Result<Option<u64>, ConnError> {
        if let Some(bytes) = self.test(ticket)? {
            return Ok(Some(bytes));
        }
        if self.small && !self.conn.credit_is_low() && self.conn.waiting() == 0 {
            self.conn.flush();
            if let Some(bytes) = self.test(ticket)? {
                return Ok(Some(bytes));
            }
        }
        // A loss is reported by the test below, unless the operation was done before it.
        let _ = self.drive();
        self.test(ticket)
    }

    /// [`Conn::test`] of a receive: true when it is done, with the size of each of its parts in `sizes`.
    ///
    /// # Errors
    /// As [`Channel::test`].
    #[inline]
    pub fn test_sizes(&mut self, ticket: Ticket, sizes: &mut [usize]) -> Result<bool, ConnError> {
        if self.test(ticket)?.is_none() {
            return Ok(false);
        }
        for (size, found) in sizes.iter_mut().zip(self.conn.sizes(ticket)) {
            *size = *found as usize;
        }
        Ok(true)
    }

    /// Moves everything that can move without blocking: reads, writes and acknowledges on all rails.
    ///
    /// # Errors
    /// As [`Conn::progress`]: [`ConnError::Lost`], [`ConnError::Closed`].
    #[inline]
    pub fn progress(&mut self) -> Result<Poll, ConnError> {
        let result = self.conn.progress();
        self.progressed(result)
    }

    /// [`Channel::progress`] for callers that have nobody to tell the error of an earlier message to: it is left for the next call
    /// that does.
    ///
    /// # Errors
    /// As [`Conn::drive`]: [`ConnError::Lost`], [`ConnError::Closed`].
    #[inline]
    pub fn drive(&mut self) -> Result<Poll, ConnError> {
        let result = self.conn.drive();
        self.progressed(result)
    }

    fn progressed(&mut self, result: Result<Poll, ConnError>) -> Result<Poll, ConnError> {
        self.calls = self.calls.wrapping_add(1);
        self.moved |= matches!(result, Ok(Poll::Active));
        if self.calls.is_multiple_of(TICK_CALLS) {
            self.tick();
        }
        match result {
            Ok(_) if std::mem::take(&mut self.unseen) => Ok(Poll::Active),
            Ok(_) => result,
            Err(_) => {
                self.report_loss();
                result
            }
        }
    }

    /// Sleeps until something may have happened, at most `most` and at most a second, so that the periodic checks run.
    pub fn wait(&mut self, most: Duration) {
        wait_any(&mut [self], most);
    }

    /// Prepares to sleep: adds what to wait for, or returns false where there is work. For callers that sleep on more than
    /// channels; [`Channel::after_sleep`] follows. The next [`Channel::progress`] undoes it.
    pub fn arm(&mut self, fds: &mut Vec<WaitFd>) -> bool {
        if self.unseen || !self.conn.arm(fds) {
            return false;
        }
        fds.extend(self.keepalive.as_ref().map(Keepalive::wait_fd));
        true
    }

    /// Longest sleep: shorter while something has to be looked after by the clock.
    pub fn patience(&self) -> Duration {
        let mending = match &self.policy {
            ReconnectPolicy::Never => false,
            ReconnectPolicy::Accepts { .. } => !self.missed.is_empty(),
            ReconnectPolicy::Dials { reconnectors, .. } => reconnectors.iter().any(Reconnector::is_busy),
        };
        let mending = mending || self.waits_for_way() || !self.untold.is_empty();
        let watched = self.conn.moving() > 0 && (self.conn.rails().count() > 1 || self.fabric.config().stall.is_some());
        if mending || watched { TICK } else { SLEEP }
    }

    /// Runs the periodic checks (lost rails, the peer's process) after a sleep that [`Channel::arm`] prepared.
    pub fn after_sleep(&mut self) {
        self.last_tick = self.last_tick.checked_sub(TICK).unwrap_or(self.last_tick);
        self.tick();
    }

    /// Why the connection was lost, if it was.
    pub fn lost(&self) -> Option<String> {
        self.conn.lost().map(|down| chain(down))
    }

    /// The same, as what it was.
    pub fn lost_by(&self) -> Option<&Down> {
        self.conn.lost()
    }

    #[cold]
    fn report_loss(&mut self) {
        if let (false, Some(why)) = (self.reported_lost, self.conn.lost()) {
            self.reported_lost = true;
            self.meter.add(Counter::Failures, 1);
            self.fabric.log().info(&format!("connection ended: {}", chain(why)));
        }
    }

    /// Reads what has come while nobody called. True where there was something: it is an arrival like others, and whoever drives the
    /// channel is told by the next [`Channel::progress`].
    #[cold]
    fn read_first(&mut self) -> bool {
        self.conn.catch_up();
        let came = matches!(self.conn.drive(), Ok(Poll::Active));
        if came {
            (self.moved, self.unseen) = (true, true);
            self.last_active = Instant::now();
        }
        came
    }

    #[cold]
    fn tick(&mut self) {
        let now = Instant::now();
        self.meter.traffic(self.conn.traffic(), self.conn.copied_by_peer());
        self.meter.report();
        linkspan_stream::closing::sweep();
        let moved = std::mem::take(&mut self.moved);
        if std::mem::take(&mut self.fresh) || moved || self.conn.moving() == 0 {
            self.last_active = now;
        }
        if moved {
            self.last_moved = now;
        }
        if now.duration_since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = now;
        self.watch(now);
        let silence = now.duration_since(self.last_active);
        if self.fabric.config().stall.is_some_and(|stall| silence > stall) && !self.read_first() {
            let why = format!("silent for {} ms with operations under way (LINKSPAN_STALL_MS)", silence.as_millis());
            self.conn.fail(Down::PeerGone { path: self.describe(), why });
        }
        self.watch_unguarded();
        if self.conn.stalled_rail().is_some() {
            // The peer may say that it has given another one up.
            self.read_first();
            if let Some((slot, path)) = self.conn.stalled_rail() {
                let why = "packets are not acknowledged".into();
                let _ = self.conn.give_up_rail(slot, Down::PeerGone { path, why });
            }
        }
        self.tell_losses(now);
        while let Some(lost) = self.conn.events() {
            self.missed.note(&lost.info);
            let why = cause(&lost.why);
            let line = format!("rail lost: {} {}: {why}; {} left", lost.info.transport, lost.info.path, lost.left);
            self.hold_line(line, now);
            self.lost_untold += 1;
            if let ReconnectPolicy::Dials { reconnectors, .. } = &mut self.policy {
                reconnectors.iter_mut().for_each(|r| r.lost(&lost.info.path, now));
            }
            self.switch_standby(now);
        }
        self.report_events();
        self.reroute(now);
        self.take_back(now);
        let retries = self.conn.rails().map(|(_, rail)| rail.health().retransmitted).sum();
        self.meter.retries(retries);
    }

    /// The memory of the RDMA devices and cables under this connection; empty where there are none. It knows those of paths
    /// that come up later.
    pub fn memory(&self) -> ConnMemory {
        self.memory.clone()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.meter.traffic(self.conn.traffic(), self.conn.copied_by_peer());
    }
}

/// Why a path is down, where the peer may be reached over others: it is the path that is gone, and not the peer.
fn cause(down: &Down) -> String {
    match down {
        Down::PeerGone { why, .. } => why.clone(),
        other => chain(other),
    }
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
