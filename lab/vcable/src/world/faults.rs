//! Faults at work.

use std::collections::BTreeMap;

use super::{Event, Kind, World};
use crate::error::Error;
use crate::fault::{Command, Damage, PacketClass, Rule, Script, When, timed};
use crate::link::Width;
use crate::rng::Rng;
use crate::time::Time;

#[derive(Debug)]
struct IrqRule {
    host: usize,
    vector: Option<u8>,
    skip: u64,
    left: u64,
}

/// Faults that are set.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Rule>,
    irqs: Vec<IrqRule>,
    /// Packet held back per host, to be overtaken.
    held: BTreeMap<usize, (u8, Vec<u32>)>,
    script: Vec<Command>,
    /// Lines that wait for frames: cable, count, line.
    frames: Vec<(usize, u64, usize)>,
    pub(crate) ignore_credits: bool,
}

impl Faults {
    /// Takes in a script; gives the lines that wait for a time.
    pub(crate) fn load(&mut self, script: Script) -> Vec<(usize, Time)> {
        let mut timed = Vec::new();
        for (when, command) in script.0 {
            match when {
                When::At(at) => timed.push((self.script.len(), at)),
                When::Frame { cable, count } => self.frames.push((cable, count, self.script.len())),
            }
            self.script.push(command);
        }
        timed
    }

    pub(crate) fn loses_interrupt(&mut self, host: usize, vector: u8) -> bool {
        let found = self.irqs.iter_mut().find(|r| r.host == host && r.vector.is_none_or(|v| v == vector) && r.left > 0);
        let Some(rule) = found else { return false };
        if rule.skip > 0 {
            rule.skip -= 1;
            return false;
        }
        rule.left -= 1;
        true
    }

    /// What happens to a packet; the first rule that it matches and that is not used up decides.
    fn damage(&mut self, packet: &Packet, rng: &mut Rng) -> Option<Damage> {
        let rule = self.rules.iter_mut().find(|r| r.left > 0 && packet.matches(r))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        if rule.chance < 1.0 && !rng.chance(rule.chance) {
            return None;
        }
        rule.left -= 1;
        Some(rule.damage)
    }

    pub(crate) fn hold(&mut self, host: usize, pdf: u8, words: Vec<u32>) {
        self.held.insert(host, (pdf, words));
    }

    pub(crate) fn holds(&self, host: usize) -> bool {
        self.held.contains_key(&host)
    }

    pub(crate) fn take_held(&mut self, host: usize) -> Option<(u8, Vec<u32>)> {
        self.held.remove(&host)
    }

    /// Lines that are due because a cable has seen so many frames.
    fn due(&mut self, cable: usize, frames: u64) -> Vec<usize> {
        let due =
            self.frames.iter().filter(|(c, n, _)| *c == cable && *n <= frames).map(|(_, _, line)| *line).collect();
        self.frames.retain(|(c, n, _)| !(*c == cable && *n <= frames));
        due
    }
}

struct Packet {
    class: PacketClass,
    from: usize,
    to: usize,
    kind: Option<u32>,
    hop: Option<u16>,
}

impl Packet {
    fn matches(&self, rule: &Rule) -> bool {
        (rule.class == self.class || rule.class == PacketClass::Control && self.class != PacketClass::Frame)
            && rule.from.is_none_or(|h| h == self.from)
            && rule.to.is_none_or(|h| h == self.to)
            && rule.kind.is_none_or(|k| Some(k) == self.kind)
            && rule.hop.is_none_or(|h| Some(h) == self.hop)
    }
}

impl World {
    /// Carries out one command line, as from the control socket. The answer is empty unless a peer has one. With `at` or
    /// `frame` before it, it waits: time and frames are counted from now.
    ///
    /// # Errors
    /// [`Error::Command`]: there is no such command, or the peer refuses it.
    pub fn command(&mut self, line: &str) -> Result<String, Error> {
        let (when, command) = timed(line, self)?;
        let waiting = match when {
            When::At(0) => {
                let answer = self.run(command).map_err(|what| Error::Command { command: line.to_owned(), what })?;
                self.settle();
                return Ok(answer);
            }
            When::At(by) => When::At(self.now.saturating_add(by)),
            When::Frame { cable, count } => {
                When::Frame { cable, count: self.cables[cable].stats.frames.saturating_add(count) }
            }
        };
        self.load(Script(vec![(waiting, command)]));
        Ok(String::new())
    }

    pub(super) fn run_line(&mut self, line: usize) {
        let Some(command) = self.faults.script.get(line).cloned() else { return };
        if let Err(what) = self.run(command) {
            self.note(self.hosts.len(), &format!("script line failed: {what}"));
        }
    }

    fn run(&mut self, command: Command) -> Result<String, String> {
        self.note(self.hosts.len(), &format!("command {command:?}"));
        match command {
            Command::Plug { cable, plugged } => self.set_plugged(cable, plugged),
            Command::Retrain { cable, one_lane, generation } => self.retrain(cable, one_lane, generation)?,
            Command::Width { cable, width: Width::Single } if self.cables[cable].speed == 4 => {
                return Err(format!("a generation 4 link has two lanes: 'speed {} 3' first", self.cables[cable].name));
            }
            Command::Width { cable, width } => {
                if !self.cables[cable].up {
                    self.cables[cable].trained = width;
                }
                self.set_width(cable, width);
            }
            Command::Speed { cable, generation } => self.set_speed(cable, generation),
            Command::Rule(rule) => self.faults.rules.push(rule),
            Command::LoseInterrupt { host, vector, skip, left } => {
                self.faults.irqs.push(IrqRule { host, vector, skip, left });
            }
            Command::Stall { host, at, on, time } => {
                self.set_stalled(host, at, on);
                if let Some(time) = time.filter(|_| on) {
                    self.at(self.now + time, Event::Release { host, hop: at });
                }
            }
            Command::Silent { host, on } => self.hosts[host].silent = on,
            Command::Refuse { host, hop } => {
                if let Some(guest) = self.guest_mut(host) {
                    guest.refused |= 1 << hop;
                }
            }
            Command::IgnoreCredits(on) => self.faults.ignore_credits = on,
            Command::Clear => {
                self.faults.rules.clear();
                self.faults.irqs.clear();
                self.faults.frames.clear();
                self.faults.ignore_credits = false;
                for cable in &mut self.cables {
                    (cable.one_lane, cable.at_most) = (false, cable.generation);
                }
                for host in 0..self.hosts.len() {
                    self.hosts[host].silent = false;
                    for at in 0..64 {
                        self.set_stalled(host, at, false);
                    }
                    if let Some(guest) = self.guest_mut(host) {
                        guest.refused = 0;
                    }
                    self.release_held(host);
                }
            }
            Command::Peer { host, words } => return self.peer_command(host, &words),
        }
        Ok(String::new())
    }

    pub(super) fn set_stalled(&mut self, host: usize, at: u16, on: bool) {
        let set = |bits: u64| bits & !(1 << at) | u64::from(on) << at;
        match self.hosts.get_mut(host).map(|h| &mut h.kind) {
            Some(Kind::Guest(guest)) => guest.stalled = set(guest.stalled),
            Some(Kind::Peer(peer)) => peer.stalled = set(peer.stalled),
            None => {}
        }
    }

    /// Sends a control packet on its way through the faults.
    pub(super) fn faulty_delivery(&mut self, class: PacketClass, from: usize, to: usize, pdf: u8, words: Vec<u32>) {
        let kind = if class == PacketClass::Xdomain { words.get(7).copied() } else { None };
        let packet = Packet { class, from, to, kind, hop: None };
        let damage = self.faults.damage(&packet, &mut self.rng);
        if let Some(damage) = damage {
            self.hosts[to].stats.faulted += 1;
            self.note(to, &format!("fault: {class:?} packet {damage:?}"));
        }
        match damage {
            Some(Damage::Drop) => {}
            Some(Damage::Corrupt) => self.post_damaged(to, pdf, &words),
            Some(Damage::Delay(by)) => self.at(self.now + by, Event::Control { host: to, pdf, words }),
            Some(Damage::Reorder(window)) => self.hold(to, pdf, words, window),
            Some(Damage::Duplicate) => {
                self.post_control(to, pdf, &words);
                self.post_control(to, pdf, &words);
            }
            None => {
                self.post_control(to, pdf, &words);
                if self.faults.holds(to) {
                    self.hosts[to].stats.overtaken += 1;
                    self.note(to, "fault: the packet that was held back is overtaken");
                    self.release_held(to);
                }
            }
        }
    }

    /// What happens to a frame that begins on a cable, and lines of scripts that wait for it.
    pub(super) fn frame_fault(&mut self, cable: usize, side: usize, hop: u16) -> Option<Damage> {
        let frames = self.cables[cable].stats.frames;
        for line in self.faults.due(cable, frames) {
            // Not in the middle of a frame: as the next thing that happens.
            self.at(self.now, Event::Script { line });
        }
        let ends = self.cables[cable].ends;
        let (from, to) = (ends[side].host, ends[1 - side].host);
        let packet = Packet { class: PacketClass::Frame, from, to, kind: None, hop: Some(hop) };
        let damage = self.faults.damage(&packet, &mut self.rng)?;
        self.hosts[from].stats.faulted += 1;
        self.note(from, &format!("fault: frame on HopID {hop} {damage:?}"));
        Some(damage)
    }
}
