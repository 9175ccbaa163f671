//! The family `netdev`: queues, and device memory bound to them.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::socket::{Error, Socket, dump, request};

const FAMILY: &str = "netdev";

/// `NETDEV_CMD_QUEUE_GET`, `NETDEV_CMD_BIND_RX`, `NETDEV_CMD_BIND_TX`.
const QUEUE_GET: u8 = 10;
const BIND_RX: u8 = 13;
const BIND_TX: u8 = 15;

/// `NETDEV_A_QUEUE_*`.
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const QUEUE_DMABUF: u16 = 5;

/// `NETDEV_A_DMABUF_*`.
const DMABUF_IFINDEX: u16 = 1;
const DMABUF_QUEUES: u16 = 2;
const DMABUF_FD: u16 = 3;
const DMABUF_ID: u16 = 4;

/// Which way a queue goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// From the cable.
    Receive,
    /// To the cable.
    Send,
}

/// A queue of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number, from 0 for each kind.
    pub id: u32,
    /// Its kind.
    pub kind: QueueKind,
    /// The polling instance that serves it.
    pub napi: Option<u32>,
    /// The binding of device memory it fills.
    pub dmabuf: Option<u32>,
}

/// The queues of an interface that is up.
///
/// # Errors
/// [`Error::Refused`], with `ENODEV` for no such interface; [`Error::System`], [`Error::NoFamily`], [`Error::Message`].
pub fn queues(socket: &mut Socket, interface: u32) -> Result<Vec<Queue>, Error> {
    let family = socket.family(FAMILY)?;
    let mut all = Vec::new();
    socket.ask("the queues of an interface", dump(family, QUEUE_GET).u32(QUEUE_IFINDEX, interface), |attrs| {
        if let (Some(id), Some(kind)) = (attrs.u32(QUEUE_ID)?, attrs.u32(QUEUE_TYPE)?) {
            let kind = if kind == 0 { QueueKind::Receive } else { QueueKind::Send };
            // The binding is a number since 6.12; a later kernel may nest it.
            let dmabuf = attrs.u32(QUEUE_DMABUF).unwrap_or(None);
            all.push(Queue { id, kind, napi: attrs.u32(QUEUE_NAPI)?, dmabuf });
        }
        Ok(())
    })?;
    Ok(all)
}

/// Device memory bound to a card, until this is dropped.
#[derive(Debug)]
pub struct Binding {
    id: u32,
    _socket: Socket,
}

impl Binding {
    /// The kernel's number for it, as fragments carry it and sends name it.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// Binds a dma-buf to receive queues: payload of what arrives there lands in it. Needs CAP_NET_ADMIN. The queues are
/// stopped and started by it, so nothing else may depend on them.
///
/// # Errors
/// [`Error::Refused`]: `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` where the driver cannot, `EINVAL` where headers are
/// not split, `EEXIST` for a queue that is bound already, `ERANGE` for one that does not exist. [`Error::System`],
/// [`Error::NoFamily`], [`Error::Message`], [`Error::Missing`].
pub fn bind_receive(interface: u32, queues: &[u32], dmabuf: BorrowedFd<'_>) -> Result<Binding, Error> {
    bind(interface, Some(queues), dmabuf.as_raw_fd() as u32)
}

/// Binds a dma-buf for sending (Linux 6.16).
///
/// # Errors
/// [`Error::Refused`]: `EOPNOTSUPP` where kernel or driver cannot. [`Error::System`], [`Error::NoFamily`],
/// [`Error::Message`], [`Error::Missing`].
pub fn bind_send(interface: u32, dmabuf: BorrowedFd<'_>) -> Result<Binding, Error> {
    bind(interface, None, dmabuf.as_raw_fd() as u32)
}

/// No descriptor at all: a driver that can bind says `EBADF` to it, one that cannot says so first.
const NO_FD: u32 = u32::MAX;

/// Whether a driver would bind memory for receiving: asked with a descriptor that is none, so nothing can change.
/// `Ok`: it would look at the descriptor.
///
/// # Errors
/// [`Error::Refused`]: `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` where kernel or driver cannot. [`Error::System`],
/// [`Error::NoFamily`].
pub fn may_bind_receive(interface: u32) -> Result<(), Error> {
    may(bind(interface, Some(&[0]), NO_FD))
}

/// As [`may_bind_receive`], for sending.
///
/// # Errors
/// [`Error::NoFamily`].
pub fn may_bind_send(interface: u32) -> Result<(), Error> {
    may(bind(interface, None, NO_FD))
}

fn may(answer: Result<Binding, Error>) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if error.errno() == Some(libc::EBADF) => Ok(()),
        Err(error) => Err(error),
    }
}

fn bind(interface: u32, queues: Option<&[u32]>, fd: u32) -> Result<Binding, Error> {
    let mut socket = Socket::open()?;
    let family = socket.family(FAMILY)?;
    let (command, what) = match queues {
        Some(_) => (BIND_RX, "binding device memory for receiving"),
        None => (BIND_TX, "binding device memory for sending"),
    };
    let mut ask = request(family, command).u32(DMABUF_IFINDEX, interface);
    for &queue in queues.unwrap_or_default() {
        ask = ask.nest(DMABUF_QUEUES, |q| q.u32(QUEUE_ID, queue).u32(QUEUE_TYPE, 0));
    }
    let mut id = None;
    socket.ask(what, ask.u32(DMABUF_FD, fd), |attrs| {
        id = attrs.u32(DMABUF_ID)?;
        Ok(())
    })?;
    let id = id.ok_or(Error::Missing { what, field: "number" })?;
    Ok(Binding { id, _socket: socket })
}
