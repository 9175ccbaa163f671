//! The interfaces as clients see them. What each does is said where the service has it.

use std::collections::HashMap;

use zbus::proxy;
use zbus::zvariant::OwnedObjectPath;

use super::UserError;
use crate::Dict;

/// `org.linkspan.User1.Manager`.
#[proxy(
    interface = "org.linkspan.User1.Manager",
    default_service = "org.linkspan.User1",
    default_path = "/org/linkspan/User1",
    gen_blocking = false
)]
pub trait Manager {
    /// Version of the service.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> zbus::Result<String>;

    /// Records of tasks that have ended, newest first; 0: all.
    fn get_history(&self, most: u32) -> Result<Vec<Dict>, UserError>;

    /// How far tasks are, as it changes.
    fn watch(&self, interval_ms: u32) -> Result<(), UserError>;

    /// Ends that.
    fn unwatch(&self) -> Result<bool, UserError>;

    /// To a client that watches.
    #[zbus(signal)]
    fn progress_changed(&self, tasks: HashMap<OwnedObjectPath, Dict>) -> zbus::Result<()>;

    /// A task has ended.
    #[zbus(signal)]
    fn task_ended(&self, task: OwnedObjectPath, record: Dict) -> zbus::Result<()>;
}

/// `org.linkspan.User1.Tests`.
#[proxy(
    interface = "org.linkspan.User1.Tests",
    default_service = "org.linkspan.User1",
    default_path = "/org/linkspan/User1",
    gen_blocking = false
)]
pub trait Tests {
    /// Starts a test.
    fn start(&self, test: &str, peer: &str, options: &Dict) -> Result<OwnedObjectPath, UserError>;
}

/// `org.linkspan.User1.Files`.
#[proxy(
    interface = "org.linkspan.User1.Files",
    default_service = "org.linkspan.User1",
    default_path = "/org/linkspan/User1",
    gen_blocking = false
)]
pub trait Files {
    /// Sends files and directories to a place.
    fn send(&self, from: &[String], to: &str, options: &Dict) -> Result<OwnedObjectPath, UserError>;

    /// Gets places into a directory.
    fn get(&self, from: &[String], to: &str, options: &Dict) -> Result<OwnedObjectPath, UserError>;

    /// Makes a directory like another.
    fn mirror(&self, source: &str, destination: &str, options: &Dict) -> Result<OwnedObjectPath, UserError>;

    /// Mounts a place at a directory.
    fn mount(&self, place: &str, directory: &str, options: &Dict) -> Result<OwnedObjectPath, UserError>;

    /// The entries of a directory at a peer, and whether these are all.
    fn list(&self, place: &str) -> Result<(Vec<Dict>, bool), UserError>;

    /// Removes a file at a peer.
    fn remove(&self, place: &str, recursive: bool) -> Result<(), UserError>;
}

/// `org.linkspan.User1.Keys`.
#[proxy(
    interface = "org.linkspan.User1.Keys",
    default_service = "org.linkspan.User1",
    default_path = "/org/linkspan/User1",
    gen_blocking = false
)]
pub trait Keys {
    /// The line by which another user adds this one, and the fingerprint.
    fn show(&self, name: &str) -> Result<(String, String), UserError>;

    /// The trusted peers.
    fn list(&self) -> Result<Vec<Dict>, UserError>;

    /// The list is another one.
    #[zbus(signal)]
    fn peers_changed(&self) -> zbus::Result<()>;

    /// Trusts the peer of a line of Show.
    fn add(&self, line: &str, name: &str, hosts: &[String]) -> Result<String, UserError>;

    /// Trusts a peer no more.
    fn forget(&self, name: &str) -> Result<String, UserError>;

    /// Makes a join line and waits for somebody.
    fn offer(&self, own_name: &str, peer_name: &str) -> Result<(String, u64, OwnedObjectPath), UserError>;

    /// Joins with a line.
    fn join(&self, line: &str, own_name: &str, peer_name: &str) -> Result<OwnedObjectPath, UserError>;
}

/// `org.linkspan.User1.Shares`.
#[proxy(
    interface = "org.linkspan.User1.Shares",
    default_service = "org.linkspan.User1",
    default_path = "/org/linkspan/User1",
    gen_blocking = false
)]
pub trait Shares {
    /// Whether they are served now.
    #[zbus(property)]
    fn serving(&self) -> zbus::Result<bool>;

    /// Where.
    #[zbus(property)]
    fn addresses(&self) -> zbus::Result<Vec<String>>;

    /// Why not, though they should be.
    #[zbus(property)]
    fn error(&self) -> zbus::Result<String>;

    /// All of them.
    fn list(&self) -> Result<Vec<Dict>, UserError>;

    /// The list is another one.
    #[zbus(signal)]
    fn shares_changed(&self) -> zbus::Result<()>;

    /// Lets peers see a directory.
    fn add(&self, name: &str, directory: &str, writable: bool) -> Result<(), UserError>;

    /// Ends that.
    fn remove(&self, name: &str) -> Result<(), UserError>;

    /// Serves them.
    fn serve(&self, options: &Dict) -> Result<(), UserError>;

    /// Serves them no more.
    fn stop(&self) -> Result<bool, UserError>;
}

/// `org.linkspan.User1.Task`.
#[proxy(
    interface = "org.linkspan.User1.Task",
    default_service = "org.linkspan.User1",
    assume_defaults = false,
    gen_blocking = false
)]
pub trait Task {
    /// What it does.
    #[zbus(property(emits_changed_signal = "const"))]
    fn kind(&self) -> zbus::Result<String>;

    /// With whom.
    #[zbus(property(emits_changed_signal = "const"))]
    fn peer(&self) -> zbus::Result<String>;

    /// The other words of what was asked.
    #[zbus(property(emits_changed_signal = "const"))]
    fn arguments(&self) -> zbus::Result<Vec<String>>;

    /// Seconds since 1970.
    #[zbus(property(emits_changed_signal = "const"))]
    fn started(&self) -> zbus::Result<u64>;

    /// Has it end soon.
    fn cancel(&self) -> Result<(), UserError>;

    /// How far it is.
    fn get_progress(&self) -> Result<Dict, UserError>;
}
