//! `lspan status`: what this machine has and what is used of it.

use anstyle::{AnsiColor, Style};
use linkspan_fabric::{Device, Fabric};
use linkspan_perf::format::table;
use linkspan_topology::{Host, Interface, Roots, Verdict};
use serde::Serialize;

use crate::cli::{PathArg, StatusArgs};
use crate::exit::{Exit, Failure};
use crate::older;
use crate::out::Out;

/// Schema of `--json`: `docs/schema/status-1.json`.
const SCHEMA: &str = "linkspan.status/1";

#[derive(Serialize)]
struct Status<'a> {
    schema: &'static str,
    version: &'static str,
    host: HostRow<'a>,
    interfaces: Vec<InterfaceRow<'a>>,
    devices: Vec<DeviceRow<'a>>,
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

pub(crate) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    let fabric = crate::fabric::open(PathArg::Auto)?;
    let host = Host::read(&Roots::default());
    let mut out = Out::default();
    if args.json {
        let (set, devices) = (environment(), fabric.devices());
        let status = Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            host: host_row(&host),
            interfaces: fabric.survey().iter().map(|(iface, verdict)| interface_row(iface, verdict)).collect(),
            devices: device_rows(&devices),
            older_names: older::names(set.iter().map(String::as_str))
                .into_iter()
                .map(|(name, instead)| OlderRow { name, instead })
                .collect(),
        };
        out.json(&status, true)?;
    } else {
        out.text(&text(&fabric, &host))?;
    }
    Ok(Exit::Ok)
}

/// Names of the environment.
fn environment() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

fn host_row(host: &Host) -> HostRow<'_> {
    let numa = host.numa.iter().map(|node| NumaRow { id: node.id, cpus: &node.cpus, memory_bytes: node.memory_bytes });
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

fn addresses(iface: &Interface) -> Vec<String> {
    iface.addrs.iter().map(|addr| format!("{}/{}", addr.ip, addr.prefix)).collect()
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
        numa_node: iface.numa_node,
        pci_address: iface.pci_address(),
        usable: verdict.is_usable(),
        reason: reason(verdict),
    }
}

fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Usable => None,
        Verdict::LeftOut(reason) => Some(reason.to_string()),
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

/// The whole view as text.
pub(crate) fn text(fabric: &Fabric, host: &Host) -> String {
    let bold = Style::new().bold();
    let (yes, no) = (AnsiColor::Green.on_default(), Style::new().dimmed());
    let mut text = format!(
        "{bold}{}{bold:#}: {} processors{}, {:.1} GiB, {} NUMA node{}, kernel {} {}\n\n",
        host.name,
        host.cpus,
        host.cpu_model.as_ref().map_or_else(String::new, |model| format!(" ({model})")),
        host.memory_bytes as f64 / f64::from(1 << 30),
        host.numa.len().max(1),
        if host.numa.len() > 1 { "s" } else { "" },
        host.kernel,
        host.arch
    );
    let mut rows = vec![["interface", "kind", "Mb/s", "MTU", "addresses", "used"].map(String::from).to_vec()];
    for (iface, verdict) in fabric.survey() {
        let number = |value: Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
        let addrs = addresses(iface);
        rows.push(vec![
            iface.name.clone(),
            iface.kind.to_string(),
            number(iface.speed_mbps),
            number(iface.mtu),
            if addrs.is_empty() { "-".into() } else { addrs.join(" ") },
            reason(verdict).map_or_else(|| "yes".into(), |why| format!("no: {why}")),
        ]);
    }
    for (number, line) in table(&rows).lines().enumerate() {
        let style = match number {
            0 => bold,
            n if fabric.survey()[n - 1].1.is_usable() => yes,
            _ => no,
        };
        text.push_str(&format!("{style}{line}{style:#}\n"));
    }
    text.push('\n');
    for (number, device) in fabric.devices().iter().enumerate() {
        let reach = if device.loopback { "this host only" } else { "other hosts over TCP" };
        text.push_str(&format!("device {number}: {}, {} Mb/s, {reach}\n", device.name, device.mbps));
    }
    let config = fabric.config();
    text.push_str(&format!(
        "paths: {}{}\n",
        match config.path {
            linkspan_fabric::PathChoice::Auto => "shared memory on one host, TCP between hosts",
            linkspan_fabric::PathChoice::Tcp => "TCP, forced by LINKSPAN_PATH",
            linkspan_fabric::PathChoice::Shm => "shared memory, forced by LINKSPAN_PATH",
        },
        if config.strict { "; strict: a downgrade is an error" } else { "" }
    ));
    let set = environment();
    for (name, instead) in older::names(set.iter().map(String::as_str)) {
        text.push_str(&format!("{name} is of an older project and has no effect; instead: {instead}\n"));
    }
    text
}

/// The view for the default command.
pub(crate) fn view() -> Result<String, Failure> {
    let fabric = crate::fabric::open(PathArg::Auto)?;
    Ok(text(&fabric, &Host::read(&Roots::default())))
}
