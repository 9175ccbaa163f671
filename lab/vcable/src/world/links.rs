//! Plugging, training, bonding, width and speed of links.

use super::cable::Cable;
use super::guest::PlugEvent;
use super::{Event, Kind, World};
use crate::link::{LinkState, Width};
use crate::router::Effect;
use crate::router::layout::lane_adapter;
use crate::time::{MS, SEC, Time};

/// From both ends ready to link up: longer than a driver takes to post its receive descriptors.
const TRAINING: Time = 50 * MS;
/// After this time a router repeats a hot plug event that its connection manager has not answered.
const PLUG_ACK: Time = SEC;
/// Repetitions of one event.
const PLUG_TRIES: u8 = 3;

impl World {
    /// One end of a cable can take part in a link.
    fn end_ready(&self, cable: &Cable, side: usize) -> bool {
        let end = cable.ends[side];
        match &self.hosts[end.host].kind {
            Kind::Guest(guest) => guest.listens() && guest.router.port_ready(end.port),
            Kind::Peer(_) => true,
        }
    }

    /// Lets links train that can, and takes down those that cannot stay.
    pub(super) fn check_links(&mut self) {
        for at in 0..self.cables.len() {
            let cable = &self.cables[at];
            let ready = [0, 1].map(|side| cable.plugged && self.end_ready(cable, side));
            if ready == [true; 2] {
                if !cable.up && cable.training.is_none() {
                    let due = self.now + TRAINING;
                    self.cables[at].training = Some(due);
                    self.at(due, Event::Train { cable: at });
                }
                continue;
            }
            let (plugged, ends) = (cable.plugged, cable.ends);
            self.link_down(at, if plugged { "an end is not ready" } else { "unplugged" });
            self.cables[at].training = None;
            // A suspended interface with a live partner is woken; the link trains when its driver is back.
            for side in 0..2 {
                if ready[1 - side] && !ready[side] {
                    let end = ends[side];
                    if self.guest(end.host).is_some_and(|g| g.router.wakes_on_connect(end.port)) {
                        self.wake(end.host);
                    }
                }
            }
        }
    }

    /// Training is over, if it was not interrupted.
    pub(super) fn trained(&mut self, at: usize) {
        let cable = &mut self.cables[at];
        if cable.training != Some(self.now) || cable.up {
            return;
        }
        cable.training = None;
        cable.up = true;
        cable.stats.ups += 1;
        // Generation 4 links come up bonded.
        cable.width = match cable.trained {
            Width::Single if cable.speed == 4 => Width::Dual,
            _ if cable.one_lane => Width::Single,
            width => width,
        };
        let state = LinkState { generation: cable.speed, width: cable.width };
        cable.clear();
        let (name, ends) = (cable.name.clone(), cable.ends);
        self.note(self.hosts.len(), &format!("cable {name}: link up"));
        self.show_link(at);
        for end in ends {
            self.plug_event(end.host, end.port, false);
            self.with_peer(end.host, |peer, io| peer.link(io, end.port, Some(state)));
        }
    }

    /// Takes a link down and tells both ends.
    pub(super) fn link_down(&mut self, at: usize, why: &str) {
        let cable = &mut self.cables[at];
        if !cable.up {
            return;
        }
        cable.up = false;
        cable.training = None;
        cable.speed = cable.best();
        cable.width = Width::Single;
        cable.clear();
        let (name, ends) = (cable.name.clone(), cable.ends);
        self.note(self.hosts.len(), &format!("cable {name}: link down: {why}"));
        self.show_link(at);
        self.abort_outgoing(at);
        for end in ends {
            if let Some(guest) = self.guest_mut(end.host) {
                guest.partial.iter_mut().for_each(|p| *p = None);
                let ready = guest.listens() && guest.router.port_ready(end.port);
                if ready {
                    self.plug_event(end.host, end.port, true);
                }
            }
            self.peer_link_down(end.host, end.port);
        }
    }

    /// Takes a link down; it comes back with one lane or two, and at most at this generation.
    ///
    /// # Errors
    /// A text: a generation 4 link has no single lane.
    pub(super) fn retrain(&mut self, at: usize, one_lane: bool, generation: u8) -> Result<(), String> {
        let cable = &mut self.cables[at];
        if one_lane && cable.generation.min(generation) == 4 {
            return Err(format!("a generation 4 link has two lanes: 'retrain {} lanes=1 gen=3'", cable.name));
        }
        (cable.one_lane, cable.at_most) = (one_lane, generation);
        self.link_down(at, "retrained");
        let cable = &mut self.cables[at];
        cable.speed = cable.best();
        self.check_links();
        Ok(())
    }

    /// Takes down all links of a host.
    pub(super) fn links_of(&mut self, host: usize, why: &str) {
        for at in 0..self.cables.len() {
            if self.cables[at].ends.iter().any(|e| e.host == host) {
                self.cables[at].training = None;
                self.link_down(at, why);
            }
        }
    }

    /// Shows state, speed and width in the lane adapters of both ends.
    pub(super) fn show_link(&mut self, at: usize) {
        for side in 0..2 {
            let cable = &self.cables[at];
            let (end, up, speed, width) = (cable.ends[side], cable.up, cable.speed, cable.width_at(side));
            if let Some(guest) = self.guest_mut(end.host) {
                guest.router.set_link(end.port, up, speed, width);
            }
        }
    }

    /// Tells a driver that something was plugged or unplugged; repeated until it answers.
    fn plug_event(&mut self, host: usize, port: usize, unplug: bool) {
        let Some(guest) = self.guest_mut(host) else { return };
        guest.events.retain(|e| e.port != port);
        guest.events.push(PlugEvent { port, unplug, tries: 0 });
        self.send_plug(host, port, unplug);
    }

    fn send_plug(&mut self, host: usize, port: usize, unplug: bool) {
        let adapter = lane_adapter(port) as u32;
        let words = vec![1 << 31, 0, adapter | u32::from(unplug) << 31];
        self.deliver_control(host, host, crate::control::pdf::EVENT, words);
        self.at(self.now + PLUG_ACK, Event::PlugAck { host, port, unplug });
    }

    pub(super) fn plug_again(&mut self, host: usize, port: usize, unplug: bool) {
        let Some(guest) = self.guest_mut(host) else { return };
        let Some(event) = guest.events.iter_mut().find(|e| e.port == port && e.unplug == unplug) else { return };
        event.tries += 1;
        if event.tries > PLUG_TRIES {
            guest.events.retain(|e| e.port != port);
            self.note(host, &format!("port {port}: the driver never answered the hot plug event"));
        } else {
            self.send_plug(host, port, unplug);
        }
    }

    pub(super) fn plug_answered(&mut self, host: usize, adapter: usize) {
        if let Some(guest) = self.guest_mut(host) {
            guest.events.retain(|e| lane_adapter(e.port) != adapter);
        }
    }

    /// What a configuration write set off.
    pub(super) fn router_effect(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::PortReset { port, on } => {
                self.note(host, &format!("port {port} reset {}", if on { "on" } else { "off" }));
                if on && let Some((cable, _)) = self.cable_at(host, port) {
                    self.link_down(cable, "port reset");
                }
            }
            Effect::Lanes { port } => self.try_bonding(host, port),
            Effect::Asymmetric { port } => {
                if let Some((cable, side)) = self.cable_at(host, port)
                    && let Some(guest) = self.guest(host)
                {
                    let wanted = guest.router.wanted_width(port);
                    self.set_width(cable, if side == 0 { wanted } else { wanted.mirrored() });
                }
            }
            Effect::Path { adapter, hop } => self.path_changed(host, adapter, hop),
        }
    }

    /// Bonds the lanes when both ends want two and one of them started it.
    pub(super) fn try_bonding(&mut self, host: usize, port: usize) {
        let Some((at, _)) = self.cable_at(host, port) else { return };
        let cable = &self.cables[at];
        if !cable.up || cable.width != Width::Single || cable.one_lane {
            return;
        }
        let wants = |side: usize| match &self.hosts[cable.ends[side].host].kind {
            Kind::Guest(guest) => guest.router.wants_dual(cable.ends[side].port),
            Kind::Peer(peer) => peer.lanes == 2,
        };
        let started = |side: usize| match &self.hosts[cable.ends[side].host].kind {
            Kind::Guest(guest) => guest.router.bonding(cable.ends[side].port),
            Kind::Peer(peer) => peer.bonding >> (cable.ends[side].port & 15) & 1 == 1,
        };
        if wants(0) && wants(1) && (started(0) || started(1)) {
            self.set_width(at, Width::Dual);
        }
    }

    /// Sets the width of a link that is up, as the first end sees it.
    pub(super) fn set_width(&mut self, at: usize, width: Width) {
        let cable = &mut self.cables[at];
        if !cable.up || cable.width == width || (cable.speed == 4 && width == Width::Single) {
            return;
        }
        cable.width = width;
        let text = format!("cable {}: width {}", cable.name, width.name());
        self.note(self.hosts.len(), &text);
        self.show_link(at);
    }

    /// Sets the generation at which a link runs.
    pub(super) fn set_speed(&mut self, at: usize, generation: u8) {
        let cable = &mut self.cables[at];
        cable.speed = generation.min(cable.generation);
        let text = format!("cable {}: generation {}", cable.name, cable.speed);
        self.note(self.hosts.len(), &text);
        self.show_link(at);
    }

    /// Puts a cable in or pulls it out.
    pub(super) fn set_plugged(&mut self, at: usize, plugged: bool) {
        self.cables[at].plugged = plugged;
        self.check_links();
    }
}
