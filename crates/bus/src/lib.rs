//! linkspan on D-Bus: the interfaces of the system service `org.linkspan.Link1` ([`Server`]), and proxies for its clients
//! ([`ManagerProxy`], [`CableProxy`], [`PeerProxy`], and [`client`] for programs that block); and those of the user's service
//! `org.linkspan.User1` ([`user`]).
//!
//! The XML of each interface lies in `xml/`; a test compares it with what the service shows. What is there stays: arguments, properties and
//! keys of dictionaries are added, and whatever would break a client is called `Link2`.
#![forbid(unsafe_code)]

mod cable;
pub mod client;
mod dict;
mod error;
mod manager;
mod numbers;
mod peer;
mod places;
mod polkit;
mod proxy;
mod server;
mod socket;
pub mod user;
mod watches;

pub use dict::{Dict, from_dict, more_after, to_dict};
pub use error::Error;
pub use numbers::PROCESSES;
pub use proxy::{
    CableProxy, CableProxyBlocking, ManagerProxy, ManagerProxyBlocking, PeerProxy, PeerProxyBlocking, StatisticsChanged,
};
pub use server::Server;
pub use socket::system_bus;
pub use zbus;

/// The name on the system bus.
pub const NAME: &str = "org.linkspan.Link1";

/// The object with the interface `org.linkspan.Link1.Manager` and the object manager; cables and peers are below it.
pub const PATH: &str = "/org/linkspan/Link1";

/// What polkit is asked for, as `org.linkspan.policy` lists it.
pub mod actions {
    /// Letting a host in.
    pub const ALLOW: &str = "org.linkspan.link.allow";
    /// Shutting a host out.
    pub const FORGET: &str = "org.linkspan.link.forget";
    /// Setting streams up.
    pub const CONFIGURE: &str = "org.linkspan.link.configure";
    /// Statistics of other users' jobs.
    pub const READ_ALL: &str = "org.linkspan.statistics.read-all";
    /// Lending queues of network cards.
    pub const DEVMEM: &str = "org.linkspan.devmem.configure";
    /// All of them.
    pub const ALL: [&str; 5] = [ALLOW, FORGET, CONFIGURE, READ_ALL, DEVMEM];
}

/// The path of an object below another: letters and digits as they are, everything else as `_` and two hexadecimal digits, as
/// systemd escapes them.
fn object_path(kind: &str, name: &str) -> zbus::zvariant::OwnedObjectPath {
    let escaped = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    let name: String = if name.is_empty() { "_".into() } else { name.bytes().map(escaped).collect() };
    let path = format!("{PATH}/{kind}/{name}");
    zbus::zvariant::ObjectPath::from_string_unchecked(path).into()
}

#[cfg(test)]
mod tests;
