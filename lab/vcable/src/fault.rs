//! Faults on command: the language of scripts and of the control socket.
//!
//! ```text
//! unplug CABLE | replug CABLE
//! retrain CABLE [lanes=1|2] [gen=2|3|4]         # down and up again, with no more than that until it is retrained
//! width CABLE single|dual|asym-tx|asym-rx        # as the first end sees it
//! speed CABLE 2|3|4
//! drop|corrupt|duplicate CLASS [from=HOST] [to=HOST] [nth=N] [count=N] [p=0.1] [type=NAME] [hop=N]
//! delay CLASS by=50ms ...                        # CLASS: reply, event, xdomain, control (any of these), frame
//! reorder CLASS [by=20ms] ...                    # behind the next one; alone, when none follows for that time
//! lose-irq HOST [vector=N] [nth=N] [count=N]
//! stall HOST ring=N [for=100ms] | resume HOST ring=N     # a software peer: hop=N
//! silent HOST | talk HOST
//! refuse HOST hop=N                              # its router takes no path that comes in by this HopID of a cable
//! ignore-credits on|off                          # a planted bug: tests must fail under it
//! clear                                          # forget all faults
//! peer HOST WORDS...                             # for the software peer
//! ```
//!
//! A line may begin with `at TIME` or `frame CABLE N` (when that many frames have begun on the cable), counted from when
//! the line is given: a script's from the start.
//! Faults of class frame can be dropped, corrupted or duplicated.

mod parse;

pub use parse::Names;
pub(crate) use parse::timed;

use crate::link::Width;
use crate::time::Time;

/// What a packet is, as far as faults are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketClass {
    /// Reply of the router.
    Reply,
    /// Hot plug event.
    Event,
    /// Message of the other host.
    Xdomain,
    /// Any of the three.
    Control,
    /// Data.
    Frame,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Lost.
    Drop,
    /// One bit flipped.
    Corrupt,
    /// Twice.
    Duplicate,
    /// Later.
    Delay(Time),
    /// Behind the next one, or after this time when none follows.
    Reorder(Time),
}

/// Which packets, and how many of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Class.
    pub class: PacketClass,
    /// What happens.
    pub damage: Damage,
    /// Only from this host.
    pub from: Option<usize>,
    /// Only to this host.
    pub to: Option<usize>,
    /// Only XDomain messages of this discovery type.
    pub kind: Option<u32>,
    /// Only frames on this HopID.
    pub hop: Option<u16>,
    /// So many go by unharmed first.
    pub skip: u64,
    /// So many are hit.
    pub left: u64,
    /// Each with this probability.
    pub chance: f64,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Pull a cable or put it in.
    Plug {
        /// Cable.
        cable: usize,
        /// In.
        plugged: bool,
    },
    /// Down and up again, from now on with no more than this.
    Retrain {
        /// Cable.
        cable: usize,
        /// The second lane does not come up: no bonding.
        one_lane: bool,
        /// Highest link generation.
        generation: u8,
    },
    /// Width as the first end sees it.
    Width {
        /// Cable.
        cable: usize,
        /// Width.
        width: Width,
    },
    /// Link generation.
    Speed {
        /// Cable.
        cable: usize,
        /// 2 to 4.
        generation: u8,
    },
    /// A rule for packets.
    Rule(Rule),
    /// Interrupts that get lost.
    LoseInterrupt {
        /// Host.
        host: usize,
        /// Only this vector.
        vector: Option<u8>,
        /// So many arrive first.
        skip: u64,
        /// So many are lost.
        left: u64,
    },
    /// A receive ring, or a HopID of a software peer, takes nothing.
    Stall {
        /// Host.
        host: usize,
        /// Ring or HopID.
        at: u16,
        /// On or off.
        on: bool,
        /// Ends by itself after this time.
        time: Option<Time>,
    },
    /// Messages of a host get lost.
    Silent {
        /// Host.
        host: usize,
        /// On or off.
        on: bool,
    },
    /// The router of a guest takes no path that comes in by this HopID of a cable.
    Refuse {
        /// Host.
        host: usize,
        /// HopID.
        hop: u16,
    },
    /// Senders ignore credits.
    IgnoreCredits(bool),
    /// No more faults.
    Clear,
    /// Words for a software peer.
    Peer {
        /// Host.
        host: usize,
        /// Words.
        words: Vec<String>,
    },
}

/// When a command takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a time.
    At(Time),
    /// When so many frames have begun on a cable.
    Frame {
        /// Cable.
        cable: usize,
        /// Count.
        count: u64,
    },
}

/// Commands with their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script(pub Vec<(When, Command)>);

#[cfg(test)]
mod tests;
