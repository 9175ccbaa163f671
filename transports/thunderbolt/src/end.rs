//! Why a rail is down, in a form that can be told again and again.

use std::io;

use linkspan_transport::{Down, Violation};

#[derive(Clone, Debug)]
pub(crate) enum End {
    Gone(String),
    System(&'static str, i32),
    Protocol(String),
}

impl End {
    pub(crate) fn down(&self, path: &str) -> Down {
        let path = path.to_owned();
        match self {
            End::Gone(why) => Down::PeerGone { path, why: why.clone() },
            End::System(call, code) => Down::System { call, path, source: io::Error::from_raw_os_error(*code) },
            End::Protocol(why) => Down::Protocol { path, why: why.clone() },
        }
    }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Protocol(violation.0)
    }
}

impl From<linkspan_tbring::Error> for End {
    fn from(error: linkspan_tbring::Error) -> End {
        match error {
            linkspan_tbring::Error::Gone => End::Gone("the link was lost (unplugged, unloaded, or restarted)".into()),
            linkspan_tbring::Error::Refused { call, source, .. } => {
                End::System(call, source.raw_os_error().unwrap_or(0))
            }
            other => End::Gone(other.to_string()),
        }
    }
}
