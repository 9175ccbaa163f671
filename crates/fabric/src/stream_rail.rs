//! A rail over one stream, in clear or encrypted.

use linkspan_setup::secured::Secured;
use linkspan_tcp::{RailConfig, SealedRail, TcpRail};
use linkspan_transport::BoxRail;

use crate::Error;

/// A rail over one stream.
pub(crate) enum StreamRail {
    /// In clear.
    Plain(Box<TcpRail>),
    /// Encrypted.
    Sealed(Box<SealedRail>),
}

impl StreamRail {
    /// Of a stream that has logged in. With `encrypt` nothing but an encrypted one.
    pub(crate) fn new(stream: Secured, config: RailConfig, encrypt: bool) -> Result<StreamRail, Error> {
        let (stream, ciphers) = stream.into_parts();
        let peer = stream.peer_addr();
        match ciphers {
            Some(ciphers) => Ok(StreamRail::Sealed(Box::new(SealedRail::new(stream, config, ciphers)))),
            None if encrypt => Err(Error::Clear { peer }),
            None => {
                let made = TcpRail::new(stream, config, &[]).map_err(|_| Error::Vanished { peer })?;
                Ok(StreamRail::Plain(Box::new(made)))
            }
        }
    }

    pub(crate) fn into_rail(self) -> BoxRail {
        match self {
            StreamRail::Plain(rail) => rail,
            StreamRail::Sealed(rail) => rail,
        }
    }
}

#[cfg(test)]
mod tests;
