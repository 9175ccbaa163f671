//! Why a rail does not come up.

use linkspan_verbs_sys::LinkLayer;

/// What can fail before a rail is up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device.
    #[error(transparent)]
    Nic(#[from] linkspan_verbs_sys::Error),
    /// The port carries nothing.
    #[error("LS1211 port {port} of {device} is not active: check the cable, then `ip link` and `rdma link`")]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// No usable address.
    #[error(
        "LS1212 {device} port {port} has no GID to use ({seen}): give its network interface an IPv4 address, or name an entry of the table"
    )]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// What the table has.
        seen: String,
    },
    /// The entry that was asked for is not there.
    #[error("LS1213 GID index {index} of {device} port {port} is empty or link-local; {seen}")]
    BadGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The index.
        index: u8,
        /// What the table has.
        seen: String,
    },
    /// The peer's offer is no offer.
    #[error("LS1214 the peer's queue pair offer is not valid: {0}")]
    BadOffer(String),
    /// InfiniBand here and Ethernet there, or the other way round.
    #[error("LS1215 this side is on {ours:?}, the peer on {theirs:?}: they are not on one cable")]
    OtherLink {
        /// Here.
        ours: LinkLayer,
        /// There.
        theirs: LinkLayer,
    },
    /// The handshake did not end in time.
    #[error(
        "LS1216 the RDMA handshake over {path} did not end in {ms} ms: the peer sent {got} of its messages; check that both ends have the address, MTU and cable they claim"
    )]
    Deadline {
        /// The path.
        path: String,
        /// The time it had.
        ms: u128,
        /// 0 to 3.
        got: u8,
    },
    /// The queue pairs are up and no packet passes.
    #[error(
        "LS1218 no RDMA packet passes over {path}: {why}; check that UDP port 4791 is open both ways (RoCE v2), that both ends use RoCE v2 GIDs of one subnet, and that the MTU fits the cable"
    )]
    NothingPasses {
        /// The path.
        path: String,
        /// The device's error.
        why: String,
    },
    /// No randomness.
    #[error("LS1217 the system gives no random numbers: {0}")]
    Random(String),
}
