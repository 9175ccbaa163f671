//! What can go wrong while a stream is made a rail.

/// A stream could not be made a rail. A rail's own end is [`linkspan_transport::Down`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More bytes read ahead than a rail takes.
    #[error("LS0311 {len} bytes were read ahead of the rail, the limit is {max}; read no more than the login needs")]
    ReadAhead {
        /// Bytes handed over.
        len: usize,
        /// Most that fit.
        max: usize,
    },
}
