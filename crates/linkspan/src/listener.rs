//! A listener: one URL for any number of peers, each of which gets a transport of its own.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, Gpu, HANDLE_LEN, WaitFd};

use crate::acceptor::Acceptor;
use crate::context::{Context, random};
use crate::endpoint::EndpointState;
use crate::engine::{Serve, Served};
use crate::hello::Hello;
use crate::paired::UrlServer;
use crate::shared::Shared;
use crate::state::{Phase, TransportState, refuse, refused};
use crate::wakers::{Wait, Wakers};
use crate::{Error, Transport, Url, UrlKind, deadline};

/// Peers that have connected and were not accepted yet; more are refused.
const BACKLOG: usize = 1024;

#[derive(Default)]
struct Inner {
    /// Accepted or waiting to be, by number: their peers reconnect here when a path is made again.
    children: HashMap<u64, Weak<Shared>>,
    ready: VecDeque<Transport>,
    wakers: Wakers,
    /// Whose memory transports carry that are made from now on.
    gpu: Option<Arc<dyn Gpu>>,
    /// Where the URL is given to paired hosts.
    ports: Vec<Arc<UrlServer>>,
    closed: bool,
}

pub(crate) struct ListenerState {
    own: Weak<ListenerState>,
    /// Whose peers these are, where it is an endpoint's.
    endpoint: Option<Weak<EndpointState>>,
    ctx: Context,
    device: usize,
    acceptor: Acceptor,
    /// Rails of children that the engine thread has been told of.
    came_back: AtomicU64,
    inner: Mutex<Inner>,
    cond: Condvar,
}

/// Accepts any number of peers at one URL. Dropping it, or [`Listener::close`], turns new peers away; transports that were accepted live on,
/// and their paths are still made again through it when they were revoked.
pub struct Listener {
    accepting: Arc<ListenerState>,
    url: Url,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({:?})", self.url)
    }
}

impl Listener {
    /// A listener whose transports carry memory of the GPU with this name (`cuda:0`, `hip:1`), as [`Transport::for_gpu`].
    ///
    /// # Errors
    /// Those of [`Context::listen`]; [`Error::Gpu`]: there is no such GPU, or no driver for it.
    pub fn for_gpu(name: &str) -> Result<Listener, Error> {
        let (gpu, listener) = (crate::gpu(name)?, Context::shared_for_gpus()?.listen()?);
        listener.attach(&gpu);
        Ok(listener)
    }

    /// Transports of peers that connect from now on carry memory of `gpu`; see [`Transport::attach`]. A peer whose path cannot
    /// is refused, with a line in the log.
    pub fn attach(&self, gpu: &Arc<dyn Gpu>) {
        self.accepting.lock().gpu = Some(gpu.clone());
    }

    pub(crate) fn on(ctx: &Context, device: usize) -> Result<Listener, Error> {
        Listener::open(ctx, device, None)
    }

    /// One that hands its peers to an endpoint.
    pub(crate) fn of_endpoint(ctx: &Context, device: usize, of: Weak<EndpointState>) -> Result<Listener, Error> {
        Listener::open(ctx, device, Some(of))
    }

    fn open(ctx: &Context, device: usize, endpoint: Option<Weak<EndpointState>>) -> Result<Listener, Error> {
        let acceptor = Acceptor::new(ctx.fabric(), device)?;
        let url = Url::new(UrlKind::Listener, 0, acceptor.handle());
        let inner = Mutex::default();
        let cond = Condvar::new();
        let ctx = ctx.clone();
        let accepting = Arc::new_cyclic(|own| ListenerState {
            own: own.clone(),
            endpoint,
            ctx: ctx.clone(),
            device,
            acceptor,
            came_back: AtomicU64::new(0),
            inner,
            cond,
        });
        let served: Arc<dyn Serve> = accepting.clone();
        ctx.serve(Arc::downgrade(&served));
        Ok(Listener { accepting, url })
    }

    pub(crate) fn state(&self) -> Weak<ListenerState> {
        Arc::downgrade(&self.accepting)
    }

    /// The URL for the peers, with the addresses that the host had when the listener was made.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The URL with the addresses that the host has now, also those of a cable that was plugged in later. Earlier ones lead here too, as
    /// long as one of their addresses is left.
    ///
    /// # Errors
    /// [`Error::Fabric`]: the interfaces cannot be listed, none is usable, or the OS refuses a socket; it listens as before then.
    pub fn renew(&self) -> Result<Url, Error> {
        Ok(Url::new(UrlKind::Listener, 0, self.accepting.renew()?))
    }

    /// Gives the URL, with the addresses of then, to whoever asks for it at this TCP port of the host, on loopback and every usable interface, until the listener is closed:
    /// paired hosts find it by name then ([`Context::find_host`]). Only those whose keys are trusted get in, those
    /// that are paired later too. Port 0: one that is free. Gives the addresses, also those that are looked for duplicates of yet. The listener is one of [`Context::paired`].
    ///
    /// # Errors
    /// [`Error::NotPaired`]: the listener's context logs in without keys. [`Error::Rendezvous`]: another process has the port.
    /// [`Error::Aborted`]: [`Listener::close`] came.
    pub fn serve_at(&self, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let (port, addrs) = UrlServer::open(&self.accepting.ctx, self.state(), port)?;
        let mut inner = self.accepting.lock();
        if inner.closed {
            drop(inner);
            return Err(Error::Aborted);
        }
        inner.ports.push(port);
        Ok(addrs)
    }

    /// The transport of the next peer that has connected, if there is one.
    pub fn try_accept(&self) -> Option<Transport> {
        self.accepting.lock().ready.pop_front()
    }

    /// Puts a transport back that was accepted and not used, as that of a task which was cancelled when it had been given it: it is the next
    /// one. A listener that is closed turns its peer away.
    pub fn give_back(&self, transport: Transport) {
        self.accepting.arrived(transport, VecDeque::push_front);
    }

    /// Waits at most `timeout` for the next peer. Any thread may call it.
    ///
    /// # Errors
    /// [`Error::Timeout`]: no peer connected in time. The listener goes on. [`Error::Aborted`]: [`Listener::close`] came.
    pub fn accept_blocking(&self, timeout: Duration) -> Result<Transport, Error> {
        let until = deadline(timeout);
        let mut inner = self.accepting.lock();
        loop {
            if let Some(transport) = inner.ready.pop_front() {
                return Ok(transport);
            }
            if inner.closed {
                return Err(Error::Aborted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout);
            }
            inner = self.accepting.cond.wait_timeout(inner, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// The next peer, as a future without a deadline of its own. Several may wait; one that is dropped waits no longer.
    ///
    /// # Errors
    /// [`Error::Aborted`]: [`Listener::close`] came.
    pub fn accept(&self) -> impl Future<Output = Result<Transport, Error>> + '_ {
        let wait = Wait::new(|number| {
            let _gone = self.accepting.lock().wakers.remove(&number);
        });
        std::future::poll_fn(move |cx| {
            let mut inner = self.accepting.lock();
            if let Some(transport) = inner.ready.pop_front() {
                return Poll::Ready(Ok(transport));
            }
            if inner.closed {
                return Poll::Ready(Err(Error::Aborted));
            }
            let before = inner.wakers.insert(wait.number(), cx.waker().clone());
            drop((inner, before));
            Poll::Pending
        })
    }

    /// Turns new peers away, those included that wait to be accepted, although others use the listener still: their waits
    /// for one end with [`Error::Aborted`]. Transports that were accepted live on.
    pub fn close(&self) {
        let mut inner = self.accepting.lock();
        inner.closed = true;
        let Inner { ready, wakers, ports, .. } = &mut *inner;
        let (waiting, wakers, ports) = (std::mem::take(ready), std::mem::take(wakers), std::mem::take(ports));
        drop((inner, ports));
        self.accepting.cond.notify_all();
        wakers.into_values().for_each(Waker::wake);
        drop(waiting);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

impl ListenerState {
    /// The handle with the addresses that the host has now.
    pub(crate) fn renew(&self) -> Result<[u8; HANDLE_LEN], Error> {
        let handle = self.acceptor.renew()?;
        // There may be sockets that the engine thread does not wait for yet.
        self.ctx.kick();
        Ok(handle)
    }

    /// As it was before.
    pub(crate) fn handle(&self) -> [u8; HANDLE_LEN] {
        self.acceptor.handle()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Paths to the transport with this number come here too.
    pub(crate) fn register(&self, id: u64, shared: &Arc<Shared>) {
        let mut inner = self.lock();
        inner.children.retain(|_, child| child.strong_count() > 0);
        inner.children.insert(id, Arc::downgrade(shared));
    }

    #[cfg(test)]
    pub(crate) fn children_kept(&self) -> usize {
        self.lock().children.len()
    }

    /// The transport a path belongs to, made where it is a new peer's.
    fn child(&self, to: u64) -> Result<Arc<Shared>, Error> {
        let inner = self.lock();
        if to != 0 {
            let why = || Error::Connect(Arc::from("the transport it wants has ended"));
            return inner.children.get(&to).and_then(Weak::upgrade).ok_or_else(why);
        }
        if inner.closed || inner.ready.len() >= BACKLOG {
            return Err(Error::Connect(Arc::from(
                "the listener is closed, or too many connections wait to be accepted",
            )));
        }
        let gpu = inner.gpu.clone();
        drop(inner);
        let id = random()?;
        let mut state = TransportState::new(&self.ctx, self.device, id);
        if let Some(gpu) = gpu {
            state.attach(&gpu)?;
        }
        state.accepting = self.own.upgrade().map(|accepting| accepting as Arc<dyn Any + Send + Sync>);
        let shared = Shared::new(state)?;
        self.register(id, &shared);
        Ok(shared)
    }

    /// A path to an endpoint, of a peer that wants to be one of its.
    fn admit(&self, endpoint: &EndpointState, ch: Channel, hello: &Hello) {
        match endpoint.admit(self.own.upgrade(), hello, ch) {
            Ok((shared, to)) => {
                self.register(to, &shared);
                shared.see_to_it(shared.lock());
                endpoint.forget_if_spent(&shared);
            }
            Err(not_taken) => {
                let (mut ch, refusal) = *not_taken;
                let name = hello.name;
                self.ctx.fabric().log().info(&format!("peer {name:?} was refused: {}", refused(refusal)));
                refuse(&mut ch, endpoint.refusal(hello, refusal));
            }
        }
    }

    fn arrived(&self, transport: Transport, stand: fn(&mut VecDeque<Transport>, Transport)) {
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            return drop(transport);
        }
        stand(&mut inner.ready, transport);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.cond.notify_one();
        wakers.into_values().for_each(Waker::wake);
    }
}

impl Serve for ListenerState {
    fn serve(&self, fds: &mut Vec<WaitFd>, _now: Instant) -> Served {
        while let Some((mut ch, hello)) = self.acceptor.next() {
            if let (Some(endpoint), 0) = (&self.endpoint, hello.to) {
                match endpoint.upgrade() {
                    Some(endpoint) => self.admit(&endpoint, ch, &hello),
                    None => ch.cut("the endpoint is closed"),
                }
                continue;
            }
            match self.child(hello.to) {
                Ok(shared) => {
                    let mut guard = shared.lock();
                    let to = guard.id;
                    guard.adopt(ch, &Hello { to, ..hello });
                    let up = matches!(guard.phase, Phase::Up(_));
                    shared.see_to_it(guard);
                    if hello.to == 0 && up {
                        self.arrived(Transport::from_shared(shared), VecDeque::push_back);
                    }
                }
                Err(error) => {
                    self.ctx.fabric().log().info(&format!("an incoming connection was refused: {error}"));
                    ch.cut(&error.to_string());
                }
            }
        }
        let came_back = self.acceptor.came_back();
        if self.came_back.swap(came_back, Ordering::Relaxed) != came_back {
            let children: Vec<_> = self.lock().children.values().filter_map(Weak::upgrade).collect();
            children.iter().for_each(|child| child.leave_to_engine());
            self.ctx.kick();
        }
        let before = fds.len();
        match self.acceptor.arm(fds) {
            Some(most) => Served::Armed(most),
            None => {
                fds.truncate(before);
                Served::Again
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    use super::VecDeque;
    use crate::Error;
    use crate::endpoint::tests::{Counted, LONG, context};

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: std::sync::Arc<Woken>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_that_wait_for_peers_do_not_wake_one_another_and_leave_nothing_when_they_end() {
        let listener = context().listen().unwrap();
        let woken = std::sync::Arc::new(Counted::default());
        let waker = |of: &std::sync::Arc<Counted>| std::task::Waker::from(of.clone());
        // Two waits of one task are two.
        let other = std::sync::Arc::new(Counted::default());
        let mut waits: Vec<_> = (0..1000).map(|_| Box::pin(listener.accept())).collect();
        for (n, wait) in waits.iter_mut().enumerate() {
            let own = std::sync::Arc::new(Counted::default());
            let waker = waker(if n < 2 {
                &other
            } else if n < 500 {
                &woken
            } else {
                &own
            });
            assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            assert_eq!(own.0.load(Ordering::SeqCst), 0);
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "nobody has come");
        waits.truncate(2);
        drop(waits.pop());
        assert_eq!(listener.accepting.lock().wakers.len(), 1);
        listener.close();
        assert_eq!((other.0.load(Ordering::SeqCst), woken.0.load(Ordering::SeqCst)), (1, 0));
    }

    #[test]
    fn a_listener_whose_host_has_the_same_addresses_still_keeps_its_sockets_and_its_url() {
        let listener = context().listen().unwrap();
        assert_eq!(listener.renew().unwrap(), *listener.url());
        assert_eq!(listener.renew().unwrap(), *listener.url());
    }

    #[test]
    fn closing_a_listener_ends_its_waits_for_peers_and_turns_peers_away() {
        let ctx = context();
        let listener = ctx.listen().unwrap();
        let woken = std::sync::Arc::new(Woken::default());
        let waker = std::task::Waker::from(woken.clone());
        let mut wait = std::pin::pin!(listener.accept());
        assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| listener.accept_blocking(LONG));
            listener.close();
            assert!(matches!(wait.join().unwrap(), Err(Error::Aborted)));
        });
        assert!(woken.0.load(Ordering::SeqCst));
        let ended = wait.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        assert!(matches!(ended, Poll::Ready(Err(Error::Aborted))));
        assert!(matches!(listener.accept_blocking(Duration::ZERO), Err(Error::Aborted)));
        ctx.transport().unwrap().connect_blocking(listener.url(), Duration::from_millis(300)).unwrap_err();
        assert!(listener.try_accept().is_none());
    }

    #[test]
    fn a_transport_that_is_given_back_is_the_next_one_to_be_accepted() {
        let ctx = context();
        let listener = ctx.listen().unwrap();
        let peers = [ctx.transport().unwrap(), ctx.transport().unwrap()];
        let [first, second] = peers.each_ref().map(|peer| {
            peer.connect_blocking(listener.url(), LONG).unwrap();
            listener.accept_blocking(LONG).unwrap()
        });
        let number = second.shared.lock().id;
        listener.give_back(first);
        listener.give_back(second);
        let second = listener.try_accept().expect("it was given back");
        assert_eq!(second.shared.lock().id, number);
        assert!(listener.try_accept().is_some_and(|first| first.connected()));
        listener.close();
        listener.give_back(second);
        let error = peers[1].wait_for_write_blocking(Some(LONG)).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
    }

    #[test]
    fn a_listener_that_is_closed_while_a_peer_arrives_keeps_nothing_of_it() {
        let ctx = context();
        let listener = ctx.listen().unwrap();
        let peer = ctx.transport().unwrap();
        peer.connect_blocking(listener.url(), LONG).unwrap();
        // As the engine has it in its hand when the listener is closed.
        let began = std::time::Instant::now();
        let arriving = loop {
            if let Some(arriving) = listener.accepting.lock().ready.pop_front() {
                break arriving;
            }
            assert!(began.elapsed() < LONG, "nobody arrives");
        };
        let state = listener.accepting.clone();
        drop(listener);
        let kept = std::sync::Arc::downgrade(&arriving.shared);
        state.arrived(arriving, VecDeque::push_back);
        assert!(state.lock().ready.is_empty());
        let error = peer.wait_for_write_blocking(Some(LONG)).unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
        while kept.strong_count() > 0 {
            assert!(began.elapsed() < LONG, "it is kept");
            std::thread::yield_now();
        }
    }
}
