//! The side that connects.

mod outcome;
mod pairs;
mod plans;
mod tries;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linkspan_mesh::hops::Hops;
use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::{Addr, HANDLE_LEN, Handle};
use linkspan_proto::login::{ClientParams, LoginError, PublicKey};
use linkspan_proto::plan::{Carrier, Plan};
use linkspan_setup::stats::Event;
use linkspan_stream::Stream;
use linkspan_topology::mesh::{MeshLink, MeshRoute, ROUTES_MAX};
use linkspan_topology::{FAR_SLOWER, Interface, Kind};
use linkspan_transport::{MAX_RAILS, Rail, WaitFd};

use crate::channel::Channel;
use crate::device::Device;
use crate::local::{self, Join};
use crate::route::Path;
use crate::stream_setup::{SetupState, Step, StreamSetup};
use crate::{Error, Fabric};
use pairs::{far_slower, later, pairs};
pub(crate) use tries::Try;

/// How long the first stream that is up waits for the others. Only a dead rail costs this much.
const GRACE: Duration = Duration::from_secs(1);

/// The same for those that are connected and not logged in: their peer is there, and slow.
const LOGIN_GRACE: Duration = Duration::from_secs(5);

/// The same where a connection is dialled anew that others wait for: a way that is late is added when it is up.
const RECONNECT_GRACE: Duration = Duration::from_millis(200);

/// The same for a cable that may lead to another host: a neighbour at its other end accepts at once.
const CABLE_GRACE: Duration = Duration::from_millis(100);

/// Number of the keepalive connection's stream.
const KEEPALIVE: u16 = 32;

/// Time between two questions to the mesh.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The same after routes that it knew have failed.
const ASK_ANEW: Duration = Duration::from_millis(700);

/// Longest wait for a mesh whose state still changes before a connection makes do with one route over relays.
const ONE_WAY: Duration = Duration::from_secs(5);

/// Time between two tries where all ways to the peer have failed.
const AGAIN: Duration = Duration::from_millis(250);

/// How long nothing has been under way before a connection in a mesh, which looks for other routes itself, tries them all again.
const AGAIN_IN_MESH: Duration = Duration::from_secs(2);

/// A connection that is coming up. Poll-driven; never blocks.
///
/// Until the connect timeout (`LINKSPAN_CONNECT_TIMEOUT_MS`) is over all is tried again that may pass: a listener that is busy
/// or not there yet, a cable that is out, a process without descriptors.
pub struct Connecting {
    fabric: Fabric,
    /// Index of the device.
    index: usize,
    /// All ways have failed; the next try begins then.
    again: Option<Instant>,
    /// They are not tried again.
    once: bool,
    /// How they failed before.
    failed_before: String,
    /// Downgrades that were told of, by this try or one before.
    told: Vec<String>,
    /// Since when nothing is under way, in a mesh that may still tell of a route.
    stuck: Option<Instant>,
    handle: Handle,
    conn_id: u64,
    /// The key that the peer has proven on the first stream; the others must prove the same.
    peer_key: Option<PublicKey>,
    tries: Vec<Try>,
    since: Instant,
    first_up: Option<Instant>,
    join: Option<Result<Join, String>>,
    shm: Option<local::ShmRail>,
    /// The plan, and whose stream it went over.
    pub(crate) proposed: Option<(Plan, usize)>,
    /// What we announce of ourselves to a peer on this host, or why we cannot.
    own: Result<linkspan_shm::Identity, String>,
    same_host: bool,
    /// Name of the device.
    device: String,
    /// Pairs of addresses whose interface has no link yet, with its name.
    later: Vec<(SocketAddr, SocketAddr, String)>,
    /// Number of the next stream.
    next: u16,
    /// Ways over other hosts are being tried.
    relayed: bool,
    /// When the mesh was asked last, and what was missing.
    asked: Option<(Instant, String)>,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connecting")
    }
}

impl Connecting {
    pub(crate) fn new(fabric: &Fabric, device: usize, handle: &[u8; HANDLE_LEN]) -> Result<Connecting, Error> {
        Connecting::begun(fabric, device, Handle::decode(handle)?, Instant::now())
    }

    /// Of which the first try began at `since`.
    fn begun(fabric: &Fabric, index: usize, handle: Handle, since: Instant) -> Result<Connecting, Error> {
        let device = fabric.device(index)?;
        fabric.providers().for_each(|provider| provider.open());
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|_| LoginError::Random)?;
        let same_host = handle.host == fabric.host_hash();
        let mut connecting = Connecting {
            fabric: fabric.clone(),
            index,
            again: None,
            once: false,
            failed_before: String::new(),
            told: Vec::new(),
            stuck: None,
            conn_id: u64::from_le_bytes(id),
            peer_key: None,
            tries: Vec::new(),
            since,
            first_up: None,
            join: None,
            shm: None,
            proposed: None,
            own: local::identity(),
            same_host,
            device: device.name.clone(),
            handle,
            later: Vec::new(),
            next: 0,
            relayed: false,
            asked: None,
        };
        if !same_host {
            connecting.later = later(fabric, &device, &connecting.handle);
        }
        // What shares a subnet is tried beside relays too: the mesh may not have beacons from both ends of a cable yet.
        if same_host || !connecting.ask_mesh()? || connecting.relayed {
            for (reach, why, mbps) in pairs(fabric, &device, &connecting.handle, same_host) {
                connecting.start(reach, why, mbps);
            }
        }
        connecting.start_setup(&device);
        // Where routes lead is not known yet, and may not be what the settings choose.
        let known = |t: &Try| same_host || t.reach.from().is_some() || fabric.config().interfaces.is_none();
        connecting.start_keepalive(|t| t.reach.relays() == 0 && !t.reach.is_guess() && known(t));
        Ok(connecting)
    }

    /// Beside the first stream that will do.
    fn start_keepalive(&mut self, will_do: impl Fn(&Try) -> bool) {
        // On one host the kernel tells a death by the rail itself; who makes paths again must know it from a path that was ended.
        let watched = !self.same_host || (self.fabric.acked() && !self.fabric.config().path.is("shm"));
        let first = self.tries.iter().find(|t| watched && will_do(t));
        if let Some((reach, why)) = first.map(|t| (t.reach.clone(), t.why.clone())) {
            self.begin(reach, KEEPALIVE, why, 0);
        }
    }

    /// Whether another host than the peer is, or seems to be, at the end of its cable. A cable has two ends: who has found the
    /// peer at one has no other.
    fn is_astray(&self, t: &Try) -> bool {
        let taken = |up: &Try| (up.reach.from() == t.reach.from()) != (up.reach.to().ip() == t.reach.to().ip());
        let silent = || {
            self.first_up.is_some_and(|up| up.elapsed() > CABLE_GRACE) && matches!(t.setup.state, SetupState::Dial(_))
        };
        t.reach.is_guess() && (silent() || self.tries.iter().any(|up| up.reach.is_guess() && up.is_up() && taken(up)))
    }

    /// The interface that the routes chose for a stream, where the settings do not choose it, with the setting.
    fn outside(&self, t: &Try, stream: &Stream) -> Option<String> {
        let free = !self.same_host && t.reach.from().is_none() && !stream.is_local();
        let filter = self.fabric.config().interfaces.as_ref().filter(|_| free)?;
        let interface = stream.interface();
        let known = self.fabric.survey().iter().any(|(i, _)| i.name == interface);
        (known && !filter.allows(&interface)).then(|| format!("{interface}, which {} does not choose", filter.shown()))
    }

    /// Whether another way that is up makes it needless: any that the settings choose, where they do not choose it; a cable that
    /// leads to the peer, where it is one over routes, a radio, or a far slower interface.
    fn is_needless(&self, t: &Try) -> bool {
        if t.outside.is_some() && self.tries.iter().any(|up| up.outside.is_none() && up.is_up()) {
            return t.number != KEEPALIVE;
        }
        let cables = self.tries.iter().filter(|c| c.reach.is_guess() && c.is_up());
        let Some(fastest) = cables.map(|c| c.speed).max().filter(|_| t.number != KEEPALIVE && !t.reach.is_guess())
        else {
            return false;
        };
        let from = t.reach.from().map(|from| from.ip());
        let radio = |i: &Interface| i.kind == Kind::Wireless && i.addrs.iter().any(|a| Some(a.ip) == from);
        from.is_none()
            || t.speed > 0 && t.speed.saturating_mul(FAR_SLOWER.into()) < fastest
            || self.fabric.survey().iter().any(|(i, _)| radio(i))
    }

    fn start(&mut self, reach: Path, why: impl Into<String>, mbps: u32) {
        // A number is never used twice, also where a try has come to nothing.
        let number = self.next;
        if number < KEEPALIVE {
            self.next += 1;
            self.begin(reach, number, why.into(), mbps);
        }
    }

    /// A second stream beside each, where device-memory TCP may be had.
    fn start_setup(&mut self, device: &Device) {
        let ports = device.ports.iter().map(|p| p.name.clone());
        if self.wants_local() || !crate::devmem::wished(&self.fabric, ports) {
            return;
        }
        let direct = self.tries.iter().filter(|t| t.reach.relays() == 0);
        let alone: Vec<_> = direct.map(|t| (t.number, t.reach.clone(), t.why.clone())).collect();
        for (number, reach, why) in alone.into_iter().take(MAX_RAILS / 2) {
            let count = self.tries.len();
            self.start(reach, why, 0);
            if let Some(made) = self.tries.get_mut(count) {
                made.beside = Some(number);
            }
        }
    }

    fn begin(&mut self, reach: Path, number: u16, why: String, mbps: u32) {
        let setup = StreamSetup::dial(reach.start(&self.fabric, self.time_left()));
        // One handshake for each pair of interfaces, and for each route over relays.
        let ends = |r: &Path| (r.from(), r.to());
        let fresh = self.tries.iter().all(|t| ends(&t.reach) != ends(&reach) || reach.relays() > 0);
        let first = number != KEEPALIVE && fresh;
        let speed = u64::from(mbps) * 125_000;
        let (outside, beside, devmem) = (None, None, Err(String::new()));
        self.tries.push(Try {
            reach,
            number,
            why,
            speed,
            setup,
            first,
            per_host: false,
            outside,
            beside,
            devmem,
            lacks: Vec::new(),
        });
    }

    /// Tries what the mesh knows of the route to the peer. False where it knows none, or there is no mesh.
    fn ask_mesh(&mut self) -> Result<bool, Error> {
        let fabric = self.fabric.clone();
        let Some(mesh) = fabric.mesh()? else { return Ok(false) };
        let addrs: Vec<SocketAddr> = self.handle.addrs().iter().map(Addr::socket).collect();
        let mut way = mesh.way(self.handle.host, addrs.clone(), false);
        if let MeshRoute::Direct(links) = &way {
            let tried = |link: &MeshLink| {
                self.tries
                    .iter()
                    .any(|t| t.reach.to() == link.to && t.reach.from().is_some_and(|f| f.ip() == link.from))
            };
            let fresh: Vec<MeshLink> = links.iter().filter(|l| !tried(l)).cloned().collect();
            let open = self.tries.iter().any(Try::is_open);
            if fresh.is_empty() && !open {
                // The cables that should carry do not.
                way = mesh.way(self.handle.host, addrs, true);
            } else {
                let fastest = links.iter().map(|l| l.mbps).max().unwrap_or(0);
                for link in fresh.into_iter().filter(|l| !far_slower(l.mbps, fastest)) {
                    for _ in 0..self.fabric.streams_for(link.mbps) {
                        if self.tries.len() < MAX_RAILS {
                            self.start(Path::link(&link), "a cable of the mesh", link.mbps);
                        }
                    }
                }
                return Ok(true);
            }
        }
        match way {
            // Neighbours may not have told yet what they see: both ways round carry twice as much as one.
            MeshRoute::Over(routes)
                if routes.len() < ROUTES_MAX && !mesh.is_settled() && self.since.elapsed() < ONE_WAY =>
            {
                self.asked = Some((Instant::now(), "waiting for what more neighbours see".into()));
                Ok(false)
            }
            MeshRoute::Over(routes) => {
                self.relayed = true;
                self.asked = Some((Instant::now(), String::new()));
                for route in routes {
                    let (mbps, path) = (route.mbps, Path::Over(route));
                    let why = path.relayed().unwrap_or_default();
                    self.start(path, why, mbps);
                }
                Ok(true)
            }
            MeshRoute::None(why) => {
                self.asked = Some((Instant::now(), why));
                Ok(false)
            }
            MeshRoute::Direct(_) => Ok(false),
        }
    }

    /// Looks for a way over the mesh while nothing else has come up.
    fn seek(&mut self) -> Result<(), Error> {
        // A way whose rails are being set up has not failed, however long they take.
        let up = self.tries.iter().any(|t| t.setup.is_up() || t.setup.is_handshake());
        let pause = if self.relayed { ASK_ANEW } else { ASK_AGAIN };
        let soon = self.asked.as_ref().is_some_and(|(when, _)| when.elapsed() < pause);
        if self.relayed
            && !up
            && !soon
            && !self.tries.iter().any(Try::is_open)
            && self.next < KEEPALIVE - MAX_RAILS as u16
        {
            // The relays that were told of do not lead there; what is told by now may be truer.
            self.relayed = false;
            for failed in self.tries.iter().filter(|t| t.reach.relays() > 0) {
                let line = format!("mesh: {}; the mesh is asked for another route", failed.describe());
                self.fabric.log().info(&line);
            }
            self.tries.retain(|t| t.reach.relays() == 0);
        }
        if up || soon || self.relayed || self.same_host || self.proposed.is_some() || !self.fabric.config().meshes() {
            return Ok(());
        }
        self.asked = Some((Instant::now(), String::new()));
        self.ask_mesh()?;
        Ok(())
    }

    /// Tries each way once only: for a caller that begins anew itself and wants to know of each failure. Where one way is up the others are
    /// waited for a fifth of a second, unless strict mode forbids to do without them.
    #[must_use]
    pub fn once(self) -> Connecting {
        Connecting { once: true, ..self }
    }

    /// A downgrade, unless a try before has told of the same.
    fn downgrade(&mut self, what: String) -> Result<(), Error> {
        if !self.told.contains(&what) {
            self.fabric.downgrade(what.clone())?;
            self.told.push(what);
        }
        Ok(())
    }

    fn time_left(&self) -> Duration {
        self.fabric.config().connect_timeout.saturating_sub(self.since.elapsed())
    }

    /// Makes progress without blocking. `Some` when the connection is up.
    ///
    /// # Errors
    /// At once: [`Error::Refused`], the peer's key or version is another; [`Error::Unreachable`], no address of the peer is one
    /// that this host could try; [`Error::Forced`], `LINKSPAN_PATH` names a path that cannot be taken; [`Error::Strict`],
    /// a downgrade in strict mode; [`Error::Plan`], [`Error::Answer`] and [`Error::Clear`], the peer breaks the set-up.
    /// When the connect timeout is over: [`Error::Unreachable`], [`Error::Timeout`] and [`Error::Vanished`], which name what
    /// was tried.
    pub fn poll(&mut self) -> Result<Option<Channel>, Error> {
        if let Some(again) = self.again {
            if Instant::now() < again {
                return Ok(None);
            }
            let (failed_before, told) = (std::mem::take(&mut self.failed_before), std::mem::take(&mut self.told));
            *self = Connecting::begun(&self.fabric, self.index, self.handle.clone(), self.since)?;
            (self.failed_before, self.told) = (failed_before, told);
        }
        match self.step() {
            Err(passing @ (Error::Unreachable { .. } | Error::Vanished { .. }))
                if !self.once && !self.tries.is_empty() && self.time_left() > AGAIN =>
            {
                self.failed_before = match passing {
                    Error::Unreachable { tried } => tried,
                    other => other.to_string(),
                };
                self.fabric.stats().count(Event::ConnectRetries);
                self.again = Some(Instant::now() + AGAIN);
                Ok(None)
            }
            other => other,
        }
    }

    fn step(&mut self) -> Result<Option<Channel>, Error> {
        for n in 0..self.tries.len() {
            self.poll_try(n)?;
        }
        if self.tries.iter().all(|t| t.number != KEEPALIVE) {
            let guesses = || self.tries.iter().filter(|t| t.reach.is_guess());
            let cabled = guesses().any(|t| t.is_up() || t.is_open() && !self.is_astray(t));
            self.start_keepalive(|t| t.is_up() && (t.reach.is_guess() || t.reach.from().is_none() && !cabled));
        }
        self.seek()?;
        // An answer that has arrived counts, however late it is read.
        if let Some(channel) = self.conclude()? {
            return Ok(Some(channel));
        }
        if self.since.elapsed() > self.fabric.config().connect_timeout {
            return Err(Error::Timeout { ms: self.since.elapsed().as_millis(), tried: self.tried() });
        }
        if self.proposed.is_some() || !self.propose()? {
            return Ok(None);
        }
        self.conclude()
    }

    /// Adds the descriptors of which one becomes ready when [`Connecting::poll`] can make progress. Not all that moves it on has
    /// a descriptor: wait for some milliseconds at most.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        if self.again.is_none() {
            self.tries.iter().for_each(|attempt| attempt.setup.wait_fds(fds));
        }
        if let Some(Ok(join)) = &self.join {
            join.wait_fds(fds);
        }
    }

    fn wants_local(&self) -> bool {
        self.same_host && self.fabric.config().path.allows("shm") && self.own.is_ok()
    }

    fn poll_try(&mut self, n: usize) -> Result<(), Error> {
        loop {
            let attempt = &mut self.tries[n];
            match attempt.setup.poll() {
                Ok(Step::Pending | Step::Up | Step::Asked(_)) => break,
                Ok(Step::Connected(stream, hops)) => self.log_in(n, stream, hops)?,
                Ok(Step::LoggedIn(session)) => {
                    if self.first_up.is_none() {
                        (self.first_up, self.peer_key) = (Some(Instant::now()), session.peer_key);
                    }
                    attempt.agree_devmem();
                    if session.peer_key != self.peer_key {
                        let why = "another peer answers there, with a key of its own";
                        attempt.setup.state = SetupState::Failed(why.into());
                    }
                }
                Err(error) => {
                    if let Some(why) = error.refusal {
                        return Err(Error::Refused { peer: attempt.reach.to(), why });
                    }
                    attempt.setup.state = SetupState::Failed(error.why);
                    break;
                }
            }
        }
        for why in std::mem::take(&mut self.tries[n].setup.missing) {
            self.downgrade(format!("not every cable to the peer is used: {why}"))?;
        }
        Ok(())
    }

    /// A stream is connected: says what this side has on it.
    fn log_in(&mut self, n: usize, stream: Stream, hops: Option<Hops>) -> Result<(), Error> {
        // One stream asks for the other's offer: a second offer would take the place of the first.
        let wants_local = self.wants_local() && self.tries[n].number != KEEPALIVE;
        // Which guess is right shows here.
        let unsure = self.tries[0].reach.is_guess() && !self.tries.iter().any(|t| t.per_host);
        let outside = self.outside(&self.tries[n], &stream);
        let attempt = &mut self.tries[n];
        if let Some(over) = &outside {
            attempt.why = format!("{}, over {over}", attempt.why);
        }
        let mut beside = None;
        for provider in self.fabric.providers().filter(|_| attempt.first && !wants_local) {
            let all = (n == 0 || unsure && attempt.reach.is_guess()) && attempt.reach.relays() == 0;
            if beside.is_some() || provider.per_host() && !all {
                continue;
            }
            // A device on an interface is chosen with it; the cables of a host are not.
            if let (Some(over), false) = (&outside, provider.per_host()) {
                if self.fabric.forced().is_some() {
                    attempt.setup.rails = Err(format!("the peer is reached over {over}"));
                }
                continue;
            }
            match attempt.reach.offer(&self.fabric, &**provider, &stream, hops.clone()) {
                Ok(rails) => (beside, attempt.per_host) = (Some(rails), provider.per_host()),
                Err(why) if why.is_empty() => {}
                Err(why) => attempt.setup.rails = Err(why),
            }
        }
        if attempt.number != KEEPALIVE && !wants_local && attempt.reach.relays() == 0 {
            let interface = stream.interface();
            if attempt.first {
                attempt.lacks = self.fabric.providers().filter_map(|provider| provider.lacks(&interface)).collect();
            }
            if outside.is_none() {
                attempt.devmem = crate::devmem::ready(&self.fabric, &interface);
            }
        }
        attempt.outside = outside;
        let config = self.fabric.config();
        let greeting = Greeting {
            wants_local,
            relays: attempt.reach.relays() as u8,
            shm: self.own.as_ref().ok().filter(|_| wants_local).map(|own| own.encode().to_vec()).unwrap_or_default(),
            asks: beside.as_ref().map_or("", |beside| beside.offer.name()).to_owned(),
            why_not: attempt.lost(),
            devmem: attempt.devmem.is_ok(),
            no_devmem: attempt.devmem.as_ref().err().cloned().unwrap_or_default(),
        };
        let params = ClientParams {
            guard: config.guard.clone(),
            blob: greeting.encode(),
            // The listener may be polled late.
            deadline: config.connect_timeout.saturating_sub(self.since.elapsed()),
            ..ClientParams::new(self.handle.listen_id, self.handle.token.clone(), self.conn_id, attempt.number)
        };
        Ok(attempt.setup.login(stream, params, beside)?)
    }

    /// Whether it may be part of the connection; `cabled`: some way without relays is up.
    fn counts(&self, t: &Try, cabled: bool) -> bool {
        (!cabled || t.reach.relays() == 0) && !self.is_needless(t)
    }

    /// How long the first stream that is up waits for this one.
    fn grace(&self, t: &Try) -> Duration {
        let proven = || self.tries.iter().any(|up| up.is_up() && up.reach.is_same(&t.reach));
        let grace = match t.setup.login_run() {
            _ if self.once && !self.fabric.config().strict && !proven() => RECONNECT_GRACE,
            Some(_) => LOGIN_GRACE,
            None => GRACE,
        };
        grace.min(self.fabric.config().connect_timeout / 4)
    }

    /// Decides what the connection is made of, once enough is known. False: not yet.
    fn propose(&mut self) -> Result<bool, Error> {
        // A handshake has a deadline of its own.
        if self.tries.iter().any(|t| t.setup.is_handshake()) {
            return Ok(false);
        }
        // A cable of ours makes relays needless.
        let cabled = self.tries.iter().any(|t| t.is_up() && t.reach.relays() == 0);
        let waited = |t: &&Try| t.is_open() && self.counts(t, cabled) && !self.is_astray(t);
        let open = self.tries.iter().any(|t| waited(&t));
        let grace = self.tries.iter().filter(waited).map(|t| self.grace(t)).max();
        let Some(speaker) = self.tries.iter().position(|t| t.is_up() && self.counts(t, cabled)) else {
            // In a mesh a way may still be told of.
            let mesh = self.fabric.config().meshes() && !self.same_host;
            let stuck = match open {
                true => None,
                false => Some(*self.stuck.get_or_insert_with(Instant::now)),
            };
            self.stuck = stuck;
            let tried_all = |since: Instant| !mesh || !self.tries.is_empty() && since.elapsed() > AGAIN_IN_MESH;
            if stuck.is_some_and(tried_all) {
                return Err(Error::Unreachable { tried: self.tried() });
            }
            return Ok(false);
        };
        if self.first_up.zip(grace).is_some_and(|(up, grace)| up.elapsed() < grace) {
            return Ok(false);
        }
        if self.wants_local() && !self.try_local(speaker) {
            return Ok(false);
        }
        let why_not = match &self.join {
            Some(Err(why)) => Some(why.clone()),
            _ if self.same_host && self.fabric.config().path.allows("shm") => self.own.as_ref().err().cloned(),
            _ => None,
        };
        if self.fabric.config().path.is("shm") && self.shm.is_none() {
            let why = why_not.unwrap_or_else(|| "the peer is on another host".into());
            return Err(Error::Forced { path: "shm".into(), why });
        }
        let forced = self.fabric.forced().filter(|p| self.shm.is_none() && !(self.same_host && p.insists()));
        let verbs = if self.shm.is_some() { None } else { self.verbs_plan(cabled) };
        if let (Some(provider), None) = (forced, &verbs) {
            let reasons: Vec<&str> =
                self.tries.iter().filter_map(|t| t.setup.rails.as_ref().err().map(String::as_str)).collect();
            let none = format!(
                "{} of this host does not reach the peer, or the peer has none or cannot use it; see `lspan status`",
                provider.title()
            );
            let why = reasons.into_iter().find(|why| !why.is_empty()).map_or(none, str::to_owned);
            return Err(Error::Forced { path: provider.name().to_owned(), why });
        }
        // Two pairs of addresses over one cable lack the same.
        let mut lost: Vec<String> = Vec::new();
        for why in self.tries.iter().filter(|t| self.counts(t, cabled)).map(Try::lost) {
            if !why.is_empty() && !lost.contains(&why) {
                lost.push(why);
            }
        }
        if !lost.is_empty() && self.shm.is_none() {
            let what = if verbs.is_some() {
                "fewer rails than possible".to_owned()
            } else {
                format!("TCP in place of {}", self.fabric.instead())
            };
            self.downgrade(format!("{what}: {}", lost.join("; ")))?;
        }
        let devmem = if self.shm.is_some() || verbs.is_some() { None } else { self.devmem_plan() };
        let reason = |t: &Try| t.devmem.as_ref().err().filter(|why| !why.is_empty()).cloned();
        let lost: Option<String> = self.tries.iter().find_map(reason);
        if self.fabric.config().path.is("devmem") && devmem.is_none() {
            let why = lost.unwrap_or_else(|| "no second stream to the peer came up".into());
            return Err(Error::Forced { path: "devmem".into(), why });
        }
        if let (Some(why), true) = (lost, self.shm.is_none() && verbs.is_none()) {
            let what =
                if devmem.is_some() { "fewer rails of device-memory TCP" } else { "TCP in place of device-memory TCP" };
            self.downgrade(format!("{what}: {why}"))?;
        }
        if let Some(why) = why_not {
            self.downgrade(format!("TCP in place of shared memory to a process on this host: {why}"))?;
        }
        let ring_only = self.shm.as_ref().map(|rail| rail.info()).filter(|info| info.caps.ordered);
        if let (true, Some(info)) = (self.fabric.config().cma, ring_only) {
            self.downgrade(format!("every byte is copied twice through the ring: {}", info.reason))?;
        }
        let plan = if let Some(plan) = verbs.or(devmem) {
            if let Some(what) = self.relays(Some(&plan)).filter(|_| !cabled) {
                self.downgrade(what)?;
            }
            plan
        } else if self.shm.is_some() {
            Plan {
                carrier: Carrier::Shm,
                acked: self.fabric.acked(),
                streams: vec![self.tries[speaker].number],
                keepalive: None,
            }
        } else {
            self.stream_plan(cabled)?
        };
        let attempt = &mut self.tries[speaker];
        let said = attempt.setup.up().map(|secured| secured.send(&plan.encode()));
        if !matches!(said, Some(Ok(()))) {
            return Err(Error::Vanished { peer: attempt.reach.to() });
        }
        self.proposed = Some((plan, speaker));
        Ok(true)
    }

    /// Moves the shared-memory set-up on. True when it has ended either way.
    fn try_local(&mut self, speaker: usize) -> bool {
        if self.shm.is_some() {
            return true;
        }
        let join = self.join.get_or_insert_with(|| {
            let answer = &self.tries[speaker].setup.greeting;
            if !answer.wants_local {
                return Err(answer.shm_refusal());
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
}

#[cfg(test)]
mod tests;
