//! What both sides say over the connection: who they are, and that they have stored the other.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linkspan_fabric::keys::{HOSTS_MAX, KeyError, Keyring, LINE_MAX, NAME_MAX, Peer};
use linkspan_fabric::{Channel, Fabric, SwapError};

use super::{Names, PairError, Paired, shown};

const WHO: u32 = 1;
const STORED: u32 = 2;

/// How long the peer may take for each of its two messages.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(
    channel: Channel,
    fabric: &Fabric,
    ring: &Keyring,
    names: &Names,
    stop: &dyn Fn() -> bool,
) -> Result<Paired, PairError> {
    let broken = |why: &str| PairError::Broken { why: why.to_owned() };
    let proven = *channel.peer_key().ok_or_else(|| broken("the peer logged in without a key"))?;
    let own = Peer { name: names.own.clone(), key: ring.public(), hosts: own_hosts(fabric) };
    let (channel, heard) = swap(channel, WHO, own.line().as_bytes(), LINE_MAX, stop)?;
    let text = String::from_utf8(heard).map_err(|_| broken("the peer's line is not text"))?;
    let said = Peer::parse(&text).map_err(|error| PairError::Broken { why: error.to_string() })?;
    if said.key != proven {
        return Err(broken("the peer names another key than it has proven to have"));
    }
    let mut hosts: Vec<String> = reached(&channel).into_iter().collect();
    hosts.extend(said.hosts.into_iter().filter(|host| !hosts.contains(host)).collect::<Vec<_>>());
    hosts.truncate(HOSTS_MAX);
    let mut peer = Peer { name: names.peer.clone().unwrap_or_else(|| said.name.clone()), key: proven, hosts };
    store(ring, &mut peer, names.peer.is_none())?;
    // What follows changes nothing any more.
    let confirmed = swap(channel, STORED, b"1", 1, &|| false).is_ok();
    Ok(Paired { says: said.name, fingerprint: shown(ring, &peer), peer, confirmed })
}

/// Stores the peer. Where it may, a name that another has gets a number; a key that is known keeps its name.
fn store(ring: &Keyring, peer: &mut Peer, may_rename: bool) -> Result<(), PairError> {
    if may_rename && let Some(known) = ring.peers().iter().find(|known| known.key == peer.key) {
        peer.name.clone_from(&known.name);
    }
    let base = peer.name.clone();
    for n in 2.. {
        match ring.add(peer.clone()) {
            Err(KeyError::Taken { .. }) if may_rename && n < 1000 => {
                let number = format!("-{n}");
                peer.name = format!("{}{number}", &base[..base.len().min(NAME_MAX - number.len())]);
            }
            other => return Ok(other?),
        }
    }
    Ok(())
}

/// The addresses of this host that mean the same on others.
fn own_hosts(fabric: &Fabric) -> Vec<String> {
    let usable = fabric.survey().iter().filter(|(_, verdict)| verdict.is_usable());
    let addrs = usable.flat_map(|(iface, _)| &iface.addrs);
    let elsewhere = |ip: &IpAddr| !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut hosts: Vec<String> = addrs.map(|addr| addr.ip).filter(elsewhere).map(|ip| ip.to_string()).collect();
    hosts.truncate(HOSTS_MAX);
    hosts
}

/// The peer's address on this connection, with its interface where it means something there only.
fn reached(channel: &Channel) -> Option<String> {
    let path = &channel.rails().next()?.path;
    let (here, there) = path.split_once("->")?;
    let there: SocketAddr = there.split_whitespace().find_map(|word| word.parse().ok())?;
    let interface = here.split_whitespace().next()?;
    match there.ip() {
        ip if ip.is_loopback() => None,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            Some(format!("{ip}%{interface}")).filter(|host| linkspan_fabric::keys::is_host(host))
        }
        ip => Some(ip.to_string()),
    }
}

/// Sends a message and receives the peer's of the same kind.
fn swap(
    channel: Channel,
    tag: u32,
    message: &[u8],
    most: usize,
    stop: &dyn Fn() -> bool,
) -> Result<(Channel, Vec<u8>), PairError> {
    channel.swap(tag, message, most, Instant::now() + PATIENCE, stop).map_err(|error| match error {
        SwapError::Stopped => PairError::Cancelled,
        SwapError::Silent => PairError::Broken { why: format!("the peer said nothing for {} s", PATIENCE.as_secs()) },
        SwapError::Ended(why) => PairError::Broken { why },
    })
}
