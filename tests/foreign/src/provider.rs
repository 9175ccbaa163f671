//! How a rail comes up: the side that connects listens at a random name, tells it beside the stream, and proves by an answer on the
//! stream that it was the peer who came.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use linkspan_transport::{BoxRail, Offer, Provider, Role, Setup, Site};

use crate::{NAME, UnixRail};

/// Bytes of a name, and of what proves who came.
const SECRET: usize = 16;

/// The answers on the stream: the peer has connected, and it was taken in.
const CAME: u8 = 1;
const TAKEN: u8 = 2;

pub(crate) struct AfUnix;

impl Provider for AfUnix {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a Unix socket"
    }

    fn support(&self) -> Result<String, String> {
        Ok("with processes on this host".to_owned())
    }

    fn offer(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String> {
        Ok(Box::new(Here { limit: site.limit }))
    }
}

struct Here {
    limit: Duration,
}

impl Offer for Here {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wanted(&self) -> usize {
        1
    }

    fn make(&self, n: usize, role: Role) -> Result<Vec<Box<dyn Setup>>, String> {
        let one =
            |_| -> Result<Box<dyn Setup>, String> { Ok(Box::new(Coming::new(role, Instant::now() + self.limit)?)) };
        (0..n).map(one).collect()
    }
}

struct Coming {
    /// Of the side that connects.
    listener: Option<UnixListener>,
    secret: [u8; SECRET],
    inbox: Vec<u8>,
    out: Vec<u8>,
    until: Instant,
    socket: Option<UnixStream>,
    done: bool,
}

fn address(name: &[u8]) -> Result<SocketAddr, String> {
    let name: Vec<u8> = name.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    SocketAddr::from_abstract_name([b"foreign-", &name[..]].concat()).map_err(|e| e.to_string())
}

impl Coming {
    fn new(role: Role, until: Instant) -> Result<Coming, String> {
        let mut coming = Coming {
            listener: None,
            secret: [0; SECRET],
            inbox: Vec::new(),
            out: Vec::new(),
            until,
            socket: None,
            done: false,
        };
        if role == Role::Caller {
            let mut name = [0; SECRET];
            getrandom::fill(&mut name).and_then(|()| getrandom::fill(&mut coming.secret)).map_err(|e| e.to_string())?;
            let listener = UnixListener::bind_addr(&address(&name)?).map_err(|e| format!("bind: {e}"))?;
            listener.set_nonblocking(true).map_err(|e| e.to_string())?;
            coming.listener = Some(listener);
            coming.out = [name, coming.secret].concat();
        }
        Ok(coming)
    }

    /// Takes in those who came, until one knows the secret.
    fn take(&mut self, listener: &UnixListener) -> Result<(), String> {
        loop {
            let (mut socket, _) = listener.accept().map_err(|e| format!("accept: {e}"))?;
            socket.set_nonblocking(true).map_err(|e| e.to_string())?;
            let mut told = [0; SECRET];
            // It was sent before the answer on the stream.
            if socket.read_exact(&mut told).is_ok() && told == self.secret {
                self.socket = Some(socket);
                return Ok(());
            }
        }
    }
}

impl Setup for Coming {
    fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn input(&mut self, bytes: &[u8]) -> Result<usize, String> {
        self.inbox.extend_from_slice(bytes);
        match (self.listener.take(), &self.inbox[..]) {
            (Some(listener), [CAME]) => {
                self.take(&listener)?;
                self.out.push(TAKEN);
                self.done = true;
            }
            (None, [TAKEN]) if self.socket.is_some() => self.done = true,
            (None, told) if self.socket.is_none() && told.len() == 2 * SECRET => {
                let (name, secret) = told.split_at(SECRET);
                let mut socket = UnixStream::connect_addr(&address(name)?).map_err(|e| format!("connect: {e}"))?;
                socket.set_nonblocking(true).map_err(|e| e.to_string())?;
                socket.write_all(secret).map_err(|e| format!("send: {e}"))?;
                self.socket = Some(socket);
                self.out.push(CAME);
            }
            (None, told) if self.socket.is_none() && told.len() < 2 * SECRET => return Ok(bytes.len()),
            _ => return Err("the peer sent what no peer of this version sends".into()),
        }
        self.inbox.clear();
        Ok(bytes.len())
    }

    fn poll(&mut self, now: Instant) -> Result<(), String> {
        if self.done || now < self.until { Ok(()) } else { Err(format!("{}", ErrorKind::TimedOut)) }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn finish(self: Box<Self>) -> Result<BoxRail, String> {
        let socket = self.socket.filter(|_| self.done).ok_or("it is not up")?;
        Ok(Box::new(UnixRail::new(socket)))
    }
}
