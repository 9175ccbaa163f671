//! A cable as the name of a peer: `cable` is the host at the other end of the only one, `cable2` that of the second, and the name that such
//! a host announces is it too. It is found by the interface on the cable, and by who answers there.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use linkspan_net::{interfaces, neighbours};
use linkspan_topology::{IfFilter, Machine, Roots};

/// A cable that leads to one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CablePort {
    /// What it is called here: `cable1` and so on.
    pub name: String,
    /// The cable (`0-1`) or the interface.
    pub cable: String,
    /// The interface on it; `None` where no driver made one.
    pub interface: Option<String>,
    /// What the host at the other end announces, which nothing proves.
    pub peer: Option<String>,
    /// The UUID of its host router.
    id: Option<String>,
    /// Addresses from which it was heard, IPv4.
    heard: Vec<IpAddr>,
}

impl CablePort {
    /// For messages: `cable1 (0-1, thunderbolt0)`.
    pub fn shown(&self) -> String {
        let mut parts = vec![self.cable.clone()];
        parts.extend(self.interface.clone().filter(|interface| *interface != self.cable));
        parts.extend(self.peer.as_ref().map(|peer| format!("to {peer}")));
        format!("{} ({})", self.name, parts.join(", "))
    }

    /// The host at its other end, for people.
    pub fn host(&self) -> String {
        self.peer.clone().unwrap_or_else(|| format!("the host at the other end of {}", self.name))
    }
}

/// Which cable a name means: `Some(0)` any, `Some(n)` the n-th; `None` where it means none.
pub fn number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("cable")?;
    match digits {
        "" => Some(0),
        _ if digits.len() < 4 && digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok().filter(|n| *n > 0),
        _ => None,
    }
}

/// The cables of this machine, as they are numbered.
pub fn ports() -> Vec<CablePort> {
    // A list that cannot be understood is told of by whatever uses it.
    let filter = IfFilter::from_env(|name| std::env::var(name).ok()).ok().flatten();
    let present = interfaces().unwrap_or_default().into_iter().map(|one| one.name);
    of(&Machine::read(&Roots::default()), filter.as_ref(), &present.collect::<Vec<_>>())
}

/// Thunderbolt and USB4 cables with a host at their end by name, then ports of RDMA cards and interfaces that a list of names asks for.
fn of(machine: &Machine, filter: Option<&IfFilter>, present: &[String]) -> Vec<CablePort> {
    let own: Vec<&String> = machine
        .thunderbolt
        .iter()
        .filter_map(|domain| domain.routers.iter().find(|router| router.route == 0)?.unique_id.as_ref())
        .collect();
    let mut list = Vec::new();
    let mut add = |cable: &str, interface: Option<&str>, peer: Option<&String>, id: Option<&String>| {
        let heard = machine.neighbours.iter().filter(|one| Some(&*one.interface) == interface).map(|one| one.ip.into());
        list.push(CablePort {
            name: format!("cable{}", list.len() + 1),
            cable: cable.to_owned(),
            interface: interface.map(str::to_owned),
            peer: peer.cloned(),
            id: id.cloned(),
            heard: heard.collect(),
        });
    };
    let mut taken = Vec::new();
    for xdomain in machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains) {
        let interface = xdomain.services.iter().find_map(|service| service.interface.as_deref());
        taken.extend(interface);
        if xdomain.unique_id.as_ref().is_some_and(|id| own.contains(&id)) {
            continue;
        }
        add(&xdomain.name, interface, xdomain.device_name.as_ref(), xdomain.unique_id.as_ref());
    }
    let ports = machine.rdma.iter().flat_map(|device| &device.ports).filter_map(|port| port.interface.as_deref());
    let asked =
        present.iter().map(String::as_str).filter(|name| filter.is_some_and(|f| f.asks_for(name)) && *name != "lo");
    let mut others: Vec<&str> = ports.chain(asked).filter(|name| !taken.contains(name)).collect();
    others.sort_unstable();
    others.dedup();
    others.into_iter().for_each(|name| add(name, Some(name), None, None));
    list
}

/// The ports that a name means, all of them to one host; else why not.
pub(crate) fn choose(
    ports: &[CablePort],
    number: usize,
    heard: &dyn Fn(&CablePort) -> bool,
) -> Result<Vec<CablePort>, String> {
    let all = || ports.iter().map(CablePort::shown).collect::<Vec<_>>().join(", ");
    if ports.is_empty() {
        return Err("there is no cable with a host at its other end; `lspan doctor` says what is missing".into());
    }
    if number > 0 {
        let one = ports.get(number - 1).cloned();
        return one.map(|port| vec![port]).ok_or_else(|| format!("there is no such cable; there are {}", all()));
    }
    // Ports of network cards may lead to a switch, or nowhere: those that nobody answers on are not meant.
    let known: Vec<&CablePort> = ports.iter().filter(|port| port.id.is_some()).collect();
    let meant = match known.is_empty() {
        false => known,
        true if ports.len() == 1 => ports.iter().collect(),
        true => ports.iter().filter(|port| heard(port)).collect(),
    };
    let Some(first) = meant.first() else { return Err(format!("nobody answers on {}", all())) };
    if meant.len() > 1 && (first.id.is_none() || meant.iter().any(|port| port.id != first.id)) {
        return Err(format!("there are several cables: name one of {}", all()));
    }
    Ok(meant.into_iter().cloned().collect())
}

/// Addresses of the host at the other end; an error is a sentence.
pub(crate) fn addresses(port: &CablePort, service: u16) -> Result<Vec<SocketAddr>, String> {
    let Some(name) = &port.interface else {
        return Err(format!("{} has no network interface; `lspan doctor` says what is missing", port.shown()));
    };
    let own = interfaces().unwrap_or_default();
    let mine = |addr: IpAddr| own.iter().any(|one| one.addr == addr);
    let mut found: Vec<SocketAddr> = Vec::new();
    let mut why = format!("nobody answers on {name}");
    match own.iter().find(|one| one.name == *name) {
        None => why = format!("{name} has no address, not even a link-local one"),
        Some(one) => match neighbours(one.index) {
            Ok(heard) => {
                let others = heard.into_iter().filter(|addr| !mine((*addr).into()));
                found.extend(others.map(|addr| SocketAddr::from(SocketAddrV6::new(addr, service, 0, one.index))));
            }
            Err(error) => {
                why = format!("nobody could be asked on {name}: {error} (root may, or net.ipv4.ping_group_range)");
            }
        },
    }
    if found.len() > 1 {
        return Err(format!("{} hosts answer on {name}, which is no cable to one of them: name the host", found.len()));
    }
    found.extend(port.heard.iter().filter(|addr| !mine(**addr)).map(|addr| SocketAddr::new(*addr, service)));
    if found.is_empty() && off(name) {
        why = format!("{name} is switched off: type `sudo ip link set {name} up`");
    }
    if found.is_empty() { Err(format!("{}: {why}", port.shown())) } else { Ok(found) }
}

/// Whether an interface is switched off (IFF_UP, netdevice(7)).
fn off(name: &str) -> bool {
    let flags = Roots::default().text(&format!("/sys/class/net/{name}/flags"));
    let flags = flags.and_then(|hex| u32::from_str_radix(hex.trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|flags| flags & 1 == 0)
}

#[cfg(test)]
mod tests;
