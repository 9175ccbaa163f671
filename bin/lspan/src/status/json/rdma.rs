//! RDMA devices in JSON.

use linkspan_topology::{Gid, RdmaDevice, RdmaPort};
use serde::Serialize;

use super::gpu::{LinksRow, links};

#[derive(Serialize)]
pub(super) struct DeviceRow<'a> {
    name: &'a str,
    driver: Option<&'a str>,
    node_type: Option<&'a str>,
    node_guid: Option<&'a str>,
    sys_image_guid: Option<&'a str>,
    firmware: Option<&'a str>,
    pci_address: Option<&'a str>,
    numa_node: Option<u32>,
    pcie: LinksRow,
    ports: Vec<PortRow<'a>>,
}

#[derive(Serialize)]
struct PortRow<'a> {
    number: u32,
    state: Option<&'a str>,
    phys_state: Option<&'a str>,
    link_layer: String,
    rate_mbit_s: Option<u32>,
    lid: Option<u32>,
    sm_lid: Option<u32>,
    interface: Option<&'a str>,
    gids: Vec<GidRow<'a>>,
    ready: bool,
    gid_index: Option<u32>,
    reason: Option<String>,
}

#[derive(Serialize)]
struct GidRow<'a> {
    index: u32,
    gid: String,
    r#type: String,
    interface: Option<&'a str>,
    ipv4: Option<String>,
    link_local: bool,
}

pub(super) fn row(device: &RdmaDevice) -> DeviceRow<'_> {
    DeviceRow {
        name: &device.name,
        driver: device.driver.as_deref(),
        node_type: device.node_type.as_deref(),
        node_guid: device.node_guid.as_deref(),
        sys_image_guid: device.sys_image_guid.as_deref(),
        firmware: device.firmware.as_deref(),
        pci_address: device.pci.as_ref().map(|pci| pci.address()),
        numa_node: device.pci.as_ref().and_then(|pci| pci.numa_node),
        pcie: links(&device.link),
        ports: device.ports.iter().map(port).collect(),
    }
}

fn port(port: &RdmaPort) -> PortRow<'_> {
    let ready = port.ready();
    PortRow {
        number: port.number,
        state: port.state.as_deref(),
        phys_state: port.phys_state.as_deref(),
        link_layer: port.link_layer.to_string(),
        rate_mbit_s: port.rate_mbps,
        lid: port.lid,
        sm_lid: port.sm_lid,
        interface: port.interface.as_deref(),
        gids: port.gids.iter().map(gid).collect(),
        ready: ready.is_ok(),
        gid_index: ready.as_ref().ok().and_then(|gid| gid.map(|gid| gid.index)),
        reason: ready.err().map(|why| why.to_string()),
    }
}

fn gid(gid: &Gid) -> GidRow<'_> {
    GidRow {
        index: gid.index,
        gid: gid.gid.to_string(),
        r#type: gid.kind.to_string(),
        interface: gid.interface.as_deref(),
        ipv4: gid.ipv4().map(|ip| ip.to_string()),
        link_local: gid.is_link_local(),
    }
}
