//! What a driver did that no driver may do. A test with one of these in its record has failed.

use crate::memory::DmaFault;
use crate::time::Time;

/// A mistake in programming the host interface or the router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// The ring index lies outside the ring.
    #[error("LS0902 {kind} ring {ring}: index {value} written, but the ring has {size} descriptors")]
    Index {
        /// TX or RX.
        kind: &'static str,
        /// Which.
        ring: usize,
        /// The index.
        value: u16,
        /// Descriptors.
        size: u16,
    },
    /// A ring of that size cannot run.
    #[error("LS0903 {kind} ring {ring}: switched on with a size of {size}; the least is 2")]
    Size {
        /// TX or RX.
        kind: &'static str,
        /// Which.
        ring: usize,
        /// Descriptors.
        size: u16,
    },
    /// A write beyond the registers.
    #[error("LS0904 register write at {offset:#x}: BAR 0 ends at 0x40000")]
    Register {
        /// Offset in BAR 0.
        offset: u32,
    },
    /// Not a control packet.
    #[error("LS0905 control packet: {0}")]
    Control(#[from] crate::control::PacketError),
    /// Path entries promise more buffers than the adapter has.
    #[error(
        "LS0906 adapter {adapter}: enabled paths hold {promised} credits, but it has {buffers} buffers; \
         the connection manager must share them out"
    )]
    Credits {
        /// Lane adapter.
        adapter: usize,
        /// Sum of the initial credits of enabled paths.
        promised: u32,
        /// Buffers of the adapter.
        buffers: u32,
    },
    /// A raw ring sends packets, and a packet ends at 256 bytes.
    #[error("LS0907 TX ring {ring}: a packet of {len} bytes on a raw ring; the most is 256")]
    RawLength {
        /// Which ring.
        ring: usize,
        /// Bytes.
        len: usize,
    },
    /// An address that is not mapped.
    #[error(transparent)]
    Dma(#[from] DmaFault),
    /// The buffer of an interface's control packets overflowed because its driver takes none.
    #[error("LS0908 control packets: {0} wait for the driver and it takes none; further ones are lost")]
    ControlBacklog(usize),
}

/// One entry of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// Whose driver.
    pub host: String,
    /// What.
    pub what: Misuse,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", crate::time::display(self.at), self.host, self.what)
    }
}

impl serde::Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
