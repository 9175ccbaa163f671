//! Errors as D-Bus names them.

use linkspan_fabric::keys::KeyError;
use linkspan_files::Error as FilesError;
use linkspan_files::wire::FaultKind;
use linkspan_service::pairing::PairError;
use linkspan_service::rendezvous::RendezvousError;
use linkspan_user::Error;

use super::call::TEXT;
use crate::dict::plain;

/// What a method answers instead of its result. The text begins with an error code and is for people.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.linkspan.User1.Error")]
#[non_exhaustive]
pub enum UserError {
    /// The bus itself.
    #[zbus(error)]
    ZBus(zbus::Error),
    /// The caller is another user, or the peer or the system refuses it.
    NotPermitted(String),
    /// An argument that cannot be.
    InvalidArgument(String),
    /// The peer is not reached, or does not answer.
    NoPeer(String),
    /// There is no such thing.
    NotFound(String),
    /// Too many at a time.
    LimitReached(String),
    /// Something failed.
    Failed(String),
}

/// As it is told: a text of the caller's in it may be as long as a message, and be several times that when it is quoted.
pub(super) fn told(text: String) -> String {
    let mut text = plain(text);
    text.truncate(text.floor_char_boundary(TEXT));
    text
}

impl From<Error> for UserError {
    fn from(error: Error) -> UserError {
        let text = told(error.text());
        let kind = match &error {
            Error::Usage(_) | Error::Files(FilesError::Rule(_)) => UserError::InvalidArgument,
            Error::Pair(PairError::Line(_)) => UserError::InvalidArgument,
            Error::Rendezvous(RendezvousError::Spelling { .. }) => UserError::InvalidArgument,
            Error::Keys(KeyError::Unknown { .. }) | Error::Absent(_) => UserError::NotFound,
            Error::Keys(
                KeyError::Name { .. }
                | KeyError::Line { .. }
                | KeyError::NotAKey { .. }
                | KeyError::Taken { .. }
                | KeyError::Own,
            ) => UserError::InvalidArgument,
            Error::Limit(_) | Error::Keys(KeyError::Full) | Error::Files(FilesError::Full(_)) => {
                UserError::LimitReached
            }
            Error::Files(FilesError::Refused(fault)) => match fault.kind {
                FaultKind::NotFound => UserError::NotFound,
                FaultKind::Denied | FaultKind::Forbidden | FaultKind::ReadOnly => UserError::NotPermitted,
                _ => UserError::Failed,
            },
            Error::Rendezvous(RendezvousError::Unproven { .. } | RendezvousError::Unpaired { .. }) => {
                UserError::NotPermitted
            }
            Error::Refused(_) => UserError::NotPermitted,
            error if error.passes() => UserError::NoPeer,
            _ => UserError::Failed,
        };
        kind(text)
    }
}
