//! What the ring driver's errors mean for a rail.

use linkspan_tbring::Error;
use linkspan_transport::End;

/// The end that an error of the driver means.
pub(crate) fn lost(error: Error) -> End {
    match error {
        Error::Gone => End::Gone("the link was lost (unplugged, unloaded, or restarted)".into()),
        Error::Refused { call, source, .. } => End::System(call, source.raw_os_error().unwrap_or(0)),
        other => End::Gone(other.to_string()),
    }
}
