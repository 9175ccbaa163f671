//! What NCCL and RCCL need on this machine to use linkspan, and what a job cannot work with. `lspan run` sets it, `lspan env --nccl`
//! prints it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use linkspan_topology::{Kind, Verdict, default_routes};

use crate::finding::{Finding, Rule, Severity};
use crate::judge::Report;
use crate::list::{NCCL_NOT_FOUND, NCCL_OTHER_NET, NET_SETTINGS};
use crate::loader::{Loader, older, version};
use crate::snapshot::{PLUGINS, Snapshot};

/// A name of the environment that a job needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it is for.
    pub why: String,
}

/// Findings with which no job over linkspan starts: told by the plugin, or by NCCL, only after all ranks have started.
const FATAL: [&Rule; 3] = [&NET_SETTINGS, &NCCL_NOT_FOUND, &NCCL_OTHER_NET];

/// What has to be set, beside what is set already, in the environment or in NCCL's files. `beside` are folders that may have the plugin though the loader does not look
/// there, best first.
pub fn settings(snapshot: &Snapshot, beside: &[PathBuf]) -> Vec<Setting> {
    let mut list = Vec::new();
    let mut set = |name, value: String, why: &str| list.push(Setting { name, value, why: why.to_owned() });
    if let Some((folder, why)) = folder(snapshot, beside) {
        let old = snapshot.env("LD_LIBRARY_PATH").filter(|old| !old.is_empty());
        let value = old.map_or(folder.clone(), |old| format!("{folder}:{old}"));
        set("LD_LIBRARY_PATH", value, &why);
    }
    if snapshot.nccl("NCCL_NET_PLUGIN").is_none() {
        set("NCCL_NET_PLUGIN", "linkspan".into(), "the plugin that is loaded; RCCL reads the same name");
    }
    if snapshot.nccl("NCCL_NET").is_none() {
        set("NCCL_NET", "linkspan".into(), "this network or an error: without it NCCL takes another one silently");
    }
    if let Some(interface) = bootstrap(snapshot) {
        set(
            "NCCL_SOCKET_IFNAME",
            format!("={interface}"),
            "NCCL's bootstrap goes over the interface with the default route, which all hosts have",
        );
        set("LINKSPAN_IFNAME", "^=lo".into(), "payload does not follow NCCL_SOCKET_IFNAME: linkspan chooses by itself");
    }
    list
}

/// What makes a job fail before it moves a byte.
pub fn fatal(report: &Report) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| FATAL.contains(&finding.rule)).collect()
}

/// What else is wrong and costs the job something.
pub fn costs(report: &Report) -> Vec<&Finding> {
    let counts = |finding: &&Finding| finding.rule.severity != Severity::Never && !FATAL.contains(&finding.rule);
    report.findings.iter().filter(counts).collect()
}

impl Snapshot {
    /// What is set for linkspan, NCCL and RCCL in the environment and in NCCL's files, by name.
    pub fn carried(&self) -> Vec<(String, String)> {
        let ours = |name: &String| ["LINKSPAN_", "NCCL_", "RCCL_"].iter().any(|prefix| name.starts_with(prefix));
        // The first of a name counts: of equal keys a map keeps the last.
        let files = self.conf().into_iter().rev().map(|one| (one.name, one.value));
        let mut all: BTreeMap<String, String> = files.collect();
        all.extend(self.sources.env.iter().map(|(name, value)| (name.clone(), value.clone())));
        all.into_iter().filter(|(name, _)| ours(name)).collect()
    }

    /// The plugin's file that the dynamic linker takes for NCCL, or for RCCL where there is none for NCCL.
    pub fn plugin(&self) -> Option<&str> {
        self.plugins.iter().find_map(|found| Some(found.first()?.file.as_str()))
    }

    /// The name of an interface and what carries over it, where packets to this address leave; `None` without a route.
    pub fn way(&self, to: SocketAddr) -> Option<(&str, &Verdict, Kind)> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        let own = socket.local_addr().ok()?.ip();
        let has = |iface: &linkspan_topology::Interface| iface.addrs.iter().any(|addr| addr.ip == own);
        let (iface, verdict) = self.survey.iter().find(|(iface, _)| has(iface))?;
        Some((&iface.name, verdict, iface.kind.clone()))
    }

    /// The RDMA device of an interface, whose port is ready for linkspan.
    pub fn rdma_of(&self, interface: &str) -> Option<&str> {
        let sits = |device: &&linkspan_topology::RdmaDevice| {
            device.ports.iter().any(|port| port.interface.as_deref() == Some(interface) && port.ready().is_ok())
        };
        Some(&self.machine.rdma.iter().find(sits)?.name)
    }
}

/// A folder that goes before the others, because the loader finds no plugin, or an older one first.
fn folder(snapshot: &Snapshot, beside: &[PathBuf]) -> Option<(String, String)> {
    let roots = &snapshot.sources.roots;
    let found = snapshot.plugins.iter().find_map(|found| found.first());
    for folder in beside {
        let file = |name: &&str| roots.at(&folder.join(name).to_string_lossy()).is_file();
        let Some(name) = PLUGINS.iter().find(|name| file(name)) else { continue };
        let own = version(roots, &folder.join(name).to_string_lossy());
        let why = match found {
            None => "the plugin's folder, where the loader does not look by itself".to_owned(),
            Some(first) if older(first.version.as_deref(), own.as_deref()) => {
                format!("this plugin goes before the older {}", first.file)
            }
            Some(_) => return None,
        };
        return Some((folder.display().to_string(), why));
    }
    None
}

/// The interface for NCCL's bootstrap, where it would have to guess: one with the default route beside others, and nobody has
/// chosen.
fn bootstrap(snapshot: &Snapshot) -> Option<String> {
    let chosen = |name| snapshot.nccl(name).is_some();
    if snapshot.filter.is_some() || chosen("NCCL_SOCKET_IFNAME") || chosen("LINKSPAN_IFNAME") {
        return None;
    }
    let everywhere = default_routes(&snapshot.sources.roots);
    let mut usable = snapshot.survey.iter().filter(|(iface, verdict)| {
        *verdict == Verdict::Usable && !matches!(iface.kind, Kind::Loopback) && !iface.addrs.is_empty()
    });
    let (main, _) = usable.clone().find(|(iface, _)| everywhere.contains(&iface.name))?;
    usable.any(|(iface, _)| iface.name != main.name).then(|| main.name.clone())
}

/// The plugin's file as it would be found in a folder that is not this machine's own, as the host's in a toolbox.
pub fn plugin_below(snapshot: &Snapshot, below: &str) -> Option<PathBuf> {
    let roots = &snapshot.sources.roots;
    let loader = Loader::read(roots, "");
    PLUGINS.iter().find_map(|name| loader.below(Path::new(below), name))
}

#[cfg(test)]
mod tests;
