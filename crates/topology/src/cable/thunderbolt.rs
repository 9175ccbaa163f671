//! Thunderbolt cables with a host at the other end.

use crate::cable::network::ports;
use crate::cable::{Cable, CablePath, Means, Medium, Peer};
use crate::{Interface, Machine, Service, Verdict, XDomain};

/// Protocol id of Apple's RDMA over Thunderbolt (key `rdma`), as macOS 26.2 announces it: 0xFA57.
const APPLE_RDMA: u32 = 64087;

pub(super) fn cables(machine: &Machine, survey: &[(Interface, Verdict)]) -> Vec<Cable> {
    let all: Vec<&XDomain> = machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains).collect();
    all.iter()
        .map(|xdomain| {
            let peer = peer(machine, &all, xdomain);
            let tcp = network(xdomain, survey);
            // Soft-RoCE on the interface, or a driver that makes a device of the cable.
            let rdma = if tcp.over.is_empty() { Vec::new() } else { ports(machine, &tcp.over) };
            let mut paths = vec![tcp];
            paths.extend(rdma.iter().map(|(device, port)| super::network::rdma(device, port)));
            for service in xdomain.services.iter().filter(|service| service.key.as_deref() != Some("network")) {
                // linkspan.ko in mode network.
                let Some(name) = service.interface.as_ref().filter(|_| service.key.as_deref() == Some("linkspan"))
                else {
                    paths.push(other(xdomain, service));
                    continue;
                };
                paths.push(CablePath::tcp(name, survey));
                let rdma = ports(machine, name);
                paths.extend(rdma.iter().map(|(device, port)| super::network::rdma(device, port)));
            }
            Cable {
                medium: Medium::Thunderbolt,
                name: xdomain.name.clone(),
                link: xdomain.link,
                notes: notes(machine, xdomain, &peer),
                peer: Some(peer),
                neighbours: Vec::new(),
                neighbour_count: 0,
                paths,
            }
        })
        .collect()
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

fn notes(machine: &Machine, xdomain: &XDomain, peer: &Peer) -> Vec<String> {
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
    let domain = machine.thunderbolt.iter().find(|domain| domain.xdomains.iter().any(|x| x.name == xdomain.name));
    if domain.is_some_and(|domain| domain.iommu_dma_protection == Some(false)) {
        notes.push(
            "no IOMMU protection: a PCIe device in this port could reach all memory; switch the IOMMU on".to_owned(),
        );
    }
    notes
}
