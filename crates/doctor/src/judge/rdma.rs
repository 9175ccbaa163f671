//! RDMA devices and the interfaces on their ports.

use linkspan_topology::{Interface, LinkLayer, NotReady, RdmaDevice, RdmaPort, Roots};

use super::{Case, by_hand, give_address, load, routed, run};
use crate::finding::Step;
use crate::list::*;
use crate::loader::Loader;
use crate::package;
use crate::shell::word;
use crate::snapshot::Snapshot;

/// Smallest MTU that leaves space for RoCE's largest packets, 4096 bytes of payload with its headers (InfiniBand Architecture, annex
/// A17).
const ROCE_MTU: u32 = 4200;
/// The MTU that is named in its place.
const JUMBO: u32 = 9000;
/// Ports slower than this gain little by larger packets, Mb/s.
const FAST: u32 = 25_000;

/// Locked memory that is enough for the connections of one process, bytes: each registers its pools and the caller's
/// buffers, which a job has many hundred MiB of. The kernel's default is 8 MiB.
const MEMLOCK: u64 = 1 << 30;

/// Folders in which `libibverbs.so.1` is installed, where nothing is known of the loader's own.
const FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

pub(super) fn judge(case: &mut Case<'_>) {
    let snap = case.snap;
    if snap.machine.rdma.is_empty() {
        return;
    }
    process(case);
    for device in &snap.machine.rdma {
        pcie(case, device);
        for port in &device.ports {
            self::port(case, device, port);
        }
    }
}

/// What this process lacks to use any of them.
fn process(case: &mut Case<'_>) {
    let snap = case.snap;
    let roots = &snap.sources.roots;
    let names: Vec<&str> = snap.machine.rdma.iter().map(|device| &*device.name).take(4).collect();
    let names = names.join(", ");
    if !roots.names("/dev/infiniband").iter().any(|file| file.starts_with("uverbs")) {
        let what = format!("{names}: /dev/infiniband/uverbs* is missing");
        let steps = match snap.container() {
            Some("kubernetes") => by_hand(
                "give the pod the RDMA resource of your device plugin, or the volume /dev/infiniband with the rights to open it",
            ),
            Some(_) => by_hand("start the container with --device /dev/infiniband --ulimit memlock=-1"),
            None => load(snap, "sudo modprobe ib_uverbs"),
        };
        case.add(&RDMA_NO_NODE, "", what, steps);
    }
    let installed: Vec<String> = FOLDERS.map(|dir| format!("{dir}/libibverbs.so.1")).to_vec();
    let path = snap.env("LD_LIBRARY_PATH").unwrap_or_default();
    let libraries: Vec<String> = installed
        .into_iter()
        .filter(|file| roots.has(file))
        .chain(Loader::read(roots, path).files("libibverbs.so.1"))
        .collect();
    if !libraries.iter().any(|file| providers(roots, file)) {
        let packages = ["libibverbs1 ibverbs-providers", "libibverbs rdma-core", "libibverbs rdma-core", "rdma-core"];
        let steps = package::install(roots, packages)
            .map_or_else(|| by_hand("install libibverbs and its providers (rdma-core)"), run);
        let what = match libraries.first() {
            None => format!("{names}: libibverbs.so.1 is not installed"),
            Some(file) => format!("{names}: {file} is there, and no provider for it, which are its drivers of cards"),
        };
        case.add(&RDMA_NO_LIBRARY, "", what, steps);
    }
    if let Some(limit) = snap.memlock().filter(|&limit| limit < MEMLOCK) {
        let what = format!("this process may lock {} KiB of memory; RDMA locks all that it registers", limit >> 10);
        let steps = match snap.container() {
            Some("kubernetes") => by_hand("raise the limit of the container runtime (containerd: LimitMEMLOCK=infinity in its unit)"),
            Some(_) => by_hand("start the container with --ulimit memlock=-1"),
            None => vec![
                Step::Run("sudo prlimit --pid $$ --memlock=unlimited:unlimited".into()),
                Step::Do("that is for this shell; to keep it: `printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee \
                          /etc/security/limits.d/90-memlock.conf`, then log in again".into()),
            ],
        };
        case.add(&RDMA_MEMLOCK, "", what, steps);
    }
    if snap.gb10() && snap.field("/proc/meminfo", "CmaTotal").is_some_and(|value| value.starts_with("0 ")) {
        let what = format!("kernel {} has CmaTotal 0: registering memory fails", snap.machine.host.kernel);
        case.add(
            &RDMA_NO_CMA,
            "",
            what,
            by_hand("boot another kernel of the maker, or put cma=128M on the kernel command line"),
        );
    }
}

/// Whether a libibverbs has drivers of cards: named by its configuration, or in its folder (libibverbs/dynamic_driver.c of rdma-core; a build that
/// is not installed has all in one).
fn providers(roots: &Roots, library: &str) -> bool {
    let own = library.rsplit_once('/').map_or("", |(dir, _)| dir);
    let some = |dir: &str, part: &str| roots.names(dir).iter().any(|name| name.contains(part));
    some("/etc/libibverbs.d", ".driver") || [own, &format!("{own}/libibverbs")].iter().any(|dir| some(dir, "-rdmav"))
}

/// Cards sit in slots that carry less, or their link came up at a lower speed. DGX Spark's halves have four lanes by design.
fn pcie(case: &mut Case<'_>, device: &RdmaDevice) {
    let (Some(now), Some(most)) = (device.link.now, device.link.most) else { return };
    let Some(rate) = device.ports.iter().filter_map(|port| port.rate_mbps).max() else { return };
    let by_design = case.snap.gb10() && now.mt_s == most.mt_s && now.width >= 4;
    if now.mbps() < rate.min(most.mbps()) && !by_design {
        let what = format!(
            "{} is on PCIe {now}, which carries {} Gb/s; the card can {most}, its port {} Gb/s",
            device.name,
            now.mbps() / 1000,
            rate / 1000
        );
        let steps = if now.mt_s < most.mt_s {
            "power the machine off (not only reboot) and on again; if it stays so, look at the firmware's PCIe settings and reseat the card"
        } else {
            "put the card into a slot with more lanes"
        };
        case.add(&RDMA_PCIE, &device.name, what, by_hand(steps));
    }
}

fn port(case: &mut Case<'_>, device: &RdmaDevice, port: &RdmaPort) {
    let snap = case.snap;
    let over = format!("{}/{}", device.name, port.number);
    // A port without an interface in this network namespace is somebody else's, except on InfiniBand.
    let iface = port.interface.as_deref().and_then(|name| snap.interface(name)).map(|(iface, _)| iface);
    let linked = port.phys_state.as_deref().is_some_and(|state| state.eq_ignore_ascii_case("LinkUp"));
    match (port.ready(), iface) {
        (Ok(_), Some(iface)) => mtu(case, port, iface),
        (Ok(_), None) => {}
        (Err(NotReady::NoLid | NotReady::State { infiniband: true, .. }), _) if linked || port.phys_state.is_none() => {
            let what = format!("{over}: no subnet manager has set this InfiniBand port up");
            let steps = match package::install(&snap.sources.roots, ["opensm", "", "opensm", ""]) {
                Some(command) => run(format!("{command} && sudo systemctl enable --now opensm")),
                None => by_hand("install opensm and start it, here or on another host of the fabric"),
            };
            case.add(&RDMA_NO_MANAGER, &over, what, steps);
        }
        (Err(_), Some(iface)) if port.link_layer == LinkLayer::Ethernet && !iface.up => {
            down(case, device, iface, &over)
        }
        (Err(NotReady::NoGid | NotReady::LinkLocalOnly(_)), Some(iface)) if iface.carrier == Some(true) => {
            addressed(case, device, iface, &over);
        }
        (Err(NotReady::RoceV1Only), Some(iface)) if iface.carrier == Some(true) && !routed(iface) => {
            addressed(case, device, iface, &over);
        }
        (Err(NotReady::RoceV1Only), Some(iface)) if iface.carrier == Some(true) => {
            let what = format!("{over} has RoCE v1 GIDs only");
            let steps = "RoCE v2 is up to the card, its firmware and its driver: update both, and look for a setting in the maker's documentation; some \
                         older cards, as ConnectX-3 without Pro, have v1 alone";
            case.add(&RDMA_V1_ONLY, &iface.name, what, by_hand(steps));
        }
        (Err(NotReady::Iwarp), _) => {
            case.fact(format!("{over} is an iWARP device; linkspan uses InfiniBand and RoCE v2"))
        }
        _ => {}
    }
}

/// A port of Ethernet whose interface is switched off. Drivers then tell no link, whether a cable is there or not (`mlx5_query_port_roce` of the
/// kernel's mlx5, mlx4's and rxe's alike): that it is meant to be used is seen by its address, or by its other half.
fn down(case: &mut Case<'_>, device: &RdmaDevice, iface: &Interface, over: &str) {
    let (snap, name) = (case.snap, &*iface.name);
    if routed(iface) {
        let what = format!("{name}, the interface of {over}, has an address and is switched off");
        case.add(&RDMA_DOWN, name, what, snap.manager(name).up(name));
    } else if iface.master.is_some() {
        // A part of a bond, which has the address.
    } else if let Some(twin) = twin(snap, device, iface).filter(|twin| routed(twin) && twin.carrier == Some(true)) {
        let other = &twin.name;
        let what = format!(
            "{name} is the half of a port whose other half, {other}, has an address; {name} has none and is switched off"
        );
        let steps = [snap.manager(name).up(name), give_address(snap, name)].concat();
        case.add(&RDMA_HALF_UNUSED, name, what, steps);
    } else {
        case.fact(format!(
            "{over}: its interface {name} is switched off; whether a cable is there is not seen until it is up"
        ));
    }
}

/// A port with a cable and without a GID that others reach.
fn addressed(case: &mut Case<'_>, device: &RdmaDevice, iface: &Interface, over: &str) {
    let (snap, name) = (case.snap, &*iface.name);
    if routed(iface) {
        let what = format!("{name} has an address, and the GID table of {over} lacks it");
        case.add(
            &RDMA_NO_GID,
            name,
            what,
            run(format!("sudo ip link set {0} down && sudo ip link set {0} up", word(name))),
        );
    } else if iface.master.is_some() {
        // A part of a bond: the bond has the address and a device of its own.
    } else if let Some(twin) = twin(snap, device, iface).filter(|twin| routed(twin)) {
        let what =
            format!("{name} is the half of a port whose other half, {}, has an address; {name} has none", twin.name);
        case.add(&RDMA_HALF_UNUSED, name, what, give_address(snap, name));
    } else {
        let what = format!("{name}, the interface of {over}, has a cable and no address");
        case.add(&RDMA_NO_ADDRESS, name, what, give_address(snap, name));
    }
}

/// The interface of the same physical port through another PCI function of the adapter.
fn twin<'a>(snap: &'a Snapshot, device: &RdmaDevice, iface: &Interface) -> Option<&'a Interface> {
    let same = |other: &&RdmaDevice| other.name != device.name && other.sys_image_guid == device.sys_image_guid;
    let names =
        snap.machine.rdma.iter().filter(same).flat_map(|d| &d.ports).filter_map(|port| port.interface.as_deref());
    let mut twins = names.filter_map(|name| snap.interface(name)).map(|(other, _)| other);
    device.sys_image_guid.as_ref()?;
    twins.find(|other| other.port_name.is_some() && other.port_name == iface.port_name)
}

fn mtu(case: &mut Case<'_>, port: &RdmaPort, iface: &Interface) {
    let Some(mtu) = iface.mtu.filter(|&mtu| mtu < ROCE_MTU) else { return };
    if port.link_layer != LinkLayer::Ethernet || port.rate_mbps.unwrap_or(0) < FAST {
        return;
    }
    let payload = if mtu < 2200 { 1024 } else { 2048 };
    let what = format!("{} has an MTU of {mtu}: RoCE sends packets of {payload} bytes in place of 4096", iface.name);
    let mut steps = case.snap.manager(&iface.name).mtu(&iface.name, JUMBO);
    steps.push(Step::Do("the same at the other end of the cable, and on every switch between".into()));
    case.add(&RDMA_MTU, &iface.name, what, steps);
}
