//! What a link can be: generation, lanes, width, and the time that bytes take on it.

use crate::time::Time;

/// Width of a link as one side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Width {
    /// One lane each way.
    #[default]
    Single,
    /// Two lanes each way, bonded.
    Dual,
    /// Three lanes out, one in.
    AsymTx,
    /// One lane out, three in.
    AsymRx,
}

impl Width {
    /// As the other side sees the same link.
    pub fn mirrored(self) -> Width {
        match self {
            Width::AsymTx => Width::AsymRx,
            Width::AsymRx => Width::AsymTx,
            same => same,
        }
    }

    /// Code in lane status, bits 25:20: 1 single, 2 dual, 4 asymmetric transmit, 8 asymmetric receive.
    pub fn code(self) -> u32 {
        match self {
            Width::Single => 1,
            Width::Dual => 2,
            Width::AsymTx => 4,
            Width::AsymRx => 8,
        }
    }

    /// Lanes that this side sends on.
    pub fn tx_lanes(self) -> u64 {
        match self {
            Width::Single | Width::AsymRx => 1,
            Width::Dual => 2,
            Width::AsymTx => 3,
        }
    }

    /// Reads the name that [`Width::name`] gives.
    pub fn parse(text: &str) -> Option<Width> {
        [Width::Single, Width::Dual, Width::AsymTx, Width::AsymRx].into_iter().find(|w| w.name() == text)
    }

    /// `single`, `dual`, `asym-tx` or `asym-rx`.
    pub fn name(self) -> &'static str {
        match self {
            Width::Single => "single",
            Width::Dual => "dual",
            Width::AsymTx => "asym-tx",
            Width::AsymRx => "asym-rx",
        }
    }
}

/// A link that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// 2 to 4.
    pub generation: u8,
    /// As the first end sees it.
    pub width: Width,
}

/// Speed of one lane in Gb/s: generation 2 has 10, 3 has 20, 4 has 40.
pub fn lane_gbps(generation: u8) -> u64 {
    match generation {
        2 => 10,
        3 => 20,
        _ => 40,
    }
}

/// Bytes of the header and check that go before each packet on the wire.
const PACKET_HEADER: u64 = 4;

/// Nanoseconds that a packet of `len` payload bytes keeps a direction of the link busy. What is left of a nanosecond is
/// kept in `carry`, in bits, for the next packet.
///
/// Line coding is not counted: this is a model in which one direction is faster than another by the right ratio,
/// not a measure of hardware.
pub fn wire_time(generation: u8, tx_lanes: u64, len: usize, carry: &mut u64) -> Time {
    let bits = (len as u64 + PACKET_HEADER) * 8 + *carry;
    let rate = lane_gbps(generation) * tx_lanes;
    *carry = bits % rate;
    bits / rate
}
