//! Everything in one look.

use crate::gpu::{self, Gpu};
use crate::look::Look;
use crate::neighbour::{self, Neighbour};
use crate::pci::{Distance, PciPlace, distance};
use crate::rdma::{self, RdmaDevice};
use crate::sysfs::Roots;
use crate::thunderbolt::{self, Domain};
use crate::{Host, Interface};

/// What is in the machine beside its network interfaces ([`crate::interfaces`] lists those, for their addresses come
/// from the kernel's own call).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The host itself.
    pub host: Host,
    /// Thunderbolt and USB4.
    pub thunderbolt: Vec<Domain>,
    /// RDMA devices.
    pub rdma: Vec<RdmaDevice>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Hosts that answered on interfaces of this network namespace.
    pub neighbours: Vec<Neighbour>,
    /// What was there but made no sense, a sentence each; bounded.
    pub notes: Vec<String>,
}

impl Machine {
    /// Reads the machine below `roots`, without privileges and without waking anything up: some hundred small files,
    /// and one per PCI function. What is missing is empty; what is malformed is empty with a note.
    pub fn read(roots: &Roots) -> Machine {
        let mut look = Look::new(roots);
        Machine {
            host: Host::read(roots),
            thunderbolt: thunderbolt::read(&mut look),
            rdma: rdma::read(&mut look),
            gpus: gpu::read(&mut look),
            neighbours: neighbour::read(roots),
            notes: look.notes,
        }
    }

    /// What GPUs send through, by name: RDMA devices, network interfaces that have none, and Thunderbolt host interfaces
    /// (`domain0`), with their places.
    pub fn ends(&self, interfaces: &[&Interface]) -> Vec<(String, PciPlace)> {
        let rdma = self.rdma.iter().filter_map(|device| Some((device.name.clone(), device.pci.clone()?)));
        let plain = interfaces.iter().filter_map(|iface| Some((iface.name.clone(), iface.place()?)));
        let plain = plain.filter(|(_, place)| {
            let same = |other: Option<&PciPlace>| other.is_some_and(|other| other.address() == place.address());
            !self.rdma.iter().any(|device| same(device.pci.as_ref()))
                && !self.thunderbolt.iter().any(|domain| same(domain.pci.as_ref()))
        });
        let hosts = self.thunderbolt.iter();
        let hosts = hosts.filter_map(|domain| Some((format!("domain{}", domain.number), domain.pci.clone()?)));
        rdma.chain(plain).chain(hosts).collect()
    }

    /// How far apart two functions of this machine are.
    pub fn distance(&self, a: &PciPlace, b: &PciPlace) -> Distance {
        distance(a, b, self.host.numa.len())
    }
}

#[cfg(test)]
mod tests;
