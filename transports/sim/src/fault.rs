//! What can go wrong with a link.

use crate::link::End;

/// A fault; times are virtual nanoseconds from the moment it is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link carries nothing more. Each end learns it after its own delay, or never.
    Cut {
        /// When the end [`End::A`] sees the rail down.
        a: Option<u64>,
        /// When the end [`End::B`] does.
        b: Option<u64>,
    },
    /// Nothing more is delivered to `to` after so many bytes, until the time is over (`None`: until
    /// [`crate::World::release`]). A byte count inside a chunk leaves it half landed.
    Stall {
        /// The end that receives nothing.
        to: End,
        /// Bytes still delivered.
        after: u64,
        /// How long.
        time: Option<u64>,
    },
    /// One bit of a frame header on its way to `to` is wrong, so that it is none any more.
    Corrupt {
        /// The end that gets it.
        to: End,
        /// Frames that come through unharmed before it.
        after: u64,
    },
    /// The rail at this end takes nothing from its caller.
    Storm {
        /// The end.
        at: End,
        /// How long.
        time: u64,
    },
    /// The process at this end dies: what it has not put on the link is lost, the other end sees the link closed
    /// after a delay.
    Crash {
        /// The end.
        at: End,
        /// When the other end sees it.
        seen: u64,
    },
    /// Bytes on their way in both directions come later by this much, and so do all after them.
    Delay {
        /// How much.
        time: u64,
    },
}

impl Fault {
    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Cut { a: Some(_), b: Some(_) } => "cut",
            Fault::Cut { .. } => "cut, one end never sees it",
            Fault::Stall { time: Some(_), .. } => "stall",
            Fault::Stall { time: None, .. } => "stall permanently",
            Fault::Corrupt { .. } => "corrupt head",
            Fault::Storm { .. } => "busy storm",
            Fault::Crash { .. } => "peer crash",
            Fault::Delay { .. } => "delay",
        }
    }
}
