//! `lspan status --json`: rows of `docs/schema/status-1.json`.

mod gpu;
mod rdma;
mod thunderbolt;

use linkspan_fabric::Device;
use linkspan_topology::{Cable, Host, Interface, Verdict};
use serde::Serialize;

use super::{View, addresses, reason};

/// Schema of `--json`: `docs/schema/status-1.json`.
const SCHEMA: &str = "linkspan.status/1";

#[derive(Serialize)]
pub(super) struct Status<'a> {
    schema: &'static str,
    version: &'static str,
    host: HostRow<'a>,
    interfaces: Vec<InterfaceRow<'a>>,
    devices: Vec<DeviceRow<'a>>,
    cables: Vec<CableRow<'a>>,
    thunderbolt: Vec<thunderbolt::DomainRow<'a>>,
    rdma: Vec<rdma::DeviceRow<'a>>,
    gpus: Vec<gpu::GpuRow<'a>>,
    notes: &'a [String],
    older_names: Vec<OlderRow<'a>>,
}

#[derive(Serialize)]
struct HostRow<'a> {
    name: &'a str,
    kernel: &'a str,
    arch: &'a str,
    boot_id: Option<&'a str>,
    cpu_model: Option<&'a str>,
    cpus: usize,
    memory_bytes: u64,
    numa: Vec<NumaRow<'a>>,
}

#[derive(Serialize)]
struct NumaRow<'a> {
    id: u32,
    cpus: &'a [u32],
    memory_bytes: u64,
    distances: &'a [u32],
}

#[derive(Serialize)]
struct InterfaceRow<'a> {
    name: &'a str,
    index: u32,
    kind: String,
    driver: Option<&'a str>,
    speed_mbit_s: Option<u32>,
    mtu_bytes: Option<u32>,
    operstate: &'a str,
    carrier: Option<bool>,
    mac: Option<&'a str>,
    addresses: Vec<String>,
    subnets: Vec<String>,
    port_name: Option<&'a str>,
    numa_node: Option<u32>,
    pci_address: Option<&'a str>,
    usable: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct DeviceRow<'a> {
    number: usize,
    name: &'a str,
    interfaces: Vec<&'a str>,
    speed_mbit_s: u32,
    numa_node: Option<u32>,
    loopback_only: bool,
}

#[derive(Serialize)]
struct OlderRow<'a> {
    name: &'a str,
    instead: &'a str,
}

#[derive(Serialize)]
struct CableRow<'a> {
    medium: String,
    name: &'a str,
    rx_mbit_s: Option<u32>,
    rx_lanes: Option<u32>,
    tx_mbit_s: Option<u32>,
    tx_lanes: Option<u32>,
    peer: Option<PeerRow<'a>>,
    neighbours: Vec<String>,
    neighbour_count: usize,
    paths: Vec<PathRow<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct PeerRow<'a> {
    unique_id: Option<&'a str>,
    vendor_name: Option<&'a str>,
    device_name: Option<&'a str>,
    this_host: bool,
    also: &'a [String],
    perhaps_also: &'a [String],
}

#[derive(Serialize)]
struct PathRow<'a> {
    means: String,
    over: &'a str,
    usable: bool,
    reason: Option<&'a str>,
}

pub(super) fn status<'a>(view: &'a View<'_>, environment: &'a [String]) -> Status<'a> {
    let machine = view.machine;
    Status {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        host: host_row(&machine.host),
        interfaces: view.survey.iter().map(|(iface, verdict)| interface_row(iface, verdict)).collect(),
        devices: device_rows(view.devices),
        cables: view.cables.iter().map(cable_row).collect(),
        thunderbolt: machine.thunderbolt.iter().map(thunderbolt::row).collect(),
        rdma: machine.rdma.iter().map(rdma::row).collect(),
        gpus: gpu::rows(machine, view.survey),
        notes: &machine.notes,
        older_names: linkspan_doctor::older_names(environment.iter().map(String::as_str))
            .into_iter()
            .map(|(name, instead)| OlderRow { name, instead })
            .collect(),
    }
}

fn host_row(host: &Host) -> HostRow<'_> {
    let numa = host.numa.iter().map(|node| NumaRow {
        id: node.id,
        cpus: &node.cpus,
        memory_bytes: node.memory_bytes,
        distances: &node.distances,
    });
    HostRow {
        name: &host.name,
        kernel: &host.kernel,
        arch: host.arch,
        boot_id: host.boot_id.as_deref(),
        cpu_model: host.cpu_model.as_deref(),
        cpus: host.cpus,
        memory_bytes: host.memory_bytes,
        numa: numa.collect(),
    }
}

fn interface_row<'a>(iface: &'a Interface, verdict: &Verdict) -> InterfaceRow<'a> {
    InterfaceRow {
        name: &iface.name,
        index: iface.index,
        kind: iface.kind.to_string(),
        driver: iface.driver.as_deref(),
        speed_mbit_s: iface.speed_mbps,
        mtu_bytes: iface.mtu,
        operstate: &iface.operstate,
        carrier: iface.carrier,
        mac: iface.mac.as_deref(),
        addresses: addresses(iface),
        subnets: iface.addrs.iter().map(linkspan_topology::IfAddr::subnet).collect(),
        port_name: iface.port_name.as_deref(),
        numa_node: iface.numa_node,
        pci_address: iface.pci_address(),
        usable: verdict.is_usable(),
        reason: reason(verdict),
    }
}

fn device_rows(devices: &[Device]) -> Vec<DeviceRow<'_>> {
    devices
        .iter()
        .enumerate()
        .map(|(number, device)| DeviceRow {
            number,
            name: &device.name,
            interfaces: device.ports.iter().map(|port| &*port.name).collect(),
            speed_mbit_s: device.mbps,
            numa_node: device.numa,
            loopback_only: device.loopback,
        })
        .collect()
}

fn cable_row(cable: &Cable) -> CableRow<'_> {
    CableRow {
        medium: cable.medium.to_string(),
        name: &cable.name,
        rx_mbit_s: cable.link.rx.map(|lanes| lanes.mbps()),
        rx_lanes: cable.link.rx.map(|lanes| lanes.lanes),
        tx_mbit_s: cable.link.tx.map(|lanes| lanes.mbps()),
        tx_lanes: cable.link.tx.map(|lanes| lanes.lanes),
        peer: cable.peer.as_ref().map(|peer| PeerRow {
            unique_id: peer.unique_id.as_deref(),
            vendor_name: peer.vendor_name.as_deref(),
            device_name: peer.device_name.as_deref(),
            this_host: peer.this_host,
            also: &peer.also,
            perhaps_also: &peer.perhaps_also,
        }),
        neighbours: cable.neighbours.iter().map(ToString::to_string).collect(),
        neighbour_count: cable.neighbour_count,
        paths: cable
            .paths
            .iter()
            .map(|path| PathRow {
                means: path.means.to_string(),
                over: &path.over,
                usable: path.usable,
                reason: path.reason.as_deref(),
            })
            .collect(),
        notes: &cable.notes,
    }
}
