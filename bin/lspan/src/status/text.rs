//! The view as text: a table for each kind of thing that is there.

use anstyle::{AnsiColor, Style};
use linkspan_perf::format::table;
use linkspan_thunderbolt::{PairState, Ports, Tier};
use linkspan_topology::{Cable, Domain, Gpu, Interface, Lanes, Link, Machine, Means, Medium, RdmaDevice};
use linkspan_verbs::RdmaPort;

use super::{View, addresses, reason};

/// Most columns of the table of distances; more do not fit on a screen, and JSON has them all.
const COLUMNS: usize = 16;

pub(super) fn text(view: &View<'_>) -> String {
    let mut text = String::new();
    host(&mut text, view.machine);
    interfaces(&mut text, view);
    devices(&mut text, view);
    cables(&mut text, view.cables);
    for domain in &view.machine.thunderbolt {
        thunderbolt(&mut text, domain);
    }
    if !view.machine.thunderbolt.is_empty() {
        text.push('\n');
    }
    rdma(&mut text, &view.machine.rdma);
    gpus(&mut text, view);
    for note in &view.machine.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// A table with a bold head; `used` says of each row whether it is bright.
fn push(text: &mut String, rows: &[Vec<String>], used: impl Fn(usize) -> bool) {
    let (bold, yes, no) = (Style::new().bold(), AnsiColor::Green.on_default(), Style::new().dimmed());
    for (number, line) in table(rows).lines().enumerate() {
        let style = match number.checked_sub(1) {
            None => bold,
            Some(row) if used(row) => yes,
            Some(_) => no,
        };
        text.push_str(&format!("{style}{line}{style:#}\n"));
    }
}

fn head<const N: usize>(cells: [&str; N]) -> Vec<Vec<String>> {
    vec![cells.map(String::from).to_vec()]
}

fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn host(text: &mut String, machine: &Machine) {
    let (bold, host) = (Style::new().bold(), &machine.host);
    text.push_str(&format!(
        "{bold}{}{bold:#}: {} processors{}, {:.1} GiB, {} NUMA node{}, kernel {} {}\n\n",
        host.name,
        host.cpus,
        host.cpu_model.as_ref().map_or_else(String::new, |model| format!(" ({model})")),
        host.memory_bytes as f64 / f64::from(1 << 30),
        host.numa.len().max(1),
        if host.numa.len() > 1 { "s" } else { "" },
        host.kernel,
        host.arch
    ));
}

fn interfaces(text: &mut String, view: &View<'_>) {
    let mut rows = head(["interface", "kind", "driver", "Mb/s", "MTU", "addresses", "used"]);
    for (iface, verdict) in view.survey {
        let addrs = addresses(iface);
        rows.push(vec![
            iface.name.clone(),
            iface.kind.to_string(),
            dash(iface.driver.as_ref()),
            dash(iface.speed_mbps),
            dash(iface.mtu),
            if addrs.is_empty() { "-".into() } else { addrs.join(" ") },
            match (verdict.is_usable(), reason(verdict)) {
                (true, None) => "yes".into(),
                (true, Some(what)) => format!("yes, {what}"),
                (false, why) => format!("no: {}", why.unwrap_or_default()),
            },
        ]);
    }
    push(text, &rows, |row| view.survey.get(row).is_some_and(|(_, verdict)| verdict.is_usable()));
    text.push('\n');
}

fn devices(text: &mut String, view: &View<'_>) {
    for (number, device) in view.devices.iter().enumerate() {
        let reach = if device.loopback { "this host only" } else { "other hosts over TCP" };
        text.push_str(&format!("device {number}: {}, {} Mb/s, {reach}\n", device.name, device.mbps));
    }
    if !view.devices.is_empty() {
        text.push('\n');
    }
}

/// What the RDMA devices can do; nothing on a machine that has none.
pub(super) fn rdma_limits((ports, reasons): &(Vec<RdmaPort>, Vec<String>)) -> String {
    let mut text = String::new();
    for port in ports {
        text.push_str(&format!("RDMA {}: ", port.name));
        match (&port.why_not, &port.limits) {
            (Some(why), _) => text.push_str(&format!("not used: {why}")),
            (None, None) => text.push_str("used"),
            (None, Some(l)) => text.push_str(&format!(
                "used; at most {} queue pairs of {} requests, {} completion queues of {}, {} regions of {} bytes, {} ranges in a request",
                l.qp, l.qp_wr, l.cq, l.cqe, l.mr, l.mr_size, l.sge
            )),
        }
        text.push_str(&match &port.gpu_direct {
            Ok(by) => format!("; device memory: {} (LINKSPAN_GPU=staged), else staged\n", by.shown()),
            Err(why) => format!("; device memory is staged through host memory: {why}\n"),
        });
    }
    for why in reasons {
        text.push_str(&format!("no RDMA: {why}\n"));
    }
    text
}

/// What the kernel's connection manager says where it makes no tunnel, as for want of credits: `ENOMEM` of `tb_approve_xdomain_paths()`.
const NO_TUNNEL: i32 = 12;

/// The way out of that.
const FEWER_CREDITS: &str = ": the others may have all credits; a lower `thunderbolt.dma_credits` (14 by default) gives each fewer, or `ring_pairs` asks for fewer pairs";

/// The way out where another driver, or a second cable, wants one of the ring pairs that a link has.
const FEWER_PAIRS: &str = "; a lower `ring_pairs` leaves one for another driver, such as thunderbolt0";

/// How Thunderbolt and USB4 cables are used; nothing on a machine with no host at the end of one.
pub(super) fn cables_used(ports: &Ports) -> String {
    let mut text = String::new();
    for cable in &ports.cables {
        let speed = match cable.speed {
            0 => String::new(),
            speed => format!(", {} Gb/s negotiated", speed as f64 / 125e6),
        };
        text.push_str(&format!("Thunderbolt {}: used at {}{speed}\n", cable.name, cable.tier));
    }
    for (device, pairs) in &ports.pairs {
        for (index, pair) in pairs.iter().enumerate() {
            let hint = match pair.state {
                PairState::Refused(NO_TUNNEL) => FEWER_CREDITS,
                PairState::NoRing => FEWER_PAIRS,
                _ => "",
            };
            text.push_str(&format!(
                "  {device} ring pair {index}: {}{hint}; {} frames sent, {} received\n",
                pair.state, pair.raw.tx_frames, pair.raw.rx_frames
            ));
        }
    }
    if ports.plugged || !ports.cables.is_empty() {
        for tier in [Tier::Ring, Tier::Stream] {
            let why = ports.why_not(tier);
            if !why.is_empty() {
                text.push_str(&format!("no Thunderbolt {tier}: {why}\n"));
            }
        }
    }
    text
}

/// One row for each path; the cable stands in the first of its rows.
fn cables(text: &mut String, cables: &[Cable]) {
    if cables.is_empty() {
        text.push_str("no cable to another host\n\n");
        return;
    }
    let mut rows = head(["cable", "link", "other end", "path", "used"]);
    let mut used = Vec::new();
    for cable in cables {
        let mut first = [format!("{} {}", cable.medium, cable.name), link(&cable.link), other_end(cable)];
        for path in &cable.paths {
            let over = if path.over.is_empty() { String::new() } else { format!(" over {}", path.over) };
            let why = match (path.usable, &path.reason) {
                (true, None) => "yes".to_owned(),
                (true, Some(by)) => format!("yes: {by}"),
                (false, why) => format!("no: {}", why.as_deref().unwrap_or("reason unknown")),
            };
            let means = match &path.means {
                Means::Service(key) => format!("service {key}"),
                means => means.to_string(),
            };
            rows.push(first.iter().cloned().chain([format!("{means}{over}"), why]).collect());
            used.push(path.usable);
            first = Default::default();
        }
    }
    push(text, &rows, |row| used.get(row).copied().unwrap_or(false));
    for cable in cables {
        for note in &cable.notes {
            text.push_str(&format!("{} {}: {note}\n", cable.medium, cable.name));
        }
    }
    text.push('\n');
}

/// `40 Gb/s (2 x 20)`; where the directions differ, each.
fn link(link: &Link) -> String {
    let gbps = |mbps: u32| f64::from(mbps) / 1000.0;
    let one = |way: Option<Lanes>| match way {
        Some(way) if way.lanes > 1 => format!("{} Gb/s ({} x {})", gbps(way.mbps()), way.lanes, gbps(way.lane_mbps)),
        Some(way) => format!("{} Gb/s", gbps(way.mbps())),
        None => "-".into(),
    };
    if link.rx == link.tx { one(link.rx) } else { format!("tx {}, rx {}", one(link.tx), one(link.rx)) }
}

fn other_end(cable: &Cable) -> String {
    let heard: Vec<String> = cable.neighbours.iter().map(ToString::to_string).collect();
    let more = cable.neighbour_count - heard.len();
    let mut heard = heard.join(" ");
    if more > 0 {
        heard.push_str(&format!(" and {more} more"));
    }
    match &cable.peer {
        None if heard.is_empty() => "no neighbour found yet".into(),
        None => heard,
        Some(peer) => {
            let name = peer.device_name.as_deref().unwrap_or("unnamed");
            let vendor = peer.vendor_name.as_ref().map_or_else(String::new, |vendor| format!(" ({vendor})"));
            // Eight digits tell hosts of one rack apart; JSON has all.
            let id = peer.unique_id.as_ref().map_or_else(String::new, |id| {
                let short: String = id.chars().take(8).collect();
                format!(" {short}")
            });
            format!("{name}{vendor}{id}{}{heard}", if heard.is_empty() { "" } else { ", " })
        }
    }
}

/// Why no cable of a domain leads to a host.
pub(crate) const XDOMAIN_OFF: &str = "hosts at the other ends of cables are not looked for: take `thunderbolt.xdomain=0` off the kernel's command line, and \
     `xdomain=0` out of /etc/modprobe.d, then boot again";

/// One line for the domain, one for each device on it.
fn thunderbolt(text: &mut String, domain: &Domain) {
    let ports = domain.routers.first().map_or(&[][..], |router| &router.ports);
    let taken = |port: u8| {
        let device = domain.routers.iter().find(|router| router.route == u64::from(port));
        let host = domain.xdomains.iter().find(|xdomain| xdomain.port() == port);
        match (host, device) {
            (Some(xdomain), None) => format!("port {port}: {}", xdomain.name),
            (_, Some(router)) => format!("port {port}: {}", router.device_name.as_deref().unwrap_or(&router.name)),
            (None, None) => format!("port {port}: nothing"),
        }
    };
    let ports: Vec<String> = ports.iter().map(|port| taken(*port)).collect();
    text.push_str(&format!(
        "thunderbolt domain {}{}: security {}, IOMMU protection {}{}{}\n",
        domain.number,
        domain.pci.as_ref().map_or_else(String::new, |pci| format!(" ({})", pci.address())),
        domain.security.as_deref().unwrap_or("unknown"),
        match domain.iommu_dma_protection {
            Some(true) => "on",
            Some(false) => "off",
            None => "unknown",
        },
        if ports.is_empty() { "" } else { "; " },
        ports.join(", ")
    ));
    if domain.xdomain_off {
        text.push_str(&format!("thunderbolt domain {}: {XDOMAIN_OFF}\n", domain.number));
    }
    for router in domain.routers.iter().filter(|router| router.authorized == Some(false)) {
        let name = router.device_name.as_deref().unwrap_or("a device");
        let id = router.unique_id.as_deref().unwrap_or("UUID");
        text.push_str(&format!(
            "thunderbolt {}: {name} is not authorised; `boltctl authorize {id}` authorises it\n",
            router.name
        ));
    }
}

fn rdma(text: &mut String, list: &[RdmaDevice]) {
    if list.is_empty() {
        return;
    }
    let mut rows = head(["RDMA port", "interface", "link", "state", "Gb/s", "GIDs", "PCIe", "ready"]);
    let mut used = Vec::new();
    for (device, port) in list.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))) {
        let ready = port.ready();
        used.push(ready.is_ok());
        rows.push(vec![
            format!("{}/{}", device.name, port.number),
            dash(port.interface.as_ref()),
            port.link_layer.to_string(),
            dash(port.state.as_ref()),
            dash(port.rate_mbps.map(|mbps| f64::from(mbps) / 1000.0)),
            port.gids.len().to_string(),
            dash(device.link.now),
            match ready {
                Ok(_) if port.lid.unwrap_or(0) > 0 => format!("yes: LID {}", port.lid.unwrap_or(0)),
                Ok(Some(gid)) => match gid.ipv4() {
                    Some(ip) => format!("yes: {} GID {} ({ip})", gid.kind, gid.index),
                    None => format!("yes: {} GID {} ({})", gid.kind, gid.index, gid.gid),
                },
                Ok(None) => "yes".into(),
                Err(why) => format!("no: {why}"),
            },
        ]);
    }
    push(text, &rows, |row| used.get(row).copied().unwrap_or(false));
    text.push('\n');
}

/// A row for each GPU, with the distance to each network device as `nvidia-smi topo -m` shows it.
fn gpus(text: &mut String, view: &View<'_>) {
    let machine = view.machine;
    if machine.gpus.is_empty() {
        return;
    }
    let wired = view.cables.iter().filter(|cable| cable.medium != Medium::Thunderbolt);
    let wired: Vec<&str> = wired.map(|cable| &*cable.name).collect();
    let interfaces: Vec<&Interface> =
        view.survey.iter().map(|(iface, _)| iface).filter(|iface| wired.contains(&&*iface.name)).collect();
    let mut ends = machine.ends(&interfaces);
    let left_out = ends.len().saturating_sub(COLUMNS);
    ends.truncate(COLUMNS);
    let mut rows = head(["GPU", "model", "driver", "NUMA", "PCIe"]);
    rows[0].extend(ends.iter().map(|(name, _)| name.clone()));
    for gpu in &machine.gpus {
        let mut row = vec![
            gpu.pci.address().to_owned(),
            model(gpu),
            dash(gpu.driver.as_ref()),
            dash(gpu.pci.numa_node),
            if gpu.link.asleep { "asleep".into() } else { dash(gpu.link.now) },
        ];
        row.extend(ends.iter().map(|(_, place)| machine.distance(&gpu.pci, place).to_string()));
        rows.push(row);
    }
    push(text, &rows, |row| machine.gpus.get(row).is_some_and(|gpu| gpu.vendor().is_some()));
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more network devices: see --json\n"));
    }
    text.push('\n');
}

fn model(gpu: &Gpu) -> String {
    match (&gpu.model, gpu.vendor()) {
        (Some(model), _) => model.clone(),
        (None, Some(vendor)) => format!("{vendor} {:04x}", gpu.device_id),
        (None, None) => format!("{:04x}:{:04x}", gpu.vendor_id, gpu.device_id),
    }
}
