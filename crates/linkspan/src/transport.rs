//! The transport: one peer, one-sided and two-sided operations.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{Access, Buf, Gpu, RemoteSlice};

use crate::acceptor::Acceptor;
use crate::context::{Context, Support, random};
use crate::hello::HELLO_TAG;
use crate::memory::{MutableView, View};
use crate::op::Op;
use crate::ops::{Kind, Notify, OpId, Part};
use crate::pages::{Moved, MutablePages, Pages, RemotePages};
use crate::regions::Exposed;
use crate::shared::Shared;
use crate::state::{Phase, TransportState};
use crate::stats::TransportStats;
use crate::url::{Url, UrlKind};
use crate::{Error, RemoteBuffer, deadline};

/// A connection to one peer process, for writes into and reads from its memory, and for messages.
///
/// Every operation comes as a future ([`Op`]) that begins at the call, and as a blocking twin whose thread drives the path
/// itself. All may be called from several threads at a time; operations are posted in the order of the calls.
///
/// A `timeout` of `None` waits as long as the peer is alive. When an operation's time is up while it is under way, its path is
/// revoked: the operation reports [`Error::Timeout`] once the peer has confirmed that nothing of the old path lands any more,
/// or [`Error::TimedOutUnrevoked`] when it has not after one more second (`LINKSPAN_REVOKE_MS`). The path is made again by
/// itself; other operations go on over the new one, and each notification still comes exactly once. Two-sided messages under
/// way report [`Error::Interrupted`].
///
/// A peer whose process or host has ended makes the transport [`Error::Broken`], permanently. A new transport to a new peer at
/// the same place works at once. Dropping a transport ends what is pending with [`Error::Aborted`] and closes the connection.
pub struct Transport {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.connected() { "Transport(connected)" } else { "Transport(not connected)" })
    }
}

/// What one part of a batch writes: from here to there.
pub type Write<'m> = (View<'m>, RemoteBuffer);

/// What one part of a batch reads: into here from there.
pub type Read<'m> = (MutableView<'m>, RemoteBuffer);

impl Transport {
    /// A transport in the shared context of the process ([`Context::shared`]).
    ///
    /// # Errors
    /// Those of [`Context::shared`] and [`Context::transport`]: [`Error::Fabric`], [`Error::System`].
    pub fn new() -> Result<Transport, Error> {
        Context::shared()?.transport()
    }

    /// Which paths the shared context has, and why not the others.
    ///
    /// # Errors
    /// Those of [`Context::shared`].
    pub fn supported() -> Result<Vec<Support>, Error> {
        Ok(Context::shared()?.supported())
    }

    /// A transport that carries memory of a GPU beside that of the host: `cuda:0`, `hip:1`. Paths that do not reach it are staged
    /// through pinned host memory, and [`Transport::path`] says so.
    ///
    /// # Errors
    /// [`Error::Gpu`]: there is no such GPU, or no driver for it; `LINKSPAN_GPU=off`. As [`Transport::new`].
    pub fn for_gpu(name: &str) -> Result<Transport, Error> {
        let transport = Context::shared_for_gpus()?.transport()?;
        transport.attach(&crate::gpu(name)?)?;
        Ok(transport)
    }

    /// Carries memory of `gpu` from now on, over every path. One GPU for each transport, at best before it is connected.
    ///
    /// # Errors
    /// [`Error::Device`]: the transport has another GPU. [`Error::Gpu`]: a path reaches host memory only and staging is
    /// off (`LINKSPAN_GPU`). Where that turns out when the path comes up, the transport is broken then
    /// ([`Error::Broken`]).
    pub fn attach(&self, gpu: &Arc<dyn Gpu>) -> Result<(), Error> {
        self.shared.lock().attach(gpu)
    }

    pub(crate) fn on(ctx: &Context, device: usize) -> Result<Transport, Error> {
        let shared = Shared::new(TransportState::new(ctx, device, random()?))?;
        Ok(Transport { shared })
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Transport {
        Transport { shared }
    }

    /// Lets a peer connect: the URL is for that one peer, and stays the same however often it is asked for. The peer may
    /// connect from now on; [`Transport::wait_connected`] says when it has.
    ///
    /// # Errors
    /// [`Error::Fabric`]: the device does not exist, or the OS refuses a listening socket. [`Error::Broken`].
    pub fn bind(&self) -> Result<Url, Error> {
        let mut guard = self.shared.lock();
        if let Phase::Broken(why) = &guard.phase {
            return Err(Error::Broken(why.clone()));
        }
        if let Some(url) = &guard.url {
            return Ok(url.clone());
        }
        let acceptor = Acceptor::new(guard.ctx.fabric(), guard.device)?;
        let url = Url::new(UrlKind::Transport, guard.id, acceptor.handle());
        guard.acceptor = Some(Arc::new(acceptor));
        guard.url = Some(url.clone());
        self.shared.see_to_it(guard);
        Ok(url)
    }

    /// Connects to the transport or listener at `url`. One side suffices; where both have bound and call it with each other's
    /// URL, one path comes of it. Output 0. Dropped before it has reported it is given up, and another may begin; a peer that has
    /// taken the path already sees its end.
    ///
    /// # Errors
    /// [`Error::Connect`], which names every path that was tried, also when the time is over; [`Error::HasPeer`];
    /// [`Error::Broken`]; [`Error::Aborted`].
    pub fn connect(&self, url: &Url, timeout: Duration) -> Op<'static> {
        let mut guard = self.shared.lock();
        let begun = guard.begin_connect(url, timeout);
        self.shared.see_to_it(guard);
        Op::new(&self.shared, begun)
    }

    /// The blocking twin of [`Transport::connect`].
    ///
    /// # Errors
    /// As [`Transport::connect`].
    pub fn connect_blocking(&self, url: &Url, timeout: Duration) -> Result<(), Error> {
        self.run(|state| state.begin_connect(url, timeout)).map(drop)
    }

    /// Waits until the peer that has our URL is connected, whatever comes of connects meanwhile. Output 0.
    ///
    /// # Errors
    /// [`Error::Connect`]: no peer connected in time. [`Error::Broken`], [`Error::Aborted`].
    pub fn wait_connected(&self, timeout: Duration) -> Op<'static> {
        let mut guard = self.shared.lock();
        let begun = guard.begin_wait(timeout);
        self.shared.see_to_it(guard);
        Op::new(&self.shared, begun)
    }

    /// The blocking twin of [`Transport::wait_connected`].
    ///
    /// # Errors
    /// As [`Transport::wait_connected`].
    pub fn wait_connected_blocking(&self, timeout: Duration) -> Result<(), Error> {
        self.run(|state| state.begin_wait(timeout)).map(drop)
    }

    /// The context that it was made in.
    pub fn context(&self) -> Context {
        self.shared.lock().ctx.clone()
    }

    /// Whether there is a path to the peer at this moment.
    pub fn connected(&self) -> bool {
        let guard = self.shared.lock();
        matches!(guard.phase, Phase::Up(_))
    }

    /// What carries the bytes and why, one line; `None` while there is no path.
    pub fn path(&self) -> Option<String> {
        let mut guard = self.shared.lock();
        guard.channel().map(|ch| ch.describe())
    }

    /// What the peer is called here, where it has proven its key: the name that it was paired under, or else its key's
    /// fingerprint. `None` without a login by key pairs, and while there is no path.
    pub fn peer_name(&self) -> Option<String> {
        let mut guard = self.shared.lock();
        guard.channel().and_then(|ch| ch.peer_name())
    }

    /// What this transport has done so far.
    pub fn stats(&self) -> TransportStats {
        let guard = self.shared.lock();
        TransportStats { paths: u64::from(guard.epoch), ..guard.ops.stats() }
    }

    /// Paths to the peer so far: one, and one more for every revocation.
    pub fn epoch(&self) -> u32 {
        self.shared.lock().epoch
    }

    /// Gives the peer access to a range of memory, before or after it has connected, until [`Transport::unexpose`] or the end of
    /// the transport, which keep the memory alive. The same range with the same rights twice is one region with one key.
    ///
    /// Over RDMA a range that the peer may write is registered with the network card here, which takes time for large ones. The
    /// card's key opens these bytes and no others, to every peer that this process has through that card: expose no more than
    /// each of them may write. For memory that is only read there is no such key.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: the memory must not be written and `access` allows writes. [`Error::TooManyRegions`].
    /// [`Error::Device`]: the memory is of a GPU that this transport does not carry.
    pub fn expose(&self, view: &View<'_>, access: Access) -> Result<Exposed, Error> {
        if access != Access::Read && !view.is_writable() {
            return Err(Error::ReadOnly);
        }
        let mut guard = self.shared.lock();
        guard.carries(view)?;
        let TransportState { regions, phase, id, .. } = &mut *guard;
        regions.expose(*id, view, access, phase.exposing())
    }

    /// Takes access back. When this returns nothing of the peer lands in the region any more and nothing is read from it;
    /// operations of the peer that are under way on it are refused. Where that takes longer than `timeout` (a peer that
    /// stopped in the middle of a write), the path is revoked and made again.
    ///
    /// Over RDMA the network card refuses the key of the region from then on, whatever the peer does. Bytes that another
    /// transport of this process still exposes for writing stay open to its key until that takes them back.
    ///
    /// # Errors
    /// [`Error::NotExposed`]: the region was taken back already, or is not of this transport.
    pub fn unexpose(&self, region: &Exposed, timeout: Duration) -> Result<(), Error> {
        let key = region.remote.key();
        let mut guard = self.shared.lock();
        let settled = |state: &mut TransportState| {
            let TransportState { regions, phase, ops, .. } = state;
            regions.settle(phase.exposing(), &mut ops.left.holds);
            !regions.is_leaving(key)
        };
        // The keys of another transport are the same numbers.
        if region.remote.domain != guard.id {
            return Err(Error::NotExposed(key));
        }
        let last = guard.regions.take_back(key)?;
        let gone = !last || settled(&mut guard);
        self.shared.unlock(guard);
        if gone || self.shared.run_until(deadline(timeout), settled) {
            return Ok(());
        }
        let mut guard = self.shared.lock();
        guard.revoke_reach(Instant::now());
        self.shared.see_to_it(guard);
        Ok(())
    }

    /// Writes into the peer's memory, and notifies it afterwards if asked. Output: bytes written. Where a peer on this host sleeps, up to
    /// 1 MiB without a notification is copied by the call itself, and the peer is not woken.
    ///
    /// # Errors
    /// At once: [`Error::WrongPeer`], [`Error::NoRight`], [`Error::Bounds`], [`Error::Device`],
    /// [`Error::NotConnected`], [`Error::Broken`]. Later: [`Error::Timeout`], [`Error::TimedOutUnrevoked`],
    /// [`Error::Aborted`]; [`Error::Op`] where the peer refuses.
    pub fn write<'m>(
        &self,
        view: &View<'m>,
        to: &RemoteBuffer,
        notify: Option<Notify>,
        timeout: Option<Duration>,
    ) -> Op<'m> {
        self.begin(|state| one(state, Kind::Write, view, to, notify, timeout))
    }

    /// The blocking twin of [`Transport::write`].
    ///
    /// # Errors
    /// As [`Transport::write`].
    pub fn write_blocking(
        &self,
        view: &View<'_>,
        to: &RemoteBuffer,
        notify: Option<Notify>,
        timeout: Option<Duration>,
    ) -> Result<u64, Error> {
        self.run(|state| one(state, Kind::Write, view, to, notify, timeout))
    }

    /// Reads from the peer's memory: the first `view.len()` bytes of `from`. Output: bytes read. From a peer on this host as
    /// [`Transport::write`].
    ///
    /// # Errors
    /// As [`Transport::write`].
    pub fn read<'m>(&self, view: &MutableView<'m>, from: &RemoteBuffer, timeout: Option<Duration>) -> Op<'m> {
        self.begin(|state| one(state, Kind::Read, view.view(), from, None, timeout))
    }

    /// The blocking twin of [`Transport::read`].
    ///
    /// # Errors
    /// As [`Transport::read`].
    pub fn read_blocking(
        &self,
        view: &MutableView<'_>,
        from: &RemoteBuffer,
        timeout: Option<Duration>,
    ) -> Result<u64, Error> {
        self.run(|state| one(state, Kind::Read, view.view(), from, None, timeout))
    }

    /// Many writes in one call, scattered as they like on both sides; the notification covers all of them. Output: bytes
    /// written, summed. The first refusal ends the batch.
    ///
    /// # Errors
    /// As [`Transport::write`]; [`Error::EmptyBatch`] for no parts with a notification.
    pub fn write_batch<'m>(&self, parts: &[Write<'m>], notify: Option<Notify>, timeout: Option<Duration>) -> Op<'m> {
        self.begin(|state| many(state, Kind::Write, parts.iter().map(|p| (&p.0, &p.1)), notify, timeout))
    }

    /// The blocking twin of [`Transport::write_batch`].
    ///
    /// # Errors
    /// As [`Transport::write_batch`].
    pub fn write_batch_blocking(
        &self,
        parts: &[Write<'_>],
        notify: Option<Notify>,
        timeout: Option<Duration>,
    ) -> Result<u64, Error> {
        self.run(|state| many(state, Kind::Write, parts.iter().map(|p| (&p.0, &p.1)), notify, timeout))
    }

    /// Many reads in one call. Output: bytes read, summed.
    ///
    /// # Errors
    /// As [`Transport::read`].
    pub fn read_batch<'m>(&self, parts: &[Read<'m>], timeout: Option<Duration>) -> Op<'m> {
        self.begin(|state| many(state, Kind::Read, parts.iter().map(|p| (p.0.view(), &p.1)), None, timeout))
    }

    /// The blocking twin of [`Transport::read_batch`].
    ///
    /// # Errors
    /// As [`Transport::read_batch`].
    pub fn read_batch_blocking(&self, parts: &[Read<'_>], timeout: Option<Duration>) -> Result<u64, Error> {
        self.run(|state| many(state, Kind::Read, parts.iter().map(|p| (p.0.view(), &p.1)), None, timeout))
    }

    /// Writes pages by their numbers: page `ours[n]` of `from` becomes page `theirs[n]` of `to`, for every `n`. One operation, whose
    /// notification covers all of them; in which order they arrive is not said. Output: bytes written, summed.
    ///
    /// # Errors
    /// [`Error::PageIndex`], [`Error::PageMismatch`], [`Error::PageLists`]; as [`Transport::write_batch`].
    pub fn write_pages<'m>(
        &self,
        from: &Pages<'m>,
        ours: &[u64],
        to: &RemotePages,
        theirs: &[u64],
        notify: Option<Notify>,
        timeout: Option<Duration>,
    ) -> Op<'m> {
        self.begin(|state| paged(state, Kind::Write, &Moved::new(from, ours, to, theirs)?, notify, timeout))
    }

    /// The blocking twin of [`Transport::write_pages`].
    ///
    /// # Errors
    /// As [`Transport::write_pages`].
    pub fn write_pages_blocking(
        &self,
        from: &Pages<'_>,
        ours: &[u64],
        to: &RemotePages,
        theirs: &[u64],
        notify: Option<Notify>,
        timeout: Option<Duration>,
    ) -> Result<u64, Error> {
        self.run(|state| paged(state, Kind::Write, &Moved::new(from, ours, to, theirs)?, notify, timeout))
    }

    /// Reads pages by their numbers: page `ours[n]` of `into` gets page `theirs[n]` of `from`, for every `n`. Output: bytes read,
    /// summed.
    ///
    /// # Errors
    /// [`Error::PageIndex`], [`Error::PageMismatch`], [`Error::PageLists`]; as [`Transport::read`].
    pub fn read_pages<'m>(
        &self,
        into: &MutablePages<'m>,
        ours: &[u64],
        from: &RemotePages,
        theirs: &[u64],
        timeout: Option<Duration>,
    ) -> Op<'m> {
        self.begin(|state| paged(state, Kind::Read, &Moved::new(into.pages(), ours, from, theirs)?, None, timeout))
    }

    /// The blocking twin of [`Transport::read_pages`].
    ///
    /// # Errors
    /// As [`Transport::read_pages`].
    pub fn read_pages_blocking(
        &self,
        into: &MutablePages<'_>,
        ours: &[u64],
        from: &RemotePages,
        theirs: &[u64],
        timeout: Option<Duration>,
    ) -> Result<u64, Error> {
        self.run(|state| paged(state, Kind::Read, &Moved::new(into.pages(), ours, from, theirs)?, None, timeout))
    }

    /// Waits for one notification of the peer, the oldest first; each is taken by one wait. Output: its value, 0 for
    /// [`Notify::COUNT`]. A wait that times out leaves the path alone, so a timeout of zero is the way to poll: its blocking twin waits for
    /// no other thread then either, and a [`Waker`](std::task::Waker) may call it.
    ///
    /// # Errors
    /// [`Error::Timeout`]: no notification came in time. [`Error::NotConnected`], [`Error::Broken`],
    /// [`Error::Aborted`].
    pub fn wait_for_write(&self, timeout: Option<Duration>) -> Op<'static> {
        self.begin(|state| wait(state, timeout))
    }

    /// Puts a notification back that a wait gave and nobody used, as that of a task which was cancelled when it had been given it: it is
    /// the next one. [`Op::give_back`] puts several back in their order.
    pub fn give_back(&self, value: u64) {
        let mut guard = self.shared.lock();
        guard.give_back(0, value);
        self.shared.unlock(guard);
    }

    /// The blocking twin of [`Transport::wait_for_write`].
    ///
    /// # Errors
    /// As [`Transport::wait_for_write`].
    pub fn wait_for_write_blocking(&self, timeout: Option<Duration>) -> Result<u64, Error> {
        self.run(|state| wait(state, timeout))
    }

    /// Sends a message to the peer's receive with the same tag; the k-th send with a tag meets the k-th receive with it.
    /// Output: bytes sent. It is done when the peer's process has it; a small one may be so before its receive is posted, and then comes
    /// to it also when this transport or its path has ended meanwhile. A large one waits for its receive. Both sides may send first. One
    /// that times out or is dropped while it waits is withdrawn, and its path stays.
    ///
    /// # Errors
    /// [`Error::Tag`] for a tag that is kept for the transport; [`Error::Interrupted`] where the path was lost, or
    /// revoked for another operation, while it was under way; [`Error::Op`] for a message longer than its receive (a small one fails at the receiver
    /// only); [`Error::Timeout`], [`Error::TimedOutUnrevoked`], [`Error::Aborted`], [`Error::NotConnected`],
    /// [`Error::Broken`], [`Error::Device`].
    pub fn send<'m>(&self, tag: u32, view: &View<'m>, timeout: Option<Duration>) -> Op<'m> {
        self.begin(|state| message(state, Kind::Send(tag), tag, view, timeout))
    }

    /// The blocking twin of [`Transport::send`].
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub fn send_blocking(&self, tag: u32, view: &View<'_>, timeout: Option<Duration>) -> Result<u64, Error> {
        self.run(|state| message(state, Kind::Send(tag), tag, view, timeout))
    }

    /// As [`Transport::send`], for a caller whose next blocking call on this transport follows at once: no other thread is woken to
    /// move it on, and messages that were sent so leave together, with that call.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub fn send_ahead<'m>(&self, tag: u32, view: &View<'m>, timeout: Option<Duration>) -> Op<'m> {
        self.begin_ahead(|state| message(state, Kind::Send(tag), tag, view, timeout))
    }

    /// As [`Transport::recv`], for a caller whose next blocking call on this transport follows at once: see
    /// [`Transport::send_ahead`]. From then on what arrives is acknowledged with what this side sends next or when it waits
    /// again, and without either after some milliseconds: so long a sender that waits for its message to be reported may wait. For
    /// requests and answers, which need one system call each then.
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub fn recv_ahead<'m>(&self, tag: u32, view: &MutableView<'m>, timeout: Option<Duration>) -> Op<'m> {
        self.begin_ahead(|state| {
            state.ahead = true;
            message(state, Kind::Recv(tag), tag, view.view(), timeout)
        })
    }

    /// Receives a message with this tag. Output: its length. What had been sent can still be received when the peer has closed its transport
    /// or was lost; when there is no more with this tag that is [`Error::Broken`].
    ///
    /// A receive is under way from its call, so one that times out revokes its path, and both sides connect anew. Do not poll with
    /// short timeouts: keep one receive and ask [`Op::test`].
    ///
    /// # Errors
    /// As [`Transport::send`].
    pub fn recv<'m>(&self, tag: u32, view: &MutableView<'m>, timeout: Option<Duration>) -> Op<'m> {
        self.begin(|state| message(state, Kind::Recv(tag), tag, view.view(), timeout))
    }

    /// The blocking twin of [`Transport::recv`].
    ///
    /// # Errors
    /// As [`Transport::recv`].
    pub fn recv_blocking(&self, tag: u32, view: &MutableView<'_>, timeout: Option<Duration>) -> Result<u64, Error> {
        self.run(|state| message(state, Kind::Recv(tag), tag, view.view(), timeout))
    }

    /// Ends everything pending, on every thread, with [`Error::Aborted`]. When it returns, no pending operation touches local
    /// memory any more. The transport stays usable.
    pub fn abort(&self) {
        let mut guard = self.shared.lock();
        guard.abort();
        self.shared.wake_all(guard);
    }

    /// For foreign event loops: a descriptor that can be read when an operation has reported. Then call [`Transport::poll`] and
    /// [`Op::test`]. That of an endpoint's peer is the endpoint's, for all of its peers and events: [`Endpoint::poll`](crate::Endpoint::poll)
    /// drains it.
    ///
    /// # Errors
    /// [`Error::System`]: `eventfd(2)` failed, as when the process has no descriptor left (EMFILE).
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.shared.event().map(AsFd::as_fd)
    }

    /// Drains the event descriptor, unless it is an endpoint's, and moves on what can move, without waiting. True where something moved.
    pub fn poll(&self) -> bool {
        self.shared.poll()
    }

    /// For languages that handle signals between their own instructions: threads that wait in a blocking call ask `stop` about
    /// ten times a second, on their own thread and without a lock of this library. Where it says true the call ends with
    /// [`Error::Aborted`] and its operation as if an [`Op`] had been dropped. It can be set once; later ones have no effect.
    pub fn stop_waiting_when(&self, stop: impl Fn() -> bool + Send + Sync + 'static) {
        self.shared.stop_when(Box::new(stop));
    }

    /// Ends it although others use it still, as dropping it does: the connection is closed, everything pending ends with
    /// [`Error::Aborted`], and every later call with [`Error::Broken`]. The peer hears of it at once, also where operations are cut.
    pub fn close(&self) {
        self.end("it was closed");
    }

    pub(crate) fn end(&self, why: &str) {
        let mut guard = self.shared.lock();
        guard.close(why);
        self.shared.wake_all(guard);
    }

    /// Waits until nothing lands in a region any more that its endpoint has taken back, or revokes the path.
    pub(crate) fn settle_shared(&self, key: u32, until: Instant) {
        let settled = |state: &mut TransportState| {
            let TransportState { shared_regions, phase, ops, .. } = state;
            shared_regions.settle(phase.exposing(), &mut ops.left.holds);
            !shared_regions.is_leaving(key)
        };
        if !self.shared.run_until(until, settled) {
            let mut guard = self.shared.lock();
            guard.revoke_reach(Instant::now());
            self.shared.see_to_it(guard);
        }
    }

    fn begin<'m>(&self, begin: impl FnOnce(&mut TransportState) -> Result<OpId, Error>) -> Op<'m> {
        let mut guard = self.shared.lock();
        let begun = begin(&mut guard);
        self.shared.begun(guard);
        Op::new(&self.shared, begun)
    }

    fn begin_ahead<'m>(&self, begin: impl FnOnce(&mut TransportState) -> Result<OpId, Error>) -> Op<'m> {
        let mut guard = self.shared.lock();
        let begun = begin(&mut guard);
        self.shared.leave(guard);
        Op::new(&self.shared, begun)
    }

    #[inline]
    fn run(&self, begin: impl FnOnce(&mut TransportState) -> Result<OpId, Error>) -> Result<u64, Error> {
        let mut guard = self.shared.lock();
        let id = begin(&mut guard)?;
        self.shared.run(guard, id)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.end("it was dropped");
    }
}

#[inline]
fn one(
    state: &mut TransportState,
    kind: Kind,
    view: &View<'_>,
    there: &RemoteBuffer,
    notify: Option<Notify>,
    timeout: Option<Duration>,
) -> Result<OpId, Error> {
    state.ready()?;
    state.answering();
    state.carries(view)?;
    there.check(state.peer_numbers(), kind == Kind::Write, view.len())?;
    let id = state.ops.start_within(kind, notify, timeout);
    state.ops.part(id, Part { local: view.raw(), remote: there.place() }, view.hold());
    state.ops.submit(id);
    Ok(id)
}

fn many<'a, 'm: 'a>(
    state: &mut TransportState,
    kind: Kind,
    parts: impl Iterator<Item = (&'a View<'m>, &'a RemoteBuffer)> + Clone,
    notify: Option<Notify>,
    timeout: Option<Duration>,
) -> Result<OpId, Error> {
    state.ready()?;
    for (view, there) in parts.clone() {
        state.carries(view)?;
        there.check(state.peer_numbers(), kind == Kind::Write, view.len())?;
    }
    if notify.is_some() && parts.clone().next().is_none() {
        return Err(Error::EmptyBatch);
    }
    let id = state.ops.start_within(kind, notify, timeout);
    let split =
        |(view, there): (&View<'m>, &RemoteBuffer)| (Part { local: view.raw(), remote: there.place() }, view.hold());
    let empty = parts.clone().next().is_none();
    state.ops.parts(id, parts.map(split));
    if empty {
        state.ops.finish(id, Ok(0));
    }
    state.ops.submit(id);
    Ok(id)
}

fn paged(
    state: &mut TransportState,
    kind: Kind,
    moved: &Moved<'_, '_>,
    notify: Option<Notify>,
    timeout: Option<Duration>,
) -> Result<OpId, Error> {
    state.ready()?;
    let (view, shape, remote) = (moved.here.view(), moved.here.shape(), moved.there.remote());
    state.carries(view)?;
    remote.check(state.peer_numbers(), kind == Kind::Write, 0)?;
    if notify.is_some() && moved.is_empty() {
        return Err(Error::EmptyBatch);
    }
    let id = state.ops.start_within(kind, notify, timeout);
    let (slice, place) = (view.raw(), remote.place());
    // In bounds by the checks of the shapes and the indices; were one not, it would be left out rather than moved.
    let parts = moved.offsets().filter_map(|(here, there)| {
        let local = slice.sub(here, shape.len)?;
        let remote = RemoteSlice { offset: place.offset + there, ..place };
        Some((Part { local, remote }, view.hold()))
    });
    state.ops.parts(id, parts);
    if moved.is_empty() {
        state.ops.finish(id, Ok(0));
    }
    state.ops.submit(id);
    Ok(id)
}

#[inline]
fn wait(state: &mut TransportState, timeout: Option<Duration>) -> Result<OpId, Error> {
    // Notifications that came before the end are still there to be taken.
    if let (Err(error), false) = (state.ready(), state.has_carry()) {
        return Err(error);
    }
    let id = state.ops.start_within(Kind::Wait, None, timeout);
    state.ops.submit(id);
    state.deliver();
    if !state.ops.is_reported(id) {
        state.unanswered();
    }
    Ok(id)
}

fn message(
    state: &mut TransportState,
    kind: Kind,
    tag: u32,
    view: &View<'_>,
    timeout: Option<Duration>,
) -> Result<OpId, Error> {
    // A message of a path that has ended comes before those of the next one, and is there still when there is none.
    let kept = kind == Kind::Recv(tag) && state.has_kept(tag);
    if !kept {
        state.ready()?;
    }
    if tag == HELLO_TAG {
        return Err(Error::Tag(tag));
    }
    if let Kind::Send(_) = kind {
        state.answering();
    }
    state.carries(view)?;
    let id = state.ops.start_within(kind, None, timeout);
    let nowhere = RemoteSlice { key: 0, offset: 0 };
    state.ops.part(id, Part { local: view.raw(), remote: nowhere }, view.hold());
    if !(kept && state.ops.meet(id)) {
        state.ops.submit(id);
    }
    Ok(id)
}
