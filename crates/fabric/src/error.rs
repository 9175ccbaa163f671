//! What can go wrong above the transports.

use std::net::SocketAddr;

use linkspan_proto::handle::HandleError;
use linkspan_proto::login::{LoginError, PskError};
use linkspan_topology::BadFilter;

use crate::params::BadParam;

/// Why a fabric, a listener or a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter has a value it does not take.
    #[error(transparent)]
    Param(#[from] BadParam),
    /// A list of interface names that cannot be read.
    #[error(transparent)]
    Filter(#[from] BadFilter),
    /// The key file cannot be read.
    #[error("LS0502 LINKSPAN_PSK_FILE={path} cannot be read")]
    PskRead {
        /// The file.
        path: String,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// The key file is not fit for use.
    #[error("LS0503 LINKSPAN_PSK_FILE={path} is not usable")]
    Psk {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: PskError,
    },
    /// The interfaces of this machine cannot be listed.
    #[error("LS0504 the network interfaces of this machine cannot be listed")]
    Interfaces(#[source] std::io::Error),
    /// Nothing to listen on.
    #[error("LS0505 no usable network interface: {reasons}; `lspan doctor` says what to do")]
    NoInterface {
        /// Each interface with its reason.
        reasons: String,
    },
    /// There is no such device.
    #[error("LS0506 device {index} does not exist, there are {count}")]
    NoDevice {
        /// Asked for.
        index: usize,
        /// Present.
        count: usize,
    },
    /// A handle that cannot be used.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// The TCP transport refused.
    #[error(transparent)]
    Tcp(#[from] linkspan_stream::Error),
    /// Randomness failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// No address of the peer could be reached.
    #[error("LS0507 no connection to the peer, tried {tried}")]
    Unreachable {
        /// Each try with its reason.
        tried: String,
    },
    /// The time was up.
    #[error("LS0508 no connection after {ms} ms (LINKSPAN_CONNECT_TIMEOUT_MS), tried {tried}")]
    Timeout {
        /// Milliseconds allowed.
        ms: u128,
        /// Each try with its state.
        tried: String,
    },
    /// A slower path than the machine could give, while downgrades are forbidden.
    #[error("LS0509 LINKSPAN_STRICT=1 forbids this downgrade: {what}")]
    Strict {
        /// What was lost and why.
        what: String,
    },
    /// The peer proposed what cannot be.
    #[error("LS0510 the peer at {peer} proposed an impossible connection: {why}")]
    Plan {
        /// Its address.
        peer: SocketAddr,
        /// What is wrong.
        why: String,
    },
    /// Forced path that cannot be taken.
    #[error("LS0511 LINKSPAN_PATH={path} cannot be used: {why}")]
    Forced {
        /// The forced path.
        path: String,
        /// Why not.
        why: String,
    },
    /// A stream without ciphers while encryption is demanded.
    #[error(
        "LS0513 LINKSPAN_PSK_MODE=encrypt forbids this connection: bytes to {peer} would be sent unencrypted; both hosts need an unmodified linkspan"
    )]
    Clear {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The peer has taken our offer of shared memory, and this side cannot.
    #[error("LS0519 the shared memory that the peer on this host has been offered cannot be set up here: {why}")]
    Shm {
        /// Why not.
        why: String,
    },
    /// An answer to our plan that is not valid.
    #[error("LS0514 the answer of the peer at {peer} to the plan of the connection is not valid: {why}")]
    Answer {
        /// The peer's address.
        peer: SocketAddr,
        /// What is wrong.
        why: String,
    },
    /// The mesh cannot be joined.
    #[error(transparent)]
    Mesh(#[from] linkspan_mesh::Error),
    /// The peer closed its streams while the connection was being made.
    #[error("LS0512 the peer at {peer} went away before the connection was up")]
    Vanished {
        /// Its address.
        peer: SocketAddr,
    },
    /// The peer, or this side, refuses the other's key or version.
    #[error("LS0516 no connection to the peer at {peer}, and none is possible as the two are configured")]
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// Why.
        #[source]
        why: LoginError,
    },
    /// A setting that its transport does not take.
    #[error("LS0518 the settings of {transport} cannot be used; see `lspan env`")]
    Setting {
        /// The transport.
        transport: &'static str,
        /// Which, and what it takes.
        #[source]
        why: linkspan_transport::Refusal,
    },
    /// The two streams of device-memory TCP do not make a rail.
    #[error("LS0515 device-memory TCP to {peer} cannot be set up")]
    Devmem {
        /// Whom.
        peer: SocketAddr,
        /// Why.
        #[source]
        why: linkspan_devmem::Error,
    },
}
