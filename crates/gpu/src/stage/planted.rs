//! Bugs put in on purpose, to see that the tests catch them. Compiled in with the feature `planted` only.

/// A bug of the staging.
#[cfg_attr(not(feature = "planted"), allow(dead_code, unreachable_pub, reason = "named where it would be planted"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A chunk is handed to the rail before its copy from the device is done.
    SentEarly,
    /// A chunk counts as landed before its copy to the device is done.
    LandedEarly,
    /// A pinned buffer is used again before its copy to the device is done.
    ReusedEarly,
    /// The rail is dropped while copies to the device run.
    DropWithoutWaiting,
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
pub(super) fn is(bug: Bug) -> bool {
    PLANTED.with(|p| p.get() == Some(bug))
}

#[cfg(not(feature = "planted"))]
pub(super) const fn is(_bug: Bug) -> bool {
    false
}
