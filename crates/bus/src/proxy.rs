//! The interfaces as clients see them. What each does is said where the service has it.

use zbus::proxy;
use zbus::zvariant::OwnedObjectPath;

use crate::{Dict, Error};

/// `org.linkspan.Link1.Manager`.
#[proxy(
    interface = "org.linkspan.Link1.Manager",
    default_service = "org.linkspan.Link1",
    default_path = "/org/linkspan/Link1"
)]
pub trait Manager {
    /// Version of the service.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> zbus::Result<String>;

    /// Lets a host in and remembers it: the driver's devices that were told.
    #[zbus(allow_interactive_auth)]
    fn allow(&self, uuid: &str) -> Result<Vec<String>, Error>;

    /// Shuts a host out.
    #[zbus(allow_interactive_auth)]
    fn forget(&self, uuid: &str) -> Result<Vec<String>, Error>;

    /// Sets streams up.
    #[zbus(allow_interactive_auth)]
    fn set_up(&self, streams: u16, first_hop: u16) -> Result<Vec<String>, Error>;

    /// Lends queues of a card.
    #[zbus(allow_interactive_auth)]
    fn lend_queues(&self, interface: &str, queues: u32, each: u32, users: &[u32]) -> Result<String, Error>;

    /// Ends that.
    #[zbus(allow_interactive_auth)]
    fn end_lending(&self, interface: &str) -> Result<String, Error>;

    /// Interfaces whose queues are lent.
    fn lendings(&self) -> Result<Vec<String>, Error>;

    /// Statistics of jobs.
    #[zbus(allow_interactive_auth)]
    fn get_statistics(&self, all: bool) -> Result<Vec<Dict>, Error>;

    /// Statistics of jobs as they change.
    #[zbus(allow_interactive_auth)]
    fn watch(&self, interval_ms: u32, all: bool) -> Result<(), Error>;

    /// Ends that.
    fn unwatch(&self) -> Result<bool, Error>;

    /// What happened.
    #[zbus(allow_interactive_auth)]
    fn get_events(&self, after_us: u64, all: bool) -> Result<Vec<Dict>, Error>;

    /// Something has happened.
    #[zbus(signal)]
    fn events_changed(&self, last_us: u64) -> zbus::Result<()>;

    /// To a client that watches.
    #[zbus(signal)]
    fn statistics_changed(&self, processes: Vec<Dict>) -> zbus::Result<()>;
}

/// `org.linkspan.Link1.Cable`.
#[proxy(interface = "org.linkspan.Link1.Cable", default_service = "org.linkspan.Link1", assume_defaults = false)]
pub trait Cable {
    /// The XDomain or the network interface.
    #[zbus(property(emits_changed_signal = "const"))]
    fn name(&self) -> zbus::Result<String>;

    /// `thunderbolt`, `ethernet` or `infiniband`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn medium(&self) -> zbus::Result<String>;

    /// The host at its other end, or `/`.
    #[zbus(property)]
    fn peer(&self) -> zbus::Result<OwnedObjectPath>;

    /// Mb/s of one lane from the peer, or 0.
    #[zbus(property)]
    fn receive_lane_mbps(&self) -> zbus::Result<u32>;

    /// Lanes from the peer, or 0.
    #[zbus(property)]
    fn receive_lanes(&self) -> zbus::Result<u32>;

    /// Mb/s of one lane to the peer, or 0.
    #[zbus(property)]
    fn send_lane_mbps(&self) -> zbus::Result<u32>;

    /// Lanes to the peer, or 0.
    #[zbus(property)]
    fn send_lanes(&self) -> zbus::Result<u32>;

    /// Whether linkspan can move bytes over it.
    #[zbus(property)]
    fn usable(&self) -> zbus::Result<bool>;

    /// Ways for bytes over it, best first.
    #[zbus(property)]
    fn paths(&self) -> zbus::Result<Vec<Dict>>;

    /// What else is worth knowing.
    #[zbus(property)]
    fn notes(&self) -> zbus::Result<Vec<String>>;
}

/// `org.linkspan.Link1.Peer`.
#[proxy(interface = "org.linkspan.Link1.Peer", default_service = "org.linkspan.Link1", assume_defaults = false)]
pub trait Peer {
    /// UUID of its router.
    #[zbus(property(emits_changed_signal = "const"))]
    fn uuid(&self) -> zbus::Result<String>;

    /// What it calls itself.
    #[zbus(property)]
    fn name(&self) -> zbus::Result<String>;

    /// Its vendor.
    #[zbus(property)]
    fn vendor(&self) -> zbus::Result<String>;

    /// The cables to it.
    #[zbus(property)]
    fn cables(&self) -> zbus::Result<Vec<OwnedObjectPath>>;

    /// State of the driver's link, or empty.
    #[zbus(property)]
    fn driver(&self) -> zbus::Result<String>;

    /// Whether the driver lets it in.
    #[zbus(property)]
    fn allowed(&self) -> zbus::Result<bool>;

    /// Whether it is let in whenever it is plugged in.
    #[zbus(property)]
    fn remembered(&self) -> zbus::Result<bool>;
}
