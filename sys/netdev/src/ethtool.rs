//! The family `ethtool`: rings with their header split, and channels.

use crate::message::Attrs;
use crate::socket::{Error, Socket, request};

const FAMILY: &str = "ethtool";

/// `ETHTOOL_MSG_RINGS_GET`, `ETHTOOL_MSG_RINGS_SET`, `ETHTOOL_MSG_CHANNELS_GET`.
const RINGS_GET: u8 = 15;
const RINGS_SET: u8 = 16;
const CHANNELS_GET: u8 = 17;

/// The head of every request (attribute 1), and the interface's number in it.
const HEADER: u16 = 1;
const HEADER_INDEX: u16 = 1;

/// `ETHTOOL_A_RINGS_*`.
const RX: u16 = 6;
const TCP_DATA_SPLIT: u16 = 11;
const HDS_THRESH: u16 = 17;

/// `ETHTOOL_A_CHANNELS_*`.
const RX_COUNT: u16 = 6;
const COMBINED_COUNT: u16 = 9;

/// Whether a card puts headers and payload in buffers of their own (`tcp-data-split`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderSplit {
    /// The driver does not say, and so has none.
    Unknown,
    /// Off, but there.
    Off,
    /// On.
    On,
}

/// Rings of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Buffers of each receive queue.
    pub receive: Option<u32>,
    /// Header split.
    pub split: HeaderSplit,
    /// Packets with less payload are not split, bytes (Linux 6.14; must be 0 for device memory).
    pub threshold: Option<u32>,
}

/// Channels of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues in use.
    pub receive: u32,
}

/// Reads the rings.
///
/// # Errors
/// [`Error::Refused`], with `EOPNOTSUPP` where the driver shows none; [`Error::System`], [`Error::NoFamily`],
/// [`Error::Message`], [`Error::Missing`].
pub fn rings(socket: &mut Socket, interface: u32) -> Result<Rings, Error> {
    let mut found = None;
    get(socket, interface, RINGS_GET, "the rings of an interface", |attrs| {
        let split = match attrs.u8(TCP_DATA_SPLIT)? {
            Some(2) => HeaderSplit::On,
            Some(1) => HeaderSplit::Off,
            _ => HeaderSplit::Unknown,
        };
        found = Some(Rings { receive: attrs.u32(RX)?, split, threshold: attrs.u32(HDS_THRESH)? });
        Ok(())
    })?;
    found.ok_or(Error::Missing { what: "the rings of an interface", field: "rings" })
}

/// Reads the channels.
///
/// # Errors
/// [`Error::Refused`], with `EOPNOTSUPP` where the driver shows none; [`Error::System`], [`Error::NoFamily`],
/// [`Error::Message`].
pub fn channels(socket: &mut Socket, interface: u32) -> Result<Channels, Error> {
    let mut receive = 0;
    get(socket, interface, CHANNELS_GET, "the channels of an interface", |attrs| {
        receive = attrs.u32(RX_COUNT)?.unwrap_or(0) + attrs.u32(COMBINED_COUNT)?.unwrap_or(0);
        Ok(())
    })?;
    Ok(Channels { receive })
}

/// Switches header split on with a threshold of 0, or back. Needs CAP_NET_ADMIN; the card restarts its rings.
///
/// # Errors
/// [`Error::Refused`], with `EPERM` without CAP_NET_ADMIN and `EOPNOTSUPP` or `EINVAL` where the driver cannot;
/// [`Error::System`], [`Error::NoFamily`], [`Error::Message`].
pub fn split_headers(socket: &mut Socket, interface: u32, on: bool, threshold: Option<u32>) -> Result<(), Error> {
    let family = socket.family(FAMILY)?;
    let mut ask = request(family, RINGS_SET)
        .nest(HEADER, |h| h.u32(HEADER_INDEX, interface))
        .u8(TCP_DATA_SPLIT, if on { 2 } else { 1 });
    if let Some(bytes) = threshold {
        ask = ask.u32(HDS_THRESH, bytes);
    }
    socket.ask("setting the header split of an interface", ask, |_| Ok(()))
}

fn get(
    socket: &mut Socket,
    interface: u32,
    command: u8,
    what: &'static str,
    each: impl FnMut(Attrs<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let family = socket.family(FAMILY)?;
    let ask = request(family, command).nest(HEADER, |h| h.u32(HEADER_INDEX, interface));
    socket.ask(what, ask, each)
}
