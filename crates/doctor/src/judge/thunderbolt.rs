//! Thunderbolt and USB4.

use linkspan_topology::{Domain, Interface, Roots, XDomain};

use super::{Case, by_hand, load, run};
use crate::finding::Step;
use crate::list::*;
use crate::module;
use crate::shell::word;
use crate::snapshot::pci;

/// Speed of a lane below which a port of generation 3 and later was slowed down by its cable, Mb/s: Gen 2 of USB4 has 10 Gb/s, Gen 3
/// has 20.
const GEN3_LANE: u32 = 20_000;

pub(super) fn judge(case: &mut Case<'_>) {
    let snap = case.snap;
    for address in &snap.idle_hosts {
        let what = format!("the Thunderbolt or USB4 host interface {address} has no driver");
        case.add(&TB_NO_DRIVER, address, what, load(snap, "sudo modprobe thunderbolt"));
    }
    if snap.text("/sys/module/thunderbolt/parameters/xdomain").as_deref() == Some("N") {
        off(case);
    }
    let forbids = |line: &String| line.contains("OS controls") && line.contains("XDomain-");
    if snap.sources.log.iter().any(forbids) {
        let what =
            "the kernel's log says that the firmware did not grant XDomain (USB4 _OSC: OS controls ... XDomain-)";
        case.add(
            &TB_FIRMWARE_FORBIDS,
            "",
            what,
            by_hand("look for a firmware update or a firmware setting of the maker"),
        );
    }
    for domain in &snap.machine.thunderbolt {
        for xdomain in &domain.xdomains {
            cable(case, domain, xdomain);
        }
    }
    if !snap.machine.thunderbolt.is_empty() {
        driver(case);
        facts(case);
    }
}

/// Where the parameter is set decides what to edit.
fn off(case: &mut Case<'_>) {
    let snap = case.snap;
    let line = snap.text("/proc/cmdline").unwrap_or_default();
    let word = line.split_whitespace().find(|word| word.starts_with("thunderbolt.xdomain="));
    let mut steps: Vec<Step> = word.map(off_the_line).into_iter().collect();
    let files = option_files(snap);
    if !files.is_empty() {
        steps.extend(files.iter().map(|file| out_of_file(file)));
        // The module may be in the initramfs, with its options.
        let tools = [
            ("/usr/sbin/update-initramfs", "sudo update-initramfs -u"),
            ("/usr/bin/dracut", "sudo dracut --force"),
            ("/usr/bin/mkinitcpio", "sudo mkinitcpio -P"),
        ];
        let tool = tools.iter().find(|(program, _)| snap.sources.roots.has(program));
        steps.extend(tool.map(|(_, command)| Step::Run((*command).to_owned())));
    }
    if steps.is_empty() {
        steps.push(Step::Do("find where `xdomain=0` is given to the module thunderbolt".into()));
    }
    steps.push(Step::Run("sudo reboot".into()));
    let what = match word {
        Some(word) => format!("{word} on the kernel command line: no host at the end of a cable is seen"),
        None => "the module thunderbolt runs with xdomain=0: no host at the end of a cable is seen".to_owned(),
    };
    case.add(&TB_XDOMAIN_OFF, "", what, steps);
}

/// Files that give the option to the module. Of files of one name the first of these folders counts alone (modprobe.d(5)).
fn option_files(snap: &crate::snapshot::Snapshot) -> Vec<String> {
    let folders = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"];
    let mut seen = Vec::new();
    let mut files = Vec::new();
    for folder in folders.map(|folder| format!("{folder}/modprobe.d")) {
        for name in snap.sources.roots.names(&folder).into_iter().filter(|name| name.ends_with(".conf")) {
            if seen.contains(&name) {
                continue;
            }
            let file = format!("{folder}/{name}");
            let text = snap.text(&file).unwrap_or_default();
            let sets = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some("options")
                    && words.next() == Some("thunderbolt")
                    && words.any(|word| word.starts_with("xdomain="))
            };
            if text.lines().any(sets) {
                files.push(file);
            }
            seen.push(name);
        }
    }
    files
}

/// Takes the option, and no other, out of a file. One that a package or a program has made gets a copy in /etc, which goes before it.
fn out_of_file(file: &str) -> Step {
    let name = file.rsplit('/').next().unwrap_or(file);
    let own = format!("/etc/modprobe.d/{name}");
    let copy = if file == own { String::new() } else { format!("sudo cp {} {} && ", word(file), word(&own)) };
    let own = word(&own);
    Step::Run(format!(
        "{copy}sudo sed -i -E -e '/^\\s*options\\s+thunderbolt\\s/s/\\s+xdomain=\\S*//g' -e '/^\\s*options\\s+thunderbolt\\s*$/d' {own}"
    ))
}

/// How a word leaves the kernel's command line.
fn off_the_line(word: &str) -> Step {
    Step::Do(format!(
        "take {word} out of the kernel command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then `sudo update-grub` or `sudo grub2-mkconfig -o \
         /boot/grub2/grub.cfg`; with systemd-boot in /etc/kernel/cmdline)"
    ))
}

fn other_end(xdomain: &XDomain) -> &str {
    xdomain.device_name.as_deref().unwrap_or("the other host")
}

fn cable(case: &mut Case<'_>, domain: &Domain, xdomain: &XDomain) {
    let (name, peer) = (&*xdomain.name, other_end(xdomain));
    let mut own = case.snap.machine.thunderbolt.iter().flat_map(|d| &d.routers).filter(|router| router.route == 0);
    if xdomain.unique_id.is_some() && own.any(|router| router.unique_id == xdomain.unique_id) {
        let what = format!("both ends of cable {name} are plugged into this host");
        case.add(&TB_LOOP, name, what, by_hand("plug one end into the other host"));
        return;
    }
    lanes(case, domain, xdomain);
    network(case, xdomain);
    stream(case, xdomain, peer);
    ring(case, xdomain, peer);
}

fn lanes(case: &mut Case<'_>, domain: &Domain, xdomain: &XDomain) {
    let (name, peer) = (&*xdomain.name, other_end(xdomain));
    let (Some(rx), Some(tx)) = (xdomain.link.rx, xdomain.link.tx) else { return };
    if rx.lanes == 1 && tx.lanes == 1 {
        let what =
            format!("cable {name} to {peer} runs on one lane of {} Gb/s, of two", f64::from(rx.lane_mbps) / 1000.0);
        let steps = "unplug the cable for five seconds and plug it in again; if it stays so, try another cable, then the other port of each host";
        case.add(&TB_ONE_LANE, name, what, by_hand(steps));
    }
    let host = domain.routers.iter().find(|router| router.route == 0);
    let slow = rx.lane_mbps.min(tx.lane_mbps);
    if slow < GEN3_LANE && !xdomain.chained() && host.and_then(|router| router.generation).is_some_and(|g| g >= 3) {
        let what = format!(
            "cable {name} to {peer} was negotiated at {} Gb/s for each lane; this host's port{} can {}",
            f64::from(slow) / 1000.0,
            pci(domain.pci.as_ref()),
            GEN3_LANE / 1000
        );
        let steps = "take a cable that is marked 40 Gb/s or more (passive ones up to 0.8 m), plugged in without a dock or adapter; a host of \
                     Thunderbolt 2 at the other end can no more";
        case.add(&TB_SLOW_LANE, name, what, by_hand(steps));
    }
}

fn network(case: &mut Case<'_>, xdomain: &XDomain) {
    let (snap, name, peer) = (case.snap, &*xdomain.name, other_end(xdomain));
    let (roots, release) = (&snap.sources.roots, &*snap.machine.host.kernel);
    let Some(service) = xdomain.service("network") else {
        let what = format!("{peer} offers no network over cable {name}");
        let steps = by_hand(format!(
            "on {peer}: sudo modprobe thunderbolt_net (`lspan doctor` there says what is in the way); on macOS switch Thunderbolt Bridge on"
        ));
        case.add(&TB_PEER_NET_OFF, name, what, steps);
        return;
    };
    if service.driver.is_none() {
        let known = module::listed(roots, release);
        if known && module::file(roots, release, "thunderbolt_net").is_none() {
            let what = format!(
                "{peer} offers a network over cable {name}, and kernel {release} has no module thunderbolt_net"
            );
            case.add(&TB_NET_MISSING, name, what, package(case.snap));
        }
        let what = format!("{peer} offers a network over cable {name}, and no driver took it here");
        let keep = "echo thunderbolt_net | sudo tee /etc/modules-load.d/thunderbolt_net.conf";
        case.add(&TB_NET_OFF, name, what, load(snap, format!("sudo modprobe thunderbolt_net && {keep}")));
        return;
    }
    // In a container the interface is in another network namespace: that is no fault of the cable.
    let Some((iface, _)) = service.interface.as_deref().and_then(|name| snap.interface(name)) else { return };
    interface(case, iface, peer);
}

fn interface(case: &mut Case<'_>, iface: &Interface, peer: &str) {
    let (snap, name) = (case.snap, &*iface.name);
    if !iface.up {
        let what = format!("{name}, the interface of the cable to {peer}, is switched off");
        case.add(&TB_NET_DOWN, name, what, snap.manager(name).up(name));
    } else if iface.carrier == Some(false) {
        let what = format!("{name} has no carrier: {peer} has not set its end of the cable up");
        let steps = format!(
            "on {peer}: sudo ip link set {name} up (its name may differ there); `lspan doctor` there says what is in the way"
        );
        case.add(&TB_NO_CARRIER, name, what, by_hand(steps));
    } else if iface.addrs.is_empty() {
        let what = format!("{name}, the interface of the cable to {peer}, has no address");
        case.add(&TB_NO_ADDRESS, name, what, snap.manager(name).link_local(name));
    }
    forwarded(case, name);
    if let Some(mtu) = iface.mtu.filter(|&mtu| mtu < 9000) {
        case.fact(format!("{name} has an MTU of {mtu}; thunderbolt_net takes up to 65522, on both ends alike"));
    }
}

/// What is forwarded to a cable: thunderbolt_net cuts large segments of this host's own TCP well, and drops most of those that came in over
/// another interface and were joined there.
fn forwarded(case: &mut Case<'_>, name: &str) {
    let snap = case.snap;
    if !snap.sources.tso.iter().any(|tso| tso == name) {
        return;
    }
    let routed = snap.text(&format!("/proc/sys/net/ipv4/conf/{name}/forwarding")).as_deref() == Some("1");
    let bridged = snap.sources.roots.has(&format!("/sys/class/net/{name}/brport"));
    if routed || bridged {
        let how = if bridged { "is part of a bridge" } else { "is forwarded to (net.ipv4.ip_forward)" };
        let what = format!("{name} {how}, and TSO is on: what others send over this host to the cable is slow");
        case.add(&TB_TSO, name, what, snap.manager(name).tso_off(name));
    } else {
        case.fact(format!("{name} has TSO on, which is well as long as this host forwards nothing to it"));
    }
}

fn stream(case: &mut Case<'_>, xdomain: &XDomain, peer: &str) {
    let Some(service) = xdomain.service("stream") else { return };
    let (snap, name) = (case.snap, &*xdomain.name);
    let (roots, release) = (&snap.sources.roots, &*snap.machine.host.kernel);
    if service.driver.is_none() {
        // The kernel has it since 7.2; on an older one TCP is what there is.
        if module::file(roots, release, "thunderbolt_stream").is_some() {
            let what = format!("{peer} offers USB4STREAM over cable {name}, and no driver took it here");
            case.add(&TB_STREAM_OFF, name, what, run("sudo modprobe thunderbolt_stream && sudo lspan link up"));
        }
    } else if !streamed(roots, &service.name) && snap.container().is_none() {
        let what = format!("no stream is set up over cable {name} to {peer}");
        let steps = vec![Step::Run("sudo lspan link up".into()), Step::Do(format!("the same on {peer}"))];
        case.add(&TB_STREAM_UNSET, name, what, steps);
    }
}

/// Whether a stream is set up for a service, as `lspan link up` does it in configfs; where that is not seen, for any.
fn streamed(roots: &Roots, service: &str) -> bool {
    const CONFIG: &str = "/sys/kernel/config/thunderbolt/stream";
    if !roots.has(CONFIG) {
        return roots.names("/dev").iter().any(|file| file.starts_with("tbstream"));
    }
    let index = |stream: &String| roots.text(&format!("{CONFIG}/{service}/{stream}/index"));
    let node = |stream: &String| index(stream).is_none_or(|index| roots.has(&format!("/dev/tbstream{index}")));
    roots.names(&format!("{CONFIG}/{service}")).iter().any(node)
}

/// The link that linkspan.ko makes of a cable, where it is loaded on both hosts.
fn ring(case: &mut Case<'_>, xdomain: &XDomain, peer: &str) {
    let Some(state) = xdomain.service("linkspan").and_then(|service| service.ring.as_deref()) else { return };
    let (name, uuid) = (&*xdomain.name, xdomain.unique_id.as_deref().unwrap_or("UUID"));
    // A container has no say in it.
    if case.snap.container().is_some() {
        return;
    }
    if state == "waiting" {
        let what = format!("{peer}, at cable {name}, has not been allowed to use linkspan.ko here");
        let steps = vec![
            Step::Do(format!("only if {peer} is a host of yours, for its UUID proves nothing:")),
            Step::Run(format!("sudo lspan link allow {uuid}")),
            Step::Do(format!(
                "on {peer} the same with this host's UUID, unless it is allowed there already: `lspan doctor` there prints the command"
            )),
        ];
        case.add(&TB_RING_WAITING, name, what, steps);
    } else if state.starts_with("refused") {
        let what =
            format!("linkspan.ko has cable {name} for programs on one host, and for a network interface on the other");
        let steps = format!(
            "choose one mode for both: `sudo lspan link mode direct {uuid}` here and the same on {peer}, or `network` on both"
        );
        case.add(&TB_RING_MODES, name, what, by_hand(steps));
    }
}

/// The package that has the kernel's further modules.
fn package(snap: &crate::snapshot::Snapshot) -> Vec<Step> {
    // ID and ID_LIKE of os-release(5).
    let text = snap.text("/etc/os-release").unwrap_or_default();
    let ubuntu = text.lines().any(|line| line.starts_with("ID") && line.contains("ubuntu"));
    let apt = if ubuntu { "linux-modules-extra-$(uname -r)" } else { "" };
    crate::package::install(&snap.sources.roots, [apt, "", "kernel-modules-$(uname -r)", ""]).map_or_else(
        || {
            by_hand(
                "reboot, where an update has replaced the running kernel; else install a kernel that has drivers/net/thunderbolt \
                 (CONFIG_USB4_NET), which those for clouds (Debian's linux-image-cloud-*) lack",
            )
        },
        run,
    )
}

/// Has DKMS build the module, with the headers of the running kernel, and types `then`.
fn built(snap: &crate::snapshot::Snapshot, then: &str) -> Vec<Step> {
    let names = [
        "linux-headers-$(uname -r)",
        "kernel-default-devel",
        "kernel-devel-$(uname -r)",
        // The kernels of Arch and of what is made of it say which package they are of.
        "$(cat /usr/lib/modules/$(uname -r)/pkgbase)-headers",
    ];
    let then = format!("sudo dkms autoinstall{then}");
    match crate::package::install(&snap.sources.roots, names) {
        Some(command) => run(format!("{command} && {then}")),
        None => vec![Step::Do("install the headers of the running kernel, then:".into()), Step::Run(then)],
    }
}

/// The driver linkspan.ko. Who has not installed it does not want it.
fn driver(case: &mut Case<'_>) {
    let snap = case.snap;
    let (roots, release) = (&snap.sources.roots, &*snap.machine.host.kernel);
    if module::loaded(roots, "linkspan") || snap.container().is_some() {
        return;
    }
    let Some(file) = module::file(roots, release, "linkspan") else {
        let log = failed(snap, release);
        let others = module::elsewhere(roots, release, "linkspan");
        if let Some(log) = log {
            let what = format!("DKMS could not build the module linkspan for kernel {release}: {log}");
            case.add(&TB_DKMS_FAILED, "linkspan.ko", what, built(snap, ""));
        }
        if !others.is_empty() {
            let what =
                format!("the module linkspan is there for kernel {}, not for the running {release}", others.join(", "));
            // DKMS leaves older ones out (kernel/dkms.conf).
            let steps = match snap.machine.host.kernel_before((6, 8)) {
                true => by_hand(format!("boot {}: the module takes Linux 6.8 or newer", others.join(" or "))),
                false => built(snap, " && sudo modprobe linkspan"),
            };
            case.add(&TB_MODULE_OTHER_KERNEL, "linkspan.ko", what, steps);
        }
        return;
    };
    let mut steps = run("sudo modprobe linkspan");
    if let Some(signer) = snap.sources.signer.as_ref().filter(|_| module::signatures_wanted(roots)) {
        if signer.is_empty() {
            let what = format!("{file} is not signed, and this kernel loads signed modules only");
            case.add(&TB_MODULE_UNSIGNED, "linkspan.ko", what, trust(snap));
        } else if roots.has(EFI) {
            // Whether the kernel knows the key is not seen: modules name it by its serial number, keyrings by another one.
            let enrol = enrol(snap);
            steps.push(Step::Do(format!(
                "where that says `Key was rejected by service`: {enrol}, reboot and enrol the key at the blue screen, then the same again"
            )));
        }
    }
    case.add(&TB_MODULE_OFF, "linkspan.ko", format!("{file} is not loaded"), steps);
}

const EFI: &str = "/sys/firmware/efi";

/// Where DKMS keeps what it built, a folder for each version.
const DKMS: &str = "/var/lib/dkms/linkspan";

/// Hands the certificate that DKMS signs with to the firmware: on Ubuntu that of shim-signed.
fn enrol(snap: &crate::snapshot::Snapshot) -> String {
    let ubuntu = "/var/lib/shim-signed/mok/MOK.der";
    let key = if snap.sources.roots.has(ubuntu) { ubuntu } else { "/var/lib/dkms/mok.pub" };
    format!("sudo mokutil --import {key}")
}

/// How the module gets a signature of DKMS's, and the kernel its key. Without UEFI there is no place to enrol one.
fn trust(snap: &crate::snapshot::Snapshot) -> Vec<Step> {
    let roots = &snap.sources.roots;
    if roots.has(EFI) {
        // Beside the versions stand links for each kernel.
        let version = roots.names(DKMS).into_iter().rfind(|name| roots.has(&format!("{DKMS}/{name}/source")));
        return vec![
            version.map_or_else(
                || Step::Do("have DKMS install it, which signs it".into()),
                |v| Step::Run(format!("sudo dkms remove linkspan/{v} --all && sudo dkms install linkspan/{v}")),
            ),
            Step::Run(enrol(snap)),
            Step::Do("reboot and enrol the key at the blue screen, then:".into()),
            Step::Run("sudo modprobe linkspan".into()),
        ];
    }
    let line = snap.text("/proc/cmdline").unwrap_or_default();
    let asks = |word: &&str| word.starts_with("module.sig_enforce") || word.starts_with("lockdown=");
    let mut words = line.split_whitespace().filter(asks).map(off_the_line).collect::<Vec<_>>();
    if words.is_empty() {
        words.push(Step::Do("boot a kernel that is not built to take signed modules only".into()));
    }
    words.push(Step::Run("sudo reboot".into()));
    words
}

/// The log of a build for this kernel that failed: DKMS keeps it in the build folder, which it removes after one that did not
/// (dkms(8)).
fn failed(snap: &crate::snapshot::Snapshot, release: &str) -> Option<String> {
    let versions = snap.sources.roots.names(DKMS);
    let logs = versions.iter().map(|version| format!("{DKMS}/{version}/build/make.log"));
    let names = |text: String| text.split_whitespace().any(|word| word == release);
    logs.into_iter().find(|log| snap.text(log).is_some_and(names))
}

fn facts(case: &mut Case<'_>) {
    let snap = case.snap;
    let line = snap.text("/proc/cmdline").unwrap_or_default();
    let kinds: Vec<String> = {
        let groups = snap.sources.roots.names("/sys/kernel/iommu_groups");
        let kind = |group: &String| snap.text(&format!("/sys/kernel/iommu_groups/{group}/type"));
        let mut kinds: Vec<String> = groups.iter().filter_map(kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    };
    case.fact(match kinds.as_slice() {
        [] => "IOMMU: off".to_owned(),
        kinds => format!("IOMMU: on ({})", kinds.join(", ")),
    });
    if let Some(word) = line.split_whitespace().find(|word| word.starts_with("pcie_port_pm=")) {
        case.fact(format!("PCIe ports: {word} on the kernel command line"));
    }
    for domain in &snap.machine.thunderbolt {
        let Some(place) = &domain.pci else { continue };
        let dir = format!("/sys/bus/pci/devices/{}/power", place.address());
        if let Some(control) = snap.text(&format!("{dir}/control")) {
            let status = snap.text(&format!("{dir}/runtime_status")).unwrap_or_else(|| "unknown".into());
            let mode = if control == "auto" { "may sleep while nothing is plugged in" } else { "never sleeps" };
            case.fact(format!(
                "Thunderbolt host interface {} {mode} (power/control {control}, now {status})",
                place.address()
            ));
        }
    }
}

#[cfg(test)]
mod tests;
