//! What an endpoint's peers have to tell: one queue of transports with news, and who waits for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::Waker;
use std::time::Duration;

use linkspan_net::Notifier;

use crate::hello::{EndpointName, Hello};
use crate::ops::Numbered;
use crate::shared::Shared;
use crate::state::{Phase, TransportState};
use crate::wakers::Wakers;

/// What has happened at a peer of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is connected, whichever side dialled.
    Connected {
        /// Its name.
        peer: Arc<str>,
    },
    /// It has written, and notified.
    Notified {
        /// Its name.
        peer: Arc<str>,
        /// What it brought along; 0 for [`Notify::COUNT`](crate::Notify::COUNT).
        value: u64,
    },
    /// It has ended or was lost for good, after all of its notifications. Its name is free again.
    Lost {
        /// Its name.
        peer: Arc<str>,
        /// Why, in words.
        why: Arc<str>,
    },
}

impl Event {
    /// The peer's name.
    pub fn peer(&self) -> &Arc<str> {
        match self {
            Event::Connected { peer } | Event::Notified { peer, .. } | Event::Lost { peer, .. } => peer,
        }
    }
}

/// What was not taken of the peer that had the name before: its last notifications, and its end.
#[derive(Default)]
pub(crate) struct Before {
    notifications: VecDeque<Numbered>,
    why: Option<Arc<str>>,
}

impl Before {
    /// That of a transport which another one replaces. Of a peer that came and went while nobody took its events there is nothing, but
    /// what it had to tell of the one before.
    pub(crate) fn of(replaced: &mut TransportState) -> Before {
        let Some(member) = &mut replaced.member else { return Before::default() };
        let before = std::mem::take(&mut member.before);
        let (came, went) = (member.came, member.went);
        member.closed();
        let notifications = std::mem::take(&mut replaced.carry);
        match &replaced.phase {
            Phase::Broken(why) if went && !came => Before { notifications, why: Some(why.clone()) },
            _ => before,
        }
    }

    /// It is told by the transport that replaces that one.
    pub(crate) fn pass_on(self, to: &mut TransportState) {
        to.news |= !self.is_empty();
        if let Some(member) = &mut to.member {
            member.before = self;
        }
    }

    fn is_empty(&self) -> bool {
        self.notifications.is_empty() && self.why.is_none()
    }

    fn take(&mut self, peer: &Arc<str>) -> Option<Event> {
        let peer = peer.clone();
        match self.notifications.pop_front() {
            Some((_, value)) => Some(Event::Notified { peer, value }),
            None => self.why.take().map(|why| Event::Lost { peer, why }),
        }
    }
}

/// What a transport knows of the endpoint that it belongs to.
pub(crate) struct Member {
    peer: Arc<str>,
    endpoint: (u64, EndpointName),
    pub(crate) events: Arc<Events>,
    /// It stands in the queue, or is about to.
    queued: bool,
    was_up: bool,
    came: bool,
    went: bool,
    before: Before,
}

impl Member {
    pub(crate) fn new(peer: &Arc<str>, endpoint: (u64, EndpointName), events: &Arc<Events>) -> Member {
        let (peer, events, before) = (peer.clone(), events.clone(), Before::default());
        Member { peer, endpoint, events, queued: false, was_up: false, came: false, went: false, before }
    }

    /// The endpoint's number and name.
    pub(crate) fn own(&self) -> (u64, EndpointName) {
        self.endpoint
    }

    /// What is wrong with the one who answered at a URL: an endpoint of another name.
    pub(crate) fn is_another(&self, hello: &Hello) -> Option<String> {
        let name = hello.name.as_str();
        let other = !name.is_empty() && name != &*self.peer;
        other.then(|| format!("the endpoint at the URL of {:?} is called {name:?}", &*self.peer))
    }

    /// It is connected.
    pub(crate) fn up(&mut self) {
        self.came |= !self.was_up;
        self.was_up = true;
    }

    /// The transport is broken: why, with the peer's name.
    pub(crate) fn breaks(&mut self, why: &str) -> Arc<str> {
        self.went = self.was_up;
        self.named(why)
    }

    /// A reason with the peer's name.
    pub(crate) fn named(&self, why: &str) -> Arc<str> {
        Arc::from(format!("peer {:?}: {why}", &*self.peer))
    }

    /// The peer's name.
    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.peer
    }

    /// Its owner has closed it: nobody wants to know.
    pub(crate) fn closed(&mut self) {
        (self.came, self.went) = (false, false);
    }

    /// Whether it never was connected, nor was a peer before it whose end is to be told.
    pub(crate) fn is_unheard_of(&self) -> bool {
        !self.was_up && self.before.is_empty()
    }

    /// There are news. Where they go, if the transport does not stand in the queue yet.
    pub(crate) fn queue(&mut self) -> Option<Arc<Events>> {
        (!std::mem::replace(&mut self.queued, true)).then(|| self.events.clone())
    }
}

/// The next event of a transport that was taken from the queue, and whether it may have more. After its own end it has none.
pub(crate) fn take(state: &mut TransportState) -> (Option<Event>, bool) {
    let Some(member) = &mut state.member else { return (None, false) };
    let peer = member.peer.clone();
    if let Some(event) = member.before.take(&peer) {
        return (Some(event), true);
    }
    if std::mem::take(&mut member.came) {
        return (Some(Event::Connected { peer }), true);
    }
    if let Some(value) = state.take_notification() {
        return (Some(Event::Notified { peer, value }), true);
    }
    let Some(member) = &mut state.member else { return (None, false) };
    member.queued = false;
    state.news = false;
    let event = match &state.phase {
        Phase::Broken(why) if std::mem::take(&mut member.went) => Some(Event::Lost { peer, why: why.clone() }),
        _ => None,
    };
    (event, false)
}

#[derive(Default)]
struct Queue {
    /// Taken by somebody who had no use for it any more.
    returned: VecDeque<Event>,
    ready: VecDeque<Arc<Shared>>,
    wakers: Wakers,
    closed: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.returned.is_empty()
    }
}

/// The queue of an endpoint. Each transport stands in it once at most, so it is as long as there are peers.
#[derive(Default)]
pub(crate) struct Events {
    queue: Mutex<Queue>,
    cond: Condvar,
    /// Threads and tasks that wait: transports that no call drives any more are left to the engine thread at once.
    waiting: AtomicUsize,
    /// Calls have driven a transport of the endpoint since a wait began.
    driven: AtomicBool,
    /// Rung for events and for reports of operations.
    pub(crate) notifier: Arc<OnceLock<Notifier>>,
}

impl Events {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn push(&self, shared: Arc<Shared>) {
        let mut queue = self.lock();
        // Nobody takes it out any more, and it holds the queue.
        if !queue.closed {
            queue.ready.push_back(shared);
        }
        self.told(queue);
    }

    /// Puts an event back that was taken.
    pub(crate) fn give_back(&self, event: Event) {
        let mut queue = self.lock();
        if !queue.closed {
            queue.returned.push_back(event);
        }
        self.told(queue);
    }

    pub(crate) fn take_returned(&self) -> Option<Event> {
        self.lock().returned.pop_front()
    }

    fn told(&self, mut queue: std::sync::MutexGuard<'_, Queue>) {
        let wakers = self.wakers(&mut queue);
        drop(queue);
        self.tell(wakers);
    }

    fn wakers(&self, queue: &mut Queue) -> Wakers {
        self.waiting.fetch_sub(queue.wakers.len(), Ordering::Relaxed);
        std::mem::take(&mut queue.wakers)
    }

    fn tell(&self, wakers: Wakers) {
        self.cond.notify_one();
        if let Some(notifier) = self.notifier.get() {
            notifier.signal();
        }
        wakers.into_values().for_each(Waker::wake);
    }

    pub(crate) fn pop(&self) -> Option<Arc<Shared>> {
        self.lock().ready.pop_front()
    }

    /// Takes a transport out that another one has replaced, or that was removed.
    pub(crate) fn forget(&self, shared: &Arc<Shared>) {
        self.lock().ready.retain(|one| !Arc::ptr_eq(one, shared));
    }

    /// Takes out what was put back of a peer that was removed.
    pub(crate) fn forget_given_back(&self, peer: &str) {
        self.lock().returned.retain(|event| &**event.peer() != peer);
    }

    /// Sleeps until there may be an event, at most so long.
    pub(crate) fn wait(&self, most: Duration) {
        let queue = self.lock();
        if queue.is_empty() && !queue.closed {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            drop(self.cond.wait_timeout(queue, most));
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Keeps the waker of a wait for the next event. False: there may be one already.
    pub(crate) fn wake_by(&self, wait: u64, waker: &Waker) -> bool {
        let mut queue = self.lock();
        if !queue.is_empty() || queue.closed {
            return false;
        }
        let before = queue.wakers.insert(wait, waker.clone());
        if before.is_none() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        drop((queue, before));
        true
    }

    /// A wait has ended.
    pub(crate) fn left(&self, wait: u64) {
        let mut queue = self.lock();
        let gone = queue.wakers.remove(&wait);
        if gone.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        drop((queue, gone));
    }

    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.ready.clear();
        queue.returned.clear();
        let wakers = self.wakers(&mut queue);
        drop(queue);
        self.cond.notify_all();
        self.tell(wakers);
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.lock().ready.len()
    }

    #[cfg(test)]
    pub(super) fn wakers_kept(&self) -> usize {
        let queue = self.lock();
        assert_eq!(queue.wakers.len(), self.waiting.load(Ordering::Relaxed));
        queue.wakers.len()
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.lock().is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// A call drives a transport of the endpoint.
    #[inline]
    pub(crate) fn note_driven(&self) {
        if !self.driven.load(Ordering::Relaxed) {
            self.driven.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one has since this was last asked.
    pub(crate) fn was_driven(&self) -> bool {
        self.driven.swap(false, Ordering::Relaxed)
    }

    /// Whether somebody waits for events.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}
