//! Thunderbolt cables with a host at the other end.

use crate::cable::network::{ports, rdma};
use crate::cable::{Cable, CablePath, Means, Medium, Peer};
use crate::{Domain, Interface, Machine, PciPlace, RdmaDevice, Service, Verdict, XDomain};

/// Protocol id of Apple's RDMA over Thunderbolt (key `rdma`), as macOS 26.2 announces it: 0xFA57.
const APPLE_RDMA: u32 = 64087;

/// Linux with `tb_ring_throttling()`; before, `nhi_enable_int_throttling()` has one interval for all rings.
const RING_THROTTLING: (u32, u32) = (7, 2);

pub(super) fn cables(machine: &Machine, survey: &[(Interface, Verdict)]) -> Vec<Cable> {
    let all: Vec<&XDomain> = machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains).collect();
    all.iter()
        .map(|xdomain| {
            let peer = peer(machine, &all, xdomain);
            let mut paths = Vec::new();
            for service in xdomain.services.iter().filter(|service| service.key.as_deref() != Some("network")) {
                // linkspan.ko in mode network.
                let Some(name) = service.interface.as_ref().filter(|_| service.key.as_deref() == Some("linkspan"))
                else {
                    paths.push(other(xdomain, service));
                    continue;
                };
                paths.push(CablePath::tcp(name, survey));
                soft(&mut paths, machine, name);
            }
            // After the driver's own interface, which has more rings.
            let tcp = network(xdomain, survey);
            let name = tcp.over.clone();
            paths.push(tcp);
            soft(&mut paths, machine, &name);
            devices(&mut paths, machine, xdomain);
            Cable {
                medium: Medium::Thunderbolt,
                name: xdomain.name.clone(),
                link: xdomain.link,
                notes: notes(machine, xdomain, &peer, &paths),
                peer: Some(peer),
                neighbours: Vec::new(),
                neighbour_count: 0,
                paths,
            }
        })
        .collect()
}

/// RDMA on a network interface of the cable: soft-RoCE, or a driver that names the interface in its GIDs.
fn soft(paths: &mut Vec<CablePath>, machine: &Machine, interface: &str) {
    paths.extend(ports(machine, interface).iter().map(|(device, port)| rdma(device, port)));
}

/// RDMA devices that a driver of somebody else has made of the cable (`usb4_rdma0`), below it in sysfs, or of all cables of the
/// host interface, below that.
fn devices(paths: &mut Vec<CablePath>, machine: &Machine, xdomain: &XDomain) {
    let host = domain(machine, xdomain).and_then(|domain| domain.pci.as_ref()).map(PciPlace::address);
    let here = |device: &&RdmaDevice| match &device.xdomain {
        Some(name) => *name == xdomain.name,
        None => host.is_some() && device.pci.as_ref().map(PciPlace::address) == host,
    };
    for device in machine.rdma.iter().filter(here) {
        for port in &device.ports {
            let mut path = rdma(device, port);
            let known = paths.iter().any(|known| known.means == Means::Rdma && known.over == path.over);
            let of_another = |name| device.xdomain.is_none() && of_another(machine, xdomain, name);
            if known || port.interface.as_deref().is_some_and(of_another) {
                continue;
            }
            if path.usable && port.interface.is_none() {
                path = CablePath::no(
                    Means::Rdma,
                    &path.over,
                    "no network interface has its GIDs, by which linkspan finds the peer",
                );
            }
            paths.push(path);
        }
    }
}

/// Whether this is the network interface of another cable.
fn of_another(machine: &Machine, xdomain: &XDomain, interface: &str) -> bool {
    let others = machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains).filter(|x| x.name != xdomain.name);
    others.flat_map(|other| &other.services).any(|service| service.interface.as_deref() == Some(interface))
}

fn domain<'a>(machine: &'a Machine, xdomain: &XDomain) -> Option<&'a Domain> {
    machine.thunderbolt.iter().find(|domain| domain.xdomains.iter().any(|x| x.name == xdomain.name))
}

fn peer(machine: &Machine, all: &[&XDomain], xdomain: &XDomain) -> Peer {
    let others = || all.iter().filter(|other| other.name != xdomain.name);
    let same_id = |other: &XDomain| other.unique_id.is_some() && other.unique_id == xdomain.unique_id;
    let same_name = |other: &XDomain| {
        other.device_name.is_some()
            && other.device_name == xdomain.device_name
            && other.vendor_name == xdomain.vendor_name
    };
    let names = |pick: &dyn Fn(&XDomain) -> bool| -> Vec<String> {
        others().filter(|other| pick(other)).map(|other| other.name.clone()).collect()
    };
    let mut own = machine.thunderbolt.iter().flat_map(|domain| &domain.routers).filter(|router| router.route == 0);
    Peer {
        unique_id: xdomain.unique_id.clone(),
        vendor_name: xdomain.vendor_name.clone(),
        device_name: xdomain.device_name.clone(),
        this_host: xdomain.unique_id.is_some() && own.any(|router| router.unique_id == xdomain.unique_id),
        also: names(&same_id),
        perhaps_also: names(&|other| same_name(other) && !same_id(other)),
    }
}

/// TCP over thunderbolt_net. Three things must come together: the peer's service, the driver here, and the interface
/// with an address.
fn network(xdomain: &XDomain, survey: &[(Interface, Verdict)]) -> CablePath {
    let Some(service) = xdomain.service("network") else {
        // What system it runs its vendor does not tell: Linux is `Intel Corp.` in some versions.
        let why = "the peer offers no network service; `modprobe thunderbolt_net` there, or switch its Thunderbolt networking on";
        return CablePath::no(Means::Tcp, "", why);
    };
    let Some(name) = &service.interface else {
        let why = if service.driver.is_none() {
            "the peer offers a network, but no driver took it here; `modprobe thunderbolt_net`"
        } else {
            "its interface is not in this network namespace"
        };
        return CablePath::no(Means::Tcp, "", why);
    };
    CablePath::tcp(name, survey)
}

fn other(xdomain: &XDomain, service: &Service) -> CablePath {
    let key = service.key.clone().unwrap_or_else(|| "?".into());
    let over = &*service.name;
    if key == "stream" {
        return match &service.driver {
            None => CablePath::no(
                Means::Stream,
                over,
                "the peer offers USB4STREAM, but no driver took it here; `modprobe thunderbolt_stream` (Linux 7.2)",
            ),
            Some(_) => CablePath { means: Means::Stream, over: over.to_owned(), usable: true, reason: None },
        };
    }
    if key == "linkspan" {
        let uuid = xdomain.unique_id.as_deref().unwrap_or("UUID");
        let why = match service.ring.as_deref() {
            Some("up") => return CablePath { means: Means::Ring, over: over.to_owned(), usable: true, reason: None },
            Some("waiting") => format!("the other host waits to be allowed; `sudo lspan link allow {uuid}`"),
            Some("network") => "its rings carry a network interface, which is not in this network namespace".to_owned(),
            Some("login") => {
                "the link is not up: the other host has not allowed this one (`lspan link allow` there)".to_owned()
            }
            Some(state) => format!("the link is not up ({state})"),
            None if service.driver.is_some() => "linkspan.ko made no link of it; the kernel's log says why".to_owned(),
            None => "the peer offers rings, but no driver took it here; `modprobe linkspan`".to_owned(),
        };
        return CablePath::no(Means::Ring, over, why);
    }
    let why = match (&*key, service.prtcid) {
        ("rdma", Some(APPLE_RDMA)) => "Apple's RDMA over Thunderbolt, which linkspan does not support".to_owned(),
        (_, Some(prtcid)) => format!("protocol {prtcid}, which linkspan does not support"),
        (_, None) => "a protocol that linkspan does not know".to_owned(),
    };
    CablePath::no(Means::Service(key), over, why)
}

fn notes(machine: &Machine, xdomain: &XDomain, peer: &Peer, paths: &[CablePath]) -> Vec<String> {
    let mut notes = Vec::new();
    if peer.this_host {
        notes.push("both ends are plugged into this host".to_owned());
    }
    if xdomain.chained() {
        notes.push(format!("behind a device at port {}, whose link other traffic shares", xdomain.port()));
    }
    if !peer.also.is_empty() {
        notes.push(format!("to the same host router as {}", peer.also.join(", ")));
    }
    if !peer.perhaps_also.is_empty() {
        notes.push(format!("probably to the same host as {}", peer.perhaps_also.join(", ")));
    }
    let one_lane = |way: &Option<crate::Lanes>| way.is_some_and(|lanes| lanes.lanes == 1);
    if one_lane(&xdomain.link.rx) && one_lane(&xdomain.link.tx) {
        notes.push("runs on one lane of two: try another cable, or plug it in anew".to_owned());
    }
    if domain(machine, xdomain).is_some_and(|domain| domain.iommu_dma_protection == Some(false)) {
        notes.push(
            "no IOMMU protection: a PCIe device in this port could reach all memory; switch the IOMMU on".to_owned(),
        );
    }
    // The kernel's own drivers interrupt so from 7.2 on too, but for the stream.
    if machine.host.kernel_before(RING_THROTTLING) && paths.iter().any(|path| path.usable) {
        notes.push(format!(
            "kernel {} interrupts for it at most once in 128 us, so a small message may wait that long; 8 us with linkspan.ko or USB4STREAM from Linux 7.2 on",
            machine.host.kernel
        ));
    }
    notes
}
