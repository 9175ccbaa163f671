//! Interrupt status, masks, vectors and throttling.

use super::regs::{AUTO_CLEAR, READ_KEEPS, VECTORS};
use crate::time::Time;

/// What the interrupt unit asks of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqOut {
    /// Send this vector now.
    Fire(u8),
    /// Ask again about this vector at this time: its throttling interval is over then.
    Timer(u8, Time),
}

/// When a completion asks for its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Edge {
    /// At every completion: what hardware was seen to do, and forgiving.
    #[default]
    Completion,
    /// Only when its status bit turns on: a driver that clears late loses interrupts.
    Status,
    /// Only when its status bit turns on, and never when its enable bit does: a driver that does not look again after it has
    /// unmasked loses interrupts.
    Silent,
}

/// One host interface's interrupt unit.
#[derive(Debug)]
pub struct Interrupts {
    hops: usize,
    edge: Edge,
    msix: bool,
    status: u128,
    enable: u128,
    vector: [u8; 64],
    throttle: [u32; VECTORS],
    last: [Option<Time>; VECTORS],
    armed: [bool; VECTORS],
    /// Interrupts that have asked for their vector since it was sent last.
    asked: u128,
    misc: u32,
}

impl Interrupts {
    pub(crate) fn new(hops: usize, edge: Edge) -> Interrupts {
        Interrupts {
            hops,
            edge,
            msix: true,
            status: 0,
            enable: 0,
            vector: [0; 64],
            throttle: [0; VECTORS],
            last: [None; VECTORS],
            armed: [false; VECTORS],
            asked: 0,
            misc: 0,
        }
    }

    /// Back to the state after reset; the way of signalling stays, it belongs to the PCI function.
    pub(crate) fn reset(&mut self) {
        *self = Interrupts { msix: self.msix, ..Interrupts::new(self.hops, self.edge) };
    }

    /// MSI-X with a vector per ring, or MSI with one for all.
    pub(crate) fn set_msix(&mut self, msix: bool) {
        self.msix = msix;
    }

    /// Interrupt number of a TX ring.
    pub(crate) fn tx_bit(&self, ring: usize) -> usize {
        ring
    }

    /// Interrupt number of an RX ring.
    pub(crate) fn rx_bit(&self, ring: usize) -> usize {
        self.hops + ring
    }

    fn vector_of(&self, bit: usize) -> u8 {
        if self.msix { self.vector.get(bit).copied().unwrap_or(0) } else { 0 }
    }

    /// A completion on ring interrupt `bit`.
    pub(crate) fn raise(&mut self, bit: usize, now: Time, out: &mut Vec<IrqOut>) {
        let mask = 1u128 << bit;
        let was = self.status & mask != 0;
        self.status |= mask;
        self.asked |= mask;
        if self.enable & mask != 0 && !(was && self.edge != Edge::Completion) {
            self.request(self.vector_of(bit), now, out);
        }
    }

    /// A frame found no space on an RX ring: status only, there is no enable bit for it.
    pub(crate) fn overflow(&mut self, ring: usize) {
        self.status |= 1u128 << (2 * self.hops + ring);
    }

    /// The throttling interval in nanoseconds: 16 bits, units of 256 ns.
    fn interval(&self, vector: u8) -> Time {
        u64::from(self.throttle[usize::from(vector) % VECTORS] & 0xffff) * 256
    }

    fn request(&mut self, vector: u8, now: Time, out: &mut Vec<IrqOut>) {
        let v = usize::from(vector) % VECTORS;
        if self.armed[v] {
            return;
        }
        let next = self.last[v].map_or(0, |last| last + self.interval(vector));
        if next <= now {
            self.fire(vector, now, out);
        } else {
            self.armed[v] = true;
            out.push(IrqOut::Timer(vector, next));
        }
    }

    fn fire(&mut self, vector: u8, now: Time, out: &mut Vec<IrqOut>) {
        self.last[usize::from(vector) % VECTORS] = Some(now);
        self.asked &= !self.of(vector, self.asked);
        if self.misc & AUTO_CLEAR != 0 {
            self.status &= !self.pending(vector);
        }
        out.push(IrqOut::Fire(vector));
    }

    fn pending(&self, vector: u8) -> u128 {
        self.of(vector, self.status & self.enable)
    }

    /// Those of `bits` that are signalled by this vector.
    fn of(&self, vector: u8, bits: u128) -> u128 {
        (0..2 * self.hops).filter(|b| bits >> b & 1 == 1 && self.vector_of(*b) == vector).fold(0, |all, b| all | 1 << b)
    }

    /// The throttling interval of a vector is over.
    pub(crate) fn timer(&mut self, vector: u8, now: Time, out: &mut Vec<IrqOut>) {
        let v = usize::from(vector) % VECTORS;
        if !std::mem::take(&mut self.armed[v]) {
            return;
        }
        // A clear takes microseconds to hardware and far longer to here, so within the interval it is likely to be an earlier
        // completion's: what has asked since is not forgotten with it.
        let asked = self.edge == Edge::Completion && self.of(vector, self.asked & self.enable) != 0;
        if asked || self.pending(vector) != 0 {
            self.fire(vector, now, out);
        }
    }

    /// Reads dword `word` of the status; clears it unless the driver asked otherwise.
    pub(crate) fn read_status(&mut self, word: usize) -> u32 {
        let value = (self.status >> (32 * word)) as u32;
        if self.misc & READ_KEEPS == 0 {
            self.clear_status(word, value);
        }
        value
    }

    pub(crate) fn clear_status(&mut self, word: usize, bits: u32) {
        self.status &= !(u128::from(bits) << (32 * word));
    }

    pub(crate) fn enabled(&self, word: usize) -> u32 {
        (self.enable >> (32 * word)) as u32
    }

    /// Sets dword `word` of the enable bits; a bit that turns on with its status set asks for its vector.
    pub(crate) fn set_enabled(&mut self, word: usize, bits: u32, now: Time, out: &mut Vec<IrqOut>) {
        let old = self.enable;
        self.enable = old & !(u128::from(u32::MAX) << (32 * word)) | u128::from(bits) << (32 * word);
        let news = if self.edge == Edge::Silent { 0 } else { self.enable & !old & self.status };
        for bit in (0..2 * self.hops).filter(|b| news >> b & 1 == 1) {
            self.request(self.vector_of(bit), now, out);
        }
    }

    pub(crate) fn clear_enabled(&mut self, word: usize, bits: u32) {
        self.enable &= !(u128::from(bits) << (32 * word));
    }

    /// Register of eight vector numbers.
    pub(crate) fn vectors(&self, index: usize) -> u32 {
        (0..8).fold(0, |all, i| all | u32::from(self.vector.get(8 * index + i).copied().unwrap_or(0)) << (4 * i))
    }

    pub(crate) fn set_vectors(&mut self, index: usize, value: u32) {
        for i in 0..8 {
            if let Some(v) = self.vector.get_mut(8 * index + i) {
                *v = (value >> (4 * i) & 0xf) as u8;
            }
        }
    }

    pub(crate) fn throttle(&self, vector: usize) -> u32 {
        self.throttle.get(vector).copied().unwrap_or(0)
    }

    pub(crate) fn set_throttle(&mut self, vector: usize, value: u32) {
        if let Some(t) = self.throttle.get_mut(vector) {
            *t = value;
        }
    }

    pub(crate) fn misc(&self) -> u32 {
        self.misc
    }

    pub(crate) fn set_misc(&mut self, value: u32) {
        self.misc = value;
    }
}

#[cfg(test)]
mod tests;
