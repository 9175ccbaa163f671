//! The data path: isend, irecv, test.

use linkspan_fabric::{Channel, ChannelError, MAX_GROUP, MemSlice, Ticket};
use linkspan_ncclnet::{Fail, Logger, Part, RecvComm, RecvHints, SendComm};

use crate::memory::{Mr, slice};

/// Result code of a channel's error; the line that explains it is logged here, once per error.
#[cold]
fn fail(log: Logger, channel: &Channel, error: &ChannelError) -> Fail {
    let why = channel.lost().map(|why| format!(": {why}")).unwrap_or_default();
    log.warn(&format!("linkspan: {error}{why}"));
    match error {
        ChannelError::Op(_) => Fail::InvalidUsage,
        _ => Fail::Remote,
    }
}

/// The sending end of a connection.
pub struct Sending {
    log: Logger,
    channel: Option<Channel>,
}

impl Sending {
    pub(crate) fn new(log: Logger, channel: Channel) -> Sending {
        Sending { log, channel: Some(channel) }
    }
}

impl SendComm for Sending {
    type Mr = Mr;

    fn isend(&mut self, part: Part<'_, Mr>) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let (tag, mem) = (part.tag as u32, slice(self.log, channel, &part)?);
        let posted = match channel.post_send(tag, mem) {
            // NCCL asks again without testing anything in between, so what makes room must happen here.
            Ok(None) => channel.progress().and_then(|_| channel.post_send(tag, mem)),
            other => other,
        };
        match posted {
            Ok(ticket) => {
                channel.flush_first();
                Ok(ticket.map(Ticket::to_u64))
            }
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }

    fn test(&mut self, ticket: u64) -> Result<Option<usize>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        match channel.test_sent(Ticket::from_u64(ticket)) {
            Ok(bytes) => Ok(bytes.map(|n| n as usize)),
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }

    fn revoke(&mut self, _mr: &Mr) {
        // Registrations are not told apart, so the whole path goes; NCCL does this on abort only.
        self.channel = None;
    }
}

/// The receiving end of a connection.
pub struct Receiving {
    log: Logger,
    channel: Option<Channel>,
}

impl Receiving {
    pub(crate) fn new(log: Logger, channel: Channel) -> Receiving {
        Receiving { log, channel: Some(channel) }
    }
}

impl RecvComm for Receiving {
    type Mr = Mr;

    fn irecv(&mut self, parts: &[Part<'_, Mr>], _hints: RecvHints) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let (one, mut group);
        let posts: &[(u32, MemSlice)] = if let [part] = parts {
            one = [(part.tag as u32, slice(self.log, channel, part)?)];
            &one
        } else {
            group = [(0, MemSlice::NONE); MAX_GROUP];
            let posts = group.get_mut(..parts.len()).ok_or(Fail::InvalidArgument)?;
            for (post, part) in posts.iter_mut().zip(parts) {
                *post = (part.tag as u32, slice(self.log, channel, part)?);
            }
            posts
        };
        let posted = match channel.post_recv(posts) {
            Ok(None) => channel.progress().and_then(|_| channel.post_recv(posts)),
            other => other,
        };
        match posted {
            Ok(ticket) => Ok(ticket.map(Ticket::to_u64)),
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }

    fn flush(&mut self, parts: &[Part<'_, Mr>]) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        // Staged bytes are in place when the receive reports: the copy's event was waited for. What a network card has
        // written by itself may still be on its way through the bus.
        if channel.writes_device_memory()
            && let Some(gpu) = parts.iter().find_map(|part| part.mr?.gpu())
        {
            gpu.flush_writes().map_err(|error| {
                self.log.warn(&format!("linkspan: {error}"));
                Fail::Gpu
            })?;
        }
        Ok(None)
    }

    fn test(&mut self, ticket: u64, sizes: &mut [usize]) -> Result<bool, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let ticket = Ticket::from_u64(ticket);
        let done = match channel.test_sizes(ticket, sizes) {
            Ok(false) => {
                // A loss is reported by the test below, unless the operation was done before it.
                let _ = channel.progress();
                channel.test_sizes(ticket, sizes)
            }
            other => other,
        };
        done.map_err(|error| fail(self.log, channel, &error))
    }

    fn revoke(&mut self, _mr: &Mr) {
        self.channel = None;
    }
}
