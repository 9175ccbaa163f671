//! Bugs to be switched on by tests, so that the conformance suite can prove that it would catch them. Without the
//! feature `planted` every question below is answered `false` at compile time.

/// A bug of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted"), allow(unreachable_pub))]
pub enum Bug {
    /// What the peer acknowledges is never told.
    LostAcknowledgement,
    /// Region keys of an older registration are taken for the new one's.
    StaleGeneration,
    /// A notification overtakes the bytes it is about.
    EarlyNotify,
    /// Control messages that were lost with their rail are not sent again.
    NoReplay,
    /// A receive is granted twice.
    DoubleGrant,
    /// Credit of early messages is not given back.
    CreditLeak,
    /// A receive reports the size it was posted with.
    WrongSize,
    /// A group reports when its first part is there.
    TornGroup,
    /// An eager message is given to the receive of another tag.
    SwappedTags,
    /// Chunks of a lost rail are sent again before the receiver has revoked it.
    NoRevocation,
    /// A receive reports when its last chunk has a place, before the bytes are there.
    EarlyCompletion,
    /// Chunks of a lost rail are not sent again.
    LostChunks,
    /// A chunk that was half landed counts as landed.
    TornChunk,
    /// A send reports before its bytes were taken.
    EarlySendDone,
    /// Bytes of a message longer than its receive are cut off without an error.
    SilentTruncation,
}

#[cfg(feature = "planted")]
mod on {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug in every connection of this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        BUG.set(bug);
    }

    pub(in crate::conn) fn is(bug: Bug) -> bool {
        BUG.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(super) use on::is;
#[cfg(feature = "planted")]
pub use on::plant;

#[cfg(not(feature = "planted"))]
pub(super) const fn is(_: Bug) -> bool {
    false
}
