//! A client that means harm to whatever listens, and the counting of what its victim uses meanwhile. It knows the first message of our
//! login, as everybody does, and a handle only where it is given one.
//!
//! `linkspan-netns node attack KIND PROCESS SECONDS TARGET@SOURCE,SOURCE...` runs it by hand: at every port on which the network namespace
//! of PROCESS listens at TARGET.
#![forbid(unsafe_code)]

mod client;
mod target;
mod usage;

pub use client::{Kind, attack};
pub use target::{Target, listening, offered};
pub use usage::{Usage, Watch};
