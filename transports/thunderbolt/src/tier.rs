//! Cables, the tiers by which they can be used, and opening them.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linkspan_tbring::abi::PAIRS as RING_PAIRS;
use linkspan_tbring::{Access, Completion, Error as DeviceError, Options, Pair as RingPair, Region, Ring, Stream};
use linkspan_transport::MemSlice;

use crate::device::{Registrar, RingDevice, StreamDevice};
use crate::error::Error;
#[cfg(feature = "sim")]
use crate::soft::{SoftRegion, SoftRegistrar, SoftRing, SoftRingLink, SoftStream, SoftStreamLink};

/// How a cable is used, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tier {
    /// Our ring driver, `linkspan.ko`: registered memory, no copy.
    Ring = 1,
    /// The kernel's byte stream, `thunderbolt_stream`, since Linux 7.2: one copy on each side.
    Stream = 2,
    /// TCP over `thunderbolt_net`: the TCP transport, on that interface.
    Net = 3,
}

impl Tier {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Ring => "ring",
            Tier::Stream => "stream",
            Tier::Net => "net",
        }
    }

    pub(crate) fn from_u8(n: u8) -> Option<Tier> {
        [Tier::Ring, Tier::Stream, Tier::Net].into_iter().find(|t| *t as u8 == n)
    }

    /// From `LINKSPAN_THUNDERBOLT_TIER`: `None` for `auto`.
    ///
    /// # Errors
    /// [`Error::NoTier`]: the text names no tier.
    pub fn parse(word: &str) -> Result<Option<Tier>, Error> {
        match word {
            "auto" => Ok(None),
            "ring" => Ok(Some(Tier::Ring)),
            "stream" => Ok(Some(Tier::Stream)),
            "net" => Ok(Some(Tier::Net)),
            _ => Err(Error::NoTier(word.to_owned())),
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {} ({})", *self as u8, self.name())
    }
}

/// Where one is to be opened.
#[derive(Clone, Debug)]
pub enum CableAddress {
    /// The device file.
    File(PathBuf),
    /// A ring in software, and which side we are.
    #[cfg(feature = "sim")]
    SoftRing(SoftRingLink, usize),
    /// A stream in software, and which side we are.
    #[cfg(feature = "sim")]
    SoftStream(SoftStreamLink, usize),
}

/// One way to use one cable.
#[derive(Clone, Debug)]
pub struct Cable {
    /// How it is used.
    pub tier: Tier,
    /// What people call it: the device file's path.
    pub name: String,
    /// The plug that it is about: the other host's device on the bus, as `0-1`; what has the same one is the same cable.
    pub link: String,
    /// What the domain of this host says it is.
    pub local: [u8; 16],
    /// What the other host says it is.
    pub peer: [u8; 16],
    /// HopIDs of a stream, in and out, which mirror the peer's; of a ring 0.
    pub hops: (u16, u16),
    /// Entries of a stream's receive ring.
    pub ring: u16,
    /// Negotiated speed, bytes per second; 0 when unknown.
    pub speed: u64,
    /// Where to open it.
    pub place: CableAddress,
}

impl Cable {
    /// Opens the link, waiting at most `wait` for it to come up.
    ///
    /// # Errors
    /// [`DeviceError::Open`], also where another connection has the stream; those of [`linkspan_tbring::Ring::open`].
    pub fn open(&self, wait: Duration) -> Result<Medium, DeviceError> {
        #[cfg(feature = "sim")]
        let gone = || DeviceError::Open {
            path: PathBuf::from(&self.name),
            source: io::Error::from_raw_os_error(EWOULDBLOCK),
            hint: "; another connection has it",
        };
        Ok(match &self.place {
            CableAddress::File(path) if self.tier == Tier::Ring => {
                Medium::Ring(AnyRing::Hw(Ring::open(path, Options { wait, ..Options::default() })?))
            }
            CableAddress::File(path) => Medium::Stream(AnyStream::Hw(Stream::open(path)?)),
            #[cfg(feature = "sim")]
            CableAddress::SoftRing(link, side) => Medium::Ring(AnyRing::Soft(link.open(*side)?)),
            #[cfg(feature = "sim")]
            CableAddress::SoftStream(link, side) => Medium::Stream(AnyStream::Soft(link.open(*side).ok_or_else(gone)?)),
        })
    }
}

/// `errno.h`: it would block.
#[cfg(feature = "sim")]
const EWOULDBLOCK: i32 = 11;

/// What this host has: cables, and for each tier why it has none there.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Best first.
    pub cables: Vec<Cable>,
    /// Some other host is at the end of a cable.
    pub plugged: bool,
    /// Why a tier cannot be had here, for people.
    pub why_not: Vec<(Tier, String)>,
    /// Ring pairs of each device of `linkspan.ko`, whether its link is up or not.
    pub pairs: Vec<(String, [RingPair; RING_PAIRS])>,
}

impl Ports {
    /// The links of the cables, in their order.
    pub fn links(&self) -> Vec<String> {
        let mut links: Vec<String> = Vec::new();
        for cable in &self.cables {
            if !links.contains(&cable.link) {
                links.push(cable.link.clone());
            }
        }
        links
    }

    /// Why this host has nothing at a tier; empty where it has.
    pub fn why_not(&self, tier: Tier) -> String {
        if self.cables.iter().any(|cable| cable.tier == tier) {
            return String::new();
        }
        let found = self.why_not.iter().find(|(t, _)| *t == tier);
        found.map_or_else(|| "this host has no such cable".to_owned(), |(_, why)| why.clone())
    }

    /// Only what `tier` allows; `None` allows both.
    #[must_use]
    pub fn only(mut self, tier: Option<Tier>) -> Ports {
        if let Some(only) = tier {
            self.cables.retain(|cable| cable.tier == only);
            let other = |t: &Tier| *t != only;
            self.why_not.retain(|(t, _)| !other(t));
            for t in [Tier::Ring, Tier::Stream].into_iter().filter(other) {
                self.why_not.push((t, format!("LINKSPAN_THUNDERBOLT_TIER={} leaves it out", only.name())));
            }
        }
        self
    }

    /// The same, to be shared by connections.
    pub fn shared(self) -> Arc<Ports> {
        Arc::new(self)
    }
}

/// An opened cable.
#[derive(Debug)]
pub enum Medium {
    /// Tier 1.
    Ring(AnyRing),
    /// Tier 2.
    Stream(AnyStream),
}

/// The ring driver's device, real or not.
#[derive(Debug)]
pub enum AnyRing {
    /// `/dev/linkspan/N`.
    Hw(Ring),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftRing),
}

/// Its registered memory.
#[derive(Debug)]
pub enum AnyRegion {
    /// The driver's.
    Hw(Region),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftRegion),
}

/// The stream device, real or not.
#[derive(Debug)]
pub enum AnyStream {
    /// `/dev/tbstreamN`.
    Hw(Stream),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftStream),
}

macro_rules! each {
    ($of:ident, $self:ident, $device:ident => $call:expr) => {
        match $self {
            $of::Hw($device) => $call,
            #[cfg(feature = "sim")]
            $of::Soft($device) => $call,
        }
    };
}

/// A region of another kind of device: nothing mixes them.
#[cfg(feature = "sim")]
const MIXED: DeviceError = DeviceError::Queues { what: "a region of another device" };

/// The registrar of either.
enum AnyRegistrar {
    Hw(linkspan_tbring::Registrar),
    #[cfg(feature = "sim")]
    Soft(SoftRegistrar),
}

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl Registrar<AnyRegion> for AnyRegistrar {
    fn register_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        head: u64,
        mem: MemSlice,
        access: Access,
    ) -> Result<AnyRegion, DeviceError> {
        match self {
            AnyRegistrar::Hw(device) => {
                Registrar::register_dmabuf(device, fd, offset, head, mem, access).map(AnyRegion::Hw)
            }
            #[cfg(feature = "sim")]
            AnyRegistrar::Soft(device) => device.register_dmabuf(fd, offset, head, mem, access).map(AnyRegion::Soft),
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: a region pins its pages, and the device reaches them no longer than the region lives.
unsafe impl RingDevice for AnyRing {
    type Region = AnyRegion;

    fn registrar(&self) -> Arc<dyn Registrar<AnyRegion>> {
        Arc::new(match self {
            AnyRing::Hw(ring) => AnyRegistrar::Hw(ring.registrar()),
            #[cfg(feature = "sim")]
            AnyRing::Soft(ring) => AnyRegistrar::Soft(ring.soft_registrar()),
        })
    }

    fn register(&mut self, mem: MemSlice, access: Access) -> Result<AnyRegion, DeviceError> {
        match self {
            AnyRing::Hw(ring) => RingDevice::register(ring, mem, access).map(AnyRegion::Hw),
            #[cfg(feature = "sim")]
            AnyRing::Soft(ring) => ring.register(mem, access).map(AnyRegion::Soft),
        }
    }

    fn open_channel(&mut self, channel: u32) -> Result<(), DeviceError> {
        each!(AnyRing, self, ring => RingDevice::open_channel(ring, channel))
    }

    fn close_channel(&mut self, channel: u32) -> Result<(), DeviceError> {
        each!(AnyRing, self, ring => RingDevice::close_channel(ring, channel))
    }

    fn send(&mut self, c: u32, region: &AnyRegion, offset: u64, length: u64, cookie: u64) -> Result<bool, DeviceError> {
        match (self, region) {
            (AnyRing::Hw(ring), AnyRegion::Hw(region)) => ring.send(c, region, offset, length, cookie),
            #[cfg(feature = "sim")]
            (AnyRing::Soft(ring), AnyRegion::Soft(region)) => ring.send(c, region, offset, length, cookie),
            #[cfg(feature = "sim")]
            _ => Err(MIXED),
        }
    }

    fn receive(
        &mut self,
        c: u32,
        region: &AnyRegion,
        offset: u64,
        length: u64,
        cookie: u64,
    ) -> Result<bool, DeviceError> {
        match (self, region) {
            (AnyRing::Hw(ring), AnyRegion::Hw(region)) => ring.receive(c, region, offset, length, cookie),
            #[cfg(feature = "sim")]
            (AnyRing::Soft(ring), AnyRegion::Soft(region)) => ring.receive(c, region, offset, length, cookie),
            #[cfg(feature = "sim")]
            _ => Err(MIXED),
        }
    }

    fn doorbell(&mut self, completions: u32, wait: Duration, poll: bool) -> Result<(), DeviceError> {
        each!(AnyRing, self, ring => RingDevice::doorbell(ring, completions, wait, poll))
    }

    fn waiting(&self) -> bool {
        each!(AnyRing, self, ring => RingDevice::waiting(ring))
    }

    fn pop(&mut self) -> Result<Option<Completion>, DeviceError> {
        each!(AnyRing, self, ring => RingDevice::pop(ring))
    }

    fn wait_fd(&self) -> RawFd {
        each!(AnyRing, self, ring => RingDevice::wait_fd(ring))
    }
}

#[allow(unsafe_code)]
// SAFETY: bytes are copied within the call.
unsafe impl StreamDevice for AnyStream {
    fn read(&mut self, place: MemSlice, tail: &mut [u8]) -> io::Result<Option<usize>> {
        each!(AnyStream, self, stream => StreamDevice::read(stream, place, tail))
    }

    fn write(&mut self, pieces: &[MemSlice]) -> io::Result<Option<usize>> {
        each!(AnyStream, self, stream => StreamDevice::write(stream, pieces))
    }

    fn wait_fd(&self) -> RawFd {
        each!(AnyStream, self, stream => StreamDevice::wait_fd(stream))
    }
}
