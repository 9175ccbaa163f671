//! What the window and the tray show, and which button works: a [`Model`] that is fed with what the services say ([`live`]) and gives
//! [`Pages`] of plain rows. No toolkit, no thread, no clock of its own.
//!
//! Whatever comes from a bus, a peer or a program is taken for what a stranger says: it is bounded, becomes one line of plain text
//! ([`text::shown`]), and what is not understood is counted and said.
#![forbid(unsafe_code)]

mod events;
mod findings;
mod jobs;
mod links;
pub mod live;
mod model;
mod row;
pub mod text;
pub mod user;

pub use findings::doctor;
pub use links::Objects;
pub use model::{Input, Model, Notice, Summary};
pub use row::{Action, Button, Choice, Empty, Field, Group, Kind, Mood, Page, Pages, Pick, Plot, Row};

#[cfg(test)]
mod tests;
