//! The endpoint: any number of named peers, memory that is exposed once for all of them, and one source of events.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use linkspan_fabric::{Access, Channel, Gpu};

use crate::context::{Context, random};
use crate::hello::{EndpointName, Hello, NAME_LEN, Refusal};
use crate::listener::ListenerState;
use crate::ops::OpId;
use crate::regions::{Numbers, Regions};
use crate::shared::{self, Shared};
use crate::state::{Phase, Target, TransportState};
use crate::wakers::Wait;
use crate::{Error, Exposed, Listener, Op, Transport, Url, View, deadline};

mod events;

use events::Before;
pub use events::Event;
pub(crate) use events::{Events, Member};

/// Peers of one endpoint at a time: sixteen for each host of a large job, and a bound for what strangers can make us keep.
const MOST_PEERS: usize = if cfg!(test) { 3 } else { 4096 };

/// Time between two questions after the URL of a peer that has none, as between two tries to dial.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Time between two questions whether the URL is still what it was while nobody answers there: ten times what a connection takes
/// to be set up, and little beside the seconds that a peer takes to be started again.
const STILL_THERE: Duration = Duration::from_millis(200);

/// Longest sleep of a wait for events; it is woken when there is one.
const LOOK: Duration = Duration::from_secs(1);

/// The path of a peer that is refused, and why.
pub(crate) type NotTaken = Box<(Channel, Refusal)>;

struct Inner {
    peers: HashMap<Arc<str>, Arc<Transport>>,
    /// What all peers are given.
    regions: Regions,
    gpu: Option<Arc<dyn Gpu>>,
}

/// A peer's transport, and a call that waits for its path.
struct Seat {
    transport: Arc<Transport>,
    connect: Op<'static>,
    /// It is connected by this call, else by another or by the peer.
    fresh: bool,
}

/// What the endpoint's listener asks. Locks are taken in this order: `inner`, a transport's, that of the events.
pub(crate) struct EndpointState {
    ctx: Context,
    device: usize,
    name: EndpointName,
    number: u64,
    events: Arc<Events>,
    inner: Mutex<Inner>,
}

/// Any number of peers, by their names, each with a [`Transport`]. Peers come by this endpoint's URL or are connected to; both
/// sides are endpoints, and each knows the other by the name that it was made with. Where both connect to each other, one
/// connection comes of it. Memory is exposed once for all peers, those to come included, and one queue tells what they do.
///
/// A peer that has gone may come again, or another one of its name; what the first had told comes before what the second tells. Of one
/// that came and went while nobody took events there are none.
///
/// A peer without an endpoint of its own (a [`Transport`] that connects to the URL) has the name that it was paired under, or else its
/// transport's number in hexadecimal. Whoever has the URL may take a name that is free: names are no proof of who a peer is.
///
/// All methods may be called from several threads at a time. Dropping the endpoint closes it.
pub struct Endpoint {
    state: Arc<EndpointState>,
    listener: Mutex<Option<Listener>>,
    accepting: Weak<ListenerState>,
    url: Url,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({:?}, {:?})", self.name(), self.url)
    }
}

impl Endpoint {
    /// An endpoint in the shared context of the process ([`Context::shared`]). `name`: 1 to 64 visible characters of ASCII, another
    /// one for each endpoint of a job.
    ///
    /// # Errors
    /// [`Error::PeerName`]: the name cannot be one. Those of [`Context::shared`] and [`Context::listen`].
    pub fn new(name: &str) -> Result<Endpoint, Error> {
        Context::shared()?.endpoint(name)
    }

    /// An endpoint whose peers' transports carry memory of the GPU `gpu` (`cuda:0`, `hip:1`), as [`Transport::for_gpu`].
    ///
    /// # Errors
    /// As [`Endpoint::new`]; [`Error::Gpu`]: there is no such GPU, or no driver for it.
    pub fn for_gpu(name: &str, gpu: &str) -> Result<Endpoint, Error> {
        let (gpu, endpoint) = (crate::gpu(gpu)?, Context::shared_for_gpus()?.endpoint(name)?);
        endpoint.attach(&gpu)?;
        Ok(endpoint)
    }

    /// Its peers' transports carry memory of `gpu` from now on, those of peers to come included: one GPU for each endpoint.
    ///
    /// # Errors
    /// As [`Transport::attach`], for the peers that are here: some of the others may carry it then, the endpoint and peers to come do not.
    pub fn attach(&self, gpu: &Arc<dyn Gpu>) -> Result<(), Error> {
        let mut inner = self.state.lock();
        for transport in inner.peers.values() {
            transport.attach(gpu)?;
        }
        inner.gpu = Some(gpu.clone());
        Ok(())
    }

    pub(crate) fn on(ctx: &Context, device: usize, name: &str) -> Result<Endpoint, Error> {
        let (own, number) = (peer_name(name)?, random()?);
        let regions = Regions::new(Numbers::OF_ENDPOINT);
        let inner = Mutex::new(Inner { peers: HashMap::new(), regions, gpu: None });
        let events = Arc::default();
        let state = Arc::new(EndpointState { ctx: ctx.clone(), device, name: own, number, events, inner });
        let listener = Listener::of_endpoint(ctx, device, Arc::downgrade(&state))?;
        let (url, accepting) = (listener.url().clone(), listener.state());
        Ok(Endpoint { state, listener: Mutex::new(Some(listener)), accepting, url })
    }

    /// The context that it was made in.
    pub fn context(&self) -> &Context {
        &self.state.ctx
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.state.name.as_str()
    }

    /// The URL for the peers, any number of them. It contains a secret.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Connects to the endpoint called `peer` at `url`. Where it is connected already, or comes here meanwhile, that is the one.
    /// Several calls share a dial, which goes on as long as one of them waits. Output 0; then [`Endpoint::peer`] has its transport. The URL may also be of a [`Transport`] or a [`Listener`], which have no
    /// name: they are called `peer` here.
    ///
    /// # Errors
    /// At once: [`Error::PeerName`]: the name cannot be one, is this endpoint's, or that of a peer with another URL;
    /// [`Error::TooManyPeers`]; [`Error::EndpointClosed`]; [`Error::System`]. Later, as [`Transport::connect`]; also where an endpoint
    /// of another name answers, and where another process there has this endpoint's name.
    pub fn connect(&self, peer: &str, url: &Url, timeout: Duration) -> Result<Op<'static>, Error> {
        Ok(self.seat(peer, url, timeout)?.connect)
    }

    /// The blocking twin of [`Endpoint::connect`], which gives the peer's transport.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub fn connect_blocking(&self, peer: &str, url: &Url, timeout: Duration) -> Result<Arc<Transport>, Error> {
        let Seat { transport, connect, .. } = self.seat(peer, url, timeout)?;
        connect.wait().map(|_| transport)
    }

    /// Connects to the endpoint called `peer` at the URL that `find` has for it, as a store or a name service does. It is asked again
    /// every 20 ms while it has none, and several times a second while nobody answers: a peer that was started again has another URL.
    ///
    /// # Errors
    /// Those of `find` at once. As [`Endpoint::connect`]; [`Error::Connect`]: `find` had no URL in time.
    pub fn connect_found_blocking(
        &self,
        peer: &str,
        mut find: impl FnMut(&str) -> Result<Option<Url>, Error>,
        timeout: Duration,
    ) -> Result<Arc<Transport>, Error> {
        let until = deadline(timeout);
        let left = || until.saturating_duration_since(Instant::now());
        let mut found = find(peer)?;
        loop {
            self.open()?;
            let error = match &found {
                None => Error::Connect(Arc::from(format!("nobody had the URL of peer {peer:?} in time"))),
                Some(url) => match self.try_at(peer, url, &mut find, until) {
                    Err(error @ (Error::Connect(_) | Error::Broken(_) | Error::PeerNameTaken { .. })) => error,
                    Ok(Err(other)) => {
                        found = other;
                        continue;
                    }
                    Ok(Ok(transport)) => return Ok(transport),
                    Err(error) => return Err(error),
                },
            };
            if left().is_zero() {
                return Err(error);
            }
            std::thread::sleep(ASK_AGAIN.min(left()));
            found = find(peer)?;
        }
    }

    /// Connects, unless `find` has something else meanwhile: that is the inner error.
    fn try_at(
        &self,
        peer: &str,
        url: &Url,
        find: &mut impl FnMut(&str) -> Result<Option<Url>, Error>,
        until: Instant,
    ) -> Result<Result<Arc<Transport>, Option<Url>>, Error> {
        let left = || until.saturating_duration_since(Instant::now());
        let Seat { transport, mut connect, fresh } = self.seat(peer, url, left())?;
        loop {
            let waited = transport.wait_connected_blocking(left().min(STILL_THERE));
            match (waited, connect.test()) {
                // It may have come up between the two.
                (Ok(()), _) | (_, Some(Ok(_))) => return Ok(Ok(transport)),
                (_, Some(Err(error))) => return Err(error),
                (Err(error), _) if left().is_zero() || !matches!(error, Error::Connect(_)) => return Err(error),
                _ => {}
            }
            let now = find(peer)?;
            if fresh && now.as_ref() != Some(url) {
                // The next one takes its place, and what is to be told of the one before.
                transport.end("the peer has another URL");
                return Ok(Err(now));
            }
        }
    }

    /// Gives the URL to paired hosts, as [`Listener::serve_at`].
    ///
    /// # Errors
    /// As [`Listener::serve_at`]; [`Error::EndpointClosed`].
    pub fn serve_at(&self, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let listener = self.listener.lock().unwrap_or_else(|e| e.into_inner());
        listener.as_ref().ok_or_else(|| Error::EndpointClosed(Arc::from(self.name())))?.serve_at(port)
    }

    /// The peers that are connected, or whose path is being made again, by name.
    pub fn peers(&self) -> Vec<Arc<str>> {
        let inner = self.state.lock();
        let here = inner.peers.iter().filter(|(_, transport)| is_here(&transport.shared.lock()));
        let mut names: Vec<_> = here.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The transport of a peer, for everything that goes to it or comes from it. One that was lost is [`Error::Broken`], by its name,
    /// until [`Event::Lost`] is taken, and has what it had sent as long as it is held; the next peer of its name has another.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`], [`Error::EndpointClosed`].
    pub fn peer(&self, name: &str) -> Result<Arc<Transport>, Error> {
        self.open()?;
        let found = self.state.lock().peers.get(name).cloned();
        found.filter(|transport| !came_to_nothing(&transport.shared.lock())).ok_or_else(|| self.unknown(name))
    }

    /// Closes the connection to a peer: what is under way ends with [`Error::Aborted`], and no event of it comes any more. It may
    /// connect again.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`], [`Error::EndpointClosed`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let transport = self.peer(name)?;
        // It stays until its path has ended: a region is taken back from those that are here.
        transport.end("the peer was removed from its endpoint");
        self.state.events.forget_given_back(name);
        drop(self.state.untold(&transport.shared));
        self.state.forget(name, &transport.shared);
        Ok(())
    }

    /// Gives all peers access to a range of memory, those to come included, until [`Endpoint::unexpose`] or the end of the endpoint,
    /// which keep the memory alive. It is registered once, and one remote buffer is good for every peer. For one peer alone:
    /// [`Transport::expose`] of its transport.
    ///
    /// # Errors
    /// As [`Transport::expose`], for half as many regions; [`Error::EndpointClosed`].
    pub fn expose(&self, view: &View<'_>, access: Access) -> Result<Exposed, Error> {
        self.open()?;
        if access != Access::Read && !view.is_writable() {
            return Err(Error::ReadOnly);
        }
        let mut inner = self.state.lock();
        if let Some(gpu) = view.gpu()
            && inner.gpu.as_ref().is_none_or(|ours| ours.place() != gpu.place())
        {
            let carries = inner.gpu.as_ref().map_or_else(|| "host memory only".to_owned(), |ours| ours.info().id());
            return Err(Error::Device { memory: gpu.info().id(), carries });
        }
        let Inner { regions, peers, .. } = &mut *inner;
        let exposed = regions.expose(self.state.number, view, access, None)?;
        if !exposed.reused {
            for transport in peers.values() {
                let mut guard = transport.shared.lock();
                let TransportState { shared_regions, phase, .. } = &mut *guard;
                shared_regions.copy(regions, Some(exposed.remote.key()), phase.exposing());
            }
        }
        Ok(exposed)
    }

    /// Takes access back from all peers. When this returns nothing of any of them lands in the region any more and nothing is read
    /// from it. Paths of those that have something under way there after `timeout` are revoked and made again.
    ///
    /// # Errors
    /// [`Error::NotExposed`]: the region was taken back already, or is of one transport. [`Error::EndpointClosed`].
    pub fn unexpose(&self, region: &Exposed, timeout: Duration) -> Result<(), Error> {
        self.open()?;
        let (key, until) = (region.remote.key(), deadline(timeout));
        let Some(peers) = self.begin_unexpose(region)? else { return Ok(()) };
        for peer in peers {
            peer.settle_shared(key, until);
        }
        let mut holds = Vec::new();
        self.state.lock().regions.release(key, &mut holds);
        Ok(())
    }

    /// Takes one use of a region back: with the last one, gives the peers that may be using it still.
    fn begin_unexpose(&self, region: &Exposed) -> Result<Option<Vec<Arc<Transport>>>, Error> {
        let key = region.remote.key();
        let mut inner = self.state.lock();
        if region.remote.domain != self.state.number {
            return Err(Error::NotExposed(key));
        }
        if !inner.regions.take_back(key)? {
            return Ok(None);
        }
        // Paths and peers that come from here on do not get it: it is marked in every table at once.
        let marked = inner.peers.values().filter(|peer| {
            let mut guard = peer.shared.lock();
            guard.shared_regions.take_back(key).unwrap_or(false)
        });
        Ok(Some(marked.cloned().collect()))
    }

    /// Waits at most `timeout` for the next event of any peer; `None` waits until there is one. Each event is taken once, whichever
    /// thread asks. Those of one peer come in order, and peers take turns.
    ///
    /// A wait on a peer's own transport ([`Transport::wait_for_write`]) takes its notifications before they are events.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::EndpointClosed`].
    pub fn next_event_blocking(&self, timeout: Option<Duration>) -> Result<Event, Error> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.try_event()? {
                return Ok(event);
            }
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Error::Timeout);
            }
            self.leave_to_engine();
            self.state.events.wait(left.min(LOOK));
        }
    }

    /// The next event, as a future without a deadline of its own. Several may wait; one that is dropped waits no longer.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub fn next_event(&self) -> impl Future<Output = Result<Event, Error>> + '_ {
        let wait = Wait::new(|number| self.state.events.left(number));
        std::future::poll_fn(move |cx| {
            loop {
                match self.try_event() {
                    Ok(None) => {}
                    Ok(Some(event)) => return Poll::Ready(Ok(event)),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                self.leave_to_engine();
                if self.state.events.wake_by(wait.number(), cx.waker()) {
                    return Poll::Pending;
                }
            }
        })
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub fn try_event(&self) -> Result<Option<Event>, Error> {
        self.open()?;
        let events = &self.state.events;
        if let Some(event) = events.take_returned() {
            return Ok(Some(event));
        }
        while let Some(shared) = events.pop() {
            let mut guard = shared.lock();
            let (event, more) = events::take(&mut guard);
            shared.unlock(guard);
            if more {
                events.push(shared.clone());
            }
            if let (Some(Event::Lost { peer, .. }), false) = (&event, more) {
                self.state.forget(peer, &shared);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Puts an event back that was taken and not used, as by a task that was cancelled when it had been given it: it comes before those that
    /// nobody has taken.
    pub fn give_back(&self, event: Event) {
        self.state.events.give_back(event);
    }

    /// For foreign event loops: a descriptor that can be read when there is an event, or an operation with any peer has reported.
    /// Then call [`Endpoint::poll`], [`Endpoint::try_event`] until there is none, and [`Op::test`].
    ///
    /// # Errors
    /// [`Error::System`]: `eventfd(2)` failed, as when the process has no descriptor left (EMFILE).
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        shared::made(&self.state.events.notifier).map(AsFd::as_fd)
    }

    /// Drains the event descriptor. True where peers have news, which may be events.
    pub fn poll(&self) -> bool {
        if let Some(notifier) = self.state.events.notifier.get() {
            notifier.drain();
        }
        self.leave_to_engine();
        self.state.events.has_news()
    }

    /// Closes all connections, ends everything pending with [`Error::Aborted`], and turns new peers away. Every call from here
    /// on is [`Error::EndpointClosed`], those that wait for events included.
    pub fn close(&self) {
        drop(self.listener.lock().unwrap_or_else(|e| e.into_inner()).take());
        self.state.events.close();
        let why = format!("endpoint {:?} was closed", self.name());
        // As in `remove`; those that came meanwhile end then.
        let here: Vec<Arc<Transport>> = self.state.lock().peers.values().cloned().collect();
        here.iter().for_each(|transport| transport.end(&why));
        let peers = std::mem::take(&mut self.state.lock().peers);
        peers.into_values().for_each(|transport| transport.end(&why));
        let mut holds = Vec::new();
        self.state.lock().regions.clear(&mut holds);
    }

    fn open(&self) -> Result<(), Error> {
        match self.state.events.is_closed() {
            true => Err(Error::EndpointClosed(Arc::from(self.name()))),
            false => Ok(()),
        }
    }

    fn unknown(&self, peer: &str) -> Error {
        const SHOWN: usize = 8;
        let names = self.peers();
        let mut connected = names.iter().take(SHOWN).map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
        if names.len() > SHOWN {
            connected.push_str(&format!(" and {} more", names.len() - SHOWN));
        } else if names.is_empty() {
            connected.push_str("none");
        }
        Error::UnknownPeer { endpoint: Arc::from(self.name()), peer: peer.chars().take(NAME_LEN).collect(), connected }
    }

    /// The transport of a name, and a call that waits for its path.
    fn seat(&self, peer: &str, url: &Url, timeout: Duration) -> Result<Seat, Error> {
        let name = peer_name(peer)?;
        if name == self.state.name {
            return Err(Error::PeerName { name: peer.to_owned(), why: "it is this endpoint's own" });
        }
        let mut gone = Vec::new();
        let (transport, begun, fresh) = {
            let mut inner = self.state.lock();
            // Where `close` comes later it ends this one.
            self.open()?;
            match self.known(&inner, peer, url, timeout)? {
                Some((transport, begun)) => (transport, begun, false),
                None => {
                    let (transport, begun) = self.fresh(&mut inner, peer, url, timeout, &mut gone)?;
                    gone.extend(inner.peers.insert(Arc::from(peer), transport.clone()));
                    (transport, begun, true)
                }
            }
        };
        let shared = &transport.shared;
        shared.see_to_it(shared.lock());
        Ok(Seat { connect: Op::new(shared, Ok(begun)), transport, fresh })
    }

    /// The transport of a peer that is there or on its way.
    fn known(
        &self,
        inner: &Inner,
        peer: &str,
        url: &Url,
        timeout: Duration,
    ) -> Result<Option<(Arc<Transport>, OpId)>, Error> {
        let Some(transport) = inner.peers.get(peer) else { return Ok(None) };
        let mut guard = transport.shared.lock();
        if is_spent(&guard) {
            return Ok(None);
        }
        let unproven = guard.epoch > 0 && url.key.is_some_and(|key| !guard.has_proven(&key));
        let elsewhere = |target: &Target| target.handle != url.handle || url.key.is_some() && target.key != url.key;
        if unproven || guard.target.as_ref().is_some_and(elsewhere) {
            return Err(Error::PeerNameTaken { endpoint: Arc::from(self.name()), peer: peer.to_owned() });
        }
        Ok(Some((transport.clone(), guard.begin_wait(timeout)?)))
    }

    /// A transport that connects. It does before others see it, who would take one that has no peer for one to be replaced.
    fn fresh(
        &self,
        inner: &mut Inner,
        peer: &str,
        url: &Url,
        timeout: Duration,
        gone: &mut Vec<Arc<Transport>>,
    ) -> Result<(Arc<Transport>, OpId), Error> {
        if self.state.is_full(inner, peer, gone) {
            return Err(Error::TooManyPeers(Arc::from(self.name()), MOST_PEERS));
        }
        let accepting = self.accepting.upgrade();
        let (shared, id) = self.state.member(inner, peer, accepting.clone())?;
        let begun = shared.lock().begin_connect(url, timeout)?;
        if let Some(accepting) = accepting {
            accepting.register(id, &shared);
        }
        Ok((Arc::new(Transport::from_shared(shared)), begun))
    }

    /// Transports that calls have driven since the last wait: the engine thread waits for what comes to them from now on, at once.
    fn leave_to_engine(&self) {
        if !self.state.events.was_driven() {
            return;
        }
        let inner = self.state.lock();
        for transport in inner.peers.values() {
            transport.shared.leave_to_engine();
        }
        drop(inner);
        self.state.ctx.kick();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

impl EndpointState {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A transport of a peer, with all that peers are given, and with what the one that it replaces had still to tell.
    fn member(
        &self,
        inner: &Inner,
        peer: &str,
        accepting: Option<Arc<ListenerState>>,
    ) -> Result<(Arc<Shared>, u64), Error> {
        let id = random()?;
        let mut state = TransportState::new(&self.ctx, self.device, id);
        state.join(Member::new(&Arc::from(peer), (self.number, self.name), &self.events));
        if let Some(gpu) = &inner.gpu {
            state.attach(gpu)?;
        }
        state.shared_regions.copy(&inner.regions, None, None);
        state.accepting = accepting.map(|accepting| accepting as Arc<_>);
        let shared = Shared::with_notifier(state, self.events.notifier.clone())?;
        // Last: where none can be made, the one before has it still.
        if let Some(replaced) = inner.peers.get(peer) {
            let before = self.untold(&replaced.shared);
            let mut guard = shared.lock();
            before.pass_on(&mut guard);
            shared.unlock(guard);
        }
        Ok((shared, id))
    }

    /// Takes out of the queue what a transport, which has ended, had still to tell.
    fn untold(&self, ended: &Arc<Shared>) -> Before {
        self.events.forget(ended);
        Before::of(&mut ended.lock())
    }

    /// Whether there is no place for another peer of this name. Those that never came about give theirs up, here or when their number has
    /// doubled that of the peers: `gone`, which is dropped when the lock is open.
    fn is_full(&self, inner: &mut Inner, peer: &str, gone: &mut Vec<Arc<Transport>>) -> bool {
        if inner.peers.len() >= MOST_PEERS || inner.peers.len().is_power_of_two() {
            let over = inner.peers.extract_if(|_, transport| came_to_nothing(&transport.shared.lock()));
            gone.extend(over.map(|(_, transport)| transport));
        }
        inner.peers.len() >= MOST_PEERS && !inner.peers.contains_key(peer)
    }

    /// Gives the path of a peer that has come to the transport where it belongs: that one, and its number. As in `fresh`, others see a new one
    /// when it has its path.
    pub(crate) fn admit(
        &self,
        accepting: Option<Arc<ListenerState>>,
        hello: &Hello,
        ch: Channel,
    ) -> Result<(Arc<Shared>, u64), NotTaken> {
        let peer = self.called(hello, &ch);
        let refused = |ch, refusal| Err(Box::new((ch, refusal)));
        let mut gone = Vec::new();
        let mut inner = self.lock();
        if peer == self.name.as_str() {
            return refused(ch, Refusal::Name);
        }
        if let Some(transport) = inner.peers.get(peer.as_str()) {
            let mut guard = transport.shared.lock();
            // It is being dialled, or did not hear that it was connected.
            if !is_spent(&guard) {
                if guard.peer_numbers().0 != hello.from && guard.epoch > 0 {
                    return refused(ch, Refusal::Name);
                }
                let to = guard.id;
                guard.adopt(ch, &Hello { to, ..*hello });
                return Ok((transport.shared.clone(), to));
            }
        }
        if self.events.is_closed() || self.is_full(&mut inner, &peer, &mut gone) {
            return refused(ch, Refusal::Full);
        }
        let (shared, to) = match self.member(&inner, &peer, accepting) {
            Ok(made) => made,
            Err(error) => {
                self.ctx.fabric().log().warn(&linkspan_fabric::chain(&error));
                return refused(ch, Refusal::Full);
            }
        };
        shared.lock().adopt(ch, &Hello { to, ..*hello });
        gone.extend(inner.peers.insert(Arc::from(peer), Arc::new(Transport::from_shared(shared.clone()))));
        Ok((shared, to))
    }

    /// What a peer that has come is called.
    fn called(&self, hello: &Hello, ch: &Channel) -> String {
        match hello.name.as_str() {
            "" => {
                let paired = ch.peer_name().filter(|name| EndpointName::new(name).is_some());
                paired.unwrap_or_else(|| format!("{:016x}", hello.from))
            }
            name => name.to_owned(),
        }
    }

    /// What a peer that is not taken is told.
    pub(crate) fn refusal(&self, hello: &Hello, refusal: Refusal) -> Hello {
        let (from, to, epoch) = (self.number, hello.from, hello.epoch);
        Hello { from, to, epoch, refusal, endpoint: self.number, name: self.name, ..Hello::default() }
    }

    /// A peer that has come was not adopted after all, or its end was reported.
    pub(crate) fn forget(&self, peer: &str, shared: &Arc<Shared>) {
        let mut inner = self.lock();
        let same = inner.peers.get(peer).is_some_and(|transport| Arc::ptr_eq(&transport.shared, shared));
        let gone = if same { inner.peers.remove(peer) } else { None };
        drop(inner);
        drop(gone);
    }

    /// See [`EndpointState::forget`]; for one that never was connected.
    pub(crate) fn forget_if_spent(&self, shared: &Arc<Shared>) {
        let guard = shared.lock();
        let over = came_to_nothing(&guard);
        let peer = guard.member.as_ref().map(|member| member.peer().clone());
        drop(guard);
        if let (true, Some(peer)) = (over, peer) {
            self.forget(&peer, shared);
        }
    }
}

/// Whether it will never be connected again by itself.
fn is_spent(state: &TransportState) -> bool {
    matches!(state.phase, Phase::Idle | Phase::Broken(_))
}

/// Whether it has ended, was never connected, and has nothing to tell of a peer before it.
fn came_to_nothing(state: &TransportState) -> bool {
    is_spent(state) && state.member.as_ref().is_none_or(|member| member.is_unheard_of())
}

/// Whether the peer is there.
fn is_here(state: &TransportState) -> bool {
    state.epoch > 0 && !is_spent(state)
}

fn peer_name(text: &str) -> Result<EndpointName, Error> {
    let bad = || Error::PeerName {
        name: text.chars().take(NAME_LEN).collect(),
        why: "a name has 1 to 64 visible characters of ASCII",
    };
    EndpointName::new(text).ok_or_else(bad)
}

#[cfg(test)]
pub(crate) mod tests;
