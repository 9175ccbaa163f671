//! Everything that judging looks at, read once.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use linkspan_topology::{
    AddrEntry, IfFilter, Interface, Machine, PciPlace, Roots, Verdict, default_routes, interfaces, judge,
};

use crate::loader::{Loader, Plugin};
use crate::manager::Manages;
use crate::probe::Heard;
use crate::program::bounded;
use crate::routes::{self, Route, Rule};

/// Longest output of a program that is read, bytes; the firewall of a cluster node with many services has some hundred KiB.
const OUTPUT_MAX: usize = 4 << 20;

/// How long each of them may take; they answer within some milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest list of groups that is read, bytes.
const GROUPS_MAX: u64 = 1 << 20;

/// Most lines of the kernel's log that are looked at.
const LOG_LINES_MAX: usize = 100_000;

/// A device file that this process may not open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// The file.
    pub file: String,
    /// The group that may; `None`: none but root's may.
    pub group: Option<String>,
}

/// Where a snapshot comes from beside files.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Where sysfs, procfs and the other folders are.
    pub roots: Roots,
    /// Addresses of this network namespace's interfaces.
    pub addrs: Vec<AddrEntry>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Why linkspan refuses a setting of the environment.
    pub settings: Option<String>,
    /// The firewall's rules, as `nft -j list ruleset` prints them; `None` where they could not be read.
    pub rules: Option<String>,
    /// Routes of all tables and the rules that choose among them, each of IPv4 and of IPv6, as `ip -j -N` prints them.
    pub ways: [[Option<String>; 2]; 2],
    /// Lines of the kernel's log about USB4.
    pub log: Vec<String>,
    /// The key that our kernel module is signed with, as `modinfo -F sig_key` names it; empty where it is not signed, `None` where it
    /// is not installed.
    pub signer: Option<String>,
    /// Device files of GPUs that this process may not open.
    pub closed: Vec<Closed>,
    /// Interfaces of cables whose driver takes large TCP segments (TSO).
    pub tso: Vec<String>,
    /// Who answered on the interfaces.
    pub heard: Vec<Heard>,
    /// What could not be asked, a sentence each.
    pub notes: Vec<String>,
}

impl Sources {
    /// This machine. `settings` is why linkspan refuses its environment.
    pub fn here(settings: Option<String>) -> Sources {
        let roots = Roots::default();
        let addrs = linkspan_net::interfaces().unwrap_or_default().into_iter();
        let env = std::env::vars_os();
        let mut programs = Programs::default();
        let mut sources = Sources {
            addrs: addrs.map(|i| AddrEntry::new(i.name, i.index, i.addr, i.prefix)).collect(),
            env: env.map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned())).collect(),
            settings,
            ways: [&["route", "show", "table", "all"][..], &["rule", "show"]]
                .map(|what| ["-4", "-6"].map(|family| programs.said("ip", &[&[family, "-j", "-N"], what].concat()))),
            rules: programs.said("nft", &["-j", "list", "ruleset"]),
            log: log(),
            signer: programs.said("modinfo", &["-F", "sig_key", "linkspan"]).map(|key| key.trim().to_owned()),
            closed: closed(&roots),
            tso: tso(&roots),
            roots,
            heard: Vec::new(),
            notes: Vec::new(),
        };
        sources.notes = programs.notes();
        sources
    }
}

/// Programs of the system that were asked, and those that did not answer in time. `nft`: rules reach user space through libnftables only in a
/// form that is worth reading, and only root may; `modinfo`: modules are compressed in several ways; `ip`: netlink has routes of all tables.
#[derive(Default)]
struct Programs {
    late: Vec<&'static str>,
}

impl Programs {
    /// What it prints, where it ends well. One that was late is not asked again.
    fn said(&mut self, program: &'static str, args: &[&str]) -> Option<String> {
        if self.late.contains(&program) {
            return None;
        }
        // Users' shells often lack the folders of administration.
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(args).env("PATH", format!("{path}:/usr/sbin:/sbin")).stderr(Stdio::null());
        match bounded(&mut command, PATIENCE, OUTPUT_MAX).ok()? {
            Some((status, text)) => status.success().then(|| String::from_utf8(text).ok())?,
            None => {
                self.late.push(program);
                None
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let note = |program: &&str| {
            format!("`{program}` did not end within {} s: what it would tell is not judged", PATIENCE.as_secs())
        };
        self.late.iter().map(note).collect()
    }
}

/// What the kernel said of USB4 when it came up; nothing where this user may not read its log (dmesg_restrict).
fn log() -> Vec<String> {
    // O_NONBLOCK: a read at the end answers EAGAIN in place of waiting. Each read is one record (Documentation/ABI/testing/dev-kmsg).
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg") else { return Vec::new() };
    let (mut lines, mut record) = (Vec::new(), [0; 8192]);
    for _ in 0..LOG_LINES_MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => {
                let text = String::from_utf8_lossy(&record[..n]);
                lines.extend(text.lines().filter(|line| line.contains("USB4 _OSC")).map(str::to_owned));
            }
            // EPIPE: records were overwritten meanwhile, the next read goes on behind them.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    lines
}

/// Files that whoever computes on AMD or NVIDIA GPUs opens.
fn closed(roots: &Roots) -> Vec<Closed> {
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    let shut = |path: &&str| {
        let file = roots.at(path);
        file.exists() && rustix::fs::access(&file, access) == Err(rustix::io::Errno::ACCESS)
    };
    let files = ["/dev/kfd", "/dev/nvidiactl"].into_iter().filter(shut);
    files.map(|file| Closed { file: file.to_owned(), group: group(roots, file) }).collect()
}

/// Interfaces of thunderbolt_net whose driver takes large segments.
fn tso(roots: &Roots) -> Vec<String> {
    let cable = |name: &String| {
        let driver = std::fs::read_link(roots.at(&format!("/sys/class/net/{name}/device/driver")));
        driver.is_ok_and(|driver| driver.file_name().is_some_and(|driver| driver == "thunderbolt-net"))
    };
    let names = roots.names("/sys/class/net").into_iter().filter(cable);
    names.filter(|name| linkspan_netdev::takes_large_segments(name).unwrap_or(false)).collect()
}

/// The group whose members may read and write a file, by its name (group(5)).
fn group(roots: &Roots, file: &str) -> Option<String> {
    let meta = std::fs::metadata(roots.at(file)).ok().filter(|meta| meta.mode() & 0o060 == 0o060 && meta.gid() != 0)?;
    let text = roots.bytes("/etc/group", GROUPS_MAX)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = |line: &str| {
        let [name, _, id, ..] = line.split(':').collect::<Vec<_>>()[..] else { return None };
        (id.parse() == Ok(meta.gid())).then(|| name.to_owned())
    };
    text.lines().find_map(name)
}

/// This machine at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) sources: Sources,
    pub(crate) machine: Machine,
    pub(crate) survey: Vec<(Interface, Verdict)>,
    pub(crate) filter: Option<IfFilter>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    /// Plugins in the order in which the loader would take them, for NCCL's name and RCCL's.
    pub(crate) plugins: [Vec<Plugin>; 2],
    /// PCI functions that are Thunderbolt or USB4 host interfaces without a driver.
    pub(crate) idle_hosts: Vec<String>,
    notes: Vec<String>,
}

/// The names by which NCCL and RCCL look for the plugin.
pub(crate) const PLUGINS: [&str; 2] = ["libnccl-net-linkspan.so", "librccl-net-linkspan.so"];

impl Snapshot {
    /// Reads everything below the sources' roots. What cannot be read is missing; what makes no sense is missing with a note.
    pub fn read(sources: Sources) -> Snapshot {
        let (roots, env) = (&sources.roots, &sources.env);
        let machine = Machine::read(roots);
        let mut notes = [machine.notes.clone(), sources.notes.clone()].concat();
        if !roots.has("/sys/class/net") {
            notes.push("/sys/class/net cannot be read: nothing is known of interfaces and cables".to_owned());
        }
        if !roots.has("/proc/self/status") {
            notes.push("/proc cannot be read: nothing is known of this process's limits".to_owned());
        }
        let filter = IfFilter::from_env(|name| env.get(name).cloned()).unwrap_or_else(|error| {
            notes.push(format!("{error}; judged as if it were not set"));
            None
        });
        let list = interfaces(roots, &sources.addrs);
        let verdicts = judge(&list, filter.as_ref(), &default_routes(roots));
        let (routes, rules) = routes::read(&sources.ways, roots);
        let loader = Loader::read(roots, env.get("LD_LIBRARY_PATH").map_or("", String::as_str));
        Snapshot {
            survey: list.into_iter().zip(verdicts).collect(),
            routes,
            rules,
            plugins: PLUGINS.map(|name| loader.find(name)),
            idle_hosts: idle_hosts(roots),
            machine,
            filter,
            notes,
            sources,
        }
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.machine.host.name
    }

    /// The interfaces, with the verdict on each.
    pub fn survey(&self) -> &[(Interface, Verdict)] {
        &self.survey
    }

    /// Largest packet of an interface, bytes.
    pub fn mtu(&self, name: &str) -> Option<u32> {
        self.interface(name)?.0.mtu
    }

    /// What could not be read or made no sense, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Interfaces to ask for neighbours on: cables to one host, and those that were asked for.
    pub fn cabled(&self) -> impl Iterator<Item = &Interface> {
        self.survey.iter().map(|(iface, _)| iface).filter(|iface| iface.up && self.is_cable(iface))
    }

    /// Adds who answered.
    pub fn hear(&mut self, heard: Vec<Heard>) {
        self.sources.heard = heard;
    }

    /// Whether an interface is likely to lead to one host: Thunderbolt, the port of an RDMA card, or one that was asked for.
    pub(crate) fn is_cable(&self, iface: &Interface) -> bool {
        let asked = self.filter.as_ref().is_some_and(|filter| filter.asks_for(&iface.name));
        let loops = iface.kind == linkspan_topology::Kind::Loopback;
        !loops && (asked || iface.kind == linkspan_topology::Kind::Thunderbolt || self.port_of(&iface.name))
    }

    /// Whether an RDMA port sits on it.
    fn port_of(&self, name: &str) -> bool {
        self.machine.rdma.iter().flat_map(|d| &d.ports).any(|port| port.interface.as_deref() == Some(name))
    }

    /// What manages the network of an interface.
    pub(crate) fn manager(&self, name: &str) -> Manages {
        let kind = self.interface(name).map_or(linkspan_topology::Kind::Unknown, |(iface, _)| iface.kind.clone());
        Manages::of(&self.sources.roots, name, &kind)
    }

    pub(crate) fn interface(&self, name: &str) -> Option<&(Interface, Verdict)> {
        self.survey.iter().find(|(iface, _)| iface.name == name)
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.sources.roots.text(path)
    }

    pub(crate) fn env(&self, name: &str) -> Option<&str> {
        self.sources.env.get(name).map(String::as_str)
    }

    /// The value of a line `Name: VALUE` of a file.
    pub(crate) fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.text(path)?;
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// Bytes that this process may lock; `None` where it is not limited, or nothing is known.
    pub(crate) fn memlock(&self) -> Option<u64> {
        // CAP_IPC_LOCK, bit 14 of linux/capability.h, lifts the limit in the first user namespace alone, which maps all users to themselves.
        let caps = self.field("/proc/self/status", "CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
        let users = self.text("/proc/self/uid_map");
        let first = users.is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
        if first && caps.is_some_and(|caps| caps & 1 << 14 != 0) {
            return None;
        }
        let limits = self.text("/proc/self/limits")?;
        limits.lines().find_map(|line| line.strip_prefix("Max locked memory")?.split_whitespace().next()?.parse().ok())
    }

    /// A DGX Spark or another machine with NVIDIA's GB10.
    pub(crate) fn gb10(&self) -> bool {
        self.machine.gpus.iter().any(|gpu| (gpu.vendor_id, gpu.device_id) == (0x10de, 0x2e12))
    }

    /// GPUs that compute.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = &linkspan_topology::Gpu> {
        self.machine.gpus.iter().filter(|gpu| matches!(gpu.vendor_id, 0x1002 | 0x10de))
    }

    /// Whether this process is in a container, as far as the usual marks tell.
    pub(crate) fn container(&self) -> Option<&'static str> {
        let has = |path: &&str| self.sources.roots.has(path);
        // A shell by ssh has not the environment that its pod was started with.
        let pod = ["/run/secrets/kubernetes.io", "/var/run/secrets/kubernetes.io"];
        if self.env("KUBERNETES_SERVICE_HOST").is_some() || pod.iter().any(has) {
            return Some("kubernetes");
        }
        let files = ["/run/.toolboxenv", "/run/.containerenv", "/.dockerenv", "/.singularity.d"];
        // systemd's container interface; what it calls `wsl` is a virtual machine.
        let engine = self.text("/run/systemd/container").or_else(|| self.env("container").map(str::to_owned));
        let inside = engine.is_some_and(|engine| !matches!(&*engine, "" | "wsl"));
        (inside || files.iter().any(has)).then_some("container")
    }
}

/// Host interfaces of Thunderbolt 3 to 5 and USB4 have the PCI class 0x0C0340 (USB4 specification 2.0, 12.1).
fn idle_hosts(roots: &Roots) -> Vec<String> {
    let bus = "/sys/bus/pci/devices";
    let idle = |name: &String| {
        let dir = format!("{bus}/{name}");
        roots.text(&format!("{dir}/class")).is_some_and(|class| class == "0x0c0340")
            && !roots.has(&format!("{dir}/driver"))
            && !roots.names(&dir).iter().any(|entry| entry.starts_with("domain"))
    };
    roots.names(bus).into_iter().filter(idle).collect()
}

/// Address of a function without its folders.
pub(crate) fn pci(place: Option<&PciPlace>) -> String {
    place.map_or_else(String::new, |place| format!(" ({})", place.address()))
}
