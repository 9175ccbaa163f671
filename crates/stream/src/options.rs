//! What a socket is given before it connects or after it is accepted.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Socket, TcpKeepalive};

use crate::{Congestion, Error};

/// Options of a stream. [`Options::default`] is right for nearly everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Congestion control by name, or `None`: chosen as [`Congestion`] says.
    pub congestion: Option<String>,
    /// Traffic class: the whole byte of IP_TOS (IPv4) or IPV6_TCLASS.
    pub traffic_class: Option<u8>,
    /// SO_SNDBUF, bytes. `None`: the kernel sizes it as it goes, which is nearly always faster.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes. `None`: as above; a fixed one below 4 MiB costs up to half of the speed on loopback.
    pub recv_buffer: Option<usize>,
    /// Use this interface only, whatever the routes say (SO_BINDTODEVICE).
    pub device: Option<String>,
}

/// Silence after which the kernel asks an idle peer whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered questions that prove the host dead: 10 + 3 * 5 = 25 s, inside the promised 30 s.
const KEEPALIVE_COUNT: u32 = 3;

impl Options {
    /// Gives a socket everything but the congestion control. `ip` decides between the two families.
    pub(crate) fn apply(&self, socket: &Socket, ip: IpAddr) -> Result<(), Error> {
        set("TCP_NODELAY", true, socket.set_tcp_nodelay(true))?;
        // Safe on data too: while bytes are outstanding the keepalive timer only waits, and a full window is
        // answered by the peer's kernel. TCP_USER_TIMEOUT would count a full window as death, so it stays unset.
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_COUNT);
        set("SO_KEEPALIVE", "10 s, 5 s, 3 times", socket.set_tcp_keepalive(&keepalive))?;
        if let Some(class) = self.traffic_class {
            match ip {
                IpAddr::V4(_) => set("IP_TOS", class, socket.set_tos_v4(class.into()))?,
                IpAddr::V6(_) => set("IPV6_TCLASS", class, socket.set_tclass_v6(class.into()))?,
            }
        }
        if let Some(bytes) = self.send_buffer {
            set("SO_SNDBUF", bytes, socket.set_send_buffer_size(bytes))?;
        }
        if let Some(bytes) = self.recv_buffer {
            set("SO_RCVBUF", bytes, socket.set_recv_buffer_size(bytes))?;
        }
        Ok(())
    }

    /// Ties a socket that is not yet bound to the interface, and spares ports on outgoing connections.
    pub(crate) fn apply_unbound(&self, socket: &Socket, dialling: bool) -> Result<(), Error> {
        if let Some(device) = &self.device {
            set("SO_BINDTODEVICE", device, socket.bind_device(Some(device.as_bytes())))?;
        }
        if dialling {
            // Saves ports and nothing else: a kernel without it connects as well.
            let _ = linkspan_net::bind_late_port(socket.as_fd());
        }
        Ok(())
    }

    /// Picks and sets the congestion control.
    pub(crate) fn apply_congestion(&self, socket: &Socket, peer: IpAddr) -> Result<Congestion, Error> {
        Congestion::apply(socket, self.congestion.as_deref(), peer)
    }

    /// The same for a socket that listens on `own`.
    pub(crate) fn apply_listening(&self, socket: &Socket, own: IpAddr) -> Result<Congestion, Error> {
        Congestion::apply_listening(socket, self.congestion.as_deref(), own)
    }
}

fn set(option: &'static str, value: impl ToString, result: std::io::Result<()>) -> Result<(), Error> {
    result.map_err(|source| Error::Option { option, value: value.to_string(), source })
}
