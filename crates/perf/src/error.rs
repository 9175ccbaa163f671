//! What can go wrong in a test.

use std::time::Duration;

use crate::link::LinkError;
use crate::wire::BadMessage;

/// Why a test did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The link ended.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The peer sent something that is not of the control protocol.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// The peer refuses the test.
    #[error("LS0704 the peer refuses the test: {0}")]
    Refused(String),
    /// The time for the whole test ran out.
    #[error(
        "LS0705 the test did not end within {0:?}; the peer is silent or the link too slow: raise --timeout or lower --size, --iters, --duration or --warmup"
    )]
    Timeout(Duration),
    /// A message of another length than agreed.
    #[error("LS0706 a message of {got} bytes came where {want} were agreed")]
    Length {
        /// Bytes that came.
        got: usize,
        /// Bytes agreed.
        want: usize,
    },
    /// A baseline could not be measured.
    #[error("LS0707 the baseline failed: {what}")]
    Baseline {
        /// What was done.
        what: &'static str,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// The client of a session is silent.
    #[error("LS0710 the client was silent for {0:?}; `lspan perf serve --idle` gives it more time")]
    Idle(Duration),
    /// A helper thread panicked.
    #[error("LS0708 a stream's thread ended early; this is a defect of lspan")]
    Thread,
}
