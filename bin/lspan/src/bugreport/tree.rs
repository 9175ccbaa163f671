//! The files that `lspan doctor` judges, as lines `PATH<TAB>CONTENT` and `PATH -> TARGET`: a machine that can be judged elsewhere. Only
//! attributes that are known are read: some of sysfs wake devices or take locks.

use std::collections::BTreeSet;
use std::path::Path;

use linkspan_topology::Roots;

/// Most lines, and longest content of a file, bytes.
const LINES_MAX: usize = 20_000;
const CONTENT_MAX: u64 = 64 << 10;

/// Folders with a link or a folder for each device.
const DEVICES: [&str; 4] =
    ["/sys/bus/thunderbolt/devices", "/sys/class/net", "/sys/class/infiniband", "/sys/bus/pci/devices"];

/// Attributes of devices; `*` stands for every entry.
const ATTRIBUTES: [&str; 62] = [
    "unique_id",
    "vendor",
    "vendor_name",
    "device",
    "device_name",
    "rx_speed",
    "tx_speed",
    "rx_lanes",
    "tx_lanes",
    "generation",
    "authorized",
    "security",
    "iommu_dma_protection",
    "maxhopid",
    "prtcid",
    "prtcvers",
    "prtcrevs",
    "linkspan/*/state",
    "uevent",
    "ifindex",
    "type",
    "flags",
    "operstate",
    "carrier",
    "speed",
    "mtu",
    "address",
    "phys_port_name",
    "phys_switch_id",
    "tun_flags",
    "class",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "power/control",
    "power/runtime_status",
    "node_type",
    "fw_ver",
    "board_id",
    "hca_type",
    "ports/*/state",
    "ports/*/phys_state",
    "ports/*/link_layer",
    "ports/*/rate",
    "ports/*/lid",
    "ports/*/gids/*",
    "ports/*/gid_attrs/types/*",
    "ports/*/gid_attrs/ndevs/*",
    "bridge/bridge_id",
    "bonding/slaves",
    "wireless",
    "mode",
    "state",
    "dev_port",
    "dev_id",
    "iflink",
    "name_assign_type",
    "net/*/ifindex",
];

/// Links of devices.
const LINKS: [&str; 3] = ["driver", "device", "master"];

/// Single files.
const FILES: [&str; 29] = [
    "/etc/os-release",
    "/proc/net/route",
    "/proc/net/ipv6_route",
    "/proc/net/arp",
    "/proc/net/dev",
    "/proc/meminfo",
    "/proc/self/status",
    "/proc/self/limits",
    "/proc/self/uid_map",
    "/run/systemd/container",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
    "/proc/sys/net/ipv4/tcp_available_congestion_control",
    "/proc/sys/net/ipv4/ping_group_range",
    "/proc/driver/nvidia/version",
    "/sys/module/thunderbolt/parameters/xdomain",
    "/sys/module/module/parameters/sig_enforce",
    "/sys/kernel/security/lockdown",
    "/sys/fs/selinux/booleans/deny_ptrace",
    "/sys/kernel/iommu_groups/0/type",
    "/sys/module/linkspan/refcnt",
    "/sys/module/thunderbolt_net/refcnt",
    "/sys/class/kfd/kfd/uevent",
    "/etc/nccl.conf",
];

/// The folder whose files name libibverbs' drivers of cards.
const PROVIDERS: &str = "/etc/libibverbs.d";

/// Files whose presence counts.
const NODES: [&str; 19] = [
    "/dev/infiniband/uverbs0",
    "/dev/kfd",
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/dev/dri/renderD128",
    "/dev/tbstream0",
    "/run/.toolboxenv",
    "/run/.containerenv",
    "/.dockerenv",
    "/run/secrets/kubernetes.io",
    "/.singularity.d",
    "/opt/rocm",
    "/usr/bin/nvidia-smi",
    "/run/firewalld",
    "/usr/lib/libibverbs.so.1",
    "/usr/lib64/libibverbs.so.1",
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
    "/sys/firmware/efi",
];

pub(super) fn capture(roots: &Roots) -> String {
    let mut lines = BTreeSet::new();
    for dir in DEVICES {
        for name in names(roots, dir) {
            let at = format!("{dir}/{name}");
            if dir.ends_with("pci/devices") && !of_interest(roots, &at) {
                continue;
            }
            device(roots, &at, &mut lines);
        }
    }
    for file in FILES {
        content(roots, file, &mut lines);
    }
    lines.insert(format!("/proc/cmdline\t{}", command_line(&roots.text("/proc/cmdline").unwrap_or_default())));
    for line in roots.text("/proc/self/mounts").unwrap_or_default().lines().filter(|line| line.contains(" /dev/shm ")) {
        lines.insert(format!("/proc/self/mounts\t{line}"));
    }
    for node in NODES {
        if roots.at(node).exists() {
            lines.insert(format!("{node}\t-"));
        }
    }
    for name in names(roots, PROVIDERS) {
        lines.insert(format!("{PROVIDERS}/{name}\t-"));
    }
    managers(roots, &mut lines);
    let mut addrs: Vec<String> = linkspan_net::interfaces()
        .unwrap_or_default()
        .into_iter()
        .map(|one| format!("address {} {}/{}", one.name, one.addr, one.prefix))
        .collect();
    addrs.sort();
    let all: Vec<String> = lines.into_iter().chain(addrs).take(LINES_MAX).collect();
    all.join("\n") + "\n"
}

/// Who manages which interface: of the files of NetworkManager, systemd-networkd and ifupdown (which have names of networks and keys of radios)
/// those lines alone.
fn managers(roots: &Roots, lines: &mut BTreeSet<String>) {
    for (dir, begin) in [("/run/NetworkManager/devices", "managed="), ("/run/systemd/netif/links", "ADMIN_STATE=")] {
        let files: Vec<String> = names(roots, dir).into_iter().filter(|name| name.parse::<u32>().is_ok()).collect();
        for file in &files {
            let text = roots.text(&format!("{dir}/{file}")).unwrap_or_default();
            let told: Vec<&str> = text.lines().filter(|line| line.starts_with(begin)).collect();
            lines.insert(format!("{dir}/{file}\t{}", if told.is_empty() { "-".into() } else { told.join("\\n") }));
        }
        if files.is_empty() && roots.has(dir) {
            lines.insert(format!("{dir}\t-"));
        }
    }
    let folder = "/etc/network/interfaces.d";
    let files = names(roots, folder).into_iter().map(|file| format!("{folder}/{file}"));
    for file in files.chain(["/etc/network/interfaces".to_owned()]) {
        let text = roots.text(&file).unwrap_or_default();
        let names = text.lines().filter(|line| line.trim_start().starts_with("iface ")).map(str::trim);
        let names = names.collect::<Vec<_>>().join("\\n");
        if !names.is_empty() {
            lines.insert(format!("{file}\t{names}"));
        }
    }
}

/// GPUs, network cards, and host interfaces of USB4 (PCI's list of classes: 02, 03, 12 and 0c0340).
fn of_interest(roots: &Roots, at: &str) -> bool {
    let class = roots.text(&format!("{at}/class")).unwrap_or_default();
    ["0x02", "0x03", "0x12", "0x0c0340"].iter().any(|begin| class.starts_with(begin))
}

/// A device: where it is in `/sys/devices`, and its attributes there.
fn device(roots: &Roots, at: &str, lines: &mut BTreeSet<String>) {
    let real = match real(roots, at) {
        Some(real) if real != at => {
            lines.insert(format!("{at} -> {real}"));
            real
        }
        _ => at.to_owned(),
    };
    for attribute in ATTRIBUTES {
        expand(roots, &real, attribute, lines);
    }
    if service(at) {
        content(roots, &format!("{real}/key"), lines);
    }
    for link in LINKS {
        if let Some(target) =
            self::real(roots, &format!("{real}/{link}")).filter(|_| roots.at(&format!("{real}/{link}")).is_symlink())
        {
            lines.insert(format!("{real}/{link} -> {target}"));
        }
    }
}

/// Whether this is a service of another host on a Thunderbolt cable (`0-1.0`), whose `key` is its kind. That of a router (`0-1`) is the secret by
/// which it is known again (security level "secure" of Documentation/admin-guide/thunderbolt.rst).
fn service(at: &str) -> bool {
    let name = at.strip_prefix("/sys/bus/thunderbolt/devices/").unwrap_or_default();
    let (router, number) = name.split_once('.').unwrap_or_default();
    let number_alone = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let route = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    number_alone(number) && router.split_once('-').is_some_and(|(domain, rest)| number_alone(domain) && route(rest))
}

fn expand(roots: &Roots, base: &str, pattern: &str, lines: &mut BTreeSet<String>) {
    match pattern.split_once('*') {
        None => content(roots, &format!("{base}/{pattern}"), lines),
        Some((folder, rest)) => {
            let dir = format!("{base}/{}", folder.trim_end_matches('/'));
            for name in names(roots, &dir).into_iter().take(256) {
                match rest.trim_start_matches('/') {
                    "" => content(roots, &format!("{dir}/{name}"), lines),
                    rest => expand(roots, &format!("{dir}/{name}"), rest, lines),
                }
            }
        }
    }
}

fn content(roots: &Roots, path: &str, lines: &mut BTreeSet<String>) {
    let file = roots.at(path);
    if !std::fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file()) && !path.starts_with("/etc/") {
        return;
    }
    let Some(bytes) = roots.bytes(path, CONTENT_MAX) else { return };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let text = text.trim_end_matches('\n').replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
    lines.insert(format!("{path}\t{text}"));
}

/// Parameters of the kernel that `lspan doctor` looks at; of the others nothing.
fn command_line(text: &str) -> String {
    let known = [
        "thunderbolt",
        "pcie_",
        "iommu",
        "intel_iommu",
        "amd_iommu",
        "cma",
        "module.",
        "lockdown",
        "hugepages",
        "pci=",
        "ttm.",
    ];
    let words = text.split_whitespace().filter(|word| known.iter().any(|begin| word.starts_with(begin)));
    words.collect::<Vec<_>>().join(" ")
}

fn names(roots: &Roots, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(roots.at(dir)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The path without links, as seen from the roots.
fn real(roots: &Roots, path: &str) -> Option<String> {
    let real = roots.at(path).canonicalize().ok()?;
    let top = roots.at("/sys").canonicalize().ok()?;
    let below = real.strip_prefix(&top).ok()?;
    Some(Path::new("/sys").join(below).display().to_string())
}
