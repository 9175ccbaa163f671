//! The host itself: names, processors, memory.

use std::path::Path;

use crate::look::clean;
use crate::sysfs::{self, Roots};

/// What is worth knowing of the host beside its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Instruction set this program was built for.
    pub arch: &'static str,
    /// Identity of this boot (random(4)): the same in all containers of one kernel, new after every boot.
    pub boot_id: Option<String>,
    /// Processor model, where the kernel names it.
    pub cpu_model: Option<String>,
    /// Processors that are online.
    pub cpus: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// NUMA nodes; empty where the kernel shows none.
    pub numa: Vec<NumaNode>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its processors, ascending.
    pub cpus: Vec<u32>,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// How far the nodes are, in their order, in the units of ACPI's SLIT: 10 is the node itself.
    pub distances: Vec<u32>,
}

impl Host {
    /// Reads the host below `roots`. What cannot be read is empty or zero.
    pub fn read(roots: &Roots) -> Host {
        let kernel = roots.proc.join("sys/kernel");
        let meminfo = sysfs::text(&roots.proc.join("meminfo")).unwrap_or_default();
        let cpuinfo = sysfs::text(&roots.proc.join("cpuinfo")).unwrap_or_default();
        let cpu = roots.sys.join("devices/system/cpu/online");
        Host {
            name: one_line(&kernel.join("hostname")).unwrap_or_default(),
            kernel: one_line(&kernel.join("osrelease")).unwrap_or_default(),
            arch: std::env::consts::ARCH,
            boot_id: one_line(&kernel.join("random/boot_id")),
            cpu_model: cpuinfo
                .lines()
                .find(|line| line.starts_with("model name"))
                .and_then(|line| Some(clean(line.split_once(':')?.1.trim(), LINE_MAX))),
            cpus: sysfs::text(&cpu).map_or(0, |text| cpu_list(&text).len()),
            memory_bytes: kib(&meminfo, "MemTotal:"),
            numa: nodes(roots),
        }
    }

    /// Whether the kernel is older than this version; not where its release does not begin with one.
    pub fn kernel_before(&self, version: (u32, u32)) -> bool {
        let mut numbers = self.kernel.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
        numbers.next().zip(numbers.next()).is_some_and(|own| own < version)
    }
}

/// Longest line that is kept, characters: `__NEW_UTS_LEN` of `linux/utsname.h` is 64, models of processors have 48.
const LINE_MAX: usize = 128;

fn one_line(path: &Path) -> Option<String> {
    sysfs::text(path).map(|text| clean(&text, LINE_MAX))
}

fn nodes(roots: &Roots) -> Vec<NumaNode> {
    let dir = roots.sys.join("devices/system/node");
    let mut nodes: Vec<NumaNode> = sysfs::names(&dir)
        .iter()
        .filter_map(|name| {
            let id = name.strip_prefix("node")?.parse().ok()?;
            let node = dir.join(name);
            Some(NumaNode {
                id,
                cpus: cpu_list(&sysfs::text(&node.join("cpulist")).unwrap_or_default()),
                memory_bytes: kib(&sysfs::text(&node.join("meminfo")).unwrap_or_default(), "MemTotal:"),
                distances: sysfs::text(&node.join("distance"))
                    .unwrap_or_default()
                    .split_whitespace()
                    .map_while(|far| far.parse().ok())
                    .collect(),
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// The value of a `Name:   123 kB` line as bytes. Per-node files put `Node 0 ` in front of the name.
fn kib(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| Some(line.split_once(name)?.1.split_whitespace().next()?.parse::<u64>().ok()? << 10))
        .unwrap_or(0)
}

/// Processors in the kernel's list format, `0-3,8`. A range of more than 65536 is taken as damage and left out.
pub(crate) fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
            && first <= last
            && last - first < 1 << 16
        {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests;
