//! Where peers come in: paths that are up at the fabric's listener, until their hello has been read.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, Fabric, HostBuf, Listener, Ticket, WaitFd, chain, warn_seldom};
use linkspan_proto::login::PublicKey;

use crate::Error;
use crate::hello::{HELLO_LEN, HELLO_TAG, Hello};

/// Time a path may take from being up to its hello: one message of a living process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest sleep while a connection is being set up, and while none is.
const COMING: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_secs(1);

/// Paths without a hello at a time; for others' sake those go that have been silent for so long, or whose key has more than its share.
const MOST: usize = 64;
const SILENT: Duration = Duration::from_secs(1);
const SHARE: usize = 8;

struct Coming {
    pending: PendingHello,
    since: Instant,
}

/// A path whose peer's hello is awaited.
pub(crate) struct PendingHello {
    // Dropped before the buffer.
    pub(crate) channel: Channel,
    buf: HostBuf,
    ticket: Option<Ticket>,
}

impl PendingHello {
    pub(crate) fn new(channel: Channel) -> PendingHello {
        PendingHello { channel, buf: HostBuf::new(HELLO_LEN), ticket: None }
    }

    /// The hello, once it is there.
    pub(crate) fn poll(&mut self) -> Result<Option<Hello>, String> {
        let fail = |channel: &Channel, error| channel.lost().unwrap_or_else(|| chain(&error));
        if self.ticket.is_none() {
            #[allow(unsafe_code)]
            // SAFETY: the receive has reported when the channel is taken out of this, else the channel is dropped first.
            let mem = unsafe { self.buf.slice() };
            let posted = self.channel.post_recv(&[(HELLO_TAG, mem)]);
            self.ticket = posted.map_err(|e| fail(&self.channel, e))?;
        }
        let moved = self.channel.progress();
        let Some(ticket) = self.ticket else { return Ok(None) };
        match self.channel.test(ticket) {
            Ok(Some(n)) => {
                let bytes = self.buf.to_vec();
                let hello = Hello::decode(bytes.get(..n as usize).unwrap_or_default());
                hello.map(Some).map_err(str::to_owned)
            }
            Ok(None) => moved.map(|_| None).map_err(|e| fail(&self.channel, e)),
            Err(error) => Err(fail(&self.channel, error)),
        }
    }

    /// Ends a path that is lost. The peer, which may use it already, is told that this process lives.
    pub(crate) fn leave(self, why: &str) {
        let PendingHello { mut channel, buf, .. } = self;
        channel.cut(why);
        drop(channel.peer_state());
        drop(buf);
    }
}

pub(crate) struct Acceptor {
    listener: Listener,
    fabric: Fabric,
    arrivals: Mutex<Arrivals>,
}

struct Arrivals {
    coming: Vec<Coming>,
    /// A crowd of logins is not looked at before.
    look: Option<Instant>,
}

impl Acceptor {
    pub(crate) fn new(fabric: &Fabric, device: usize) -> Result<Acceptor, Error> {
        let listener = fabric.listen(device)?;
        listener.attend();
        let arrivals = Mutex::new(Arrivals { coming: Vec::new(), look: None });
        Ok(Acceptor { listener, fabric: fabric.clone(), arrivals })
    }

    pub(crate) fn handle(&self) -> [u8; linkspan_fabric::HANDLE_LEN] {
        self.listener.handle()
    }

    /// The handle with the addresses that the host has now.
    pub(crate) fn renew(&self) -> Result<[u8; linkspan_fabric::HANDLE_LEN], Error> {
        Ok(self.listener.renew()?)
    }

    /// The next path that has said who it is.
    pub(crate) fn next(&self) -> Option<(Channel, Hello)> {
        self.next_at(Instant::now())
    }

    fn next_at(&self, now: Instant) -> Option<(Channel, Hello)> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(|e| e.into_inner());
        let Arrivals { coming, look } = &mut *arrivals;
        // Before any of them goes for another one's sake.
        let heard = self.heard(coming, now);
        if heard.is_some() || look.is_some_and(|look| now < look) {
            return heard;
        }
        self.take_in(coming, now);
        *look = self.listener.is_crowded().then(|| now + COMING);
        self.heard(coming, now)
    }

    fn heard(&self, coming: &mut Vec<Coming>, now: Instant) -> Option<(Channel, Hello)> {
        let mut at = 0;
        while at < coming.len() {
            match coming[at].pending.poll() {
                Ok(Some(hello)) => return Some((coming.remove(at).pending.channel, hello)),
                Ok(None) if now.duration_since(coming[at].since) < PATIENCE => at += 1,
                Ok(None) => self.refuse(coming.remove(at), "it sent no hello in time"),
                Err(why) => self.refuse(coming.remove(at), &why),
            }
        }
        None
    }

    fn take_in(&self, coming: &mut Vec<Coming>, since: Instant) {
        for _ in 0..MOST {
            let full = coming.len() >= MOST;
            let keys = || coming.iter().map(|c| (c.pending.channel.peer_key(), c.since));
            let place = if full { dispensable(&keys().collect::<Vec<_>>(), since) } else { None };
            if full && place.is_none() {
                return;
            }
            match self.listener.accept() {
                Ok(Some(channel)) => {
                    if let Some(at) = place {
                        self.refuse(coming.remove(at), "it sent no hello, and others wait for its place");
                    }
                    coming.push(Coming { pending: PendingHello::new(channel), since });
                }
                Ok(None) => return,
                Err(error) => {
                    // A peer causes it as often as it connects.
                    let line = chain(&error);
                    warn_seldom(self.fabric.log(), &line, &line);
                    return;
                }
            }
        }
    }

    fn refuse(&self, mut coming: Coming, why: &str) {
        self.fabric.log().info(&format!("an incoming connection was dropped: {why}"));
        coming.pending.channel.cut(why);
    }

    /// See [`Listener::came_back`].
    pub(crate) fn came_back(&self) -> u64 {
        self.listener.came_back()
    }

    /// Adds what to wait for, and says for how long at most; `None` where there is work.
    pub(crate) fn arm(&self, fds: &mut Vec<WaitFd>) -> Option<Duration> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(|e| e.into_inner());
        let Arrivals { coming, look } = &mut *arrivals;
        let before = fds.len();
        if look.is_none() {
            self.listener.wait_fds(fds);
        }
        // It leaves its sockets out where there is no slot for strangers.
        let listens = fds.len() > before;
        let quiet = coming.iter_mut().all(|c| c.pending.channel.arm(fds));
        // Its sockets are not among what is waited for while a crowd is left alone, even if others have cleared it away meanwhile.
        quiet.then_some(if listens && coming.is_empty() && self.listener.is_idle() { IDLE } else { COMING })
    }
}

/// Which of the silent paths goes for another one's sake: of those that may, the oldest of the key that has most. They are in the order in
/// which they came.
fn dispensable(coming: &[(Option<&PublicKey>, Instant)], now: Instant) -> Option<usize> {
    let has = |key: Option<&PublicKey>| coming.iter().filter(|c| c.0 == key).count();
    let counted = coming.iter().enumerate().map(|(at, &(key, since))| (has(key), at, key, since));
    let may_go =
        counted.filter(|(has, _, key, since)| key.is_some() && *has > SHARE || now.duration_since(*since) >= SILENT);
    may_go.max_by_key(|(has, at, ..)| (*has, std::cmp::Reverse(*at))).map(|(_, at, ..)| at)
}

#[cfg(test)]
mod tests;
