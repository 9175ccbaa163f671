//! What can go wrong while a stream is set up.

use std::io;
use std::net::SocketAddr;

/// A stream could not be made. A rail's own end is [`linkspan_transport::Down`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No socket.
    #[error("LS0301 cannot open a TCP socket for {addr}; check the limit of open files (ulimit -n)")]
    Open {
        /// For this address.
        addr: SocketAddr,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The local address is refused.
    #[error(
        "LS0302 cannot bind to {addr}; it must be an address of an interface of this machine (`ip address`) with the port free"
    )]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// Nothing left to accept with.
    #[error(
        "LS0312 connections to {addr} wait: this process or host has no descriptor or memory left for them; look at the limit of open files (ulimit -n)"
    )]
    Shortage {
        /// The listener's address.
        addr: SocketAddr,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// An address that means every interface.
    #[error(
        "LS0303 {addr} means every interface; linkspan listens on chosen addresses only, so name one of an interface"
    )]
    Unspecified {
        /// The address.
        addr: SocketAddr,
    },
    /// A socket option is refused.
    #[error("LS0304 the system refuses {option} = {value}; choose another value or leave the option out")]
    Option {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The congestion control is not available.
    #[error(
        "LS0305 congestion control {name:?} cannot be used; net.ipv4.tcp_available_congestion_control lists what this kernel has, and without CAP_NET_ADMIN only net.ipv4.tcp_allowed_congestion_control may be chosen"
    )]
    Congestion {
        /// Its name.
        name: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// No listener there, or no route.
    #[error(
        "LS0306 cannot connect {from} to {remote}; check that the peer listens there and that no firewall is between"
    )]
    Connect {
        /// Local address or `any address`.
        from: String,
        /// The peer's.
        remote: SocketAddr,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// No answer in time.
    #[error(
        "LS0307 connecting {from} to {remote} got no answer within {ms} ms; the host is down, not on this network, or a firewall drops the packets"
    )]
    Timeout {
        /// Local address or `any address`.
        from: String,
        /// The peer's.
        remote: SocketAddr,
        /// The limit that passed, milliseconds.
        ms: u128,
    },
    /// TCP connected a socket to itself: there is no listener on that ephemeral port.
    #[error("LS0308 {remote} has no listener: the connection reached itself; the peer has ended or never listened")]
    Itself {
        /// The address.
        remote: SocketAddr,
    },
    /// The listener is broken.
    #[error("LS0309 cannot {call} on {addr}")]
    Listen {
        /// `listen` or `accept`.
        call: &'static str,
        /// The listener.
        addr: SocketAddr,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// A connected stream answered a question about itself with an error.
    #[error("LS0310 the new stream to {peer} ended before it could be used")]
    Stillborn {
        /// The peer, where known.
        peer: String,
        /// The OS error.
        #[source]
        source: io::Error,
    },
}
