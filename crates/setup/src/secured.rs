//! A stream that has logged in, with the ciphers where its bytes must be sealed from then on, and the messages that go over it before
//! it is a rail: the handshake of rails beside it, the plan and its answer.

use std::io;

use linkspan_proto::login::{Opener, RECORD_HEAD, RECORD_TAG, RecordError, Sealer};
use linkspan_stream::{Keepalive, Stream};
use linkspan_transport::WaitFd;

/// A stream behind its login.
pub struct Secured {
    /// The stream.
    pub stream: Stream,
    ciphers: Option<(Sealer, Opener)>,
    /// Bytes of messages that the stream has not taken yet.
    out: Vec<u8>,
    /// What has come of the next message.
    inbox: Vec<u8>,
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
        Secured { stream, ciphers, out: Vec::new(), inbox: Vec::new() }
    }

    /// Whether its bytes are encrypted.
    pub fn is_sealed(&self) -> bool {
        self.ciphers.is_some()
    }

    /// Sends a message as far as the stream takes it; the rest leaves with [`Secured::flush`].
    ///
    /// # Errors
    /// [`MessageError::Record`]: no more can be sealed. [`MessageError::Io`]: the stream failed.
    pub fn send(&mut self, text: &[u8]) -> Result<(), MessageError> {
        self.pack(text)?;
        self.flush()?;
        Ok(())
    }

    fn pack(&mut self, text: &[u8]) -> Result<(), RecordError> {
        let begin = self.out.len();
        match &mut self.ciphers {
            None => self.out.extend_from_slice(text),
            Some((sealer, _)) => {
                self.out.extend_from_slice(&[0; RECORD_HEAD]);
                self.out.extend_from_slice(text);
                let (head, tag) = sealer.seal(&mut self.out[begin + RECORD_HEAD..])?;
                self.out[begin..begin + RECORD_HEAD].copy_from_slice(&head);
                self.out.extend_from_slice(&tag);
            }
        }
        Ok(())
    }

    /// Hands the stream what it takes of the messages that were sent. Returns whether all has left.
    ///
    /// # Errors
    /// The error of `send(2)`, as EPIPE or ECONNRESET.
    pub fn flush(&mut self) -> io::Result<bool> {
        while !self.out.is_empty() {
            match self.stream.try_write(&self.out)? {
                Some(n) => drop(self.out.drain(..n)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// What becomes ready when the next message has come, or more of ours can leave.
    pub fn wait_fd(&self) -> WaitFd {
        self.stream.wait_fd(!self.out.is_empty())
    }

    /// Reads a message of exactly `N` bytes and nothing behind it. `None` while bytes are missing.
    ///
    /// # Errors
    /// [`MessageError::Io`]: the stream failed or ended. [`MessageError::Record`] and [`MessageError::Len`]: what came is not such a
    /// message, sealed by the peer.
    pub fn read<const N: usize>(&mut self) -> Result<Option<[u8; N]>, MessageError> {
        let around = if self.ciphers.is_some() { RECORD_HEAD + RECORD_TAG } else { 0 };
        while self.inbox.len() < N + around {
            let (had, mut part) = (self.inbox.len(), [0; 256]);
            let want = (N + around - had).min(part.len());
            match self.stream.try_read(&mut part[..want])? {
                None => return Ok(None),
                Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Some(n) => self.inbox.extend_from_slice(&part[..n]),
            }
            // Another length is told at once: of a shorter record the rest would never come.
            if let (Some(_), Some(head)) = (&self.ciphers, self.inbox.first_chunk::<RECORD_HEAD>()) {
                let got = Opener::text_len(*head)?;
                if got != N {
                    return Err(MessageError::Len { got, want: N });
                }
            }
        }
        let mut text = [0; N];
        match &mut self.ciphers {
            None => text.copy_from_slice(&self.inbox),
            Some((_, opener)) => {
                let mut tag = [0; RECORD_TAG];
                text.copy_from_slice(&self.inbox[RECORD_HEAD..RECORD_HEAD + N]);
                tag.copy_from_slice(&self.inbox[RECORD_HEAD + N..]);
                opener.open(&mut text, tag)?;
            }
        }
        self.inbox.clear();
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
