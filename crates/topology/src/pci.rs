//! PCI functions: where they sit, and how far two of them are apart.

use std::fmt;
use std::path::Path;

use crate::look::{Look, thousandths};
use crate::sysfs::{self, Roots};

/// Where a PCI function sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPlace {
    /// Host bridge and every function from there down to this one, as in `pci0000:00`, `0000:00:01.0`,
    /// `0000:01:00.0`; never empty.
    chain: Vec<String>,
    /// NUMA node; `None` where the firmware does not tell.
    pub numa_node: Option<u32>,
}

impl PciPlace {
    /// PCI address, as in `0000:01:00.0`.
    pub fn address(&self) -> &str {
        self.chain.last().map_or("", String::as_str)
    }

    /// The function that the device in this sysfs directory is or sits on; `None` for a device that is not on PCI.
    pub(crate) fn read(roots: &Roots, device: &Path) -> Option<PciPlace> {
        let real = roots.real(device)?;
        let function = real.ancestors().find(|dir| last(dir).is_some_and(is_pci))?;
        PciPlace::of(function, sysfs::number(&function.join("numa_node"))) // -1, "none", does not parse as u32
    }

    /// From the path of the function below `/sys/devices`.
    pub(crate) fn of(function: &Path, numa_node: Option<u32>) -> Option<PciPlace> {
        let parts: Vec<&str> = function.iter().filter_map(|part| part.to_str()).collect();
        let first = parts.iter().position(|part| is_host_bridge(part) || is_pci(part))?;
        let chain = parts[first..].iter().filter(|part| is_host_bridge(part) || is_pci(part));
        let chain: Vec<String> = chain.map(|part| (*part).to_owned()).collect();
        is_pci(chain.last()?).then_some(PciPlace { chain, numa_node })
    }
}

/// How far two PCI functions are apart, nearest first; the words are those of NCCL and `nvidia-smi topo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same function.
    Loc,
    /// One PCIe bridge or switch at most.
    Pix,
    /// Several PCIe bridges, but not the host bridge.
    Pxb,
    /// Through the host bridge, within one NUMA node.
    Phb,
    /// From one NUMA node to another, or unknown.
    Sys,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distance::Loc => "LOC",
            Distance::Pix => "PIX",
            Distance::Pxb => "PXB",
            Distance::Phb => "PHB",
            Distance::Sys => "SYS",
        })
    }
}

/// The distance of two functions on a machine with this many NUMA nodes.
pub fn distance(a: &PciPlace, b: &PciPlace, numa_nodes: usize) -> Distance {
    let shared = a.chain.iter().zip(&b.chain).take_while(|(a, b)| a == b).count();
    let (below_a, below_b) = (a.chain.len() - shared, b.chain.len() - shared);
    let bridge_shared = a.chain[..shared].iter().any(|part| is_pci(part));
    if below_a == 0 && below_b == 0 {
        Distance::Loc
    } else if bridge_shared {
        // Below the upstream port of a switch: its downstream port, then the device. Two functions of one card share
        // the port above them.
        if below_a <= 2 && below_b <= 2 { Distance::Pix } else { Distance::Pxb }
    } else {
        match (a.numa_node, b.numa_node) {
            (Some(a), Some(b)) if a != b => Distance::Sys,
            (Some(_), Some(_)) => Distance::Phb,
            _ if numa_nodes <= 1 || shared > 0 => Distance::Phb,
            _ => Distance::Sys,
        }
    }
}

/// Speed and width of a PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieLink {
    /// Transfers per second and lane, millions: 16000 is 16 GT/s.
    pub mt_s: u32,
    /// Lanes.
    pub width: u32,
}

impl PcieLink {
    /// What all lanes carry one way, Mb/s: 8b/10b coding up to 5 GT/s, 128b/130b up to 32 GT/s, and 242 of 256 bytes of
    /// a flit from 64 GT/s on (PCI Express Base Specification 6.0, 4.2). Headers of packets take their part of it.
    pub fn mbps(&self) -> u32 {
        let (useful, all) = match self.mt_s {
            ..8_000 => (8, 10),
            8_000..64_000 => (128, 130),
            _ => (242, 256),
        };
        let raw = u64::from(self.mt_s) * u64::from(self.width);
        u32::try_from(raw * useful / all).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GT/s x{}", f64::from(self.mt_s) / 1000.0, self.width)
    }
}

/// A link as it is and as it could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLinks {
    /// Now; `None` for a function that is asleep (it is not woken up for this), or is on no link.
    pub now: Option<PcieLink>,
    /// At best, as far as function and slot go.
    pub most: Option<PcieLink>,
    /// Power management put it to sleep.
    pub asleep: bool,
}

impl PcieLinks {
    /// Reads the link of the function in this directory. The registers of a sleeping function are left alone.
    pub(crate) fn read(look: &mut Look<'_>, function: &Path) -> PcieLinks {
        let status = look.text(&function.join("power/runtime_status"));
        let asleep = matches!(status.as_deref(), Some("suspended" | "suspending"));
        let mut link = |which: &str| {
            // "Unknown", or "0" lanes: a function inside the chip, on no link.
            let speed = look.text(&function.join(format!("{which}_link_speed")))?;
            let width: u32 = look.number(&function.join(format!("{which}_link_width")))?;
            let mt_s = thousandths(&speed, "GT/s")?;
            (width > 0 && width <= 32).then_some(PcieLink { mt_s, width })
        };
        let (now, most) = if asleep { (None, None) } else { (link("current"), link("max")) };
        PcieLinks { now, most, asleep }
    }

    /// It runs on fewer lanes than it could: a riser, a slot or a dirty contact.
    pub fn narrow(&self) -> bool {
        matches!((self.now, self.most), (Some(now), Some(most)) if now.width < most.width)
    }
}

fn last(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// `pcidddd:bb`.
fn is_host_bridge(name: &str) -> bool {
    name.strip_prefix("pci").is_some_and(|rest| {
        let parts: Vec<&str> = rest.split(':').collect();
        parts.len() == 2 && hex(parts[0]) && parts[0].len() >= 4 && hex(parts[1]) && parts[1].len() == 2
    })
}

/// `dddd:bb:dd.f` in hexadecimal; domains may have more than four digits (VMD).
pub(crate) fn is_pci(name: &str) -> bool {
    let Some((address, function)) = name.split_once('.') else {
        return false;
    };
    let parts: Vec<&str> = address.split(':').collect();
    parts.len() == 3
        && parts.iter().all(|part| hex(part))
        && parts[0].len() >= 4
        && parts[1].len() == 2
        && parts[2].len() == 2
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}

fn hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
