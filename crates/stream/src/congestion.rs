//! Which congestion control a stream uses, and why.

use std::net::IpAddr;

use socket2::Socket;

use crate::Error;

/// The congestion control of a stream.
///
/// The system's default stays, unless the peer is on this machine or a private network and the default is not one of
/// `cubic`, `dctcp` and `reno`. BBR paces its packets by timer, and costs a factor of about three on loopback and
/// fast local networks. Then cubic is taken, or reno where this process may not choose cubic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Name, as in `cubic`.
    pub name: String,
    /// Why this one, for people.
    pub reason: String,
}

/// Loss-based controls that do not pace: good on short ways.
const GOOD_NEARBY: [&str; 3] = ["cubic", "dctcp", "reno"];

impl Congestion {
    /// Sets what `requested` and `peer` ask for.
    pub(crate) fn apply(socket: &Socket, requested: Option<&str>, peer: IpAddr) -> Result<Congestion, Error> {
        // All addresses of this machine are worth a look only where the answer counts.
        let place = || nearness(peer).or_else(|| is_ours(peer.to_canonical()).then_some("on this machine"));
        Congestion::choose(socket, requested, place)
    }

    /// The same for a listener: its own address tells how near its peers are, unless it is a public one.
    pub(crate) fn apply_listening(socket: &Socket, requested: Option<&str>, own: IpAddr) -> Result<Congestion, Error> {
        Congestion::choose(socket, requested, || nearness(own))
    }

    fn choose(
        socket: &Socket,
        requested: Option<&str>,
        place: impl FnOnce() -> Option<&'static str>,
    ) -> Result<Congestion, Error> {
        let now = current(socket);
        if let Some(name) = requested {
            if name != now {
                let refused = |source| Error::Congestion { name: name.to_owned(), source };
                socket.set_tcp_congestion(name.as_bytes()).map_err(refused)?;
            }
            return Ok(Congestion { name: name.to_owned(), reason: "as asked for".to_owned() });
        }
        let place = if GOOD_NEARBY.contains(&now.as_str()) { None } else { place() };
        let Some(place) = place else {
            return Ok(Congestion { name: now, reason: "by the system's default".to_owned() });
        };
        for name in ["cubic", "reno"] {
            if socket.set_tcp_congestion(name.as_bytes()).is_ok() {
                let reason = format!("instead of the default {now}, because the peer is {place}");
                return Ok(Congestion { name: name.to_owned(), reason });
            }
        }
        let reason = format!(
            "by the system's default; the peer is {place} and cubic or reno would be faster, but the kernel refused both"
        );
        Ok(Congestion { name: now, reason })
    }
}

/// The control a socket has now. Empty where the system does not say.
fn current(socket: &Socket) -> String {
    let name = socket.tcp_congestion().unwrap_or_default();
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// In which way an address is near, if it is. Link-local: RFC 3927, RFC 4291; private: RFC 1918, RFC 4193.
fn nearness(ip: IpAddr) -> Option<&'static str> {
    let ip = ip.to_canonical();
    let (link_local, private) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_private()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.is_unique_local()),
    };
    if ip.is_loopback() {
        Some("on this machine")
    } else if link_local {
        Some("on the same link")
    } else if private {
        Some("on a private network")
    } else {
        None
    }
}

/// Whether the address is one of this machine's, whose traffic never leaves it.
fn is_ours(ip: IpAddr) -> bool {
    linkspan_net::interfaces().is_ok_and(|list| list.iter().any(|i| i.addr == ip))
}

#[cfg(test)]
mod tests;
