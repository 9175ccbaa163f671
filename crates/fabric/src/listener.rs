//! The side that is connected to.

mod finish;
mod sockets;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::{HANDLE_LEN, Handle};
use linkspan_proto::login::{Guard, LoginTable, PublicKey, ServerParams, Session, Token, USED_BOUND};
use linkspan_proto::plan::{Carrier, PLAN_LEN, Plan};
use linkspan_setup::log::warn_seldom;
use linkspan_setup::logins::{LoginRun, Slot, drop_unproven};
use linkspan_setup::secured::MessageError;
use linkspan_setup::stats::Event;
use linkspan_stream::{Listen, Stream};
use linkspan_transport::{MAX_RAILS, Site, WaitFd};

use crate::channel::{Channel, ReconnectPolicy};
use crate::local::{self, ShmOffer, ShmRail};
use crate::reconnect::Recovered;
use crate::route::Beside;
use crate::stream_setup::{SetupError, Step, StreamSetup};
use crate::{Error, Fabric, chain};

use finish::relayed;
use sockets::Member;
pub(crate) use sockets::socket_addr;

/// Reconnected rails that their connections have not taken yet, over all peers of one listener.
const MAX_WAITING: usize = 256;

/// Logins at a time that one pass looks at in some 10 us; a process on each of 32 hosts that connects at the same moment is no crowd.
const CROWD: usize = 32;

/// The acceptors of this process, for one that needs a slot to look at the others' streams.
static ACCEPTORS: Mutex<Vec<Weak<Mutex<Acceptor>>>> = Mutex::new(Vec::new());

fn acceptors() -> MutexGuard<'static, Vec<Weak<Mutex<Acceptor>>>> {
    ACCEPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens on every interface of a device and accepts any number of connections. Poll-driven; may be used from any
/// thread.
pub struct Listener {
    pub(crate) acceptor: Arc<Mutex<Acceptor>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    pub(crate) fn new(fabric: &Fabric, index: usize) -> Result<Listener, Error> {
        let device = fabric.device(index)?;
        fabric.providers().for_each(|provider| provider.open());
        let token = Token::random().map_err(|_| linkspan_proto::login::LoginError::Random)?;
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|_| linkspan_proto::login::LoginError::Random)?;
        let listen_id = u64::from_le_bytes(id);
        let mut handle = Handle::new(listen_id, token, fabric.host_hash());
        handle.psk = fabric.config().has_key();
        handle.keys = matches!(fabric.config().guard, Guard::Keys { .. });
        handle.encrypt = fabric.config().encrypts();
        let members = sockets::members(fabric, index, &device)?;
        let (sockets, failed) = match sockets::listen(fabric, &device, &mut handle, &mut Vec::new()) {
            Ok(sockets) => (sockets, None),
            Err(error @ Error::Tcp(_)) => (Vec::new(), Some(error)),
            Err(other) => return Err(other),
        };
        let mut acceptor = Acceptor {
            fabric: fabric.clone(),
            device: device.name,
            members,
            handle,
            sockets,
            turn: 0,
            table: Arc::new(LoginTable::new(USED_BOUND)),
            pending_logins: Vec::new(),
            pending_conns: HashMap::new(),
            attended: false,
            conns: Vec::new(),
            returned: Vec::new(),
            came_back: 0,
            handshakes: Vec::new(),
        };
        if let Some(error) = failed {
            // The fabric may have looked at the interfaces long ago, and none of their addresses is left.
            acceptor.renew().map_err(|_| error)?;
        }
        let acceptor = Arc::new(Mutex::new(acceptor));
        let mut all = acceptors();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&acceptor));
        Ok(Listener { acceptor })
    }

    /// What a peer needs to connect; secret, 128 bytes.
    pub fn handle(&self) -> [u8; HANDLE_LEN] {
        self.lock().handle.encode()
    }

    /// Listens on the interfaces that the machine has now, and no more on addresses that went. Gives the [handle](Listener::handle) from
    /// now on; earlier ones lead here too, as long as one of their addresses is left. Connections that are up, or come up, go on.
    ///
    /// # Errors
    /// [`Error::Interfaces`], [`Error::NoInterface`] and those of [`Fabric::listen`]; it listens as before then.
    pub fn renew(&self) -> Result<[u8; HANDLE_LEN], Error> {
        let mut acceptor = self.lock();
        acceptor.renew()?;
        Ok(acceptor.handle.encode())
    }

    fn lock(&self) -> MutexGuard<'_, Acceptor> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner will call [`Listener::accept`] whenever a descriptor of [`Listener::wait_fds`] wakes it, also after the
    /// last accept. Otherwise connections that are up look at the sockets themselves, for rails that reconnect, and what
    /// they take from them wakes the owner no more.
    pub fn attend(&self) {
        self.lock().attended = true;
    }

    /// The next connection that is up, if there is one. Never blocks.
    ///
    /// # Errors
    /// [`Error::Strict`]: strict mode forbids the connection that came up. [`Error::Tcp`]: the listening socket failed; a
    /// process without free descriptors is no such failure but a pause, with a WARN line each minute.
    /// [`Error::Forced`]: `LINKSPAN_PATH` names a path that cannot be taken. A connection that cannot be made for another reason is
    /// dropped and counted, with a WARN line for each peer and minute.
    pub fn accept(&self) -> Result<Option<Channel>, Error> {
        linkspan_stream::closing::sweep();
        let mut acceptor = self.lock();
        acceptor.pump()?;
        acceptor.finish_one(&self.acceptor)
    }

    /// Adds the descriptors of which one becomes ready when [`Listener::accept`] can make progress. Where it is not
    /// [idle](Listener::is_idle) there are deadlines too: wait for a tenth of a second at most.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        let acceptor = self.lock();
        if !Slot::all_taken() {
            fds.extend(acceptor.sockets.iter().filter_map(Listen::wait_fd));
        }
        acceptor.pending_conns.values().filter_map(|a| a.offer.as_ref()?.as_ref().ok()).for_each(|o| o.wait_fds(fds));
        acceptor.pending_logins.iter().for_each(|login| login.setup.wait_fds(fds));
        acceptor.handshakes.iter().for_each(|(_, stream)| stream.setup.wait_fds(fds));
        // Once the plan is here nothing more is read before the connection is up.
        for conn in acceptor.pending_conns.values() {
            let read = |stream: &&PendingStream| conn.plan.is_none() || stream.setup.is_handshake();
            conn.streams.iter().filter(read).for_each(|stream| stream.setup.wait_fds(fds));
        }
    }

    /// Whether more streams are logging in than a job's own peers make at a time: with each pass all of them are looked at, so whoever
    /// drives other connections too does well to look a thousand times a second at most, and not whenever one of them stirs.
    pub fn is_crowded(&self) -> bool {
        self.lock().pending_logins.len() > CROWD
    }

    /// How many lost rails have come back so far to connections that are up. Each takes its own with its next progress: whoever drives them
    /// only when something stirs must look at them when this grows.
    pub fn came_back(&self) -> u64 {
        self.lock().came_back
    }

    /// Whether nothing is coming up and new connections can be accepted at once.
    pub fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }
}

struct PendingStream {
    setup: StreamSetup,
    /// Its right to be half open; a rail of a connection that is up needs none behind its login.
    slot: Option<Slot>,
    peer: SocketAddr,
    /// Known behind the login.
    number: u16,
    /// Made while answering the greeting; goes to the connection the stream turns out to belong to.
    offer: Option<Result<ShmOffer, String>>,
    /// Why device-memory TCP is not taken although one side has set it up.
    no_devmem: String,
    /// Both sides take device-memory TCP on it.
    devmem: bool,
}

/// A connection, as its peer numbers it. Streams of another key are of another connection, whatever number they give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    pub(crate) number: u64,
    pub(crate) peer_key: Option<PublicKey>,
}

/// The streams of one connection that is coming up.
struct PendingConn {
    peer: SocketAddr,
    since: Instant,
    streams: Vec<PendingStream>,
    /// Which of them have ended, a bit for each number.
    ended: u64,
    offer: Option<Result<ShmOffer, String>>,
    plan: Option<(u16, Plan)>,
    rail: Option<ShmRail>,
}

pub(crate) struct Acceptor {
    fabric: Fabric,
    device: String,
    /// The machine's devices that these are the interfaces of.
    members: Vec<Member>,
    handle: Handle,
    sockets: Vec<Listen>,
    /// The socket that is asked first.
    turn: usize,
    table: Arc<LoginTable>,
    pending_logins: Vec<PendingStream>,
    pending_conns: HashMap<ConnId, PendingConn>,
    /// The listener's owner looks after the sockets for as long as there are connections.
    attended: bool,
    /// Connections that came up, as long as they live: only theirs are rails that are added.
    conns: Vec<Weak<ConnId>>,
    /// Reconnected rails of connections that are up.
    returned: Vec<(ConnId, Recovered)>,
    /// How many there were.
    came_back: u64,
    /// Streams beside which queue pairs are being set up for them.
    handshakes: Vec<(ConnId, PendingStream)>,
}

impl Acceptor {
    fn is_idle(&self) -> bool {
        let pending = self.pending_logins.len() + self.pending_conns.len() + self.handshakes.len();
        pending == 0 && !Slot::all_taken() && self.sockets.iter().all(|s| s.wait_fd().is_some())
    }

    /// Accepts, logs in and reads plans as far as possible.
    fn pump(&mut self) -> Result<(), Error> {
        let mut n = 0;
        while n < self.pending_logins.len() {
            if self.serve(n) {
                n += 1;
            }
        }
        self.admit()?;
        if !self.returned.is_empty() || !self.handshakes.is_empty() {
            self.forget_ended();
        }
        self.pending_conns.values_mut().for_each(PendingConn::poll_offer);
        self.meet_again();
        let fabric = &self.fabric;
        let (log, stats, patience) = (fabric.log(), fabric.stats(), fabric.config().connect_timeout);
        self.pending_conns.retain(|_, a| {
            let had_plan = a.plan.is_some();
            match a.meet().and_then(|()| a.read_plan()) {
                Ok(()) => {
                    let in_time = a.since.elapsed() < patience;
                    // What has arrived counts, however late it is read; from now on it waits to be accepted.
                    let arrived = !in_time && !had_plan && a.is_complete();
                    if arrived {
                        a.since = Instant::now();
                    }
                    in_time || arrived || given_up(fabric, a)
                }
                Err(why) => {
                    stats.count(Event::SetupsDropped);
                    log.info(&format!("dropped a connection from {} before it was set up: {why}", a.peer));
                    false
                }
            }
        });
        Ok(())
    }

    /// Moves a login on. False when it is over, and another has taken its place in the list.
    fn serve(&mut self, n: usize) -> bool {
        match self.pending_logins[n].log_in(&self.fabric) {
            Ok(None) => return true,
            Ok(Some(session)) => {
                let pending = self.pending_logins.swap_remove(n);
                self.add_stream(pending, &session);
            }
            Err(error) => {
                let pending = self.pending_logins.swap_remove(n);
                self.fabric.stats().count(error.event);
                let line = format!("refused a connection from {}: {}", pending.peer, error.why);
                if error.refusal.is_some() || error.event == Event::RefusedVersion {
                    // A peer of ours that is configured otherwise.
                    warn_seldom(self.fabric.log(), &format!("login {}", pending.peer.ip()), &line);
                } else {
                    // An unauthenticated client is ignored, but the reason is logged.
                    self.fabric.log().info(&line);
                }
            }
        }
        false
    }

    /// Accepts as many streams as there are slots, from each socket in turn, and reads what they have said already. The others
    /// stay in the kernel's queues; so do those beyond a number that keeps nobody waiting, for one that ends at once takes no slot.
    fn admit(&mut self) -> Result<(), Error> {
        let mut empty = 0;
        for _ in 0..ADMITTED {
            if empty == self.sockets.len() {
                break;
            }
            let Some(slot) = self.slot() else { return Ok(()) };
            let at = self.turn % self.sockets.len();
            self.turn = at + 1;
            match self.sockets[at].accept() {
                Ok(Some((stream, peer))) => {
                    self.enter(slot, stream, peer)?;
                    let last = self.pending_logins.len() - 1;
                    if self.serve(last) {
                        let PendingStream { setup, slot, .. } = &mut self.pending_logins[last];
                        if let (Some(slot), Some(run)) = (slot, setup.login_run()) {
                            slot.count_silence(run);
                        }
                    }
                    empty = 0;
                }
                Ok(None) => empty += 1,
                Err(shortage @ linkspan_stream::Error::Shortage { .. }) => {
                    self.fabric.stats().count(Event::AcceptPauses);
                    self.fabric.log().warn(&chain(&shortage));
                    return Ok(());
                }
                Err(broken) => return Err(broken.into()),
            }
        }
        Ok(())
    }

    /// A slot for a stream; for its sake others that have had their time may go.
    fn slot(&mut self) -> Option<Slot> {
        if let Some(slot) = Slot::take() {
            return Some(slot);
        }
        // Listeners that nobody polls at the moment. One that is locked is being polled.
        let others: Vec<_> = acceptors().iter().filter_map(Weak::upgrade).collect();
        for drop_some in [Acceptor::drop_strangers, Acceptor::drop_overdue] {
            drop_some(self);
            others.iter().filter_map(|other| other.try_lock().ok()).for_each(|mut other| drop_some(&mut other));
            if let Some(slot) = Slot::take() {
                return Some(slot);
            }
        }
        None
    }

    /// Ends streams whose peers have not proven themselves in time.
    fn drop_strangers(&mut self) {
        drop_unproven(&mut self.pending_logins, self.fabric.stats(), |p| {
            Some((p.setup.login_run()?, p.slot.as_ref()?))
        });
    }

    /// Ends those whose peers are long in making a connection of theirs.
    fn drop_overdue(&mut self) {
        let fabric = &self.fabric;
        self.pending_conns.retain(|_, a| a.is_complete() || a.since.elapsed() < MAKING || given_up(fabric, a));
    }

    fn enter(&mut self, slot: Slot, stream: Stream, peer: SocketAddr) -> Result<(), Error> {
        let params = ServerParams {
            guard: self.fabric.config().listening_guard(),
            blob: None,
            ..ServerParams::new(self.handle.listen_id, self.handle.token.clone(), self.table.clone())
        };
        let setup = StreamSetup::accept(LoginRun::server(stream, params)?);
        let (slot, offer) = (Some(slot), None);
        self.pending_logins.push(PendingStream {
            setup,
            slot,
            peer,
            number: 0,
            offer,
            no_devmem: String::new(),
            devmem: false,
        });
        Ok(())
    }

    fn add_stream(&mut self, mut stream: PendingStream, session: &Session) {
        let conn = ConnId { number: session.conn_id, peer_key: session.peer_key };
        stream.number = session.stream;
        if stream.number >= FIRST_RETURN {
            if !self.knows(&conn) {
                self.fabric.stats().count(Event::SetupsDropped);
                let line = format!("ended a stream from {}: its connection is over here", stream.peer);
                return self.fabric.log().info(&line);
            }
            stream.slot = None;
            if stream.setup.is_handshake() {
                make_space(&mut self.handshakes, &conn);
                self.handshakes.push((conn, stream));
            } else if stream.setup.greeting.asks.is_empty() {
                // Else it wants queue pairs, or a cable, or nothing, and has been told that there are none.
                self.back(conn, stream.recovered());
            }
            return;
        }
        let pending_conn = self.pending_conns.entry(conn).or_insert_with(|| PendingConn {
            peer: stream.peer,
            since: Instant::now(),
            streams: Vec::new(),
            ended: 0,
            offer: None,
            plan: None,
            rail: None,
        });
        pending_conn.offer = stream.offer.take().or(pending_conn.offer.take());
        pending_conn.streams.push(stream);
    }

    /// Makes the connection that has waited longest of those of which all is there. One that cannot be made, because its peer has gone
    /// meanwhile, plans what cannot be, or for want of descriptors, is no error of the listener's.
    fn finish_one(&mut self, acceptor: &Arc<Mutex<Acceptor>>) -> Result<Option<Channel>, Error> {
        loop {
            let ready = self.pending_conns.iter().filter(|(_, a)| a.is_complete());
            let oldest = ready.min_by_key(|(_, a)| a.since).map(|(id, _)| *id);
            let Some((id, pending_conn)) = oldest.and_then(|id| self.pending_conns.remove_entry(&id)) else {
                return Ok(None);
            };
            let conn = Arc::new(id);
            let policy = |relayed| ReconnectPolicy::Accepts { acceptor: acceptor.clone(), conn: conn.clone(), relayed };
            self.forget_ended();
            self.conns.push(Arc::downgrade(&conn));
            let peer = pending_conn.peer;
            match pending_conn.finish(&self.fabric, &self.device, policy, id.peer_key) {
                made @ (Ok(_) | Err(Error::Strict { .. } | Error::Forced { .. })) => return made.map(Some),
                Err(error) => {
                    self.fabric.stats().count(Event::SetupsDropped);
                    let line = format!("dropped a connection from {peer} before it was set up: {}", chain(&error));
                    warn_seldom(self.fabric.log(), &format!("plan {}", peer.ip()), &line);
                }
            }
        }
    }

    /// Whether it is up. Before that its peer has no rails to add.
    fn knows(&self, conn: &ConnId) -> bool {
        self.conns.iter().filter_map(Weak::upgrade).any(|up| *up == *conn)
    }

    /// Drops what was kept for connections that are over.
    fn forget_ended(&mut self) {
        self.conns.retain(|conn| conn.strong_count() > 0);
        let (mut returned, mut handshakes) = (std::mem::take(&mut self.returned), std::mem::take(&mut self.handshakes));
        returned.retain(|(conn, _)| self.knows(conn));
        handshakes.retain(|(conn, _)| self.knows(conn));
        (self.returned, self.handshakes) = (returned, handshakes);
    }

    /// A reconnected rail of connection `conn`.
    pub(crate) fn returned(&mut self, conn: ConnId) -> Option<Recovered> {
        let pumped = if self.attended { Ok(()) } else { self.pump() };
        if let Err(error) = pumped {
            self.fabric.log().warn(&chain(&error));
        }
        let at = self.returned.iter().position(|r| r.0 == conn)?;
        Some(self.returned.swap_remove(at).1)
    }

    /// Whether rails for connection `conn` are being set up: the client has shown that it is alive.
    pub(crate) fn meets(&self, conn: ConnId) -> bool {
        self.handshakes.iter().any(|m| m.0 == conn) || self.returned.iter().any(|r| r.0 == conn)
    }

    fn back(&mut self, conn: ConnId, back: Option<Recovered>) {
        let Some(back) = back else { return };
        make_space(&mut self.returned, &conn);
        self.returned.push((conn, back));
        self.came_back += 1;
    }

    /// Makes progress on queue pairs that reconnect. The peer asks again for those that do not come up.
    fn meet_again(&mut self) {
        let over = |stream: &mut PendingStream| !matches!(stream.setup.poll(), Ok(Step::Pending));
        let over: Vec<_> = self.handshakes.extract_if(.., |(_, stream)| over(stream)).collect();
        for (conn, stream) in over {
            if stream.setup.rails.is_ok() {
                self.back(conn, stream.recovered());
            }
        }
    }
}

impl PendingStream {
    /// Moves its login on.
    fn log_in(&mut self, fabric: &Fabric) -> Result<Option<Box<Session>>, SetupError> {
        loop {
            match self.setup.poll()? {
                Step::Asked(asked) => self.answer(fabric, asked)?,
                Step::LoggedIn(session) => return Ok(Some(session)),
                Step::Pending | Step::Connected(..) | Step::Up => return Ok(None),
            }
        }
    }

    /// Says what this side has on the stream of what the peer asks for.
    fn answer(&mut self, fabric: &Fabric, asked: Greeting) -> Result<(), SetupError> {
        let Some(run) = self.setup.login_run() else { return Ok(()) };
        let (interface, local) = (run.stream.interface(), run.stream.local_addr());
        let mut answer = Greeting::default();
        let mut beside = None;
        match fabric.provider(&asked.asks).filter(|provider| asked.relays == 0 || provider.relayer().is_some()) {
            Some(provider) => {
                // Over others the device that is met is the last relay's.
                let (far, hops) = (asked.relays, u32::from(asked.relays) + 1);
                let reason = format!("relayed over {far} host(s), chosen by the peer: {hops} hops by rdma");
                let relayed = Some(reason.as_str()).filter(|_| far > 0);
                match provider.offer(&Site { relayed, ..fabric.config().site(local) }) {
                    Ok(offer) => (answer.asks, beside) = (asked.asks, Some(Beside::new(offer, self.peer))),
                    // On a way over others the hops before it have their devices for nothing.
                    Err(why) if why.is_empty() && far > 0 => {
                        answer.why_not =
                            format!("the host that is connected to has no RDMA device to use on {interface}");
                    }
                    Err(why) => answer.why_not = why,
                }
                self.setup.rails = Err(answer.why_not.clone());
            }
            // Whose settings allow TCP alone misses nothing.
            None if !asked.why_not.is_empty() && fabric.providers().next().is_some() => {
                self.setup.rails = Err(format!("the peer says: {}", asked.why_not))
            }
            None => {}
        }
        if asked.devmem && asked.relays == 0 {
            match crate::devmem::ready(fabric, &interface) {
                Ok(()) => (answer.devmem, self.devmem) = (true, true),
                Err(why) => {
                    let unsaid = "the peer has set its card up for it, this host has not: run `lspan devmem up`";
                    self.no_devmem = if why.is_empty() { unsaid.to_owned() } else { why.clone() };
                    answer.no_devmem = why;
                }
            }
        } else if !asked.no_devmem.is_empty() {
            self.no_devmem = format!("the peer says: {}", asked.no_devmem);
        }
        if asked.wants_local {
            let path = &fabric.config().path;
            let offered = match path.allows("shm") {
                true => local::offer(fabric.config(), &asked.shm),
                false => Err(format!("LINKSPAN_PATH={} here", path.forced().unwrap_or_default())),
            };
            match offered {
                Ok((offer, shm)) => {
                    answer = Greeting { wants_local: true, shm, ..answer };
                    self.offer = Some(Ok(offer));
                }
                Err(why) => {
                    answer.refuse_shm(&why);
                    self.offer = Some(Err(why));
                }
            }
        }
        self.setup.answer(&answer, beside)
    }

    /// As what comes back to a connection that is up.
    fn recovered(mut self) -> Option<Recovered> {
        let (secured, relayed) = (self.setup.take()?, relayed(self.setup.greeting.relays));
        Some(Recovered { number: self.number, secured, rails: self.setup.rails.unwrap_or_default(), relayed })
    }
}

/// Tells of a connection whose peer has taken too long, which is not kept.
fn given_up(fabric: &Fabric, conn: &PendingConn) -> bool {
    fabric.stats().count(Event::SetupsDropped);
    let (peer, ms) = (conn.peer, conn.since.elapsed().as_millis());
    fabric.log().info(&format!("dropped a connection from {peer}: it was not up after {ms} ms"));
    false
}

/// Streams that are accepted in one go: a millisecond's worth, also where each is refused at once.
const ADMITTED: usize = 64;

/// How long a connection whose peer has proven itself may be in the making where strangers want its place: a login, and a handshake beside
/// it at its longest.
const MAKING: Duration = Duration::from_secs(5 + 20);

/// The oldest goes, of the connection itself where that has as many as it can use.
fn make_space<T>(list: &mut Vec<(ConnId, T)>, conn: &ConnId) {
    let mut own = list.iter().enumerate().filter(|(_, (of, _))| of == conn);
    let oldest = own.next().map(|(at, _)| at).filter(|_| own.count() + 1 >= MAX_RAILS);
    if let Some(at) = oldest.or((list.len() >= MAX_WAITING).then_some(0)) {
        list.remove(at);
    }
}

/// Streams with this number or a higher one are rails that are added to a connection that is up.
pub(crate) const FIRST_RETURN: u16 = 64;

impl PendingConn {
    fn read_plan(&mut self) -> Result<(), String> {
        if self.plan.is_some() {
            return Ok(());
        }
        let (mut broke, mut bad, mut said) = (Ok(()), Ok(()), None);
        let ended = &mut self.ended;
        self.streams.retain_mut(|stream| match stream.setup.up().map(|secured| secured.read::<PLAN_LEN>()) {
            Some(Ok(Some(plan))) if said.is_none() => {
                said = Some((stream.number, plan));
                true
            }
            Some(Err(error)) => {
                // One that ends takes nothing with it; what is damaged may be somebody's who is on the way.
                let whose = if matches!(error, MessageError::Io(_)) { &mut broke } else { &mut bad };
                *whose = Err(chain(&error));
                *ended |= 1u64 << stream.number;
                false
            }
            _ => true,
        });
        bad?;
        if let Some((speaker, plan)) = said {
            let plan = Plan::decode(&plan).map_err(|e| chain(&e))?;
            if plan.streams.iter().chain(&plan.keepalive).any(|n| *n < FIRST_RETURN && self.ended >> n & 1 == 1) {
                return Err("its plan names a stream that has ended".into());
            }
            self.plan = Some((speaker, plan));
        }
        if self.streams.is_empty() { broke } else { Ok(()) }
    }

    fn is_complete(&self) -> bool {
        let Some((_, plan)) = &self.plan else {
            return false;
        };
        let here = |n: &u16| self.streams.iter().any(|s| s.number == *n && s.setup.is_up());
        if !plan.streams.iter().chain(&plan.keepalive).all(here) {
            return false;
        }
        plan.carrier != Carrier::Shm || self.rail.is_some() || !matches!(self.offer, Some(Ok(_)))
    }

    /// Moves the set-up of queue pairs on. A stream whose handshake broke is of no more use; why, where it was the last.
    fn meet(&mut self) -> Result<(), String> {
        let mut broke = Ok(());
        let ended = &mut self.ended;
        self.streams.retain_mut(|stream| match stream.setup.is_handshake().then(|| stream.setup.poll()) {
            Some(Err(error)) => {
                broke = Err(error.why);
                *ended |= 1u64 << stream.number;
                false
            }
            _ => true,
        });
        if self.streams.is_empty() { broke } else { Ok(()) }
    }

    /// Moves the set-up of shared memory on, which the peer finishes before it says its plan.
    fn poll_offer(&mut self) {
        let Some(Ok(offer)) = &mut self.offer else { return };
        match offer.poll() {
            Ok(None) => {}
            Ok(Some(rail)) => {
                self.rail = Some(rail);
                self.offer = None;
            }
            Err(why) => self.offer = Some(Err(why)),
        }
    }
}

#[cfg(test)]
mod tests;
