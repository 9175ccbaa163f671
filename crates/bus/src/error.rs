//! Errors as D-Bus names them.

use linkspan_service::admission::AdmissionError;
use linkspan_service::devmem::Unlent;

/// What a method answers instead of its result. The text begins with an error code and is for people.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.linkspan.Link1.Error")]
#[non_exhaustive]
pub enum Error {
    /// The bus itself.
    #[zbus(error)]
    ZBus(zbus::Error),
    /// The caller may not, or would have to prove who it is.
    NotAuthorized(String),
    /// An argument that cannot be.
    InvalidArgument(String),
    /// No cable leads to such a host, or it is not allowed.
    NoHost(String),
    /// This machine has no such device, or none that can do it.
    NoDevice(String),
    /// It is done already, by this service or another process.
    Busy(String),
    /// Too many at a time.
    LimitReached(String),
    /// The system refused something.
    Failed(String),
}

impl From<AdmissionError> for Error {
    fn from(error: AdmissionError) -> Error {
        let text = error.to_string();
        match error {
            AdmissionError::NoUuid(_) => Error::InvalidArgument(text),
            AdmissionError::NoHost { .. } | AdmissionError::ThisHost(_) | AdmissionError::NotAllowed(_) => {
                Error::NoHost(text)
            }
            AdmissionError::Full => Error::LimitReached(text),
            _ => Error::Failed(text),
        }
    }
}

impl From<Unlent> for Error {
    fn from(error: Unlent) -> Error {
        let text = error.to_string();
        match error {
            Unlent::Never { .. } => Error::NoDevice(text),
            Unlent::Running { .. } => Error::Busy(text),
            _ => Error::Failed(text),
        }
    }
}
