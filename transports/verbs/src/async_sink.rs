//! Where a rail's messages go: straight to a [`Sink`], or on to another rail, which may have to be waited for.

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

/// See [`Sink`]; this one may say "not yet".
pub(crate) trait AsyncSink {
    /// Control messages that it holds back: so many receives are not posted again, so the peer sends no more than fit.
    fn held(&self) -> usize;

    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation>;

    fn place(&mut self, head: &Head) -> Result<Placement, Violation>;

    fn landed(&mut self, head: &Head) -> Result<(), Violation>;
}

/// The engine itself always has an answer.
impl AsyncSink for dyn Sink + '_ {
    fn held(&self) -> usize {
        0
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
