//! GPUs by PCI id.

use std::path::Path;

use crate::look::Look;
use crate::pci::{PciPlace, PcieLinks};
use crate::sysfs;

/// Most PCI functions that are looked at.
const FUNCTIONS_MAX: usize = 8192;

/// A GPU: PCI base class 0x03 (display controller), or 0x12 (processing accelerator), which is what AMD's Instinct
/// since MI300 and Intel's Gaudi say they are (PCI Code and ID Assignment Specification, 1.3 and 1.18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Where it sits.
    pub pci: PciPlace,
    /// PCI vendor id.
    pub vendor_id: u16,
    /// PCI device id.
    pub device_id: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
    /// Model, where a driver tells it.
    pub model: Option<String>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// Its PCIe link.
    pub link: PcieLinks,
}

impl Gpu {
    /// Name of the vendor; `None` for those that make no GPUs to compute on, such as a server's console chip.
    pub fn vendor(&self) -> Option<&'static str> {
        match self.vendor_id {
            0x1002 => Some("AMD"),
            0x10de => Some("NVIDIA"),
            0x8086 => Some("Intel"),
            _ => None,
        }
    }
}

/// All GPUs by PCI address.
pub(crate) fn read(look: &mut Look<'_>) -> Vec<Gpu> {
    let bus = look.roots.sys.join("bus/pci/devices");
    let mut gpus = Vec::new();
    for name in look.names(&bus, FUNCTIONS_MAX) {
        let dir = bus.join(&name);
        if let Some(class) = look.hex(&dir.join("class")).filter(|class| matches!(class >> 16, 0x03 | 0x12)) {
            gpus.extend(gpu(look, &dir, &name, class));
        }
    }
    gpus
}

fn gpu(look: &mut Look<'_>, dir: &Path, name: &str, class: u32) -> Option<Gpu> {
    let Some(pci) = PciPlace::read(look.roots, dir) else {
        look.note(dir, "a link that leads to no PCI function, ignored");
        return None;
    };
    let mut id = |file: &str| look.hex(&dir.join(file)).and_then(|id| u16::try_from(id).ok());
    let (vendor_id, device_id) = (id("vendor")?, id("device")?);
    Some(Gpu {
        vendor_id,
        device_id,
        class,
        model: model(look, dir, name),
        driver: sysfs::link_name(&dir.join("driver")),
        link: PcieLinks::read(look, dir),
        pci,
    })
}

/// amdgpu shows `product_name` for cards that carry it; NVIDIA's driver has a file in procfs.
fn model(look: &mut Look<'_>, dir: &Path, name: &str) -> Option<String> {
    if let Some(name) = look.name(&dir.join("product_name")) {
        return Some(name);
    }
    let file = look.roots.proc.join("driver/nvidia/gpus").join(name).join("information");
    let text = look.text(&file)?;
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    Some(crate::look::clean(model, 64)).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests;
