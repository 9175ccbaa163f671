//! The handshake: both sides tell what cables they have, the caller tries those that join them, best first, and each shows
//! the other over the cable itself that it is the one it logged in to.
//!
//! No I/O of its own but the cable's: bytes of the login's stream go in and out. Nothing is written to a cable before both
//! sides have opened it: what comes to a stream device before it is open is lost.

mod wire;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_transport::BoxRail;
pub use linkspan_transport::Role;

use wire::{CableOffer, WORD_LEN, Word};
pub use wire::{OFFER_LEN, is_handshake};

use crate::error::Error;
use crate::rail::{About, CableRail};
use crate::stream::StreamRail;
use crate::tier::{OpenedCable, Ports, Tier};

/// Bytes that each side shows over the cable.
pub(crate) const NONCE_LEN: usize = 16;

/// Cables told; a host has at most a few.
pub(crate) const TOLD: usize = 16;

/// Pairs of channels tried before a link counts as full.
const CHANNEL_TRIES: u32 = 8;

/// How long the caller waits for the peer's bytes over a cable while there is another one to try: two cables between the same
/// host interfaces look alike, and a stream may still have the end of the connection before. And how long the answerer waits for the
/// caller's when that has its own.
const HELLO_WAIT: Duration = Duration::from_secs(4);

/// How a rail is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ask the ring driver's device at every poll in place of waiting for its interrupt.
    pub busy: bool,
    /// Owners of memory do not say when they unmap it: see [`crate::RingRail::watching`].
    pub watch: bool,
    /// How long the handshake may take.
    pub deadline: Duration,
    /// The caller takes this link of its host only, one of [`crate::Ports::links`].
    pub link: Option<String>,
    /// Others are set up beside it: it may end without a rail.
    pub one_of_many: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { busy: false, watch: false, deadline: Duration::from_secs(20), link: None, one_of_many: false }
    }
}

/// How far it is.
enum State {
    /// The peer's offer has not come.
    Offering,
    /// The caller has asked for this and waits; with the channels and the tries so far.
    Asked { at: usize, medium: OpenedCable, channels: (u32, u32), tries: u32 },
    /// The answerer waits to be asked.
    Listening,
    /// The rail over a pair of the caller's is up here; `heard`: so is it there, and our bytes have come over it; `told`: the peer's have.
    /// `since`: when they were to come.
    Up { rail: Box<dyn CableRail>, at: usize, since: Instant, heard: bool, told: bool },
    /// There is none, and need not be.
    Without,
    /// It was given away.
    Over,
}

/// A handshake under way.
pub struct Setup {
    role: Role,
    config: Config,
    ports: Arc<Ports>,
    ours: CableOffer,
    theirs: Option<CableOffer>,
    /// Pairs of ours and theirs that join, best first.
    joins: Vec<(usize, usize)>,
    refused: Vec<String>,
    /// What was wrong with a cable that seemed right.
    bad: Option<Error>,
    /// Cables that the caller has asked for: what is said of an earlier one is late.
    asked: u16,
    input: Vec<u8>,
    out: Vec<u8>,
    state: State,
    since: Instant,
    path: String,
    next_channel: u32,
}

impl Setup {
    /// Begins the handshake of one side.
    ///
    /// # Errors
    /// [`Error::NoCable`]: this host has none. [`Error::Random`]: the OS gives no random numbers.
    pub fn new(ports: Arc<Ports>, role: Role, config: Config) -> Result<Setup, Error> {
        if ports.cables.is_empty() {
            let why = [Tier::Ring, Tier::Stream].map(|tier| format!("{tier}: {}", ports.why_not(tier))).join("; ");
            return Err(Error::NoCable { why });
        }
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|e| Error::Random(e.to_string()))?;
        let ours = CableOffer::new(&ports.cables, nonce);
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
            bad: None,
            asked: 0,
            input: Vec::new(),
            state: State::Offering,
            since: Instant::now(),
            path: "a Thunderbolt or USB4 cable".into(),
            next_channel,
        })
    }

    /// Bytes for the peer that were not taken yet; they must reach it, in their order.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Takes bytes from the peer. Returns how many belonged to the handshake.
    ///
    /// # Errors
    /// [`Error::BadOffer`], [`Error::NoCable`], [`Error::Elsewhere`], [`Error::Forced`]: the handshake cannot succeed any
    /// more.
    pub fn input(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            if self.is_done() && !self.may_hear() {
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
                None => self.offered(CableOffer::decode(&whole)?)?,
                Some(_) => self.heard(Word::decode(&whole)?)?,
            }
        }
    }

    fn offered(&mut self, theirs: CableOffer) -> Result<(), Error> {
        self.joins = self.ours.joins(&theirs);
        if let (Some(link), Role::Caller) = (&self.config.link, self.role) {
            self.joins.retain(|(own, _)| self.ports.cables[*own].link == *link);
        }
        self.theirs = Some(theirs);
        match self.role {
            Role::Caller => {
                self.part();
                self.ask(0, 0)
            }
            Role::Answerer => {
                self.state = State::Listening;
                Ok(())
            }
        }
    }

    /// A stream has space for one opener on either side: where two hosts call each other at the same time, both would begin
    /// with the same one, refuse each other, and go on to the next together. One of them begins with the last; cables that look alike
    /// keep their order.
    fn part(&mut self) {
        let cable = |join: &(usize, usize)| &self.ports.cables[join.0];
        let from = self.joins.iter().position(|join| cable(join).tier == Tier::Stream);
        if let Some(from) = from.filter(|from| cable(&self.joins[*from]).local > cable(&self.joins[*from]).peer) {
            self.joins[from..].sort_by_key(|(own, _)| Reverse(self.ours.stream(*own)));
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
                    self.asked = self.asked.saturating_add(1);
                    self.state = State::Asked { at, medium, channels, tries };
                    return Ok(());
                }
                Err(why) => self.refused.push(why),
            }
        }
        self.out.extend_from_slice(&Word::None.encode());
        self.without()
    }

    /// It ends without a rail.
    fn without(&mut self) -> Result<(), Error> {
        let error = match (self.bad.take(), self.refused.is_empty()) {
            (Some(bad), _) if self.refused.len() < 2 => bad,
            (_, true) => Error::Elsewhere,
            (_, false) => Error::NoCable { why: self.refused.join("; ") },
        };
        self.state = State::Without;
        if !self.config.one_of_many {
            return Err(error);
        }
        self.bad = Some(error);
        Ok(())
    }

    /// Opens a cable of ours, and on a ring the channels: those asked for, or free ones.
    fn open(&mut self, own: usize, asked: Option<(u32, u32)>) -> Result<(OpenedCable, (u32, u32)), String> {
        let cable = &self.ports.cables[own];
        let name = cable.name.clone();
        let said = |e: linkspan_tbring::Error| format!("{name}: {e}");
        let mut medium = cable.open(Duration::ZERO).map_err(said)?;
        let OpenedCable::Ring(ring) = &mut medium else { return Ok((medium, (0, 0))) };
        let mut refused = String::new();
        for _ in 0..linkspan_tbring::abi::CHANNELS / 2 {
            let pair = asked.unwrap_or_else(|| {
                self.next_channel = self.next_channel.wrapping_add(2);
                let first = (self.next_channel % linkspan_tbring::abi::CHANNELS) & !1;
                (first, first + 1)
            });
            match ring.open_pair(pair) {
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
            (
                Word::Try { own: their, their: own, channels },
                before @ (State::Listening | State::Up { heard: false, .. }),
            ) if self.role == Role::Answerer => {
                // With the one that was tried before, the caller has got nowhere. It may be the same end of ours.
                drop(before);
                self.asked = self.asked.saturating_add(1);
                self.state = State::Listening;
                if usize::from(self.asked) > TOLD * CHANNEL_TRIES as usize {
                    return Err(Error::BadOffer(format!("its try number {} of a cable", self.asked)));
                }
                if !self.joins.contains(&(own, their)) {
                    return Err(Error::BadOffer("a cable that does not join us".into()));
                }
                let opened = self.open(own, Some(channels));
                let answer = match opened.and_then(|(medium, channels)| self.rail(own, their, medium, channels)) {
                    Ok(rail) => {
                        self.out.extend_from_slice(&Word::Yes { of: self.asked }.encode());
                        return self.up(rail, 0);
                    }
                    Err(why) => {
                        self.refused.push(why);
                        Word::No { of: self.asked }
                    }
                };
                self.out.extend_from_slice(&answer.encode());
                Ok(())
            }
            (Word::Yes { of } | Word::No { of } | Word::Passes { of }, state)
                if of < self.asked || of == self.asked && matches!(state, State::Without) =>
            {
                self.state = state;
                Ok(())
            }
            (Word::Yes { of }, State::Asked { at, medium, channels, .. }) if of == self.asked => {
                let (own, their) = self.joins[at];
                match self.rail(own, their, medium, channels) {
                    Ok(rail) => self.up(rail, at),
                    Err(why) => {
                        self.refused.push(why);
                        self.ask(at + 1, 0)
                    }
                }
            }
            (Word::No { of }, State::Up { rail, at, heard: false, .. })
                if of == self.asked && self.role == Role::Caller =>
            {
                drop(rail);
                self.refused
                    .push(format!("{}: the peer receives nothing, or data of another host, over it", self.name(at)));
                self.ask(at + 1, 0)
            }
            (Word::No { of }, State::Asked { at, medium, tries, .. }) if of == self.asked => {
                // Another program of the peer has those channels, or the whole cable.
                let again = matches!(medium, OpenedCable::Ring(_)) && tries + 1 < CHANNEL_TRIES;
                drop(medium);
                if again {
                    self.ask(at, tries + 1)
                } else {
                    self.refused.push(format!("{}: the peer cannot open its end", self.name(at)));
                    self.ask(at + 1, 0)
                }
            }
            (Word::None, _) if self.role == Role::Answerer => {
                if !self.joins.is_empty() && self.refused.is_empty() && !self.config.one_of_many {
                    self.refused.push("the peer could not open any of its cables".into());
                }
                self.without()
            }
            (Word::Passes { of }, State::Up { rail, at, told, .. }) if of == self.asked => {
                self.state = State::Up { rail, at, since: Instant::now(), heard: true, told };
                Ok(())
            }
            (word, state) => {
                self.state = state;
                Err(Error::BadOffer(format!("{word:?} where it was not expected")))
            }
        }
    }

    fn name(&self, at: usize) -> String {
        self.joins.get(at).map_or_else(String::new, |(own, _)| self.ports.cables[*own].name.clone())
    }

    /// The rail over a cable of ours that is open; or why there is none.
    fn rail(
        &mut self,
        own: usize,
        their: usize,
        medium: OpenedCable,
        channels: (u32, u32),
    ) -> Result<Box<dyn CableRail>, String> {
        let cable = &self.ports.cables[own];
        let rings = [cable.ring.into(), self.theirs.as_ref().map_or(0, |theirs| theirs.ring(their))];
        let speed = match cable.speed {
            0 => "speed unknown".to_owned(),
            speed => format!("{} Gb/s negotiated", speed as f64 / 125e6),
        };
        self.path = format!("{} {} -> {} ({}, {speed})", cable.name, id(&cable.local), id(&cable.peer), cable.tier);
        let reason = match cable.tier {
            Tier::Ring => "our ring driver on a cable to the peer".to_owned(),
            _ => format!("the kernel's stream on a cable to the peer; no {}: {}", Tier::Ring, self.why_no_ring()),
        };
        let about = About { path: self.path.clone(), reason, speed: cable.speed, plug: cable.link.clone() };
        match medium {
            OpenedCable::Ring(ring) => {
                ring.into_rail(channels, about, &self.config).map_err(|error| format!("{}: {error}", cable.name))
            }
            OpenedCable::Stream(stream) => Ok(Box::new(StreamRail::new(stream, rings, about))),
        }
    }

    /// Both ends are open: the peer is shown who is here.
    fn up(&mut self, mut rail: Box<dyn CableRail>, at: usize) -> Result<(), Error> {
        let said = rail.hello(&self.ours.nonce);
        self.state = State::Up { rail, at, since: Instant::now(), heard: false, told: false };
        said.or_else(|down| self.not_this(&down.to_string()))
    }

    /// The cable that is open does not lead to the peer: the next one is tried.
    fn not_this(&mut self, why: &str) -> Result<(), Error> {
        let State::Up { rail, at, .. } = std::mem::replace(&mut self.state, State::Over) else { return Ok(()) };
        drop(rail);
        let error = self.other(why);
        self.refused.push(error.to_string());
        self.bad = Some(error);
        if self.role == Role::Caller {
            return self.ask(at + 1, 0);
        }
        self.out.extend_from_slice(&Word::No { of: self.asked }.encode());
        self.state = State::Listening;
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
            _ if self.refused.is_empty() => "no cable with it connects the two hosts".into(),
            _ => self.refused.join("; "),
        }
    }

    fn other(&self, why: &str) -> Error {
        Error::OtherPeer { path: self.path.clone(), why: why.to_owned() }
    }

    /// Looks at the cable; to be called again and again until [`Setup::is_done`].
    ///
    /// # Errors
    /// [`Error::OtherPeer`]: the cable does not lead to the peer that logged in.
    pub fn poll(&mut self) -> Result<(), Error> {
        let State::Up { rail, at, since, heard, told: told @ false } = &mut self.state else { return Ok(()) };
        let may_end = match self.role {
            Role::Caller => *at + 1 < self.joins.len(),
            // The caller has nothing to wait for but us.
            Role::Answerer => *heard,
        };
        match rail.heard() {
            Ok(None) if may_end && since.elapsed() > HELLO_WAIT => self.not_this("nothing comes over it"),
            Ok(None) => Ok(()),
            Ok(Some(nonce)) if self.theirs.as_ref().is_some_and(|theirs| theirs.nonce == nonce) => {
                *told = true;
                self.out.extend_from_slice(&Word::Passes { of: self.asked }.encode());
                Ok(())
            }
            Ok(Some(_)) => self.not_this("the host at the other end is not this peer"),
            Err(down) => self.not_this(&down.to_string()),
        }
    }

    /// Whether both sides know that the cable joins them, or that there is none where there need not be. There may be [`Setup::output`] nevertheless.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Up { heard: true, told: true, .. } | State::Without)
    }

    /// Whether the peer may say something more although we are done: the caller may have given up while the answerer spoke.
    fn may_hear(&self) -> bool {
        match self.role {
            Role::Caller => matches!(self.state, State::Without),
            Role::Answerer => matches!(self.state, State::Up { .. }),
        }
    }

    /// Why it has ended without a rail; empty where the user need not be told, or it has not ended.
    pub fn why_not(&self) -> String {
        match (&self.state, &self.bad) {
            (State::Without, Some(error)) if !matches!(error, Error::Elsewhere) => error.to_string(),
            _ => String::new(),
        }
    }

    /// Whether its time is over. One of many gives up before the peer does.
    ///
    /// # Errors
    /// [`Error::Deadline`]: the handshake did not end in time.
    pub fn check(&mut self, now: Instant) -> Result<Duration, Error> {
        let spent = now.saturating_duration_since(self.since);
        let undone = match self.state {
            State::Asked { .. } | State::Up { told: false, .. } => Some("sent"),
            State::Up { heard: false, .. } => Some("received"),
            _ => None,
        };
        if let Some(undone) = undone
            && self.config.one_of_many
            && self.role == Role::Caller
            && spent > self.config.deadline * 3 / 4
        {
            self.refused.push(format!("{}: the peer {undone} nothing over it", self.path));
            self.out.extend_from_slice(&Word::None.encode());
            self.without()?;
        }
        match self.config.deadline.checked_sub(spent) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Error::Deadline { path: self.path.clone(), ms: self.config.deadline.as_millis() }),
        }
    }

    /// The rail, once [`Setup::is_done`], if there is one; else the handshake back.
    ///
    /// # Errors
    /// The handshake itself, where it is not complete yet.
    pub fn finish(mut self) -> Result<Option<BoxRail>, Box<Setup>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Up { mut rail, heard: true, told: true, .. } => {
                rail.joined();
                Ok(Some(rail))
            }
            State::Without => Ok(None),
            state => {
                self.state = state;
                Err(Box::new(self))
            }
        }
    }
}

/// The beginning of what a host says it is.
fn id(uuid: &[u8; 16]) -> String {
    uuid[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Joins two sides in one process; for tests and tools.
///
/// # Errors
/// [`Error::BadOffer`], [`Error::NoCable`], [`Error::Elsewhere`], [`Error::Forced`], [`Error::OtherPeer`], [`Error::Deadline`].
pub fn join(mut a: Setup, mut b: Setup) -> Result<(BoxRail, BoxRail), Error> {
    loop {
        b.input(&a.output())?;
        a.input(&b.output())?;
        a.poll()?;
        b.poll()?;
        if a.is_done() && b.is_done() {
            return match (a.finish(), b.finish()) {
                (Ok(Some(a)), Ok(Some(b))) => {
                    debug_assert_eq!(a.info().transport, b.info().transport);
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
