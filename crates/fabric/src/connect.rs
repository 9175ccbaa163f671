//! The side that connects.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::{Addr, HANDLE_LEN, Handle};
use linkspan_proto::login::{ClientParams, Login, LoginError, Seed};
use linkspan_proto::plan::{AGREED, AGREED_LEN, Carrier, Plan};
use linkspan_tcp::Dial;
use linkspan_transport::{Conn, MAX_RAILS, Rail, WaitFd};

use crate::channel::{Channel, Parts, Returns};
use crate::config::PathChoice;
use crate::device::Device;
use crate::listener::{FIRST_RETURN, socket_addr};
use crate::local::{self, Join};
use crate::logins::{LoginRun, LoginStep};
use crate::redial::Redial;
use crate::room::AnyRail;
use crate::secured::{MessageError, Secured};
use crate::{Error, Fabric, chain, clock};

/// How long the first stream that is up waits for the others. Only a dead rail costs this much.
const GRACE: Duration = Duration::from_secs(1);

/// Number of the sentinel's stream.
const SENTINEL: u16 = 32;

/// One pair of addresses being tried.
pub(crate) struct Try {
    pub(crate) from: Option<SocketAddr>,
    pub(crate) to: SocketAddr,
    pub(crate) number: u16,
    pub(crate) why: &'static str,
    /// Port speed, bytes per second; 0 when unknown.
    speed: u64,
    state: TryState,
}

enum TryState {
    Dial(Dial),
    Login(Box<LoginRun>),
    /// With the peer's greeting.
    Up(Box<Secured>, Vec<u8>),
    Used,
    Failed(String),
}

/// A connection that is coming up. Poll-driven; never blocks.
pub struct Connecting {
    fabric: Fabric,
    handle: Handle,
    conn_id: u64,
    tries: Vec<Try>,
    since: Instant,
    first_up: Option<Instant>,
    join: Option<Result<Join, String>>,
    shm: Option<local::ShmRail>,
    proposed: Option<Proposed>,
    /// What we announce of ourselves to a peer on this host, or why we cannot.
    own: Result<linkspan_shm::Identity, String>,
    same_host: bool,
    /// Name of the device.
    device: String,
    /// Pairs of addresses whose interface has no link yet, with its name.
    later: Vec<(SocketAddr, SocketAddr, String)>,
}

struct Proposed {
    plan: Plan,
    speaker: usize,
    /// The plan as it travels, and how much of it has been sent.
    bytes: Vec<u8>,
    said: usize,
    /// What came of the answer, as it travels.
    inbox: Vec<u8>,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connecting")
    }
}

impl Connecting {
    pub(crate) fn new(fabric: &Fabric, device: usize, handle: &[u8; HANDLE_LEN]) -> Result<Connecting, Error> {
        let device = fabric.device(device)?;
        let handle = Handle::decode(handle)?;
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|_| LoginError::Random)?;
        let same_host = handle.host == fabric.host_hash();
        let mut connecting = Connecting {
            fabric: fabric.clone(),
            conn_id: u64::from_le_bytes(id),
            tries: Vec::new(),
            since: Instant::now(),
            first_up: None,
            join: None,
            shm: None,
            proposed: None,
            own: local::identity(),
            same_host,
            device: device.name.clone(),
            handle,
            later: Vec::new(),
        };
        let streams = fabric.streams(&device);
        if !same_host {
            connecting.later = later(fabric, &device, &connecting.handle, streams);
        }
        for (from, to, why, mbps) in pairs(&device, &connecting.handle, streams, same_host) {
            let number = connecting.tries.len() as u16;
            connecting.start(from, to, number, why, mbps);
        }
        // On one host the kernel tells a death by the rail itself; who makes paths again must know it from a path that was ended.
        let watched = !same_host || (fabric.acked() && fabric.config().path != PathChoice::Shm);
        let first = connecting.tries.first().filter(|_| watched).map(|t| (t.from, t.to, t.why));
        if let Some((from, to, why)) = first {
            connecting.start(from, to, SENTINEL, why, 0);
        }
        Ok(connecting)
    }

    fn start(&mut self, from: Option<SocketAddr>, to: SocketAddr, number: u16, why: &'static str, mbps: u32) {
        let limit = self.fabric.config().connect_timeout;
        let state = match Dial::start(from, to, &self.fabric.tcp_options(), limit) {
            Ok(dial) => TryState::Dial(dial),
            Err(error) => TryState::Failed(chain(&error)),
        };
        self.tries.push(Try { from, to, number, why, speed: u64::from(mbps) * 125_000, state });
    }

    /// Moves on. `Some` when the connection is up.
    ///
    /// # Errors
    /// No path could be had; names every one that was tried. Also any downgrade in strict mode.
    pub fn poll(&mut self) -> Result<Option<Channel>, Error> {
        for n in 0..self.tries.len() {
            self.poll_try(n)?;
        }
        if self.since.elapsed() > self.fabric.config().connect_timeout {
            return Err(Error::Timeout { ms: self.since.elapsed().as_millis(), tried: self.tried() });
        }
        if self.proposed.is_none() && !self.propose()? {
            return Ok(None);
        }
        self.conclude()
    }

    /// What to wait for until [`Connecting::poll`] may have news.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        for attempt in &self.tries {
            match &attempt.state {
                TryState::Dial(dial) => fds.extend(dial.wait_fd().map(|(fd, _)| fd)),
                TryState::Login(run) => fds.push(run.stream.wait_fd(!run.login.output().is_empty())),
                TryState::Up(secured, _) => fds.push(secured.stream.wait_fd(false)),
                TryState::Used | TryState::Failed(_) => {}
            }
        }
    }

    fn wants_local(&self) -> bool {
        self.same_host && self.fabric.config().path != PathChoice::Tcp && self.own.is_ok()
    }

    fn poll_try(&mut self, n: usize) -> Result<(), Error> {
        loop {
            let wants_local = self.wants_local();
            let attempt = &mut self.tries[n];
            attempt.state = match &mut attempt.state {
                TryState::Dial(dial) => match dial.poll() {
                    Ok(None) => return Ok(()),
                    Ok(Some(stream)) => {
                        let shm = match &self.own {
                            Ok(own) if wants_local => own.encode().to_vec(),
                            _ => Vec::new(),
                        };
                        let params = ClientParams {
                            guard: self.fabric.config().guard.clone(),
                            blob: Greeting { wants_local, shm }.encode(),
                            ..ClientParams::new(
                                self.handle.listen_id,
                                self.handle.token.clone(),
                                self.conn_id,
                                attempt.number,
                            )
                        };
                        let login = Login::client(params, Seed::random()?, clock::now())?;
                        TryState::Login(Box::new(LoginRun { stream, login }))
                    }
                    Err(error) => TryState::Failed(chain(&error)),
                },
                TryState::Login(run) => match run.poll() {
                    Ok(LoginStep::Done(session)) => {
                        let TryState::Login(run) = std::mem::replace(&mut attempt.state, TryState::Used) else {
                            return Ok(());
                        };
                        self.first_up.get_or_insert_with(Instant::now);
                        let secured = Secured::new(run.stream, session.ciphers);
                        TryState::Up(Box::new(secured), session.peer_blob)
                    }
                    Ok(_) => return Ok(()),
                    Err(error) => TryState::Failed(chain(&error)),
                },
                _ => return Ok(()),
            };
        }
    }

    /// Decides what the connection is made of, once enough is known. False: not yet.
    fn propose(&mut self) -> Result<bool, Error> {
        let rail_up = |t: &Try| matches!(t.state, TryState::Up(..)) && t.number != SENTINEL;
        let open = self.tries.iter().any(|t| matches!(t.state, TryState::Dial(_) | TryState::Login(_)));
        let Some(speaker) = self.tries.iter().position(rail_up) else {
            return if open { Ok(false) } else { Err(Error::Unreachable { tried: self.tried() }) };
        };
        if open && self.first_up.is_some_and(|t| t.elapsed() < GRACE) {
            return Ok(false);
        }
        if self.wants_local() && !self.try_local(speaker) {
            return Ok(false);
        }
        let why_not = match &self.join {
            Some(Err(why)) => Some(why.clone()),
            _ => None,
        };
        if self.fabric.config().path == PathChoice::Shm && self.shm.is_none() {
            let why = why_not.unwrap_or_else(|| "the peer is on another host".into());
            return Err(Error::Forced { path: "shm", why });
        }
        if let Some(why) = why_not {
            self.downgrade(format!("TCP in place of shared memory to a process on this host: {why}"))?;
        }
        let ring_only = self.shm.as_ref().map(|rail| rail.info()).filter(|info| info.caps.ordered);
        if let (true, Some(info)) = (self.fabric.config().cma, ring_only) {
            self.downgrade(format!("every byte is copied twice through the ring: {}", info.reason))?;
        }
        let plan = if self.shm.is_some() {
            Plan {
                carrier: Carrier::Shm,
                acked: self.fabric.acked(),
                streams: vec![self.tries[speaker].number],
                sentinel: None,
            }
        } else {
            let routed = self.tries.iter().all(|t| t.from.is_none());
            let failed: Vec<String> = self.tries.iter().filter_map(Try::failure).collect();
            if !failed.is_empty() && !routed {
                self.downgrade(format!("fewer rails than interfaces: {}", failed.join("; ")))?;
            }
            let up = self.tries.iter().filter(|t| rail_up(t)).take(if routed { 1 } else { MAX_RAILS });
            let streams: Vec<u16> = up.map(|t| t.number).collect();
            // What may get more rails later must be able to carry several.
            let grows = !routed && (!failed.is_empty() || !self.later.is_empty());
            let guard = |t: &&Try| t.number == SENTINEL && matches!(t.state, TryState::Up(..));
            Plan {
                carrier: Carrier::Tcp,
                acked: self.fabric.acked() || streams.len() > 1 || grows,
                streams,
                sentinel: self.tries.iter().find(guard).map(|t| t.number),
            }
        };
        let attempt = &mut self.tries[speaker];
        let TryState::Up(secured, _) = &mut attempt.state else {
            return Err(Error::Vanished { peer: attempt.to });
        };
        let bytes = secured.pack(&plan.encode()).map_err(|_| Error::Vanished { peer: attempt.to })?;
        self.proposed = Some(Proposed { plan, speaker, bytes, said: 0, inbox: Vec::new() });
        Ok(true)
    }

    /// Moves the shared-memory set-up on. True when it has ended either way.
    fn try_local(&mut self, speaker: usize) -> bool {
        if self.shm.is_some() {
            return true;
        }
        let join = self.join.get_or_insert_with(|| {
            let TryState::Up(_, greeting) = &self.tries[speaker].state else {
                return Err("no stream".into());
            };
            let answer = Greeting::decode(greeting).ok_or("the peer's greeting cannot be read")?;
            if !answer.wants_local {
                return Err("the peer does not offer it; its log says why".into());
            }
            local::join(self.fabric.config(), self.own.as_ref().map_err(Clone::clone)?, &answer.shm)
        });
        let step = match join {
            Ok(join) => join.poll(),
            Err(_) => return true,
        };
        match step {
            Ok(None) => false,
            Ok(Some(rail)) => {
                self.shm = Some(rail);
                true
            }
            Err(why) => {
                self.join = Some(Err(why));
                true
            }
        }
    }

    fn downgrade(&self, what: String) -> Result<(), Error> {
        if self.fabric.config().strict {
            return Err(Error::Strict { what });
        }
        self.fabric.log().warn(&format!("downgrade: {what}"));
        Ok(())
    }

    /// Sends the plan, waits for the answer, makes the connection.
    fn conclude(&mut self) -> Result<Option<Channel>, Error> {
        let Some(mut proposed) = self.proposed.take() else {
            return Ok(None);
        };
        let peer = self.tries[proposed.speaker].to;
        let TryState::Up(secured, _) = &mut self.tries[proposed.speaker].state else {
            return Err(Error::Vanished { peer });
        };
        while proposed.said < proposed.bytes.len() {
            match secured.stream.try_write(&proposed.bytes[proposed.said..]) {
                Ok(Some(n)) => proposed.said += n,
                Ok(None) => break,
                Err(_) => return Err(Error::Vanished { peer }),
            }
        }
        match secured.read::<AGREED_LEN>(&mut proposed.inbox) {
            Ok(Some(AGREED)) => self.finish(proposed.plan).map(Some),
            Ok(None) => {
                self.proposed = Some(proposed);
                Ok(None)
            }
            Err(MessageError::Io(_)) => Err(Error::Vanished { peer }),
            Ok(Some(_)) => Err(Error::Answer { peer, why: "it is neither a yes nor silence".into() }),
            Err(error) => Err(Error::Answer { peer, why: error.to_string() }),
        }
    }

    fn take(&mut self, number: u16) -> Option<(Secured, &Try)> {
        let attempt = self.tries.iter_mut().find(|t| t.number == number)?;
        match std::mem::replace(&mut attempt.state, TryState::Used) {
            TryState::Up(secured, _) => Some((*secured, attempt)),
            other => {
                attempt.state = other;
                None
            }
        }
    }

    fn finish(&mut self, plan: Plan) -> Result<Channel, Error> {
        let fabric = self.fabric.clone();
        let mut sentinel = plan.sentinel.and_then(|n| self.take(n)).map(|(secured, _)| secured.into_sentinel());
        let mut rails = Vec::new();
        let mut redials = Vec::new();
        match self.shm.take() {
            Some(rail) => {
                sentinel = self.take(plan.streams[0]).map(|(secured, _)| secured.into_sentinel());
                rails.push(AnyRail::Shm(rail));
            }
            None => {
                for &number in &plan.streams {
                    let Some((secured, attempt)) = self.take(number) else {
                        continue;
                    };
                    let (from, to, why, speed) = (attempt.from, attempt.to, attempt.why, attempt.speed);
                    redials.push(Redial::new(from, to, secured.stream.path()));
                    rails.push(fabric.tcp_rail(secured, why, Some(speed))?);
                }
            }
        }
        let mut left_out: Vec<String> = self.tries.iter().filter_map(Try::failure).collect();
        let returns = if plan.acked && !redials.is_empty() {
            let late = self.tries.iter().filter(|t| t.number != SENTINEL && !plan.streams.contains(&t.number));
            redials.extend(late.filter(|t| t.from.is_some()).map(|t| Redial::later(t.from, t.to)));
            if redials.iter().all(|r| r.from().is_some()) {
                left_out
                    .extend(self.later.iter().map(|(.., name)| format!("{name} (no link, taken in when it is up)")));
                redials.extend(self.later.iter().map(|&(from, to, _)| Redial::later(Some(from), to)));
            }
            redials.truncate(MAX_RAILS);
            Returns::Dials { handle: self.handle.clone(), conn: self.conn_id, next: FIRST_RETURN, redials }
        } else {
            Returns::Never
        };
        Ok(Channel::new(
            &fabric,
            Parts {
                conn: Conn::new(rails, plan.acked),
                sentinel,
                returns,
                device: self.device.clone(),
                verb: "connected",
                left_out,
            },
        ))
    }

    fn tried(&self) -> String {
        let each: Vec<String> = self.tries.iter().map(Try::describe).collect();
        if each.is_empty() { "nothing: the handle has no address this host can use".into() } else { each.join("; ") }
    }
}

impl Try {
    fn describe(&self) -> String {
        let from = self.from.map_or_else(|| "any".to_owned(), |f| f.ip().to_string());
        let state = match &self.state {
            TryState::Dial(_) => "no answer yet",
            TryState::Login(_) => "connected, login not finished",
            TryState::Up(..) | TryState::Used => "up",
            TryState::Failed(why) => why,
        };
        format!("{from} -> {} ({}): {state}", self.to, self.why)
    }

    /// What to say of it where it did not become a rail.
    fn failure(&self) -> Option<String> {
        let up = matches!(self.state, TryState::Up(..) | TryState::Used);
        (!up && self.number != SENTINEL).then(|| self.describe())
    }
}

/// The pairs of addresses that could be tried if an interface of ours had a link.
fn later(fabric: &Fabric, device: &Device, handle: &Handle, streams: usize) -> Vec<(SocketAddr, SocketAddr, String)> {
    let mut list = Vec::new();
    for port in crate::later::ports(fabric.config(), fabric.survey(), device) {
        // Another of our interfaces in that subnet is what reaches it already.
        let served = |to: &Addr| device.ports.iter().any(|p| to.same_subnet(p.addr.ip));
        let to = handle.addrs().iter().find(|to| to.same_subnet(port.addr.ip) && !served(to));
        if let Some(to) = to {
            let from = socket_addr(port.addr.ip, 0, port.addr.scope);
            let to = socket_addr(to.ip, to.port, port.addr.scope);
            list.extend((0..streams).map(|_| (from, to, port.name.clone())));
        }
    }
    list
}

/// The pairs of addresses to try: each of ours with one of theirs in its subnet, else whatever the routes say.
fn pairs(
    device: &Device,
    handle: &Handle,
    streams: usize,
    same_host: bool,
) -> Vec<(Option<SocketAddr>, SocketAddr, &'static str, u32)> {
    let mut free: Vec<_> = device.ports.iter().collect();
    let mut list = Vec::new();
    if same_host {
        let to = handle.addrs()[0];
        let scope = free.iter().find(|p| p.addr.ip == to.ip).map_or(0, |p| p.addr.scope);
        let mbps = free.first().map_or(0, |p| p.mbps);
        return vec![(None, socket_addr(to.ip, to.port, scope), "same host", mbps)];
    }
    for to in handle.addrs() {
        let Some(at) = free.iter().position(|p| to.same_subnet(p.addr.ip)) else {
            continue;
        };
        let port = free.remove(at);
        let from = socket_addr(port.addr.ip, 0, port.addr.scope);
        for _ in 0..streams {
            list.push((Some(from), socket_addr(to.ip, to.port, port.addr.scope), "same subnet", port.mbps));
        }
    }
    if list.is_empty() {
        for to in handle.addrs() {
            list.push((None, to.socket(), "routed: no interface shares a subnet", 0));
        }
    }
    list.truncate(MAX_RAILS);
    list
}
