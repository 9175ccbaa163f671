//! Where a stream's messages go: straight to a [`Sink`], or on to another thread, which may have to be waited for.

use linkspan_proto::Head;
use linkspan_transport::{MemSlice, Sink, Violation};

/// The answer to a chunk's head.
pub(crate) enum Placement {
    /// Its bytes go there.
    At(MemSlice),
    /// They are no longer wanted.
    Nowhere,
    /// Not known yet: ask again with the same head.
    Later,
}

/// See [`Sink`]; this one may say "not yet", after which nothing is read until it takes more.
pub(crate) trait AsyncSink {
    /// Whether it takes the next message.
    fn open(&mut self) -> bool;

    /// Whether it has said "not yet" since it was asked last.
    fn held(&mut self) -> bool;

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation>;

    fn place(&mut self, head: &Head) -> Result<Placement, Violation>;

    fn landed(&mut self, head: &Head) -> Result<(), Violation>;
}

/// The engine itself always has an answer: none of the questions above costs anything there.
impl AsyncSink for dyn Sink + '_ {
    fn open(&mut self) -> bool {
        true
    }

    fn held(&mut self) -> bool {
        false
    }

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        Sink::ctrl(self, head, payload)
    }

    fn place(&mut self, head: &Head) -> Result<Placement, Violation> {
        Ok(Sink::place(self, head)?.map_or(Placement::Nowhere, Placement::At))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        Sink::landed(self, head)
    }
}
