//! The data path: isend, irecv, test.

use std::sync::Arc;

use linkspan_fabric::{
    Buf, Channel, ChannelError, Down, MAX_GROUP, MemSlice, OFFLOAD_HANDLE, OFFLOAD_SLOTS, OffloadQueue, OpError,
    Ticket, chain, gpus,
};

use crate::memory::{Mr, slice};
use crate::{DeviceQueue, Fail, Logger, Part, RecvComm, RecvHints, SendComm};

/// Result code of a channel's error; the line that explains it is logged here, once per error.
#[cold]
fn fail(log: Logger, channel: &Channel, error: &ChannelError) -> Fail {
    let why = channel.lost().map(|why| format!(": {why}")).unwrap_or_default();
    log.warn(&format!("linkspan: {error}{why}"));
    code(channel, error)
}

/// What ended here is not told as the peer's end, which others are to be asked to do without.
fn code(channel: &Channel, error: &ChannelError) -> Fail {
    match (error, channel.lost_by()) {
        (ChannelError::Op(OpError::Memory), _) | (_, Some(Down::Device { .. })) => Fail::Gpu,
        (ChannelError::Op(_) | ChannelError::DeviceMemory, _) => Fail::InvalidUsage,
        (_, Some(Down::System { .. })) => Fail::System,
        _ => Fail::Remote,
    }
}

/// Receives from so many bytes on are announced one by one: NCCL's pieces by default, whose copy takes far longer than the system
/// call. Smaller ones that are posted beside others are announced together, by the next test that finds its receive not done.
const LARGE: usize = 512 << 10;

/// The sending end of a connection.
pub struct Sending {
    log: Logger,
    channel: Option<Channel>,
    /// Small sends wait for more.
    holds: bool,
}

impl Sending {
    pub(crate) fn new(log: Logger, channel: Channel) -> Sending {
        Sending { log, channel: Some(channel), holds: false }
    }
}

#[allow(unsafe_code)]
// SAFETY: memory is posted on a channel, which forgets it when the operation has reported or the channel is dropped.
unsafe impl SendComm for Sending {
    type Mr = Mr;

    fn isend(&mut self, part: Part<'_, Mr>) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let (tag, mem) = (part.tag as u32, slice(self.log, channel, &part)?);
        let posted = match channel.post_send(tag, mem) {
            // NCCL asks again without testing anything in between, so what frees space must happen here.
            Ok(None) => channel.progress().and_then(|_| channel.post_send(tag, mem)),
            other => other,
        };
        if channel.waiting() > 0 {
            // What it waits for may lie here unread. A loss is told by the test.
            let _ = channel.drive();
        }
        match posted {
            Ok(ticket) => Ok(ticket.map(Ticket::to_u64)),
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }

    fn test(&mut self, ticket: u64) -> Result<Option<usize>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let ticket = Ticket::from_u64(ticket);
        match if self.holds { channel.test(ticket) } else { channel.test_sent(ticket) } {
            Ok(bytes) => Ok(bytes.map(|n| n as usize)),
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }

    #[inline]
    fn hold(&mut self, on: bool) {
        if std::mem::replace(&mut self.holds, on) && !on {
            self.flush();
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.holds = false;
        if let Some(channel) = &mut self.channel {
            channel.leave();
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
    offload: Option<Offload>,
}

/// NCCL's kernels unpack: their queue, and the receives in it by ticket.
struct Offload {
    queue: Arc<OffloadQueue>,
    open: Vec<(u64, u64)>,
}

impl Offload {
    fn number(&self, ticket: u64) -> Option<u64> {
        self.open.iter().find(|(t, _)| *t == ticket).map(|(_, number)| *number)
    }
}

impl Receiving {
    pub(crate) fn new(log: Logger, channel: Channel) -> Receiving {
        Receiving { log, channel: Some(channel), offload: None }
    }

    fn post(&mut self, posts: &[(u32, MemSlice)]) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let posted = match channel.post_recv(posts) {
            Ok(None) => channel.progress().and_then(|_| channel.post_recv(posts)),
            other => other,
        };
        match posted {
            Ok(ticket) => {
                // NCCL may not call again for long, and the peer's send waits for what this announces.
                if channel.moving() == 1 || posts.iter().any(|(_, mem)| mem.len() >= LARGE) {
                    channel.flush();
                }
                Ok(ticket.map(Ticket::to_u64))
            }
            Err(error) => Err(fail(self.log, channel, &error)),
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: memory is posted on a channel, which forgets it when the operation has reported or the channel is dropped.
unsafe impl RecvComm for Receiving {
    type Mr = Mr;

    fn irecv(&mut self, parts: &[Part<'_, Mr>], hints: RecvHints) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let [part] = parts else {
            let mut group = [(0, MemSlice::NONE); MAX_GROUP];
            let posts = group.get_mut(..parts.len()).ok_or(Fail::InvalidArgument)?;
            for (post, part) in posts.iter_mut().zip(parts) {
                *post = (part.tag as u32, slice(self.log, channel, part)?);
            }
            return self.post(posts);
        };
        let mem = slice(self.log, channel, part)?;
        let one = [(part.tag as u32, mem)];
        // The kernels of LL and LL128 watch the buffer itself and know of no queue.
        let Some(offload) = self.offload.as_ref().filter(|_| !hints.completion_optional) else {
            return self.post(&one);
        };
        let Some(number) = offload.queue.open(mem) else { return Ok(None) };
        let posted = self.post(&one);
        match (&posted, &mut self.offload) {
            (Ok(Some(ticket)), Some(offload)) => offload.open.push((*ticket, number)),
            (_, Some(offload)) => offload.queue.close(number),
            _ => {}
        }
        posted
    }

    fn unpack_queue(&mut self) -> Option<DeviceQueue> {
        let channel = self.channel.as_mut()?;
        let gpu = gpus::current_cuda()?;
        let queue = match channel.attach(&gpu).and_then(|()| channel.offload()) {
            Ok(queue) => queue?,
            Err(error) => {
                self.log.warn(&format!("linkspan: NCCL's kernels cannot unpack device-memory TCP: {}", chain(&error)));
                return None;
            }
        };
        let address = queue.handle();
        self.offload = Some(Offload { queue, open: Vec::with_capacity(OFFLOAD_SLOTS) });
        Some(DeviceQueue { address, len: OFFLOAD_HANDLE })
    }

    fn waits_for_kernel(&self, ticket: u64) -> bool {
        self.offload.as_ref().is_some_and(|offload| offload.number(ticket).is_some())
    }

    fn consumed(&mut self, ticket: u64) -> Result<(), Fail> {
        let Some(offload) = &mut self.offload else { return Ok(()) };
        if let Some(at) = offload.open.iter().position(|(t, _)| *t == ticket) {
            offload.queue.consume(offload.open.swap_remove(at).1);
        }
        if offload.open.is_empty()
            && let Some(channel) = &mut self.channel
        {
            // NCCL may not come back for long: the card has its pages back now. A loss is told by the next operation.
            let _ = channel.drive();
        }
        Ok(())
    }

    fn flush(&mut self, parts: &[Part<'_, Mr>]) -> Result<Option<u64>, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        // Staged bytes are in place when the receive reports: the copy's event was waited for. What a network card has
        // written by itself may still be on its way through the bus.
        let all = channel.writes_device_memory();
        if let Some(gpu) = parts.iter().find_map(|part| part.mr.filter(|mr| all || mr.is_direct())?.gpu()) {
            gpu.flush_writes().map_err(|error| {
                self.log.warn(&format!("linkspan: {error}"));
                Fail::Gpu
            })?;
        }
        Ok(None)
    }

    fn test(&mut self, ticket: u64, sizes: &mut [usize]) -> Result<bool, Fail> {
        let channel = self.channel.as_mut().ok_or(Fail::Remote)?;
        let of_channel = Ticket::from_u64(ticket);
        let done = match channel.test_sizes(of_channel, sizes) {
            Ok(false) => {
                // A loss is reported by the test below, unless the operation was done before it.
                let _ = channel.drive();
                channel.test_sizes(of_channel, sizes)
            }
            other => other,
        };
        let done = done.map_err(|error| fail(self.log, channel, &error))?;
        if done
            && let Some(offload) = &self.offload
            && let Some(number) = offload.number(ticket)
        {
            offload.queue.finish(number);
        }
        Ok(done)
    }

    fn revoke(&mut self, _mr: &Mr) {
        self.channel = None;
    }
}

#[cfg(test)]
mod tests;
