//! GPUs, PCIe links and distances in JSON.

use linkspan_topology::{Interface, Machine, PcieLink, PcieLinks, Verdict};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct GpuRow<'a> {
    pci_address: &'a str,
    class: String,
    vendor_id: String,
    device_id: String,
    vendor: Option<&'a str>,
    model: Option<&'a str>,
    driver: Option<&'a str>,
    numa_node: Option<u32>,
    pcie: LinksRow,
    distances: Vec<DistanceRow>,
}

#[derive(Serialize)]
pub(super) struct LinksRow {
    now: Option<LinkRow>,
    most: Option<LinkRow>,
    asleep: bool,
}

#[derive(Serialize)]
struct LinkRow {
    mega_transfers_s: u32,
    lanes: u32,
}

#[derive(Serialize)]
struct DistanceRow {
    to: String,
    pci_address: String,
    distance: String,
}

pub(super) fn links(links: &PcieLinks) -> LinksRow {
    let row = |link: Option<PcieLink>| link.map(|link| LinkRow { mega_transfers_s: link.mt_s, lanes: link.width });
    LinksRow { now: row(links.now), most: row(links.most), asleep: links.asleep }
}

pub(super) fn rows<'a>(machine: &'a Machine, survey: &[(Interface, Verdict)]) -> Vec<GpuRow<'a>> {
    let interfaces: Vec<&Interface> = survey.iter().map(|(iface, _)| iface).collect();
    let ends = machine.ends(&interfaces);
    let gpus = machine.gpus.iter();
    gpus.map(|gpu| GpuRow {
        pci_address: gpu.pci.address(),
        class: format!("{:#08x}", gpu.class),
        vendor_id: format!("{:#06x}", gpu.vendor_id),
        device_id: format!("{:#06x}", gpu.device_id),
        vendor: gpu.vendor(),
        model: gpu.model.as_deref(),
        driver: gpu.driver.as_deref(),
        numa_node: gpu.pci.numa_node,
        pcie: links(&gpu.link),
        distances: ends
            .iter()
            .map(|(name, place)| DistanceRow {
                to: name.clone(),
                pci_address: place.address().to_owned(),
                distance: machine.distance(&gpu.pci, place).to_string(),
            })
            .collect(),
    })
    .collect()
}
