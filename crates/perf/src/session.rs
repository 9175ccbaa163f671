//! A session: one link, many tests after one another.

use std::time::{Duration, Instant};

use linkspan_gpu::MemoryName;
use linkspan_net::Quota;

use crate::baseline::bare;
use crate::ctrl::{Ctrl, PATIENT};
use crate::error::PerfError;
use crate::gate::Gate;
use crate::hist::Recorder;
use crate::idle::Idle;
use crate::interrupt::Interrupt;
use crate::link::{Link, LinkDesc, LinkError};
use crate::offer::{self, Offers};
use crate::phase::{self, Role};
use crate::spec::Spec;
use crate::turn::Turner;
use crate::wire::{self, BadMessage, Kind, Message, Params, Reply, Status};

/// What a serving side gives to its clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Memory for buffers, of all sessions that have a clone of this together.
    pub memory: Quota,
    /// How long a client may be silent; `None`: as long as it likes.
    pub idle: Option<Duration>,
    /// Whether it opens a bare TCP listener for the baseline, on the link's own address, for one known visitor.
    pub bare: bool,
    /// Whether that visitor, where it is a process of the same user on the same host, may have our memory copied for
    /// the baseline.
    pub cma: bool,
}

impl Default for Limits {
    /// 6 GiB, enough for messages of 1 GiB both ways, every baseline, and all the time.
    fn default() -> Limits {
        Limits { memory: Quota::new(6 << 30), idle: None, bare: true, cma: true }
    }
}

/// Messages, bytes and time of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// From the common start to the last byte, ns.
    pub elapsed_ns: u64,
}

/// What one test found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was asked for.
    pub spec: Spec,
    /// When the timed part began.
    pub began: Instant,
    /// Where the peer's messages are.
    pub peer_memory: MemoryName,
    /// Bulk data to the peer.
    pub up: Option<Flow>,
    /// Bulk data from the peer.
    pub down: Option<Flow>,
    /// Round trips of the timed part.
    pub round_trips: Option<Recorder>,
    /// Round trips without load, of a load test.
    pub idle_round_trips: Option<Recorder>,
    /// Wrong bytes found by both sides, warm-up and verification included; `None` when nothing was checked.
    pub wrong_bytes: Option<u64>,
    /// Processor time of the asking thread in the timed part, ns.
    pub cpu_local_ns: u64,
    /// Processor time of the serving thread in the timed part, ns.
    pub cpu_peer_ns: u64,
}

impl Outcome {
    /// Bytes of bulk data in both directions.
    pub fn bytes(&self) -> u64 {
        [self.up, self.down].iter().flatten().map(|flow| flow.bytes).fold(0, u64::saturating_add)
    }

    /// Messages of bulk data in both directions.
    pub fn messages(&self) -> u64 {
        [self.up, self.down].iter().flatten().map(|flow| flow.messages).fold(0, u64::saturating_add)
    }

    /// Time of the slower direction, ns.
    pub fn elapsed_ns(&self) -> u64 {
        [self.up, self.down].iter().flatten().map(|flow| flow.elapsed_ns).max().unwrap_or(0)
    }
}

/// Longest that the usual warm-up goes on, and the check of every byte: on a slow link their messages take minutes.
const BESIDE: Duration = Duration::from_secs(1);

/// The asking side of a session.
#[derive(Debug)]
pub struct Client<L> {
    link: L,
    ctrl: Ctrl,
    timeout: Option<Duration>,
    interrupt: Interrupt,
    gate: Option<Gate>,
    beside: Duration,
}

impl<L: Link> Client<L> {
    /// Begins a session. `timeout` limits each test.
    pub fn new(link: L, timeout: Option<Duration>) -> Client<L> {
        let interrupt = Interrupt::new();
        Client { ctrl: Ctrl::new(&link), link, timeout, interrupt, gate: None, beside: BESIDE }
    }

    /// Lets `interrupt` end further tests: see [`Client::run`].
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &Interrupt) -> Client<L> {
        self.interrupt = interrupt.clone();
        self
    }

    /// Begins each phase of its tests together with the other members.
    pub(crate) fn with_gate(self, gate: Gate) -> Client<L> {
        Client { gate: Some(gate), ..self }
    }

    /// What the link is.
    pub fn describe(&self) -> LinkDesc {
        self.link.describe()
    }

    /// Changes the limit of each further test.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    pub(crate) fn parts(&mut self) -> (&mut L, &mut Ctrl) {
        (&mut self.link, &mut self.ctrl)
    }

    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn deadline(&self) -> Option<(Instant, Duration)> {
        self.timeout.map(|timeout| (Instant::now() + timeout, timeout))
    }

    /// Runs one test. An [`Interrupt`] ends its timed part, whose findings so far are the outcome, and leaves out what
    /// would follow; the session is then good for [`Client::close`] only.
    ///
    /// # Errors
    /// [`PerfError::Refused`], [`PerfError::Timeout`], [`PerfError::Length`], [`PerfError::Message`],
    /// [`PerfError::Link`]; [`LinkError::Interrupted`] in the last where nothing had been measured yet. After an error
    /// the session cannot be used any more.
    pub fn run(&mut self, spec: &Spec) -> Result<Outcome, PerfError> {
        let own = self.link.describe().memory;
        let params = Params { memory: wire::pack_memory(own), ..Params::new(spec) };
        let plan = params.plan()?;
        let deadline = self.deadline();
        if self.interrupt.raised() {
            return Err(LinkError::Interrupted.into());
        }
        let mut patient = Turner::new(PATIENT, deadline, &self.interrupt);
        self.ctrl.send(&mut self.link, &mut patient, &params)?;
        let ready = self.ctrl.expect(&mut self.link, &mut patient, Kind::Ready)?;
        let peer_memory = wire::unpack_memory(ready.memory);
        let device = own != MemoryName::Host || peer_memory != MemoryName::Host;
        let mut turner = Turner::new(plan.wait, deadline, &self.interrupt);
        let mut out = Outcome {
            spec: spec.clone(),
            began: Instant::now(),
            peer_memory,
            up: None,
            down: None,
            round_trips: None,
            idle_round_trips: None,
            wrong_bytes: spec.verify.then_some(0),
            cpu_local_ns: 0,
            cpu_peer_ns: 0,
        };
        for step in phase::phases(&plan, device) {
            // Who asks for so many messages gets them.
            let limited = match step.role {
                Role::Warm => spec.warmup == Spec::usual_warmup(spec.size),
                Role::Verify => true,
                Role::Timed | Role::Idle => false,
            };
            let limit = limited.then_some(self.beside);
            let part = phase::ask(&mut self.link, &mut self.ctrl, &mut turner, &plan, &step, &mut self.gate, limit)?;
            if let Some(wrong) = &mut out.wrong_bytes {
                *wrong = wrong.saturating_add(part.wrong);
            }
            let flow = |(tally, time): (crate::pump::Tally, Duration)| Flow {
                messages: tally.messages,
                bytes: tally.bytes,
                elapsed_ns: time.as_nanos() as u64,
            };
            match part.role {
                Role::Timed => {
                    out.began = part.began;
                    out.up = part.up.map(flow);
                    out.down = part.down.map(flow);
                    out.round_trips = part.rec;
                    out.cpu_local_ns = part.cpu_local_ns;
                    out.cpu_peer_ns = part.cpu_peer_ns;
                }
                Role::Idle => out.idle_round_trips = part.rec,
                Role::Warm | Role::Verify => {}
            }
            if self.interrupt.raised() {
                break;
            }
        }
        let found = out.messages() > 0 || out.round_trips.as_ref().is_some_and(|rec| rec.count() > 0);
        if !found && self.interrupt.raised() { Err(LinkError::Interrupted.into()) } else { Ok(out) }
    }

    /// Asks the peer for a bare TCP listener and connects to it, for the baseline.
    ///
    /// # Errors
    /// [`PerfError::Refused`]: the peer refuses. [`PerfError::Baseline`]: the link has no addresses, or the connection
    /// fails. [`PerfError::Link`].
    pub fn bare(&mut self, token: [u8; 16]) -> Result<bare::Bare, PerfError> {
        let mut patient = Turner::new(PATIENT, self.deadline(), &self.interrupt);
        self.ctrl.send(&mut self.link, &mut patient, &Params::bare(token))?;
        let reply = self.ctrl.expect(&mut self.link, &mut patient, Kind::Ready)?;
        bare::Bare::connect(&self.link.describe(), reply.port.get(), token, &self.interrupt)
    }

    /// Ends the session in good order.
    ///
    /// # Errors
    /// [`PerfError::Link`]: the link is down.
    pub fn close(mut self) -> Result<(), PerfError> {
        let mut patient = Turner::new(PATIENT, self.deadline(), &self.interrupt);
        self.ctrl.send(&mut self.link, &mut patient, &Reply::new(Kind::GoAway))
    }
}

/// Serves one session until the client closes it or disconnects between two tests.
///
/// # Errors
/// [`PerfError::Link`]: the link ended inside a test. [`PerfError::Message`] and [`PerfError::Length`]: the client
/// broke the protocol; it is told so first where that is possible. [`PerfError::Idle`]: it was silent for too long.
pub fn serve<L: Link + ?Sized>(link: &mut L, limits: &Limits) -> Result<(), PerfError> {
    serve_until(link, limits, &Interrupt::new())
}

/// As [`serve`], until the interrupt is raised; the client then loses its peer.
///
/// # Errors
/// As [`serve`]; [`LinkError::Interrupted`] in [`PerfError::Link`].
pub fn serve_until<L: Link + ?Sized>(link: &mut L, limits: &Limits, interrupt: &Interrupt) -> Result<(), PerfError> {
    serve_with(link, limits, interrupt, &mut ())
}

/// As [`serve_until`], with memory for one-sided tests.
///
/// # Errors
/// As [`serve`]; [`LinkError::Interrupted`] in [`PerfError::Link`].
pub fn serve_with<L: Link + ?Sized>(
    link: &mut L,
    limits: &Limits,
    interrupt: &Interrupt,
    offers: &mut dyn Offers,
) -> Result<(), PerfError> {
    let mut ctrl = Ctrl::new(link);
    let idle = Idle::new(limits.idle);
    let mut patient = Turner::new(PATIENT, None, interrupt).abrupt().hearing(&idle);
    // One for each session, which ends with it.
    let mut bare = None;
    let mut used = false;
    loop {
        let message = match ctrl.recv(link, &mut patient) {
            Ok(message) => message,
            // Once more when the use has ended: it may have a moment ago, and the client is about to say more.
            Err(PerfError::Idle(_)) if std::mem::replace(&mut used, offers.in_use()) || used => {
                idle.touch();
                continue;
            }
            Err(PerfError::Link(LinkError::PeerGone { .. })) => return Ok(()),
            Err(PerfError::Message(bad @ BadMessage::Version(_))) => {
                let refusal = Reply::refuse(Status::Version, wire::VERSION.into());
                ctrl.send(link, &mut patient, &refusal)?;
                return Err(bad.into());
            }
            Err(error) => return Err(error),
        };
        let (kind, params) = match message {
            Message::Reply(Kind::GoAway, _) => return Ok(()),
            Message::Reply(Kind::Stop, _) => continue,
            Message::Reply(kind, _) => return Err(BadMessage::Kind(kind as u8).into()),
            Message::Params(kind, params) => (kind, params),
        };
        let plan = match params.plan() {
            Ok(plan) => plan,
            Err(bad) => {
                ctrl.send(link, &mut patient, &Reply::refuse(Status::Invalid, 0))?;
                return Err(bad.into());
            }
        };
        if kind == Kind::Bare {
            let terms =
                bare::Terms { token: params.token, memory: limits.memory.clone(), cma: limits.cma, idle: idle.clone() };
            drop(bare.take());
            bare = limits.bare.then(|| bare::Server::start(&link.describe(), terms).ok()).flatten();
            let reply = match &bare {
                Some(server) => Reply { port: server.port().into(), ..Reply::new(Kind::Ready) },
                None => Reply::refuse(Status::NoBare, 0),
            };
            ctrl.send(link, &mut patient, &reply)?;
            continue;
        }
        if kind == Kind::Offer {
            let size = params.size.get();
            let Some(share) = limits.memory.take(size) else {
                ctrl.send(link, &mut patient, &Reply::refuse(Status::Memory, limits.memory.left()))?;
                continue;
            };
            match offers.offer(size, share).filter(|text| text.len() <= wire::OFFER_MAX) {
                Some(text) => offer::send(link, &mut ctrl, &mut patient, &text)?,
                None => ctrl.send(link, &mut patient, &Reply::refuse(Status::NoOffer, 0))?,
            }
            continue;
        }
        let Some(_share) = limits.memory.take(plan.memory()) else {
            ctrl.send(link, &mut patient, &Reply::refuse(Status::Memory, limits.memory.left()))?;
            continue;
        };
        let own = link.describe().memory;
        let device = own != MemoryName::Host || wire::unpack_memory(params.memory) != MemoryName::Host;
        let ready = Reply { memory: wire::pack_memory(own), ..Reply::new(Kind::Ready) };
        ctrl.send(link, &mut patient, &ready)?;
        let mut turner = Turner::new(plan.wait, None, interrupt).abrupt().moving(&idle);
        for step in phase::phases(&plan, device) {
            if !phase::answer(link, &mut ctrl, &mut patient, &mut turner, &plan, &step)? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
