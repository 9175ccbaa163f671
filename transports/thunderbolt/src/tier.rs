//! Cables, the tiers by which they can be used, and opening them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linkspan_tbring::abi::PAIRS as RING_PAIRS;
use linkspan_tbring::{Error as DeviceError, Options, Pair as RingPair, Ring, Stream};

use crate::device::StreamDevice;
use crate::error::Error;
use crate::ring::OpenRing;

/// How a cable is used, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Tier {
    /// Our ring driver, `linkspan.ko`: registered memory, page to page; of N ring pairs the first one's bytes are copied at the receiver.
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
pub struct CableAddress(Arc<dyn OpenCable>);

/// What opens a cable.
pub(crate) trait OpenCable: fmt::Debug + Send + Sync {
    /// Opens it, waiting at most `wait` for its link to come up.
    fn open(&self, wait: Duration) -> Result<OpenedCable, DeviceError>;
}

/// A device file of the ring driver.
#[derive(Debug)]
struct RingFile(PathBuf);

impl OpenCable for RingFile {
    fn open(&self, wait: Duration) -> Result<OpenedCable, DeviceError> {
        Ok(OpenedCable::Ring(Box::new(Ring::open(&self.0, Options { wait, ..Options::default() })?)))
    }
}

/// A device file of the kernel's stream.
#[derive(Debug)]
struct StreamFile(PathBuf);

impl OpenCable for StreamFile {
    fn open(&self, _: Duration) -> Result<OpenedCable, DeviceError> {
        Ok(OpenedCable::Stream(Box::new(Stream::open(&self.0)?)))
    }
}

impl CableAddress {
    pub(crate) fn new(opens: impl OpenCable + 'static) -> CableAddress {
        CableAddress(Arc::new(opens))
    }

    /// A device file of the ring driver.
    pub fn ring(path: impl Into<PathBuf>) -> CableAddress {
        CableAddress::new(RingFile(path.into()))
    }

    /// A device file of the kernel's stream.
    pub fn stream(path: impl Into<PathBuf>) -> CableAddress {
        CableAddress::new(StreamFile(path.into()))
    }
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
    pub(crate) fn open(&self, wait: Duration) -> Result<OpenedCable, DeviceError> {
        self.place.0.open(wait)
    }
}

/// What this host has: cables, and for each tier why it has none there.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Best first.
    pub cables: Vec<Cable>,
    /// Some other host is at the end of a cable.
    pub plugged: bool,
    /// Why a tier cannot be had here, for people.
    pub why_not: Vec<(Tier, String)>,
    /// The plugs whose ring links should be up and are not, and why, for people.
    pub down: Vec<(String, String)>,
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
                self.why_not.push((t, format!("LINKSPAN_THUNDERBOLT_TIER={} excludes it", only.name())));
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
pub(crate) enum OpenedCable {
    /// Tier 1.
    Ring(Box<dyn OpenRing>),
    /// Tier 2.
    Stream(Box<dyn StreamDevice>),
}
