//! What is wrong with this machine and its cables: a list of coded findings, each with what it costs and the commands that mend
//! it for the network manager that runs here. Nothing is changed: mends are printed, not done.
//!
//! [`Snapshot`] reads the machine below roots that tests replace; [`judge`] turns it into a [`Report`] without looking at
//! anything else; [`ask`] sends packets to a peer; [`End`] is what one host tells of itself in a file, and [`together`] judges the
//! files of several. All types are plain data and may be used from any thread.
#![forbid(unsafe_code)]

mod end;
mod finding;
mod job;
mod judge;
mod list;
mod loader;
mod manager;
mod module;
mod nft;
mod older;
mod package;
mod pair;
mod probe;
mod program;
mod routes;
mod shell;
mod snapshot;
mod speed;

pub use end::{BadEnd, END_MAX, End};
pub use finding::{Finding, Rule, Severity, Step, exit_code};
pub use job::{Setting, costs, fatal, plugin_below, settings};
pub use judge::{Report, judge, takes_linkspan};
pub use list::{ALL, MESH};
pub use older::names as older_names;
pub use pair::together;
pub use probe::{Asked, Heard, ask, best, listen};
pub use program::bounded;
pub use snapshot::{Closed, Snapshot, Sources};
pub use speed::{Kept, Measured, RECORD, shut, speeds, stalled};

#[cfg(test)]
mod tests;
