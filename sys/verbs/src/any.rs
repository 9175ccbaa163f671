//! A real NIC or, for tests (feature `sim`), one in software, behind one type.

use std::os::fd::{BorrowedFd, RawFd};

use linkspan_transport::MemSlice;

use crate::hw::{HwCq, HwMr, HwNic, HwQp};
#[cfg(feature = "sim")]
use crate::soft::{SoftCq, SoftMr, SoftNic, SoftQp};
use crate::{
    Access, AsyncEvent, Completion, Cq, Error, GidEntry, InitAttr, Keys, Limits, Mr, Nic, Port, PostError, Qp, QpCaps,
    QpState, RecvWr, RtrAttr, RtsAttr, SendWr,
};

/// A real NIC or one in software.
#[derive(Clone)]
pub enum AnyNic {
    /// Through libibverbs.
    Hw(HwNic),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftNic),
}

/// A region of an [`AnyNic`].
pub enum AnyMr {
    /// Through libibverbs.
    Hw(HwMr),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftMr),
}

/// A completion queue of an [`AnyNic`].
pub enum AnyCq {
    /// Through libibverbs.
    Hw(HwCq),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftCq),
}

/// A queue pair of an [`AnyNic`].
pub enum AnyQp {
    /// Through libibverbs.
    Hw(HwQp),
    /// In software.
    #[cfg(feature = "sim")]
    Soft(SoftQp),
}

macro_rules! either {
    ($kind:ident, $self:expr, $it:ident => $call:expr) => {
        match $self {
            $kind::Hw($it) => $call,
            #[cfg(feature = "sim")]
            $kind::Soft($it) => $call,
        }
    };
}

/// The same, and what comes out is wrapped.
macro_rules! made {
    ($self:expr, $it:ident => $call:expr, $out:ident) => {
        match $self {
            AnyNic::Hw($it) => $call.map($out::Hw),
            #[cfg(feature = "sim")]
            AnyNic::Soft($it) => $call.map($out::Soft),
        }
    };
}

impl std::fmt::Debug for AnyNic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[allow(unsafe_code)]
// SAFETY: a region reaches its memory no longer than it lives.
unsafe impl Nic for AnyNic {
    type Mr = AnyMr;
    type Cq = AnyCq;
    type Qp = AnyQp;

    fn name(&self) -> &str {
        either!(AnyNic, self, n => n.name())
    }

    fn isolated(&self) -> Result<AnyNic, Error> {
        made!(self, n => n.isolated(), AnyNic)
    }

    fn limits(&self) -> Result<Limits, Error> {
        either!(AnyNic, self, n => n.limits())
    }

    fn port(&self, port: u8) -> Result<Port, Error> {
        either!(AnyNic, self, n => n.port(port))
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Error> {
        either!(AnyNic, self, n => n.gids(port))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        either!(AnyNic, self, n => n.pkey(port, index))
    }

    fn register(&self, mem: MemSlice, access: Access) -> Result<AnyMr, Error> {
        made!(self, n => n.register(mem, access), AnyMr)
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<AnyMr, Error> {
        made!(self, n => n.register_dmabuf(dmabuf, offset, len, iova, access), AnyMr)
    }

    fn takes_dmabuf(&self) -> Result<(), Error> {
        either!(AnyNic, self, n => n.takes_dmabuf())
    }

    fn cq(&self, depth: u32) -> Result<AnyCq, Error> {
        made!(self, n => n.cq(depth), AnyCq)
    }

    fn qp(&self, cq: &AnyCq, caps: QpCaps) -> Result<AnyQp, Error> {
        match (self, cq) {
            (AnyNic::Hw(n), AnyCq::Hw(cq)) => n.qp(cq, caps).map(AnyQp::Hw),
            #[cfg(feature = "sim")]
            (AnyNic::Soft(n), AnyCq::Soft(cq)) => n.qp(cq, caps).map(AnyQp::Soft),
            #[cfg(feature = "sim")]
            _ => Err(Error::Unsupported {
                what: "a queue pair",
                device: self.name().to_owned(),
                why: "its completion queue is of another device",
            }),
        }
    }

    fn event(&self) -> Result<Option<AsyncEvent>, Error> {
        either!(AnyNic, self, n => n.event())
    }

    fn event_fd(&self) -> RawFd {
        either!(AnyNic, self, n => n.event_fd())
    }
}

impl Mr for AnyMr {
    fn keys(&self) -> Keys {
        either!(AnyMr, self, m => m.keys())
    }
}

impl Cq for AnyCq {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Error> {
        either!(AnyCq, self, c => c.poll(out))
    }

    fn arm(&mut self) -> Result<(), Error> {
        either!(AnyCq, self, c => c.arm())
    }

    fn fd(&self) -> RawFd {
        either!(AnyCq, self, c => c.fd())
    }

    fn calm(&mut self) {
        either!(AnyCq, self, c => c.calm())
    }
}

impl Qp for AnyQp {
    fn number(&self) -> u32 {
        either!(AnyQp, self, q => q.number())
    }

    fn caps(&self) -> QpCaps {
        either!(AnyQp, self, q => q.caps())
    }

    fn state(&self) -> Result<QpState, Error> {
        either!(AnyQp, self, q => q.state())
    }

    fn init(&mut self, attr: &InitAttr) -> Result<(), Error> {
        either!(AnyQp, self, q => q.init(attr))
    }

    fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error> {
        either!(AnyQp, self, q => q.ready_to_receive(attr))
    }

    fn ready_to_send(&mut self, attr: &RtsAttr) -> Result<(), Error> {
        either!(AnyQp, self, q => q.ready_to_send(attr))
    }

    fn fail(&mut self) -> Result<(), Error> {
        either!(AnyQp, self, q => q.fail())
    }

    fn reset(&mut self) -> Result<(), Error> {
        either!(AnyQp, self, q => q.reset())
    }

    fn post_recv(&mut self, list: &[RecvWr]) -> Result<(), PostError> {
        either!(AnyQp, self, q => q.post_recv(list))
    }

    fn post_send(&mut self, list: &[SendWr]) -> Result<(), PostError> {
        either!(AnyQp, self, q => q.post_send(list))
    }
}
