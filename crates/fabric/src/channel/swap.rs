//! A message each way, of few bytes and by value: for what two sides say before or beside the payload.

use std::time::{Duration, Instant};

use linkspan_transport::{Buf, HostBuf, Ticket};

use super::{Channel, ConnError};

/// Why messages were not swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapError {
    /// The caller's wish.
    Stopped,
    /// The peer said nothing in time.
    Silent,
    /// The connection ended, or the peer's message was too long; why.
    Ended(String),
}

impl Channel {
    /// Sends a message and receives the peer's with the same tag, of at most `most` bytes. Both sides call this. Blocks until both are
    /// done or `until` has come; `stop` is asked ten times a second. Takes the channel, which is gone where it fails.
    ///
    /// # Errors
    /// Every [`SwapError`].
    #[allow(unsafe_code)]
    pub fn swap(
        mut self,
        tag: u32,
        message: &[u8],
        most: usize,
        until: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Channel, Vec<u8>), SwapError> {
        let (send, recv) = (HostBuf::new(message.len()), HostBuf::new(most));
        // SAFETY: both buffers live until both operations have reported, or until the channel, and with it all rails, was dropped:
        // `exchange` ends early with an error alone, and that is returned after the drop.
        let (from, to) = unsafe { (send.slice(), recv.slice()) };
        let mut inside = from.fill(0, message);
        let swapped = self.exchange(tag, from, to, until, stop);
        match swapped {
            Ok(len) => {
                let mut bytes = vec![0; len.min(most)];
                inside &= to.read(0, &mut bytes);
                debug_assert!(inside);
                Ok((self, bytes))
            }
            Err(error) => {
                drop(self);
                Err(error)
            }
        }
    }

    fn exchange(
        &mut self,
        tag: u32,
        from: linkspan_transport::MemSlice,
        to: linkspan_transport::MemSlice,
        until: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Result<usize, SwapError> {
        let (mut sending, mut receiving, mut sent, mut got) = (None, None, false, None);
        loop {
            let mut step = || -> Result<(), ConnError> {
                post(&mut sending, || self.post_send(tag, from))?;
                post(&mut receiving, || self.post_recv(&[(tag, to)]))?;
                // The peer may be done, and end the connection, with both messages on their way: what has come counts.
                let ended = self.progress().err();
                if let (Some(ticket), false) = (sending, sent) {
                    sent = self.test(ticket)?.is_some();
                }
                if let (Some(ticket), None) = (receiving, got) {
                    got = self.test(ticket)?;
                }
                match ended {
                    Some(error) if !sent || got.is_none() => Err(error),
                    _ => Ok(()),
                }
            };
            if let Err(error) = step() {
                return Err(SwapError::Ended(self.lost().unwrap_or_else(|| error.to_string())));
            }
            if let (true, Some(len)) = (sent, got) {
                return Ok(len as usize);
            }
            if stop() {
                return Err(SwapError::Stopped);
            }
            if Instant::now() >= until {
                return Err(SwapError::Silent);
            }
            self.wait(Duration::from_millis(100));
        }
    }
}

fn post<E>(ticket: &mut Option<Ticket>, post: impl FnOnce() -> Result<Option<Ticket>, E>) -> Result<(), E> {
    if ticket.is_none() {
        *ticket = post()?;
    }
    Ok(())
}
