//! Hosts in software: the other end of a cable without a second guest.

use crate::nhi::Frame;
use crate::time::Time;

/// What a software host does. All calls come from the world, one at a time, in virtual time.
pub trait Peer: Send {
    /// The link of a port came up or went away.
    fn link(&mut self, io: &mut PeerIo, port: usize, up: bool) {
        let _ = (io, port, up);
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

    /// A command from a script or the control socket. The answer is shown to whoever asked.
    ///
    /// # Errors
    /// What is wrong with the command, and what is wanted.
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

    /// Leaves a line in the trace.
    pub fn note(&mut self, text: impl Into<String>) {
        self.out.push(PeerOut::Note(text.into()));
    }
}

/// The peer that a topology gets when nothing else is set.
pub fn standard(_index: usize, _spec: &crate::topology::HostSpec) -> Box<dyn Peer> {
    Box::new(Mute)
}
