//! Where device memory lies in the machine: the pages that hold a range, and the NUMA node of a device.

/// The NUMA node of a PCI device, as the kernel says; `None` also where the machine has only one.
pub fn numa_of(pci: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{}/numa_node", pci.to_lowercase())).ok()?;
    text.trim().parse().ok()
}

/// Whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// Bytes, a multiple of the page size.
    pub len: usize,
}

/// The host pages that hold a range of device memory. Allocations of device memory begin and end with such pages, so
/// these lie inside of the allocation too.
pub fn pages_around(addr: u64, len: usize) -> Pages {
    let page = rustix::param::page_size() as u64;
    let start = addr / page * page;
    Pages { start, len: (addr + len as u64).next_multiple_of(page).saturating_sub(start) as usize }
}
