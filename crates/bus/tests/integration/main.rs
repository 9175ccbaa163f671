//! The interfaces over a real bus, and their XML.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

mod bus;
mod lending;
mod objects;
mod watching;

use std::sync::Arc;

use linkspan_service::system::{Places, System};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};

/// UUID of the host at the fixture's cable.
const PEER: &str = "d2040000-0080-7518-b3c8-e1ac3a6b0201";

/// A service on a machine of our own making, whose cable can be pulled.
struct Machine {
    fix: Fixture,
    system: Arc<System>,
}

impl Machine {
    fn new() -> Machine {
        Machine::with_cards(Arc::new(linkspan_service::devmem::kernel_cards))
    }

    fn with_cards(cards: Arc<linkspan_service::devmem::Cards>) -> Machine {
        let fix = Fixture::tree(STRIX_HALO);
        let at = |name: &str| fix.root.join(name);
        let places = Places { root: fix.root.clone(), allowed: at("var"), statistics: at("stats"), devmem: at("run") };
        let system = Arc::new(System::new(places, 100, Box::new(|_, _| {})).with_cards(cards));
        let machine = Machine { fix, system };
        machine.look();
        machine
    }

    fn look(&self) {
        self.system.look(&std::collections::BTreeSet::new());
    }

    /// Pulls the cable, or plugs it in again.
    fn plug(&self, there: bool) {
        let (cable, away) = (self.fix.root.join("sys/bus/thunderbolt/devices/0-1"), self.fix.root.join("away"));
        match there {
            true => std::fs::rename(away, cable).unwrap(),
            false => std::fs::rename(cable, away).unwrap(),
        }
        self.look();
    }
}

/// Whether this process is root, by the owner of what it makes.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
