//! What changes on this machine, as events: cables by what sysfs shows, jobs by what their statistics pages count. What there was
//! before is handed in or kept here, so that no two readers disturb each other.

mod cables;
mod jobs;
mod kernel;

use std::collections::BTreeSet;

use linkspan_topology::{AddrEntry, Cable, Machine, Roots, cables as all_cables, default_routes, interfaces, judge};

pub use cables::CableWatch;
pub use jobs::JobWatch;
pub(crate) use kernel::AddressWatch;
pub use kernel::{Changes, KernelWatch};

/// A look at the machine: its cables, and the UUIDs of its own host routers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Cables that have something at their other end.
    pub cables: Vec<Cable>,
    /// UUIDs of this host's own Thunderbolt routers, in lower case.
    pub own: BTreeSet<String>,
}

impl Look {
    /// Looks, without waking anything up: some hundred small files. Addresses are those of this network namespace where `roots` is the
    /// machine's own, else none.
    pub fn take(roots: &Roots) -> Look {
        let machine = Machine::read(roots);
        let entries = if *roots == Roots::default() { addresses() } else { Vec::new() };
        let list = interfaces(roots, &entries);
        let verdicts = judge(&list, None, &default_routes(roots));
        let survey: Vec<_> = list.into_iter().zip(verdicts).collect();
        let routers = machine.thunderbolt.iter().flat_map(|domain| &domain.routers).filter(|router| router.route == 0);
        let own = routers.filter_map(|router| Some(router.unique_id.as_ref()?.to_ascii_lowercase())).collect();
        Look { cables: all_cables(&machine, &survey), own }
    }
}

fn addresses() -> Vec<AddrEntry> {
    let all = linkspan_net::interfaces().unwrap_or_default().into_iter();
    all.map(|i| AddrEntry::new(i.name, i.index, i.addr, i.prefix)).collect()
}

#[cfg(test)]
mod tests;
