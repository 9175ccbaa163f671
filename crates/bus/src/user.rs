//! `org.linkspan.User1`: what a user's service does with peers, for programs of that user.
#![allow(
    clippy::result_large_err,
    reason = "an error of the user's library names its peer, path and why; calls are few"
)]

mod call;
mod error;
mod files;
mod keys;
mod manager;
mod measure;
mod proxy;
mod server;
mod shares;
mod task;

pub use error::UserError;
pub use proxy::{FilesProxy, KeysProxy, ManagerProxy, ProgressChanged, SharesProxy, TaskEnded, TaskProxy, TestsProxy};
pub use server::{User, UserServer};
#[cfg(test)]
pub(crate) use {
    call::Calls, files::Files, keys::Keys, manager::Manager, measure::Tests, shares::Shares, task::TaskObject,
};

/// The name on the session bus.
pub const NAME: &str = "org.linkspan.User1";

/// The object with the interfaces `Manager`, `Tests`, `Files`, `Keys`, `Shares` and the object manager; tasks are below it.
pub const PATH: &str = "/org/linkspan/User1";
