//! A rail over a cable at either tier.

use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_transport::{Busy, DeviceReach, Down, MemSlice, Poll, Rail, RailInfo, Registrar, Sink, WaitFd};

use crate::cache::CableMemory;
use crate::ring::RingRail;
use crate::setup::NONCE_LEN;
use crate::stream::StreamRail;
use crate::tier::{AnyRing, AnyStream, Tier};

/// The transport.
pub(crate) const NAME: &str = "thunderbolt";

/// A rail over a cable.
pub struct CableRail {
    device: Device,
    info: RailInfo,
}

/// By what.
enum Device {
    /// Tier 1.
    Ring(Box<RingRail<AnyRing>>),
    /// Tier 2.
    Stream(Box<StreamRail<AnyStream>>),
}

macro_rules! each {
    ($self:ident, $rail:ident => $call:expr) => {
        match &$self.device {
            Device::Ring($rail) => $call,
            Device::Stream($rail) => $call,
        }
    };
    (mut $self:ident, $rail:ident => $call:expr) => {
        match &mut $self.device {
            Device::Ring($rail) => $call,
            Device::Stream($rail) => $call,
        }
    };
}

impl CableRail {
    /// How the cable is used.
    pub fn tier(&self) -> Tier {
        match self.device {
            Device::Ring(_) => Tier::Ring,
            Device::Stream(_) => Tier::Stream,
        }
    }

    /// The memory that it keeps registered, where it does.
    pub fn memory(&self) -> Option<&CableMemory> {
        match &self.device {
            Device::Ring(rail) => Some(rail.memory()),
            Device::Stream(_) => None,
        }
    }

    /// `link`: [`crate::Cable::link`].
    pub(crate) fn ring(rail: RingRail<AnyRing>, link: String) -> CableRail {
        let info = RailInfo { plug: Some(link), ..rail.info().clone() };
        CableRail { device: Device::Ring(Box::new(rail)), info }
    }

    pub(crate) fn stream(rail: StreamRail<AnyStream>, link: String) -> CableRail {
        let info = RailInfo { plug: Some(link), ..rail.info().clone() };
        CableRail { device: Device::Stream(Box::new(rail)), info }
    }

    pub(crate) fn hello(&mut self, nonce: &[u8; NONCE_LEN]) -> Result<(), Down> {
        each!(mut self, r => r.hello(nonce))
    }

    pub(crate) fn heard(&mut self) -> Result<Option<[u8; NONCE_LEN]>, Down> {
        each!(mut self, r => r.heard())
    }
}

#[allow(unsafe_code)]
// SAFETY: each call goes to one of the two rails of a cable, which keep the promise.
unsafe impl Rail for CableRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        each!(mut self, r => r.ctrl(head, body))
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        each!(mut self, r => r.data(head, src))
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        each!(mut self, r => r.prepare(mem, target))
    }

    fn taken(&self) -> u64 {
        each!(self, r => r.taken())
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        each!(mut self, r => r.flush())
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        each!(mut self, r => r.poll(sink))
    }

    fn arm(&mut self) -> Option<WaitFd> {
        each!(mut self, r => r.arm())
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        Some(Arc::new(self.memory()?.clone()))
    }

    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        each!(self, r => r.reach())
    }
}
