//! One host interface as a vfio-user device.

use std::fs::File;
use std::io;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS,
    VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

use super::memory::Mapped;
use super::{Shared, ring};
use crate::nhi::regs::{BAR0_SIZE, VECTORS};
use crate::pci::CONFIG_LEN;

/// The MSI-X table and its pending bits; QEMU emulates both and never reads them here.
const BAR2_SIZE: u64 = 0x1000;

/// Interrupt lines of one device.
pub(super) struct Lines {
    msi: bool,
    single: Option<File>,
    vectors: Vec<Option<File>>,
}

impl Lines {
    pub(super) fn new(msi: bool) -> Lines {
        Lines { msi, single: None, vectors: (0..VECTORS).map(|_| None).collect() }
    }

    pub(super) fn signal(&self, vector: u8) {
        let by_vector = self.vectors.get(usize::from(vector)).and_then(Option::as_ref);
        let line = if self.msi { self.single.as_ref() } else { by_vector.or(self.single.as_ref()) };
        if let Some(line) = line {
            ring(line);
        }
    }

    fn set(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) {
        let vectors = match index {
            VFIO_PCI_MSI_IRQ_INDEX => std::slice::from_mut(&mut self.single),
            VFIO_PCI_MSIX_IRQ_INDEX => &mut self.vectors[..],
            _ => return,
        };
        if count == 0 {
            vectors.iter_mut().for_each(|v| *v = None);
        } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            let mut fds = fds.into_iter();
            for slot in vectors.iter_mut().skip(start as usize).take(count as usize) {
                *slot = fds.next();
            }
        }
    }
}

pub(super) struct Backend {
    host: usize,
    shared: Arc<Shared>,
    memory: Mapped,
    attached: bool,
}

impl Backend {
    pub(super) fn new(host: usize, shared: Arc<Shared>) -> Backend {
        Backend { host, shared, memory: Mapped::default(), attached: false }
    }

    /// The guest's process is gone.
    pub(super) fn gone(&mut self) {
        let host = self.host;
        self.shared.with(|inner| {
            inner.world.detach(host);
            let msi = inner.lines[host].msi;
            inner.lines[host] = Lines::new(msi);
        });
        self.memory.clear();
        self.attached = false;
    }

    fn attach(&mut self) {
        if !std::mem::replace(&mut self.attached, true) {
            let (host, memory) = (self.host, self.memory.clone());
            self.shared.with(|inner| inner.world.attach(host, Box::new(memory)));
        }
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let host = self.host;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => self.shared.with(|inner| {
                // Dwords are read as dwords; what is narrower or wider, in dwords.
                let mut at = offset;
                let mut rest = data;
                while !rest.is_empty() {
                    let word = inner.world.bar_read(host, at as u32).to_le_bytes();
                    let from = (at & 3) as usize;
                    let n = rest.len().min(4 - from);
                    let (now, later) = rest.split_at_mut(n);
                    now.copy_from_slice(&word[from..from + n]);
                    rest = later;
                    at += n as u64;
                }
            }),
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.attach();
                self.shared.with(|inner| inner.world.config_read(host, offset as usize, data));
            }
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let host = self.host;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                if !offset.is_multiple_of(4)
                    || !data.len().is_multiple_of(4)
                    || offset + data.len() as u64 > u64::from(BAR0_SIZE)
                {
                    return Err(io::Error::other("BAR 0 takes aligned dwords"));
                }
                self.shared.with(|inner| {
                    for (at, word) in data.chunks_exact(4).enumerate() {
                        let value = word.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b));
                        inner.world.bar_write(host, offset as u32 + 4 * at as u32, value);
                    }
                });
            }
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.shared.with(|inner| inner.world.config_write(host, offset as usize, data));
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        self.attach();
        // Memory without a file is the BIOS's; no driver has buffers there.
        match fd {
            Some(file) => self.memory.map(address, size, offset, file, flags.contains(DmaMapFlags::WRITE)),
            None => Ok(()),
        }
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        // Under the world's lock, so that no access is in the middle of it.
        let memory = self.memory.clone();
        self.shared.with(|_| memory.unmap(address, size));
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        let host = self.host;
        self.shared.with(|inner| inner.world.device_reset(host));
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        let host = self.host;
        self.shared.with(|inner| inner.lines[host].set(index, flags, start, count, fds));
        Ok(())
    }
}

/// BAR 0, the MSI-X table in BAR 2, configuration space; the other regions are empty.
pub(super) fn regions() -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => u64::from(BAR0_SIZE),
                VFIO_PCI_BAR2_REGION_INDEX => BAR2_SIZE,
                VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_LEN as u64,
                _ => 0,
            };
            let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
            let argsz = size_of::<vfio_region_info>() as u32;
            ServerRegion {
                region_info: vfio_region_info {
                    argsz,
                    index,
                    size,
                    flags,
                    offset: u64::from(index) << 40,
                    cap_offset: 0,
                },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            }
        })
        .collect()
}

/// One MSI, sixteen MSI-X vectors.
pub(super) fn irqs() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let count = match index {
                VFIO_PCI_MSI_IRQ_INDEX => 1,
                VFIO_PCI_MSIX_IRQ_INDEX => VECTORS as u32,
                _ => 0,
            };
            IrqInfo { index, flags: if count > 0 { VFIO_IRQ_INFO_EVENTFD } else { 0 }, count }
        })
        .collect()
}
