//! Thunderbolt in JSON.

use linkspan_topology::{Domain, Lanes, Router, Service, XDomain};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct DomainRow<'a> {
    number: u32,
    security: Option<&'a str>,
    iommu_dma_protection: Option<bool>,
    pci_address: Option<&'a str>,
    numa_node: Option<u32>,
    routers: Vec<RouterRow<'a>>,
    xdomains: Vec<XDomainRow<'a>>,
}

#[derive(Serialize)]
struct RouterRow<'a> {
    name: &'a str,
    route: String,
    unique_id: Option<&'a str>,
    vendor_name: Option<&'a str>,
    device_name: Option<&'a str>,
    generation: Option<u32>,
    authorized: Option<bool>,
    rx: Option<LanesRow>,
    tx: Option<LanesRow>,
    ports: &'a [u8],
}

#[derive(Serialize)]
struct XDomainRow<'a> {
    name: &'a str,
    route: String,
    port: u8,
    unique_id: Option<&'a str>,
    vendor_id: Option<String>,
    device_id: Option<String>,
    vendor_name: Option<&'a str>,
    device_name: Option<&'a str>,
    rx: Option<LanesRow>,
    tx: Option<LanesRow>,
    max_hopid: Option<u32>,
    services: Vec<ServiceRow<'a>>,
}

#[derive(Serialize)]
struct LanesRow {
    lanes: u32,
    lane_mbit_s: u32,
    mbit_s: u32,
}

#[derive(Serialize)]
struct ServiceRow<'a> {
    name: &'a str,
    key: Option<&'a str>,
    prtcid: Option<u32>,
    prtcvers: Option<u32>,
    prtcrevs: Option<u32>,
    driver: Option<&'a str>,
    interface: Option<&'a str>,
}

pub(super) fn row(domain: &Domain) -> DomainRow<'_> {
    DomainRow {
        number: domain.number,
        security: domain.security.as_deref(),
        iommu_dma_protection: domain.iommu_dma_protection,
        pci_address: domain.pci.as_ref().map(|pci| pci.address()),
        numa_node: domain.pci.as_ref().and_then(|pci| pci.numa_node),
        routers: domain.routers.iter().map(router).collect(),
        xdomains: domain.xdomains.iter().map(xdomain).collect(),
    }
}

fn lanes(lanes: Option<Lanes>) -> Option<LanesRow> {
    lanes.map(|way| LanesRow { lanes: way.lanes, lane_mbit_s: way.lane_mbps, mbit_s: way.mbps() })
}

fn router(router: &Router) -> RouterRow<'_> {
    RouterRow {
        name: &router.name,
        route: format!("{:#x}", router.route),
        unique_id: router.unique_id.as_deref(),
        vendor_name: router.vendor_name.as_deref(),
        device_name: router.device_name.as_deref(),
        generation: router.generation,
        authorized: router.authorized,
        rx: lanes(router.link.rx),
        tx: lanes(router.link.tx),
        ports: &router.ports,
    }
}

fn xdomain(xdomain: &XDomain) -> XDomainRow<'_> {
    let hex = |id: Option<u32>| id.map(|id| format!("{id:#06x}"));
    XDomainRow {
        name: &xdomain.name,
        route: format!("{:#x}", xdomain.route),
        port: xdomain.port(),
        unique_id: xdomain.unique_id.as_deref(),
        vendor_id: hex(xdomain.vendor_id),
        device_id: hex(xdomain.device_id),
        vendor_name: xdomain.vendor_name.as_deref(),
        device_name: xdomain.device_name.as_deref(),
        rx: lanes(xdomain.link.rx),
        tx: lanes(xdomain.link.tx),
        max_hopid: xdomain.max_hopid,
        services: xdomain.services.iter().map(service).collect(),
    }
}

fn service(service: &Service) -> ServiceRow<'_> {
    ServiceRow {
        name: &service.name,
        key: service.key.as_deref(),
        prtcid: service.prtcid,
        prtcvers: service.prtcvers,
        prtcrevs: service.prtcrevs,
        driver: service.driver.as_deref(),
        interface: service.interface.as_deref(),
    }
}
