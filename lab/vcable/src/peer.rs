//! Hosts in software: the other end of a cable without a second guest.

mod command;
mod host;
pub(crate) mod network;
mod ring;
mod service;

pub use host::SoftHost;
pub use network::Network;
pub use ring::Ring;
pub use service::{Announced, Service};

use crate::link::LinkState;
use crate::nhi::Frame;
use crate::time::Time;

/// What a software host does. All calls come from the world, one at a time, in virtual time.
pub trait Peer: Send {
    /// The link of a port came up or went away.
    fn link(&mut self, io: &mut PeerIo, port: usize, link: Option<LinkState>) {
        let _ = (io, port, link);
    }

    /// An XDomain packet arrived: its words without the CRC, route first.
    fn message(&mut self, io: &mut PeerIo, port: usize, pdf: u8, words: &[u32]) {
        let _ = (io, port, pdf, words);
    }

    /// A frame arrived on a HopID.
    fn frame(&mut self, io: &mut PeerIo, port: usize, hop: u16, frame: Frame) {
        let _ = (io, port, hop, frame);
    }

    /// A time that was asked for with [`PeerIo::timer`] has come.
    fn timer(&mut self, io: &mut PeerIo, token: u64) {
        let _ = (io, token);
    }

    /// A command from a script or the control socket. The answer goes to the client that asked.
    ///
    /// # Errors
    /// A text: what is wrong with the command, and what is wanted.
    fn command(&mut self, io: &mut PeerIo, words: &[&str]) -> Result<String, String> {
        let _ = (io, words);
        Err("this peer takes no commands".to_owned())
    }
}

/// A peer that is there and says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mute;

impl Peer for Mute {}

/// What a peer asks of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerOut {
    Message { port: usize, pdf: u8, words: Vec<u32> },
    Frame { port: usize, hop: u16, frame: Frame },
    Timer { at: Time, token: u64 },
    Bond { port: usize },
    Note(String),
}

/// The way out of a peer: everything takes effect after the call has returned.
#[derive(Debug)]
pub struct PeerIo {
    pub(crate) now: Time,
    pub(crate) out: Vec<PeerOut>,
}

impl PeerIo {
    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sends an XDomain packet; the route is set by the cable.
    pub fn send_message(&mut self, port: usize, pdf: u8, words: Vec<u32>) {
        self.out.push(PeerOut::Message { port, pdf, words });
    }

    /// Sends a frame on a HopID, behind what was sent there before.
    pub fn send_frame(&mut self, port: usize, hop: u16, frame: Frame) {
        self.out.push(PeerOut::Frame { port, hop, frame });
    }

    /// Asks to be called at a time.
    pub fn timer(&mut self, at: Time, token: u64) {
        self.out.push(PeerOut::Timer { at, token });
    }

    /// Bonds the lanes of a port as soon as the other end is set to two.
    pub fn bond(&mut self, port: usize) {
        self.out.push(PeerOut::Bond { port });
    }

    /// Leaves a line in the trace.
    pub fn note(&mut self, text: impl Into<String>) {
        self.out.push(PeerOut::Note(text.into()));
    }
}

/// The peer that a topology gets when nothing else is set: a [`SoftHost`] whose services come from commands.
pub fn standard(index: usize, spec: &crate::topology::HostSpec) -> Box<dyn Peer> {
    // Another prefix than that of guests' routers; the index in its low half.
    Box::new(SoftHost::new(&spec.name, 0x0012_3400_50f7_0000 | index as u64, spec.lanes))
}

/// Bytes of a frame by its number, so that a receiver can tell frames and places in them apart.
pub fn pattern(number: u64, len: usize) -> Vec<u8> {
    let mut rng = crate::rng::Rng::new(number);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}
