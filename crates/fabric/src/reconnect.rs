//! A rail that is dialled again: one that was lost, or one that could not be had when the connection was made.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use linkspan_mesh::hops::Hops;
use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, PublicKey};
use linkspan_setup::secured::Secured;
use linkspan_setup::stats::Event;
use linkspan_stream::Stream;
use linkspan_transport::{BoxRail, MAX_RAILS, Site};

use crate::listener::FIRST_RETURN;
use crate::route::{Beside, Path};
use crate::stream_setup::{Step, StreamSetup};
use crate::{Fabric, chain};

/// Time between the first two tries; it doubles with each one that fails.
const RECONNECT: Duration = Duration::from_secs(1);

/// Longest time between two tries: a cable that is plugged in is used soon, one that never will be costs next to nothing.
const SELDOM: Duration = Duration::from_secs(8);

/// One rail's way back.
pub(crate) struct Reconnector {
    reach: Path,
    /// Paths of the rails that are up.
    paths: Vec<String>,
    /// Rails of this transport are wanted, which are set up beside the stream.
    wants: Option<&'static str>,
    /// The next try is for the stream itself: a way over others that has shown that its hops have no RDMA; why.
    plain: Option<String>,
    /// They are over this plug of our host.
    plug: Option<String>,
    wait: Duration,
    state: State,
}

enum State {
    Up,
    Down {
        next: Instant,
    },
    /// With the number of its stream, 0 until it is connected.
    Trying(Box<StreamSetup>, u16),
}

/// Whose connection it is a rail of.
#[derive(Clone, Copy)]
pub(crate) struct Dialled<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) conn: u64,
    pub(crate) peer_key: Option<&'a PublicKey>,
}

/// What was reconnected.
pub(crate) struct Recovered {
    /// Number of the stream.
    pub(crate) number: u16,
    /// The stream; of no more use where there are queue pairs.
    pub(crate) secured: Secured,
    /// Queue pairs that were set up over it.
    pub(crate) rails: Vec<BoxRail>,
    /// The hosts that relay it, where some do, as a reason of its path.
    pub(crate) relayed: Option<String>,
}

fn paths(rails: &[BoxRail]) -> Vec<String> {
    rails.iter().map(|rail| rail.info().path.clone()).collect()
}

/// Number of the `n`th queue pair set up over stream `number` of a connection that is up, as a rail: apart from those of streams,
/// which are their own.
pub(crate) fn rail_id(number: u16, n: usize) -> u32 {
    (1 << 16) + u32::from(number) * MAX_RAILS as u32 + n as u32
}

impl Reconnector {
    /// Of a rail that is up.
    pub(crate) fn new(reach: Path, path: String) -> Reconnector {
        Reconnector { paths: vec![path], state: State::Up, ..Reconnector::later(reach) }
    }

    /// Of one that could not be had yet.
    pub(crate) fn later(reach: Path) -> Reconnector {
        let state = State::Down { next: Instant::now() + RECONNECT };
        Reconnector { reach, paths: Vec::new(), wants: None, plain: None, plug: None, wait: RECONNECT, state }
    }

    /// Of queue pairs that are up.
    pub(crate) fn queue_pairs(reach: Path, rails: &[BoxRail]) -> Reconnector {
        let wants = rails.first().map(|rail| rail.info().transport);
        Reconnector { paths: paths(rails), wants, state: State::Up, ..Reconnector::later(reach) }
    }

    /// Of a rail over a cable that is up.
    pub(crate) fn cable(reach: Path, rail: &BoxRail) -> Reconnector {
        Reconnector {
            paths: vec![rail.info().path.clone()],
            wants: Some(rail.info().transport),
            plug: rail.info().plug.clone(),
            state: State::Up,
            ..Reconnector::later(reach)
        }
    }

    /// Rails of this transport are wanted, or the stream itself.
    pub(crate) fn wanting(self, wants: Option<&'static str>) -> Reconnector {
        Reconnector { wants, ..self }
    }

    /// Of one that is wanted at once.
    pub(crate) fn now(reach: Path) -> Reconnector {
        Reconnector { state: State::Down { next: Instant::now() }, ..Reconnector::later(reach) }
    }

    /// Its way.
    pub(crate) fn reach(&self) -> &Path {
        &self.reach
    }

    /// The address it dials from, where that is fixed.
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.reach.from()
    }

    /// The rail of this path is down; it may be ours.
    pub(crate) fn lost(&mut self, path: &str, now: Instant) {
        let had = self.paths.len();
        self.paths.retain(|own| own != path);
        // Queue pairs reconnect together, so the last one is waited for.
        if self.paths.len() < had && self.paths.is_empty() {
            self.wait = RECONNECT;
            self.state = State::Down { next: now + RECONNECT };
        }
    }

    /// Whether a rail of ours is up.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Whether it must be looked after often: a try is under way. One that waits for its next is looked after each second.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Trying(..))
    }

    /// Whether a stream has got to the peer's host over others, and is being made a rail.
    pub(crate) fn arrives(&self) -> bool {
        self.reach.relays() > 0 && matches!(self.state, State::Trying(_, number) if number != 0)
    }

    fn again(&mut self, now: Instant) -> State {
        let next = now + self.wait;
        self.wait = (self.wait * 2).min(SELDOM);
        State::Down { next }
    }

    /// Whether queue pairs, or a cable, or nothing will do. Over others a stream will too.
    fn insists(&self) -> bool {
        self.wants.is_some() && self.reach.relays() == 0
    }

    /// Whether no port of ours is there to meet with, or no cable.
    fn portless(&self, fabric: &Fabric) -> bool {
        let Some(provider) = self.wants.and_then(|name| fabric.provider(name)) else { return true };
        let from = self.reach.from().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let site = Site { plug: self.plug.as_deref(), ..fabric.config().site(from) };
        // Of a stream by the routes it is not known which port it would be on.
        (self.plug.is_some() || self.reach.from().is_some()) && provider.offer(&site).is_err()
    }

    /// A try failed. Failures of relayed routes are logged here: nothing else reports them.
    fn failed(&mut self, fabric: &Fabric, why: &str, now: Instant) -> State {
        fabric.stats().count(Event::RailRetries);
        if let Some(way) = self.reach.way() {
            fabric.log().info(&format!("mesh: {way} has failed: {why}; next try in {} s", self.wait.as_secs()));
        }
        self.again(now)
    }

    /// Over others and without queue pairs: at once again, for the stream.
    fn without(&mut self, fabric: &Fabric, why: &str, now: Instant) -> State {
        if self.insists() {
            return self.failed(fabric, why, now);
        }
        self.plain = Some(why.to_owned());
        State::Down { next: now }
    }

    /// Queue pairs are wanted over a stream of ours: where they would be, else why the stream must do.
    fn candidate(&mut self, fabric: &Fabric, stream: &Stream, hops: Option<Hops>) -> Option<Beside> {
        let provider = fabric.provider(self.wants?);
        let candidate = match (self.plain.take(), provider, &self.plug) {
            (Some(why), ..) => Err(why),
            (None, None, _) => Err(String::new()),
            (None, Some(provider), None) => self.reach.offer(fabric, provider, stream, hops),
            (None, Some(provider), plug) => {
                let site = Site { plug: plug.as_deref(), ..fabric.config().site(stream.local_addr()) };
                provider.offer(&site).map(|offer| Beside::new(offer, self.reach.to()))
            }
        };
        match candidate {
            Ok(beside) => Some(beside),
            Err(why) => {
                if let (Some(way), false) = (self.reach.way(), why.is_empty()) {
                    fabric.log().warn(&format!("downgrade: {way} uses TCP, not RDMA: {why}"));
                }
                None
            }
        }
    }

    /// How its stream logs in.
    fn params(&self, fabric: &Fabric, to: Dialled<'_>, number: u16, beside: Option<&Beside>) -> ClientParams {
        let asks = beside.map_or("", |beside| beside.offer.name()).to_owned();
        let greeting = Greeting { relays: self.reach.relays() as u8, asks, ..Greeting::default() };
        ClientParams {
            guard: fabric.config().guard_to(to.peer_key),
            blob: greeting.encode(),
            ..ClientParams::new(to.handle.listen_id, to.handle.token.clone(), to.conn, number)
        }
    }

    /// The stream is up, with what is wanted beside it or without.
    fn arrived(
        &mut self,
        fabric: &Fabric,
        mut setup: StreamSetup,
        number: u16,
        now: Instant,
    ) -> Result<Recovered, State> {
        let rails = match std::mem::replace(&mut setup.rails, Ok(Vec::new())) {
            Ok(rails) => rails,
            Err(why) if setup.beside.is_some() => return Err(self.without(fabric, &why, now)),
            Err(_) if self.insists() => return Err(self.again(now)),
            Err(_) => Vec::new(),
        };
        let Some(secured) = setup.take() else { return Err(self.again(now)) };
        self.paths = if rails.is_empty() { vec![secured.stream.path()] } else { paths(&rails) };
        self.wait = RECONNECT;
        Ok(Recovered { number, secured, rails, relayed: self.reach.relayed() })
    }

    /// Moves on. `Some` when the stream is there, under a number of its own taken from `numbers`.
    pub(crate) fn poll(
        &mut self,
        fabric: &Fabric,
        to: Dialled<'_>,
        numbers: &mut u16,
        now: Instant,
    ) -> Option<Recovered> {
        self.state = match std::mem::replace(&mut self.state, State::Up) {
            State::Up => State::Up,
            State::Down { next } if now < next => State::Down { next },
            // Without a port that is active, or a cable, there is no device to use.
            State::Down { .. } if self.insists() && self.portless(fabric) => self.again(now),
            State::Down { .. } => {
                State::Trying(Box::new(StreamSetup::dial(self.reach.start(fabric, RECONNECT * 2))), 0)
            }
            State::Trying(mut setup, mut number) => loop {
                match setup.poll() {
                    Ok(Step::Pending) => break State::Trying(setup, number),
                    Ok(Step::Connected(stream, hops)) => {
                        number = *numbers;
                        // Behind the last one the first is free again: a listener remembers 4096 logins.
                        *numbers = number.checked_add(1).unwrap_or(FIRST_RETURN);
                        let beside = self.candidate(fabric, &stream, hops);
                        let params = self.params(fabric, to, number, beside.as_ref());
                        if let Err(error) = setup.login(stream, params, beside) {
                            break self.failed(fabric, &chain(&error), now);
                        }
                    }
                    Ok(Step::LoggedIn(_) | Step::Asked(_)) => {}
                    Ok(Step::Up) => match self.arrived(fabric, *setup, number, now) {
                        Ok(back) => return Some(back),
                        Err(state) => break state,
                    },
                    Err(error) => break self.failed(fabric, &error.why, now),
                }
            },
        };
        None
    }
}

#[cfg(test)]
mod tests;
