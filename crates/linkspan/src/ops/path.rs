//! What operations are posted on.

use linkspan_fabric::{Buf, Cancel, Channel, ChannelError, MemSlice, OpError, RemoteSlice, Ticket};

use super::{Kind, OpId, Ops, Part};

pub(super) type Posted = Result<Option<Ticket>, ChannelError>;

/// What carries operations: a channel of the fabric, or a simulated connection in tests.
pub(crate) trait Path {
    fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Posted;
    fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Posted;
    /// Whether it was done at once, without the peer; else it is to be posted.
    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool;
    fn post_send(&mut self, tag: u32, src: MemSlice) -> Posted;
    fn post_recv(&mut self, tag: u32, dst: MemSlice) -> Posted;
    fn cancel(&mut self, ticket: Ticket) -> Cancel;
    fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ChannelError>;
    fn late_error(&mut self) -> Option<OpError>;
}

impl Path for Channel {
    fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Posted {
        Channel::post_write(self, src, to, notify)
    }

    fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Posted {
        Channel::post_read(self, dst, from)
    }

    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        Channel::copy_alone(self, mem, place, write)
    }

    fn post_send(&mut self, tag: u32, src: MemSlice) -> Posted {
        Channel::post_send(self, tag, src)
    }

    fn post_recv(&mut self, tag: u32, dst: MemSlice) -> Posted {
        Channel::post_recv(self, &[(tag, dst)])
    }

    fn cancel(&mut self, ticket: Ticket) -> Cancel {
        Channel::cancel(self, ticket)
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ChannelError> {
        Channel::test(self, ticket)
    }

    #[inline]
    fn late_error(&mut self) -> Option<OpError> {
        Channel::late_error(self)
    }
}

impl Ops {
    /// Does an operation at once, by a copy of a rail alone, where one can: of one part, so that a call copies no more than a rail allows,
    /// and without a notification, for which the peer is to look.
    pub(super) fn copy_alone(&mut self, id: OpId, ch: &mut impl Path) -> bool {
        let Some(op) = self.get(id).filter(|op| op.next == 0 && op.notify.is_none()) else { return false };
        let write = match op.kind {
            Kind::Write => true,
            Kind::Read => false,
            _ => return false,
        };
        let &[Part { local, remote }] = &op.parts[..] else { return false };
        let copied = ch.copy_alone(local, remote, write);
        if copied {
            self.alone = self.alone.wrapping_add(1);
            self.finish(id, Ok(local.len() as u64));
        }
        copied
    }
}
