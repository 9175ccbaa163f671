//! The native host interface: BAR 0, descriptor rings, interrupts.

pub mod irq;
pub mod regs;
mod ring;

pub use ring::{Frame, Ring};

use irq::{Edge, Interrupts, IrqOut};
use regs::{
    BAR0_SIZE, CAPS, DMA_MISC, ENABLE, INTERRUPT, INTERRUPT_CLEAR, MAX_HOPS, NOTIFY, NOTIFY_CLEAR, RESET, RX_OPTIONS,
    RX_RINGS, THROTTLE, TX_OPTIONS, TX_RINGS, VECTOR, VERSION_2,
};

use crate::failure::Misuse;
use crate::time::Time;

/// What a register write means beyond the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing else.
    None,
    /// There may be work on the rings.
    Kick,
    /// A TX ring was switched on or off.
    TxSwitched(usize),
    /// An RX ring was switched on or off.
    RxSwitched(usize),
    /// The driver asked for a host router reset.
    Reset,
}

/// One host interface.
#[derive(Debug)]
pub struct Nhi {
    hops: usize,
    version_2: bool,
    tx: Vec<Ring>,
    rx: Vec<Ring>,
    pub(crate) irq: Interrupts,
    /// Credits for descriptors go out when they are posted, or never.
    strict_credits: bool,
}

impl Nhi {
    /// A host interface with `hops` rings of each direction (1 to 32).
    pub(crate) fn new(hops: usize, version_2: bool, edge: Edge, strict_credits: bool) -> Nhi {
        let hops = hops.clamp(1, MAX_HOPS);
        Nhi {
            hops,
            version_2,
            tx: vec![Ring::default(); hops],
            rx: vec![Ring::default(); hops],
            irq: Interrupts::new(hops, edge),
            strict_credits,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.tx.fill(Ring::default());
        self.rx.fill(Ring::default());
        self.irq.reset();
    }

    /// Rings of each direction.
    pub fn hops(&self) -> usize {
        self.hops
    }

    /// A TX ring.
    pub fn tx(&self, ring: usize) -> Option<&Ring> {
        self.tx.get(ring)
    }

    /// An RX ring.
    pub fn rx(&self, ring: usize) -> Option<&Ring> {
        self.rx.get(ring)
    }

    pub(crate) fn tx_mut(&mut self, ring: usize) -> Option<&mut Ring> {
        self.tx.get_mut(ring)
    }

    pub(crate) fn rx_mut(&mut self, ring: usize) -> Option<&mut Ring> {
        self.rx.get_mut(ring)
    }

    /// Reads an aligned dword of BAR 0; places without a meaning read as zero.
    pub(crate) fn read(&mut self, offset: u32) -> u32 {
        let hops = self.hops as u32;
        match offset {
            o if o < TX_RINGS + 16 * hops => {
                let ring = &self.tx[(o / 16) as usize];
                read_ring(ring, o % 16, u32::from(ring.driver) << 16 | u32::from(ring.device))
            }
            o if (RX_RINGS..RX_RINGS + 16 * hops).contains(&o) => {
                let ring = &self.rx[((o - RX_RINGS) / 16) as usize];
                read_ring(ring, o % 16, u32::from(ring.device) << 16 | u32::from(ring.driver))
            }
            o if (TX_OPTIONS..TX_OPTIONS + 32 * hops).contains(&o) => {
                let ring = &self.tx[((o - TX_OPTIONS) / 32) as usize];
                if o % 32 == TX_OPTIONS % 32 { ring.options } else { 0 }
            }
            o if (RX_OPTIONS..RX_OPTIONS + 32 * hops).contains(&o) => {
                let ring = &self.rx[((o - RX_OPTIONS) / 32) as usize];
                match (o - RX_OPTIONS) % 32 {
                    0 => ring.options,
                    4 => ring.masks,
                    _ => 0,
                }
            }
            o if (NOTIFY..NOTIFY + 12).contains(&o) => self.irq.read_status(((o - NOTIFY) / 4) as usize),
            o if (INTERRUPT..INTERRUPT + 8).contains(&o) => self.irq.enabled(((o - INTERRUPT) / 4) as usize),
            o if (THROTTLE..VECTOR).contains(&o) => self.irq.throttle(((o - THROTTLE) / 4) as usize),
            o if (VECTOR..VECTOR + 32).contains(&o) => self.irq.vectors(((o - VECTOR) / 4) as usize),
            CAPS => hops | if self.version_2 { VERSION_2 } else { 0 },
            DMA_MISC => self.irq.misc(),
            _ => 0,
        }
    }

    /// Writes an aligned dword of BAR 0.
    pub(crate) fn write(
        &mut self,
        offset: u32,
        value: u32,
        now: Time,
        irqs: &mut Vec<IrqOut>,
    ) -> Result<Effect, Misuse> {
        let hops = self.hops as u32;
        match offset {
            o if o < TX_RINGS + 16 * hops => {
                let index = (o / 16) as usize;
                write_ring(&mut self.tx[index], o % 16, value, (value >> 16) as u16);
                return check_index(&self.tx[index], "TX", index);
            }
            o if (RX_RINGS..RX_RINGS + 16 * hops).contains(&o) => {
                let index = ((o - RX_RINGS) / 16) as usize;
                let before = self.rx[index].outstanding();
                write_ring(&mut self.rx[index], o % 16, value, value as u16);
                let ring = &self.rx[index];
                let way_out = self.tx.get(usize::from(ring.e2e_hop())).is_some_and(Ring::enabled);
                if self.strict_credits && o % 16 == 8 && ring.e2e() && !way_out {
                    let more = ring.outstanding().saturating_sub(before);
                    self.rx[index].unsaid += more;
                }
                return check_index(&self.rx[index], "RX", index);
            }
            o if (TX_OPTIONS..TX_OPTIONS + 32 * hops).contains(&o) => {
                let index = ((o - TX_OPTIONS) / 32) as usize;
                if (o - TX_OPTIONS).is_multiple_of(32) && switch(&mut self.tx[index], value) {
                    check_size(&self.tx[index], "TX", index)?;
                    return Ok(Effect::TxSwitched(index));
                }
                return Ok(Effect::Kick);
            }
            o if (RX_OPTIONS..RX_OPTIONS + 32 * hops).contains(&o) => {
                let index = ((o - RX_OPTIONS) / 32) as usize;
                match (o - RX_OPTIONS) % 32 {
                    0 if switch(&mut self.rx[index], value) => {
                        check_size(&self.rx[index], "RX", index)?;
                        return Ok(Effect::RxSwitched(index));
                    }
                    4 => self.rx[index].masks = value,
                    _ => {}
                }
                return Ok(Effect::Kick);
            }
            o if (NOTIFY_CLEAR..NOTIFY_CLEAR + 12).contains(&o) => {
                self.irq.clear_status(((o - NOTIFY_CLEAR) / 4) as usize, value);
            }
            o if (INTERRUPT..INTERRUPT + 8).contains(&o) => {
                self.irq.set_enabled(((o - INTERRUPT) / 4) as usize, value, now, irqs);
            }
            o if (INTERRUPT_CLEAR..INTERRUPT_CLEAR + 8).contains(&o) => {
                self.irq.clear_enabled(((o - INTERRUPT_CLEAR) / 4) as usize, value);
            }
            o if (THROTTLE..VECTOR).contains(&o) => self.irq.set_throttle(((o - THROTTLE) / 4) as usize, value),
            o if (VECTOR..VECTOR + 32).contains(&o) => self.irq.set_vectors(((o - VECTOR) / 4) as usize, value),
            DMA_MISC => self.irq.set_misc(value),
            RESET if value & 1 != 0 => return Ok(Effect::Reset),
            o if o >= BAR0_SIZE => return Err(Misuse::Register { offset: o }),
            _ => {}
        }
        Ok(Effect::None)
    }
}

fn read_ring(ring: &Ring, at: u32, indices: u32) -> u32 {
    match at {
        0 => ring.base as u32,
        4 => (ring.base >> 32) as u32,
        8 => indices,
        _ => ring.size,
    }
}

fn write_ring(ring: &mut Ring, at: u32, value: u32, index: u16) {
    match at {
        0 => ring.base = ring.base & !0xffff_ffff | u64::from(value),
        4 => ring.base = ring.base & 0xffff_ffff | u64::from(value) << 32,
        8 => ring.driver = index,
        _ => ring.size = value,
    }
}

/// Sets the options; true when the ring was switched on or off. Switching resets the device's index.
fn switch(ring: &mut Ring, options: u32) -> bool {
    let switched = (ring.options ^ options) & ENABLE != 0;
    ring.options = options;
    if switched && ring.enabled() {
        (ring.device, ring.unsaid) = (0, 0);
    }
    switched
}

fn check_index(ring: &Ring, kind: &'static str, index: usize) -> Result<Effect, Misuse> {
    if ring.enabled() && ring.driver >= ring.len() {
        return Err(Misuse::Index { kind, ring: index, value: ring.driver, size: ring.len() });
    }
    Ok(Effect::Kick)
}

fn check_size(ring: &Ring, kind: &'static str, index: usize) -> Result<(), Misuse> {
    if ring.enabled() && ring.len() < 2 {
        return Err(Misuse::Size { kind, ring: index, size: ring.len() });
    }
    Ok(())
}

/// The register holds a ring index: a driver writes it for each frame, or for each batch.
pub(crate) fn is_doorbell(offset: u32) -> bool {
    let rings = 16 * MAX_HOPS as u32;
    (offset < TX_RINGS + rings || (RX_RINGS..RX_RINGS + rings).contains(&offset)) && offset % 16 == 8
}
