//! The handshake: both sides tell what cables they have, the caller tries those that join them, best first, and each shows
//! the other over the cable itself that it is the one it logged in to.
//!
//! No I/O of its own but the cable's: bytes of the login's stream go in and out. Nothing is written to a cable before both
//! sides have opened it: what comes to a stream device before it is open is lost.

mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_transport::Rail;

pub use wire::{OFFER_LEN, is_handshake};
use wire::{Offer, WORD_LEN, Word};

use crate::device::RingDevice;
use crate::error::Error;
use crate::rail::CableRail;
use crate::ring::RingRail;
use crate::stream::StreamRail;
use crate::tier::{AnyRing, Medium, Ports, Tier};

/// Bytes that each side shows over the cable.
pub(crate) const NONCE_LEN: usize = 16;

/// Cables told; a host has at most a few.
pub(crate) const TOLD: usize = 8;

/// Pairs of channels tried before a link counts as full.
const CHANNEL_TRIES: u32 = 8;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that connected, which chooses.
    Caller,
    /// The one that was connected to.
    Answerer,
}

/// How a rail is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ask the ring driver's device at every poll in place of waiting for its interrupt.
    pub busy: bool,
    /// How long the handshake may take.
    pub deadline: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { busy: false, deadline: Duration::from_secs(20) }
    }
}

/// How far it is.
enum State {
    /// The peer's offer has not come.
    Offering,
    /// The caller has asked for this and waits; with the channels and the tries so far.
    Asked { at: usize, medium: Medium, channels: (u32, u32), tries: u32 },
    /// The answerer waits to be asked.
    Listening,
    /// The rail is up here; `heard`: so is it there.
    Up { rail: Box<CableRail>, heard: bool, told: bool },
    /// It was given away.
    Over,
}

/// A handshake under way.
pub struct Setup {
    role: Role,
    config: Config,
    ports: Arc<Ports>,
    ours: Offer,
    theirs: Option<Offer>,
    /// Pairs of ours and theirs that join, best first.
    joins: Vec<(usize, usize)>,
    refused: Vec<String>,
    input: Vec<u8>,
    out: Vec<u8>,
    state: State,
    since: Instant,
    path: String,
    next_channel: u32,
}

impl Setup {
    /// One side.
    ///
    /// # Errors
    /// [`Error::NoCable`]: this host has none; [`Error::Random`].
    pub fn new(ports: Arc<Ports>, role: Role, config: Config) -> Result<Setup, Error> {
        if ports.cables.is_empty() {
            let why = [Tier::Ring, Tier::Stream].map(|tier| format!("{tier}: {}", ports.why_not(tier))).join("; ");
            return Err(Error::NoCable { why });
        }
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|e| Error::Random(e.to_string()))?;
        let ours = Offer::new(&ports.cables, nonce);
        let next_channel = u32::from_le_bytes([nonce[0], nonce[1], 0, 0]);
        Ok(Setup {
            role,
            config,
            out: ours.encode().to_vec(),
            ports,
            ours,
            theirs: None,
            joins: Vec::new(),
            refused: Vec::new(),
            input: Vec::new(),
            state: State::Offering,
            since: Instant::now(),
            path: "a Thunderbolt or USB4 cable".into(),
            next_channel,
        })
    }

    /// Bytes for the peer.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// So many of those were written.
    pub fn wrote(&mut self, n: usize) {
        self.out.drain(..n.min(self.out.len()));
    }

    /// Bytes from the peer. How many were of the handshake.
    ///
    /// # Errors
    /// It cannot succeed any more.
    pub fn input(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            if self.is_done() {
                return Ok(used);
            }
            let want = if self.theirs.is_none() { OFFER_LEN } else { WORD_LEN };
            let n = (want - self.input.len()).min(bytes.len() - used);
            self.input.extend_from_slice(&bytes[used..used + n]);
            used += n;
            if self.input.len() < want {
                return Ok(used);
            }
            let whole = std::mem::take(&mut self.input);
            match self.theirs {
                None => self.offered(Offer::decode(&whole)?)?,
                Some(_) => self.heard(Word::decode(&whole)?)?,
            }
        }
    }

    fn offered(&mut self, theirs: Offer) -> Result<(), Error> {
        self.joins = self.ours.joins(&theirs);
        self.theirs = Some(theirs);
        match self.role {
            Role::Caller => self.ask(0, 0),
            Role::Answerer => {
                self.state = State::Listening;
                Ok(())
            }
        }
    }

    /// Asks for the next cable that can be opened here.
    fn ask(&mut self, from: usize, tries: u32) -> Result<(), Error> {
        for at in from..self.joins.len() {
            let (own, their) = self.joins[at];
            match self.open(own, None) {
                Ok((medium, channels)) => {
                    let tries = if at == from { tries } else { 0 };
                    self.out.extend_from_slice(&Word::Try { own, their, channels }.encode());
                    self.state = State::Asked { at, medium, channels, tries };
                    return Ok(());
                }
                Err(why) => self.refused.push(why),
            }
        }
        self.out.extend_from_slice(&Word::None.encode());
        Err(self.no_cable())
    }

    fn no_cable(&self) -> Error {
        match self.refused.is_empty() {
            true => Error::Elsewhere,
            false => Error::NoCable { why: self.refused.join("; ") },
        }
    }

    /// Opens a cable of ours, and on a ring the channels: those asked for, or free ones.
    fn open(&mut self, own: usize, asked: Option<(u32, u32)>) -> Result<(Medium, (u32, u32)), String> {
        let cable = &self.ports.cables[own];
        let name = cable.name.clone();
        let said = |e: linkspan_tbring::Error| format!("{name}: {e}");
        let mut medium = cable.open(Duration::ZERO).map_err(said)?;
        let Medium::Ring(ring) = &mut medium else { return Ok((medium, (0, 0))) };
        let mut refused = String::new();
        for _ in 0..linkspan_tbring::abi::CHANNELS / 2 {
            let pair = asked.unwrap_or_else(|| {
                self.next_channel = self.next_channel.wrapping_add(2);
                let first = (self.next_channel % linkspan_tbring::abi::CHANNELS) & !1;
                (first, first + 1)
            });
            match open_pair(ring, pair) {
                Ok(()) => return Ok((medium, pair)),
                Err(why) => refused = said(why),
            }
            if asked.is_some() {
                break;
            }
        }
        Err(refused)
    }

    fn heard(&mut self, word: Word) -> Result<(), Error> {
        let state = std::mem::replace(&mut self.state, State::Over);
        match (word, state) {
            (Word::Try { own: their, their: own, channels }, State::Listening) => {
                self.state = State::Listening;
                if !self.joins.contains(&(own, their)) {
                    return Err(Error::BadOffer("a cable that does not join us".into()));
                }
                let answer = match self.open(own, Some(channels)) {
                    Ok((medium, channels)) => {
                        self.out.extend_from_slice(&Word::Yes.encode());
                        return self.up(own, their, medium, channels);
                    }
                    Err(why) => {
                        self.refused.push(why);
                        Word::No
                    }
                };
                self.out.extend_from_slice(&answer.encode());
                Ok(())
            }
            (Word::Yes, State::Asked { at, medium, channels, .. }) => {
                let (own, their) = self.joins[at];
                self.up(own, their, medium, channels)
            }
            (Word::No, State::Asked { at, medium, tries, .. }) => {
                // Somebody over there has those channels, or the whole cable.
                let again = matches!(medium, Medium::Ring(_)) && tries + 1 < CHANNEL_TRIES;
                drop(medium);
                if again {
                    self.ask(at, tries + 1)
                } else {
                    self.refused.push(format!("{}: the peer cannot open its end", self.name(at)));
                    self.ask(at + 1, 0)
                }
            }
            (Word::None, _) => {
                if !self.joins.is_empty() {
                    self.refused.push("the peer could open none of its own".into());
                }
                Err(self.no_cable())
            }
            (Word::Passes, State::Up { rail, told, .. }) => {
                self.state = State::Up { rail, heard: true, told };
                Ok(())
            }
            (word, state) => {
                self.state = state;
                Err(Error::BadOffer(format!("{word:?} where it was not due")))
            }
        }
    }

    fn name(&self, at: usize) -> String {
        self.joins.get(at).map_or_else(String::new, |(own, _)| self.ports.cables[*own].name.clone())
    }

    /// Both ends are open: the rail is made, and the peer is shown who is here.
    fn up(&mut self, own: usize, their: usize, medium: Medium, channels: (u32, u32)) -> Result<(), Error> {
        let cable = &self.ports.cables[own];
        let ring = self.theirs.as_ref().map_or(0, |theirs| theirs.ring(their));
        let speed = match cable.speed {
            0 => "speed unknown".to_owned(),
            speed => format!("{} Gb/s negotiated", speed as f64 / 125e6),
        };
        self.path = format!("{} {} -> {} ({}, {speed})", cable.name, id(&cable.local), id(&cable.peer), cable.tier);
        let reason = match cable.tier {
            Tier::Ring => "our ring driver on a cable to the peer".to_owned(),
            _ => format!("the kernel's stream on a cable to the peer; no {}: {}", Tier::Ring, self.why_no_ring()),
        };
        let (path, speed) = (self.path.clone(), cable.speed);
        let mut rail = match medium {
            Medium::Ring(ring) => {
                CableRail::Ring(Box::new(RingRail::new(ring, channels, path, reason, speed, self.config.busy)?))
            }
            Medium::Stream(stream) => CableRail::Stream(Box::new(StreamRail::new(stream, ring, path, reason, speed))),
        };
        rail.hello(&self.ours.nonce).map_err(|down| self.other(&down.to_string()))?;
        self.state = State::Up { rail: Box::new(rail), heard: false, told: false };
        Ok(())
    }

    /// Why the better tier was not taken.
    fn why_no_ring(&self) -> String {
        let here = self.ports.why_not(Tier::Ring);
        if !here.is_empty() {
            return here;
        }
        match &self.theirs {
            Some(theirs) if !theirs.has(Tier::Ring) => "the peer has none".into(),
            _ if self.refused.is_empty() => "neither side sees the other at the end of one".into(),
            _ => self.refused.join("; "),
        }
    }

    fn other(&self, why: &str) -> Error {
        Error::OtherPeer { path: self.path.clone(), why: why.to_owned() }
    }

    /// Looks at the cable; to be called again and again until [`Setup::is_done`].
    ///
    /// # Errors
    /// [`Error::OtherPeer`].
    pub fn poll(&mut self) -> Result<(), Error> {
        let State::Up { rail, told: told @ false, .. } = &mut self.state else { return Ok(()) };
        match rail.heard() {
            Ok(None) => Ok(()),
            Ok(Some(nonce)) if self.theirs.as_ref().is_some_and(|theirs| theirs.nonce == nonce) => {
                *told = true;
                self.out.extend_from_slice(&Word::Passes.encode());
                Ok(())
            }
            Ok(Some(_)) => Err(self.other("it shows another word than it told")),
            Err(down) => {
                let why = down.to_string();
                Err(self.other(&why))
            }
        }
    }

    /// Whether both sides know that the cable joins them. What [`Setup::output`] still has must be written nevertheless.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Up { heard: true, told: true, .. })
    }

    /// Whether its time is over.
    ///
    /// # Errors
    /// [`Error::Deadline`].
    pub fn check(&self, now: Instant) -> Result<Duration, Error> {
        let spent = now.saturating_duration_since(self.since);
        match self.config.deadline.checked_sub(spent) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Error::Deadline { path: self.path.clone(), ms: self.config.deadline.as_millis() }),
        }
    }

    /// The rail, once [`Setup::is_done`]; else the handshake back.
    ///
    /// # Errors
    /// The handshake, not done.
    pub fn finish(mut self) -> Result<CableRail, Box<Setup>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Up { rail, heard: true, told: true } => Ok(*rail),
            state => {
                self.state = state;
                Err(Box::new(self))
            }
        }
    }
}

fn open_pair(ring: &mut AnyRing, (first, second): (u32, u32)) -> Result<(), linkspan_tbring::Error> {
    ring.open_channel(first)?;
    ring.open_channel(second).inspect_err(|_| {
        let _ = ring.close_channel(first);
    })
}

/// The beginning of what a host says it is.
fn id(uuid: &[u8; 16]) -> String {
    uuid[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Joins two sides in one process; for tests and tools.
///
/// # Errors
/// See [`Setup`].
pub fn join(mut a: Setup, mut b: Setup) -> Result<(CableRail, CableRail), Error> {
    loop {
        let n = b.input(a.output())?;
        a.wrote(n);
        let n = a.input(b.output())?;
        b.wrote(n);
        a.poll()?;
        b.poll()?;
        if a.is_done() && b.is_done() {
            return match (a.finish(), b.finish()) {
                (Ok(a), Ok(b)) => {
                    debug_assert_eq!(a.info().room, b.info().room);
                    Ok((a, b))
                }
                _ => Err(Error::BadOffer("both sides were done".into())),
            };
        }
        a.check(Instant::now())?;
    }
}

#[cfg(test)]
mod tests;
