//! A whole host in software: XDomain discovery, properties, link state, services.

use std::collections::BTreeMap;

use super::{Peer, PeerIo, Service};
use crate::control::pdf;
use crate::link::{LinkState, Width};
use crate::nhi::Frame;
use crate::time::SEC;
use crate::xdomain::property::{Directory, MAX_BLOCK};
use crate::xdomain::{Body, Message, Uuid, discovery};

/// Time until a request is sent again.
const RETRY: u64 = SEC;
/// Requests of one kind before the host gives up; Linux tries about ten times.
const TRIES: u8 = 10;
/// Words of properties in one response: what fits 256 bytes behind the header.
const PART: usize = 45;
/// Error code "not supported".
const NOT_SUPPORTED: u32 = 3;
/// Timer tokens of services begin here, one range of 2^32 for each.
const SERVICE_TOKENS: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Down,
    Uuid,
    LinkStatus,
    LinkChange,
    Properties,
    Ready,
}

/// What the host knows about the one at the other end of a port.
#[derive(Debug)]
struct Port {
    step: Step,
    tries: u8,
    seq: u8,
    /// Tells a timer of an earlier step from one of this.
    epoch: u32,
    /// The link came up with one lane: it may be bonded.
    single: bool,
    remote: Option<Uuid>,
    block: Vec<u32>,
    properties: Option<Directory>,
}

impl Port {
    fn new() -> Port {
        Port {
            step: Step::Down,
            tries: 0,
            seq: 0,
            epoch: 0,
            single: false,
            remote: None,
            block: Vec::new(),
            properties: None,
        }
    }
}

/// Counts of one HopID.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// CRC-32C over all bytes, to compare with what was sent.
    pub(super) crc: u32,
    pub(super) damaged: u64,
    pub(super) last_eof: u8,
}

/// A host in software.
pub struct SoftHost {
    uuid: Uuid,
    name: String,
    lanes: u8,
    generation: u32,
    services: Vec<Box<dyn Service>>,
    ports: BTreeMap<usize, Port>,
    /// Frames of a HopID go back on another.
    pub(super) echo: BTreeMap<u16, u16>,
    pub(super) seen: BTreeMap<u16, Seen>,
}

impl SoftHost {
    /// A host with a name and a UID that no other host has.
    pub fn new(name: &str, uid: u64, lanes: u8) -> SoftHost {
        SoftHost {
            uuid: Uuid::of_uid(uid),
            name: name.to_owned(),
            lanes,
            generation: 1,
            services: Vec::new(),
            ports: BTreeMap::new(),
            echo: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Adds a service before the first link.
    #[must_use]
    pub fn with(mut self, service: Box<dyn Service>) -> SoftHost {
        self.services.push(service);
        self
    }

    /// Frames that arrive on one HopID are sent back on another.
    #[must_use]
    pub fn echoing(mut self, from: u16, to: u16) -> SoftHost {
        self.echo.insert(from, to);
        self
    }

    /// UUID of the host.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The directory that other hosts read.
    pub fn properties(&self) -> Directory {
        // The keys and their order are those of Linux; it wants a vendor and a device, each as a number and as text.
        let root = Directory::default()
            .number("vendorid", 0x1d6b)
            .text("vendorid", "Linux")
            .number("deviceid", 0x4)
            .text("deviceid", &self.name)
            .number("devicerv", 0x8000_0100)
            .number("maxhopid", crate::router::layout::LANE_MAX_HOP);
        self.services.iter().fold(root, |root, s| root.directory(s.key(), s.properties()))
    }

    /// The properties that the host at a port told.
    pub fn remote_properties(&self, port: usize) -> Option<&Directory> {
        self.ports.get(&port)?.properties.as_ref()
    }

    /// Links that are up, with the UUID of the other end where it is known.
    pub(super) fn remotes(&self) -> impl Iterator<Item = (usize, Option<Uuid>)> + '_ {
        self.ports.iter().filter(|(_, p)| p.step != Step::Down).map(|(n, p)| (*n, p.remote))
    }

    /// Discovery with the host at this port is over.
    pub fn is_ready(&self, port: usize) -> bool {
        self.ports.get(&port).is_some_and(|p| p.step == Step::Ready)
    }

    /// Adds a service while links are up.
    pub fn add(&mut self, io: &mut PeerIo, service: Box<dyn Service>) {
        self.services.push(service);
        self.changed(io);
        let ready: Vec<usize> = self.ports.keys().copied().filter(|p| self.is_ready(*p)).collect();
        for port in ready {
            self.ready(io, port);
        }
    }

    /// The properties changed: everybody is told.
    fn changed(&mut self, io: &mut PeerIo) {
        self.generation += 1;
        let ports: Vec<usize> = self.ports.iter().filter(|(_, p)| p.step != Step::Down).map(|(n, _)| *n).collect();
        for port in ports {
            self.request(io, port, &Body::Changed { source: self.uuid });
        }
    }

    fn request(&mut self, io: &mut PeerIo, port: usize, body: &Body) {
        let Some(state) = self.ports.get_mut(&port) else { return };
        state.seq = (state.seq + 1) & 3;
        io.send_message(port, pdf::XDOMAIN_REQUEST, Message::discovery(0, state.seq, body).encode());
    }

    fn respond(io: &mut PeerIo, port: usize, seq: u8, body: &Body) {
        io.send_message(port, pdf::XDOMAIN_RESPONSE, Message::discovery(0, seq, body).encode());
    }

    fn enter(&mut self, io: &mut PeerIo, port: usize, step: Step) {
        let Some(state) = self.ports.get_mut(&port) else { return };
        state.step = step;
        state.tries = 0;
        state.epoch += 1;
        if step == Step::Properties {
            state.block.clear();
        }
        self.act(io, port);
    }

    /// Sends the request of the present step.
    fn act(&mut self, io: &mut PeerIo, port: usize) {
        let Some(state) = self.ports.get_mut(&port) else { return };
        let body = match (state.step, state.remote) {
            (Step::Uuid, _) => Body::UuidRequest { old: false },
            (Step::LinkStatus, _) => Body::LinkStatusRequest,
            // Code 3 is dual, 0xc are both speeds.
            (Step::LinkChange, _) => Body::LinkChangeRequest { width: 3, speed: 0xc },
            (Step::Properties, Some(target)) => {
                Body::PropertiesRequest { source: self.uuid, target, offset: state.block.len() as u16 }
            }
            _ => return,
        };
        state.tries += 1;
        let token = u64::from(state.epoch & 0xff_ffff) << 8 | port as u64 & 0xff;
        io.timer(io.now() + RETRY, token);
        self.request(io, port, &body);
    }

    fn discovery(&mut self, io: &mut PeerIo, port: usize, message: &Message, body: Body) {
        let seq = message.seq;
        let Some(state) = self.ports.get_mut(&port) else { return };
        let step = state.step;
        match body {
            Body::UuidRequest { .. } => {
                Self::respond(io, port, seq, &Body::UuidResponse { source: self.uuid, route: message.route });
            }
            Body::PropertiesRequest { source, target, offset } if target == self.uuid => {
                let block = self.properties().block();
                if usize::from(offset) < block.len() {
                    let data: Vec<u32> = block.iter().skip(offset.into()).take(PART).copied().collect();
                    let answer = Body::PropertiesResponse {
                        source: self.uuid,
                        target: source,
                        offset,
                        total: block.len() as u16,
                        generation: self.generation,
                        data,
                    };
                    Self::respond(io, port, seq, &answer);
                }
            }
            Body::PropertiesRequest { .. } => Self::respond(io, port, seq, &Body::Error { code: 2 }),
            Body::Changed { .. } => {
                Self::respond(io, port, seq, &Body::ChangedAck);
                if step == Step::Ready {
                    self.enter(io, port, Step::Properties);
                }
            }
            Body::LinkStatusRequest => {
                let width = if self.lanes == 2 { 3 } else { 1 };
                let answer = Body::LinkStatusResponse {
                    status: 0,
                    supported_width: width,
                    target_width: width,
                    supported_speed: 0xc,
                    target_speed: 0xc,
                };
                Self::respond(io, port, seq, &answer);
            }
            Body::LinkChangeRequest { .. } => Self::respond(io, port, seq, &Body::LinkChangeResponse { status: 0 }),
            Body::UuidResponse { source, .. } if step == Step::Uuid => {
                state.remote = Some(source);
                let bond = self.lanes == 2 && state.single;
                self.enter(io, port, if bond { Step::LinkStatus } else { Step::Properties });
            }
            Body::LinkStatusResponse { supported_width, .. } if step == Step::LinkStatus => {
                // The host with the smaller UUID asks for the change and bonds, the other one waits for it.
                let leads = state.remote.is_some_and(|remote| self.uuid < remote);
                let next = if supported_width >= 2 && leads { Step::LinkChange } else { Step::Properties };
                self.enter(io, port, next);
            }
            Body::LinkChangeResponse { status: 0 } if step == Step::LinkChange => {
                io.bond(port);
                self.enter(io, port, Step::Properties);
            }
            Body::PropertiesResponse { offset, total, data, .. } if step == Step::Properties => {
                let fits = usize::from(offset) == state.block.len() && usize::from(total) <= MAX_BLOCK;
                if fits && !data.is_empty() {
                    state.block.extend(data);
                    state.block.truncate(total.into());
                    state.tries = 0;
                }
                if fits && state.block.len() == usize::from(total) {
                    match Directory::parse(&state.block) {
                        Ok(directory) => state.properties = Some(directory),
                        Err(error) => io.note(format!("peer: {error}")),
                    }
                    self.enter(io, port, Step::Ready);
                    self.ready(io, port);
                } else if fits {
                    state.epoch += 1;
                    self.act(io, port);
                }
            }
            _ => {}
        }
    }

    fn ready(&mut self, io: &mut PeerIo, port: usize) {
        let Some(Port { remote: Some(remote), properties: Some(directory), .. }) = self.ports.get(&port) else {
            return;
        };
        for (index, service) in self.services.iter_mut().enumerate() {
            let mark = io.out.len();
            service.ready(io, port, (self.uuid, *remote), directory);
            tag_timers(io, mark, index);
        }
    }

    fn each(&mut self, io: &mut PeerIo, mut call: impl FnMut(&mut dyn Service, &mut PeerIo) -> bool) -> bool {
        for (index, service) in self.services.iter_mut().enumerate() {
            let mark = io.out.len();
            let done = call(&mut **service, io);
            tag_timers(io, mark, index);
            if done {
                return true;
            }
        }
        false
    }
}

/// Timers that a service asked for carry its number.
fn tag_timers(io: &mut PeerIo, mark: usize, index: usize) {
    for out in &mut io.out[mark..] {
        if let super::PeerOut::Timer { token, .. } = out {
            *token = (*token & 0xffff_ffff) | ((index as u64 + 1) * SERVICE_TOKENS);
        }
    }
}

impl Peer for SoftHost {
    fn link(&mut self, io: &mut PeerIo, port: usize, link: Option<LinkState>) {
        let state = self.ports.entry(port).or_insert_with(Port::new);
        state.remote = None;
        state.single = link.is_some_and(|l| l.width == Width::Single);
        self.enter(io, port, if link.is_some() { Step::Uuid } else { Step::Down });
        if link.is_none() {
            self.each(io, |service, io| {
                service.lost(io, port);
                false
            });
        }
    }

    fn message(&mut self, io: &mut PeerIo, port: usize, kind: u8, words: &[u32]) {
        let Some(message) = Message::decode(words) else {
            return io.note("peer: an XDomain message that is cut short");
        };
        if message.protocol == discovery() {
            match message.body() {
                Some(body) => self.discovery(io, port, &message, body),
                None if kind == pdf::XDOMAIN_REQUEST => {
                    Self::respond(io, port, message.seq, &Body::Error { code: NOT_SUPPORTED });
                }
                None => {}
            }
            return;
        }
        self.each(io, |service, io| service.message(io, port, kind == pdf::XDOMAIN_REQUEST, &message));
    }

    fn frame(&mut self, io: &mut PeerIo, port: usize, hop: u16, frame: Frame) {
        let seen = self.seen.entry(hop).or_default();
        seen.frames += 1;
        seen.bytes += frame.data.len() as u64;
        seen.crc = crate::crc::extend(seen.crc, &frame.data);
        seen.damaged += u64::from(frame.damaged);
        seen.last_eof = frame.eof;
        if let Some(to) = self.echo.get(&hop) {
            return io.send_frame(port, *to, Frame { damaged: false, ..frame });
        }
        self.each(io, |service, io| service.frame(io, port, hop, &frame));
    }

    fn timer(&mut self, io: &mut PeerIo, token: u64) {
        if token >= SERVICE_TOKENS {
            let index = (token / SERVICE_TOKENS - 1) as usize;
            if let Some(service) = self.services.get_mut(index) {
                let mark = io.out.len();
                service.timer(io, token as u32);
                tag_timers(io, mark, index);
            }
            return;
        }
        let port = (token & 0xff) as usize;
        let Some(state) = self.ports.get(&port) else { return };
        if u64::from(state.epoch & 0xff_ffff) != token >> 8 {
            return;
        }
        if state.tries < TRIES {
            return self.act(io, port);
        }
        io.note(format!("peer: no answer on port {port} in step {:?}", state.step));
        // What Linux does as well: without bonding, go on with what there is.
        if matches!(state.step, Step::LinkStatus | Step::LinkChange) {
            self.enter(io, port, Step::Properties);
        }
    }

    fn command(&mut self, io: &mut PeerIo, words: &[&str]) -> Result<String, String> {
        let mut said = None;
        self.each(io, |service, io| {
            said = service.command(io, words);
            said.is_some()
        });
        match said {
            Some(said) => said,
            None => super::command::run(self, io, words),
        }
    }
}
