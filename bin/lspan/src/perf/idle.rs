//! Cables of this host that a connection does not use, and why. A cable may lead to another host than the peer, so that one
//! is idle is told and is no downgrade.

use linkspan_fabric::Fabric;
use linkspan_topology::{Cable, Machine, Means, Medium, Roots, cables};

use crate::status::XDOMAIN_OFF;

/// The Thunderbolt and USB4 cables of this host, and what hides some.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    cables: Vec<Cable>,
    off: bool,
}

impl Idle {
    /// Those of this host, as the fabric judges its interfaces.
    pub(crate) fn read(fabric: &Fabric) -> Idle {
        let machine = Machine::read(&Roots::default());
        Idle::of(&machine, cables(&machine, fabric.survey()))
    }

    fn of(machine: &Machine, cables: Vec<Cable>) -> Idle {
        let off = machine.thunderbolt.iter().any(|domain| domain.xdomain_off);
        Idle { cables: cables.into_iter().filter(|cable| cable.medium == Medium::Thunderbolt).collect(), off }
    }

    /// A sentence for each that none of these rails uses. Where a cable's own driver carries, it is not known which is idle.
    pub(crate) fn beside(&self, rails: &[String]) -> Vec<String> {
        let has = |word: &str| rails.iter().flat_map(|line| line.split_whitespace()).any(|said| said == word);
        if rails.iter().any(|line| line.starts_with("shm") || line.starts_with("thunderbolt")) {
            return Vec::new();
        }
        let mut said = Vec::new();
        if self.off {
            said.push(format!("no cable is used: {XDOMAIN_OFF}"));
        }
        for cable in &self.cables {
            let Some(peer) = cable.peer.as_ref().filter(|peer| !peer.this_host) else { continue };
            if cable.paths.iter().any(|path| !path.over.is_empty() && has(&path.over)) {
                continue;
            }
            let Some(tcp) = cable.paths.iter().find(|path| path.means == Means::Tcp) else { continue };
            let why = match (&tcp.reason, tcp.usable) {
                (Some(why), false) => format!("{} {why}", tcp.over),
                _ => format!(
                    "nobody answered over {}: the peer is another host, has no address there, or a firewall is between",
                    tcp.over
                ),
            };
            let name = peer.device_name.as_deref().unwrap_or("an unnamed host");
            said.push(format!("the cable {} to {name} is not used: {}", cable.name, why.trim_start()));
        }
        said
    }
}

#[cfg(test)]
mod tests;
