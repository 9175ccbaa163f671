//! What happened, in order: control packets, frames, events.

mod pcap;
mod read;
pub mod text;

pub use pcap::{LINK_TYPE, Pcap, Switch};
pub use read::{Entry, Trace};

use crate::time::Time;

/// Direction of a control packet as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the driver.
    Out,
    /// To the driver.
    In,
}

/// What one record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A control packet with its CRC.
    Control {
        /// Which way.
        direction: Direction,
        /// Kind of packet.
        pdf: u8,
        /// As in guest memory.
        bytes: &'a [u8],
    },
    /// A frame that was sent into a cable, or one that was delivered.
    Frame {
        /// Which way.
        direction: Direction,
        /// HopID on the cable.
        hop: u16,
        /// Ring of the host, 0 for a software peer.
        ring: u16,
        /// Kind of start.
        sof: u8,
        /// Kind of end.
        eof: u8,
        /// The payload was damaged.
        damaged: bool,
        /// Payload.
        bytes: &'a [u8],
    },
    /// Anything else: links, resets, faults, interrupts.
    Event(&'a str),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When.
    pub at: Time,
    /// Index of the host that it is about; the number of hosts stands for the world.
    pub host: usize,
    /// What.
    pub what: What<'a>,
}

/// Where records go. A sink must not block: it runs in the guest's register accesses.
pub trait Sink: Send {
    /// Hands on what is still buffered.
    fn flush(&mut self) {}

    /// Takes a record.
    fn record(&mut self, record: &Record<'_>);
}
