//! Register and configuration accesses of a guest.

use super::{Action, World};
use crate::nhi::Effect;
use crate::nhi::irq::IrqOut;

impl World {
    /// Reads an aligned dword of BAR 0.
    pub fn bar_read(&mut self, host: usize, offset: u32) -> u32 {
        let Some(guest) = self.guest_mut(host) else { return !0 };
        let value = guest.nhi.read(offset & !3);
        self.hosts[host].stats.reads += 1;
        value
    }

    /// Writes an aligned dword of BAR 0 and does all that follows at once.
    pub fn bar_write(&mut self, host: usize, offset: u32, value: u32) {
        let now = self.now;
        let mut irqs: Vec<IrqOut> = std::mem::take(&mut self.irqs);
        let Some(guest) = self.guest_mut(host) else { return };
        let result = guest.nhi.write(offset & !3, value, now, &mut irqs);
        self.irqs = irqs;
        let stats = &mut self.hosts[host].stats;
        stats.writes += 1;
        stats.doorbells += u64::from(crate::nhi::is_doorbell(offset));
        self.flush_irqs(host);
        match result {
            Err(what) => self.fail(host, what),
            Ok(Effect::None) => {}
            Ok(Effect::Kick) => self.settle(),
            Ok(Effect::TxSwitched(ring)) => {
                self.ring_switched(host, "tx", ring);
                let unsent = self.guest(host).and_then(|g| g.nhi.tx(ring)).filter(|r| !r.enabled());
                self.hosts[host].stats.taken_back += unsent.map_or(0, |r| u64::from(r.outstanding()));
                if let Some(slot) = self.guest_mut(host).and_then(|g| g.outgoing.get_mut(ring)) {
                    *slot = None;
                }
                self.settle();
            }
            Ok(Effect::RxSwitched(ring)) => {
                self.ring_switched(host, "rx", ring);
                if let Some(slot) = self.guest_mut(host).and_then(|g| g.partial.get_mut(ring)) {
                    *slot = None;
                }
                if ring == 0 {
                    self.control_switched(host);
                }
                self.settle();
            }
            Ok(Effect::Reset) => {
                self.note(host, "host router reset");
                self.device_reset(host);
            }
        }
    }

    fn ring_switched(&mut self, host: usize, kind: &str, ring: usize) {
        if !self.traced() {
            return;
        }
        let Some(guest) = self.guest(host) else { return };
        let found = if kind == "tx" { guest.nhi.tx(ring) } else { guest.nhi.rx(ring) };
        let Some(r) = found else { return };
        let text = format!(
            "{kind} ring {ring} {}: {} descriptors, {} of them posted, options {:#x}, masks {:#x}",
            if r.enabled() { "on" } else { "off" },
            r.len(),
            r.outstanding(),
            r.options,
            r.masks
        );
        self.note(host, &text);
    }

    /// The receive side of the control channel was switched: without it no plug event arrives.
    fn control_switched(&mut self, host: usize) {
        if let Some(guest) = self.guest_mut(host)
            && !guest.listens()
        {
            guest.inbox.clear();
            guest.events.clear();
            self.links_of(host, "the control channel stopped");
        }
        self.check_links();
    }

    /// Resets the device, as the bus does, or as the driver asks with the reset register.
    pub fn device_reset(&mut self, host: usize) {
        self.links_of(host, "the host interface was reset");
        if let Some(guest) = self.guest_mut(host) {
            guest.reset();
        }
        self.check_links();
        self.settle();
    }

    /// Reads PCI configuration space.
    pub fn config_read(&self, host: usize, offset: usize, data: &mut [u8]) {
        match self.guest(host) {
            Some(guest) => guest.pci.read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// Writes PCI configuration space.
    pub fn config_write(&mut self, host: usize, offset: usize, data: &[u8]) {
        let Some(guest) = self.guest_mut(host) else { return };
        guest.pci.write(offset, data);
        let msix = guest.pci.msix();
        guest.nhi.irq.set_msix(msix);
        self.check_links();
        self.settle();
    }

    /// Wakes a suspended host interface whose port found a partner.
    pub(super) fn wake(&mut self, host: usize) {
        if self.guest_mut(host).is_some_and(|g| g.pci.wake()) {
            self.hosts[host].stats.wakes += 1;
            self.note(host, "wake event");
            self.actions.push(Action::Wake { host });
        }
    }
}
