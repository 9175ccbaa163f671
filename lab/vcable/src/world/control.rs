//! The control channel of a guest: requests to its router, messages to the other host.

use super::guest::BACKLOG;
use super::{Event, Kind, World};
use crate::control::{ConfigError, Request, pdf, route, seal, unseal};
use crate::failure::Misuse;
use crate::fault::PacketClass;
use crate::router::layout::lane_adapter;
use crate::time::Time;
use crate::trace::{Direction, What};

/// The bit that replies and packets from elsewhere carry in their first word.
const REPLY: u32 = 1 << 31;

impl World {
    /// Takes control packets from the driver and gives it those that wait. True when something moved.
    pub(super) fn pump_control(&mut self, host: usize) -> bool {
        let mut progress = false;
        while let Some(guest) = self.guest_mut(host)
            && guest.nhi.tx(0).is_some_and(|r| r.posted() > 0)
        {
            progress = true;
            let Some(ring) = guest.nhi.tx_mut(0) else { break };
            let frame = ring.fetch(&*guest.memory);
            let done = ring.complete_tx(&*guest.memory);
            let bit = guest.nhi.irq.tx_bit(0);
            match (frame, done) {
                (Ok(frame), Ok(interrupt)) => {
                    if interrupt {
                        self.raise(host, bit);
                    }
                    self.driver_sent(host, frame.eof, &frame.data);
                }
                (Err(fault), _) | (_, Err(fault)) => self.fail(host, Misuse::Dma(fault)),
            }
        }
        while let Some(frame) = self.guest_mut(host).and_then(|g| g.next_control()) {
            progress = true;
            self.record(host, What::Control { direction: Direction::In, pdf: frame.eof, bytes: &frame.data });
            self.hosts[host].stats.control_received += 1;
            self.fill(host, 0, &frame, 0);
        }
        progress
    }

    fn driver_sent(&mut self, host: usize, kind: u8, bytes: &[u8]) {
        self.hosts[host].stats.control_sent += 1;
        self.record(host, What::Control { direction: Direction::Out, pdf: kind, bytes });
        let words = match unseal(bytes) {
            Ok(words) => words,
            Err(error) => return self.fail(host, Misuse::Control(error)),
        };
        match kind {
            pdf::READ | pdf::WRITE => self.configure(host, kind, &words),
            pdf::ERROR => {
                let word = words.get(2).copied().unwrap_or(0);
                if word & 0xf == ConfigError::AckPlugEvent.code() {
                    self.plug_answered(host, (word >> 8 & 0x3f) as usize);
                }
            }
            pdf::XDOMAIN_REQUEST | pdf::XDOMAIN_RESPONSE => self.pass_on(host, kind, words),
            _ => {}
        }
    }

    /// Answers a read or write of configuration words.
    fn configure(&mut self, host: usize, kind: u8, words: &[u32]) {
        let request = match Request::decode(kind, words) {
            Ok(request) => request,
            Err(error) => return self.fail(host, Misuse::Control(error)),
        };
        let (hi, lo, address) = (words[0] | REPLY, words[1], words[2]);
        let at = match &request {
            Request::Read(at) | Request::Write(at, _) => *at,
        };
        let mut effects = Vec::new();
        let connected = self.route_connected(host, route(words));
        let Some(guest) = self.guest_mut(host) else { return };
        // The adapter field of a reply names the adapter through which the request came.
        let reply_address = address & !(0x3f << 19) | (guest.router.nhi_adapter() as u32) << 19;
        let mut reply = vec![hi, lo, reply_address];
        let result = match (route(words), request) {
            (0, Request::Read(_)) => {
                guest.router.read(at.adapter, at.space, at.offset, at.len).map(|data| reply.extend_from_slice(data))
            }
            (0, Request::Write(at, data)) if guest.refuses(at, data) => Err(ConfigError::InvalidSpace),
            (0, Request::Write(_, data)) => guest.router.write(at.adapter, at.space, at.offset, data, &mut effects),
            _ if connected => Err(ConfigError::Loop),
            _ => Err(ConfigError::NotConnected),
        };
        match result {
            Ok(()) => self.deliver_control(host, host, kind, reply),
            Err(error) => {
                let word = error.code() | (at.adapter as u32) << 8;
                self.deliver_control(host, host, pdf::ERROR, vec![hi, lo, word]);
            }
        }
        for effect in effects {
            self.router_effect(host, effect);
        }
        self.check_links();
    }

    /// A route of one hop leads to a link that is up.
    fn route_connected(&self, host: usize, route: u64) -> bool {
        self.link_of_route(host, route).is_some()
    }

    /// The cable and side that a route of one hop leaves by, if its link is up.
    fn link_of_route(&self, host: usize, route: u64) -> Option<(usize, usize)> {
        let ports = self.guest(host)?.router.ports();
        let port = (1..=ports).find(|p| lane_adapter(*p) as u64 == route)?;
        self.cable_at(host, port).filter(|(cable, _)| self.cables[*cable].up)
    }

    fn pass_on(&mut self, host: usize, kind: u8, words: Vec<u32>) {
        if let Some((cable, side)) = self.link_of_route(host, route(&words)) {
            self.message(cable, side, kind, words);
        }
    }

    /// Carries an XDomain message over a link.
    pub(super) fn message(&mut self, at: usize, side: usize, kind: u8, mut words: Vec<u32>) {
        let cable = &mut self.cables[at];
        cable.stats.messages += 1;
        let (from, to) = (cable.ends[side], cable.ends[1 - side]);
        if let [hi, lo, ..] = words.as_mut_slice() {
            *hi = REPLY;
            *lo = lane_adapter(to.port) as u32;
        }
        if self.hosts[from.host].silent {
            return self.note(from.host, "fault: message of a silent host lost");
        }
        if self.options.latency == 0 {
            return self.deliver_control(from.host, to.host, kind, words);
        }
        let cable = &mut self.cables[at];
        if cable.crossing == BACKLOG {
            return self.note(from.host, "message lost: too many are on their way");
        }
        cable.crossing += 1;
        let ups = cable.stats.ups;
        self.at(self.now + self.options.latency, Event::Message { cable: at, side, ups, pdf: kind, words });
    }

    /// A message has crossed a link, if that link is still the one it went on.
    pub(super) fn arrived(&mut self, at: usize, side: usize, ups: u64, kind: u8, words: Vec<u32>) {
        let cable = &mut self.cables[at];
        cable.crossing = cable.crossing.saturating_sub(1);
        if cable.up && cable.stats.ups == ups {
            let (from, to) = (cable.ends[side].host, cable.ends[1 - side].host);
            self.deliver_control(from, to, kind, words);
        }
    }

    /// Sends a control packet to a host, through the faults that are set for it.
    pub(super) fn deliver_control(&mut self, from: usize, to: usize, kind: u8, words: Vec<u32>) {
        let class = match kind {
            pdf::EVENT => PacketClass::Event,
            pdf::XDOMAIN_REQUEST | pdf::XDOMAIN_RESPONSE => PacketClass::Xdomain,
            _ => PacketClass::Reply,
        };
        self.faulty_delivery(class, from, to, kind, words);
    }

    /// Hands a control packet to its host: a guest's queue, or the software peer.
    pub(super) fn post_control(&mut self, host: usize, kind: u8, words: &[u32]) {
        let Some(target) = self.hosts.get_mut(host) else { return };
        match &mut target.kind {
            Kind::Peer(_) => self.peer_message(host, kind, words),
            Kind::Guest(guest) => {
                // A packet for a control channel that is off goes nowhere.
                if guest.listens() && !guest.post(kind, words) && !std::mem::replace(&mut guest.backlog_reported, true)
                {
                    self.fail(host, Misuse::ControlBacklog(BACKLOG));
                }
            }
        }
    }

    /// Hands over a packet whose bytes a fault damaged: the CRC tells.
    pub(super) fn post_damaged(&mut self, host: usize, kind: u8, words: &[u32]) {
        let bit = self.rng.below(words.len() as u64 * 32) as usize;
        let mut bytes = seal(words);
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        if let Some(guest) = self.guest_mut(host)
            && guest.listens()
            && guest.inbox.len() < BACKLOG
        {
            guest.inbox.push_back((kind, bytes));
        }
    }

    /// The packet that was held back to be overtaken goes on its way.
    pub(super) fn release_held(&mut self, host: usize) {
        if let Some((kind, words)) = self.faults.take_held(host) {
            self.post_control(host, kind, &words);
        }
    }

    pub(super) fn hold(&mut self, host: usize, kind: u8, words: Vec<u32>, window: Time) {
        self.release_held(host);
        self.faults.hold(host, kind, words);
        self.at(self.now + window, Event::Held { host });
    }
}
