//! PCI configuration space of a host interface.

/// Bytes of configuration space.
pub const CONFIG_LEN: usize = 4096;

/// Power management capability, when there is one.
const PM: usize = 0x40;
/// MSI-X or MSI capability.
const IRQ: usize = 0x50;
/// Length of either capability in this function.
const IRQ_LEN: usize = 0x10;
/// PMCSR: wake enabled.
const PME_ENABLE: u16 = 1 << 8;
/// PMCSR: wake happened; writing one clears it.
const PME_STATUS: u16 = 1 << 15;

/// Configuration space.
#[derive(Debug)]
pub struct PciConfig {
    bytes: Vec<u8>,
    pm: bool,
    msi: bool,
}

/// How the function looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciShape {
    pub(crate) id: u16,
    pub(crate) intel: bool,
    pub(crate) msi: bool,
    pub(crate) pm: bool,
}

impl PciConfig {
    pub(crate) fn new(shape: PciShape) -> PciConfig {
        let mut config = PciConfig { bytes: vec![0; CONFIG_LEN], pm: shape.pm, msi: shape.msi };
        // An Intel vendor makes the driver use automatic clearing; the device is none that exists, so that no
        // firmware connection manager is looked for.
        config.put16(0x00, if shape.intel { 0x8086 } else { 0x1234 });
        config.put16(0x02, 0x0340);
        config.put16(0x06, 1 << 4); // capability list
        config.put16(0x08, 0x4001); // programming interface 0x40 (USB4 host interface), revision 1
        config.put16(0x0a, 0x0c03); // serial bus, USB
        config.put16(0x2c, 0x1234);
        config.put16(0x2e, shape.id);
        config.bytes[0x34] = if shape.pm { PM as u8 } else { IRQ as u8 };
        if shape.pm {
            config.bytes[PM] = 0x01;
            config.bytes[PM + 1] = IRQ as u8;
            config.put16(PM + 2, 0x0003 | 1 << 14 | 1 << 11); // version 3, wake from D0 and D3hot
            config.put16(PM + 4, 1 << 3); // no soft reset
        }
        if shape.msi {
            config.bytes[IRQ] = 0x05;
            config.put16(IRQ + 2, 1 << 7); // 64-bit address, one vector
        } else {
            // 16 vectors, table at BAR 2 + 0, pending bits at BAR 2 + 0x800.
            config.bytes[IRQ] = 0x11;
            config.put16(IRQ + 2, 15);
            config.put16(IRQ + 4, 2);
            config.put16(IRQ + 8, 0x802);
        }
        config
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Reads bytes; zeros beyond the end.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = offset.checked_add(at).and_then(|o| self.bytes.get(o)).copied().unwrap_or(0);
        }
    }

    /// Writes what software may write: the command register and the capabilities.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        for (at, &byte) in data.iter().enumerate() {
            let Some(o) = offset.checked_add(at) else { return };
            match o {
                4 | 5 => self.bytes[o] = byte,
                o if (IRQ + 2..IRQ + IRQ_LEN).contains(&o) && (self.msi || o < IRQ + 4) => self.bytes[o] = byte,
                o if self.pm && o == PM + 4 => self.bytes[o] = self.bytes[o] & !3 | byte & 3,
                o if self.pm && o == PM + 5 => {
                    let status = self.bytes[o] & 0x80 & !byte;
                    self.bytes[o] = byte & 0x01 | status;
                }
                _ => {}
            }
        }
    }

    /// MSI-X is enabled.
    pub(crate) fn msix(&self) -> bool {
        !self.msi && self.get16(IRQ + 2) >> 15 == 1
    }

    /// The function is in D3hot and may wake the machine: sets the wake status. True when it was set now.
    pub(crate) fn wake(&mut self) -> bool {
        let pmcsr = self.get16(PM + 4);
        let wakes = self.pm && pmcsr & 3 == 3 && pmcsr & PME_ENABLE != 0 && pmcsr & PME_STATUS == 0;
        if wakes {
            self.put16(PM + 4, pmcsr | PME_STATUS);
        }
        wakes
    }
}

#[cfg(test)]
mod tests;
