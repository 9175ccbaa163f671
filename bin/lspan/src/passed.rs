//! Sockets that a service manager has opened and passes on (`LISTEN_FDS` of sd_listen_fds(3)).

use std::io::{Error, ErrorKind, Result};
use std::net::TcpListener;

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// TCP sockets that listen; none where this process was not started by one. Those that were passed stay open beside these, which are the
/// same sockets.
///
/// # Errors
/// [`ErrorKind::InvalidInput`]: a descriptor that was passed is no TCP socket that listens. Else the error of pidfd_open(2) or
/// pidfd_getfd(2), as EBADF.
pub(crate) fn listeners() -> Result<Vec<TcpListener>> {
    let passed = sd_notify::listen_fds()?;
    if passed.len() == 0 {
        return Ok(Vec::new());
    }
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let listener = |fd| {
        let socket = pidfd_getfd(&own, fd, PidfdGetfdFlags::empty())?;
        let is_tcp = matches!(socket_domain(&socket), Ok(AddressFamily::INET | AddressFamily::INET6))
            && socket_type(&socket) == Ok(SocketType::STREAM);
        match is_tcp && socket_acceptconn(&socket) == Ok(true) {
            true => Ok(TcpListener::from(socket)),
            false => {
                let why =
                    format!("descriptor {fd} is no TCP socket that listens; write ListenStream=PORT and Accept=no");
                Err(Error::new(ErrorKind::InvalidInput, why))
            }
        }
    };
    passed.map(listener).collect()
}
