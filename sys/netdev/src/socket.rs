//! A generic netlink socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::message::{ACK, Attrs, BadMessage, DUMP, NetlinkReply, Request, answers};

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refuses the socket or a call on it.
    #[error("LS1331 {call} on a netlink socket failed")]
    System {
        /// The call.
        call: &'static str,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The kernel has no such family.
    #[error("LS1332 this kernel has no netlink family {0}: it is older than its interface, or built without it")]
    NoFamily(&'static str),
    /// The kernel refuses the request.
    #[error("LS1333 the kernel refuses {what}{}", text.as_deref().map(|t| format!(", saying: {t}")).unwrap_or_default())]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The kernel's number.
        source: io::Error,
        /// The kernel's text, where it gives one.
        text: Option<String>,
    },
    /// An answer that cannot be read.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// An answer without what it must have.
    #[error("LS1334 the answer to {what} has no {field}")]
    Missing {
        /// What was asked.
        what: &'static str,
        /// What is missing.
        field: &'static str,
    },
}

impl Error {
    /// The kernel's error number, where it refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// A socket. What was bound through it stays bound as long as it is open.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Most bytes of one datagram: the kernel makes them of 32 KiB at most.
const DATAGRAM: usize = 64 << 10;

impl Socket {
    /// Opens a generic netlink socket.
    ///
    /// # Errors
    /// [`Error::System`]: `socket(2)` failed.
    pub fn open() -> Result<Socket, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: takes no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) };
        if fd < 0 {
            return Err(Error::System { call: "socket", source: io::Error::last_os_error() });
        }
        // SAFETY: a descriptor that was just made for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let on: libc::c_int = 1;
            // SAFETY: reads one integer. Kernels that do not know an option answer without texts.
            unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_NETLINK, option, (&raw const on).cast(), 4) };
        }
        Ok(Socket { fd, sequence: 0 })
    }

    /// The number of a family.
    pub(crate) fn family(&mut self, name: &'static str) -> Result<u16, Error> {
        let text = format!("{name}\0");
        let request = Request::new(CONTROLLER, ACK, GET_FAMILY, 1).bytes(FAMILY_NAME, text.as_bytes());
        let mut id = None;
        let asked = self.ask("a netlink family", request, |attrs| {
            id = attrs.u16(FAMILY_ID)?;
            Ok(())
        });
        match asked {
            Err(error) if error.errno() == Some(libc::ENOENT) => Err(Error::NoFamily(name)),
            Err(error) => Err(error),
            Ok(()) => id.ok_or(Error::Missing { what: "a netlink family", field: "number" }),
        }
    }

    /// Sends a request and hands the attributes of each object of the answer to `each`, until the kernel says that it
    /// is done.
    pub(crate) fn ask(
        &mut self,
        what: &'static str,
        request: Request,
        mut each: impl FnMut(Attrs<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        // SAFETY: reads as many bytes as there are.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 {
            return Err(Error::System { call: "send", source: io::Error::last_os_error() });
        }
        let mut datagram = vec![0u8; DATAGRAM];
        loop {
            // SAFETY: writes at most as many bytes as there are.
            let n = unsafe { libc::recv(self.fd.as_raw_fd(), datagram.as_mut_ptr().cast(), DATAGRAM, 0) };
            let Ok(n) = usize::try_from(n) else {
                let source = io::Error::last_os_error();
                if source.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(Error::System { call: "recv", source });
            };
            for answer in answers(&datagram[..n], self.sequence)? {
                match answer {
                    NetlinkReply::Object(attrs) => each(attrs)?,
                    NetlinkReply::End(0, _) => return Ok(()),
                    NetlinkReply::End(code, text) => {
                        let source = io::Error::from_raw_os_error(code.saturating_neg());
                        return Err(Error::Refused { what, source, text });
                    }
                }
            }
        }
    }
}

/// A request that the kernel acknowledges.
pub(crate) fn request(family: u16, command: u8) -> Request {
    Request::new(family, ACK, command, 1)
}

/// A request for all objects of a kind.
pub(crate) fn dump(family: u16, command: u8) -> Request {
    Request::new(family, DUMP, command, 1)
}
