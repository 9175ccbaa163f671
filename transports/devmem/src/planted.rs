//! Bugs put in on purpose, to see that the tests catch them. Compiled in with the feature `planted` only.

/// A bug of the transport.
#[cfg_attr(not(feature = "planted"), allow(dead_code, unreachable_pub, reason = "named where it would be planted"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Pages go back before the GPU has read them.
    TokensEarly,
    /// Work on pages begins before what the card has written is there.
    NoFlush,
    /// A chunk is reported before it is in place.
    LandedEarly,
    /// A call's buffer is filled again before the GPU has read it.
    ReusedEarly,
    /// A chunk from device memory is gone although the card still reads it.
    TakenEarly,
    /// A fragment that ends one run and begins another gives its page back with the first.
    SplitToken,
    /// A page that NCCL's kernel has to read goes back at once.
    KeptEarly,
    /// Bytes that were copied to the host come to their place before earlier ones that the GPU still brings.
    HostAhead,
    /// A page that a run and NCCL's kernel read goes back with the run.
    SharedEarly,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread.
#[cfg(feature = "planted")]
#[allow(unreachable_pub, reason = "exported by the crate root where the feature is on")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|p| p.set(bug));
}

#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.with(|p| p.get() == Some(bug))
}

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
