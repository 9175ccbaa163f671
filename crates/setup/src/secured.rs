//! A stream that has logged in, with the ciphers where its bytes must be sealed from then on, and the two messages
//! that go over it before it is a rail: the plan and its answer.

use std::io;

use linkspan_proto::login::{Opener, RECORD_HEAD, RECORD_TAG, RecordError, Sealer};
use linkspan_stream::{Keepalive, Stream};

/// A stream behind its login.
pub struct Secured {
    /// The stream.
    pub stream: Stream,
    ciphers: Option<(Sealer, Opener)>,
}

/// Why a message could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The stream failed, or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A record that the peer has not sealed, or that somebody has changed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record of another length than the message.
    #[error("an encrypted record of {got} bytes in place of a message of {want}")]
    Len {
        /// Bytes of its text.
        got: usize,
        /// Bytes of the message that was due.
        want: usize,
    },
    /// The peer broke the rules of the handshake; how.
    #[error("the peer sent {0} in the handshake of a rail")]
    Handshake(&'static str),
    /// The peer said nothing for too long.
    #[error("the peer fell silent in the handshake of a rail")]
    Silent,
}

impl Secured {
    /// Of a stream that has logged in, with the ciphers of its login where it is encrypted.
    pub fn new(stream: Stream, ciphers: Option<(Sealer, Opener)>) -> Secured {
        Secured { stream, ciphers }
    }

    /// Whether its bytes are encrypted.
    pub fn is_sealed(&self) -> bool {
        self.ciphers.is_some()
    }

    /// The bytes that carry `text`: itself, or a record. To be sent once, whole, and in the order of the calls.
    pub fn pack(&mut self, text: &[u8]) -> Result<Vec<u8>, MessageError> {
        let mut bytes = text.to_vec();
        if let Some((sealer, _)) = &mut self.ciphers {
            let (head, tag) = sealer.seal(&mut bytes)?;
            bytes.splice(..0, head);
            bytes.extend_from_slice(&tag);
        }
        Ok(bytes)
    }

    /// Reads a message of exactly `N` bytes and nothing behind it; `inbox` keeps what came so far, and is empty at
    /// first. `None` while bytes are missing.
    pub fn read<const N: usize>(&mut self, inbox: &mut Vec<u8>) -> Result<Option<[u8; N]>, MessageError> {
        let around = if self.ciphers.is_some() { RECORD_HEAD + RECORD_TAG } else { 0 };
        while inbox.len() < N + around {
            let (had, mut part) = (inbox.len(), [0; 256]);
            let want = (N + around - had).min(part.len());
            match self.stream.try_read(&mut part[..want])? {
                None => return Ok(None),
                Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Some(n) => inbox.extend_from_slice(&part[..n]),
            }
            // Another length is told at once: of a shorter record the rest would never come.
            if let (Some(_), Some(head)) = (&self.ciphers, inbox.first_chunk::<RECORD_HEAD>()) {
                let got = Opener::text_len(*head)?;
                if got != N {
                    return Err(MessageError::Len { got, want: N });
                }
            }
        }
        let mut text = [0; N];
        match &mut self.ciphers {
            None => text.copy_from_slice(inbox),
            Some((_, opener)) => {
                let mut tag = [0; RECORD_TAG];
                text.copy_from_slice(&inbox[RECORD_HEAD..RECORD_HEAD + N]);
                tag.copy_from_slice(&inbox[RECORD_HEAD + N..]);
                opener.open(&mut text, tag)?;
            }
        }
        Ok(Some(text))
    }

    /// The stream, and the ciphers where its bytes are sealed from here on.
    pub fn into_parts(self) -> (Stream, Option<(Sealer, Opener)>) {
        (self.stream, self.ciphers)
    }

    /// Makes it a keepalive connection, which carries nothing and so needs no cipher.
    pub fn into_keepalive(self) -> Keepalive {
        Keepalive::new(self.stream)
    }
}

#[cfg(test)]
mod tests;
