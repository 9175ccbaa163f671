//! The control rail's side: heads of chunks whose payload comes beside it.

use linkspan_proto::Kind;
use linkspan_proto::head::{HEAD_LEN, Head};
use linkspan_transport::{MemSlice, Sink, Violation};

use crate::rx::Intake;

/// The head that announces another.
pub(crate) fn announcement() -> Head {
    let mut head = Head::new(Kind::Beside);
    head.len.set(HEAD_LEN as u32);
    head
}

/// What the control rail brings: announcements for us, everything else for the protocol.
pub(crate) struct NoticeSink<'a> {
    pub(crate) intake: &'a mut Intake,
    pub(crate) sink: &'a mut dyn Sink,
}

impl Sink for NoticeSink<'_> {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        if Kind::from_u8(head.kind) != Some(Kind::Beside) {
            return self.sink.ctrl(head, payload);
        }
        let inner = payload.first_chunk::<HEAD_LEN>().filter(|_| payload.len() == HEAD_LEN);
        let inner = inner.ok_or_else(|| Violation(format!("a chunk's head of {} bytes", payload.len())))?;
        let (head, kind) = Head::decode(inner).map_err(|bad| Violation(bad.to_string()))?;
        if !kind.is_payload() {
            return Err(Violation(format!("a {kind:?} announced as a chunk")));
        }
        self.intake.announced(head);
        Ok(())
    }

    fn place(&mut self, _head: &Head) -> Result<Option<MemSlice>, Violation> {
        Err(Violation("payload on the control stream of device-memory TCP".into()))
    }

    fn landed(&mut self, _head: &Head) -> Result<(), Violation> {
        Err(Violation("payload on the control stream of device-memory TCP".into()))
    }
}
