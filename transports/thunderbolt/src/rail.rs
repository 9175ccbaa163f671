//! A rail over a cable, at either tier.

use linkspan_transport::{Down, Rail};

use crate::setup::NONCE_LEN;

/// The transport.
pub(crate) const NAME: &str = "thunderbolt";

/// What is told of a rail: its path, why it was taken, its speed, and the plug that the cable is in ([`crate::Cable::link`]).
pub(crate) struct About {
    pub(crate) path: String,
    pub(crate) reason: String,
    pub(crate) speed: u64,
    pub(crate) plug: String,
}

/// A rail over a cable, whose first bytes each way show who is at its ends.
pub(crate) trait CableRail: Rail + Send {
    /// Sends the first bytes.
    fn hello(&mut self, nonce: &[u8; NONCE_LEN]) -> Result<(), Down>;

    /// The peer's first bytes, once they have come.
    fn heard(&mut self) -> Result<Option<[u8; NONCE_LEN]>, Down>;

    /// The handshake is over. Dropping a rail before that waits for nothing: its first bytes may never leave.
    fn joined(&mut self);
}
