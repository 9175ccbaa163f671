//! Descriptor rings in guest memory.

use super::regs::{DESC_COMPLETED, DESC_INTERRUPT, DESC_LEN, DESC_OVERRUN, E2E, ENABLE, MAX_FRAME, RAW};
use crate::memory::{DmaFault, GuestMemory};

/// One frame as the cable carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Payload, 1 to 4096 bytes.
    pub data: Vec<u8>,
    /// Kind of the start of the frame, 4 bits.
    pub sof: u8,
    /// Kind of the end of the frame, 4 bits; in raw mode, of the packet.
    pub eof: u8,
    /// The payload was damaged in transit.
    pub damaged: bool,
}

/// The registers that both kinds of ring share.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// Bus address of descriptor 0.
    pub base: u64,
    /// Index that the driver moves.
    pub driver: u16,
    /// Index that the device moves.
    pub device: u16,
    /// Size register: descriptors in the low half; on receive, largest frame in the high half.
    pub size: u32,
    /// Options register.
    pub options: u32,
    /// Receive only: SOF mask in the high half, EOF mask in the low half.
    pub masks: u32,
    /// Receive only: descriptors whose credits went nowhere, for the TX ring that they go out by did not run.
    pub unsaid: u16,
}

/// A descriptor as read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) at: u64,
    pub(crate) buffer: u64,
    pub(crate) word: u32,
}

impl Ring {
    /// The ring runs.
    pub fn enabled(&self) -> bool {
        self.options & ENABLE != 0
    }

    /// Packets instead of frames.
    pub fn raw(&self) -> bool {
        self.options & RAW != 0
    }

    /// End-to-end flow control.
    pub fn e2e(&self) -> bool {
        self.options & E2E != 0
    }

    /// Receive: the TX ring whose peer is granted credits by this ring.
    pub fn e2e_hop(&self) -> u16 {
        (self.options >> 12 & 0x7ff) as u16
    }

    /// Number of descriptors.
    pub fn len(&self) -> u16 {
        self.size as u16
    }

    /// A ring without descriptors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Receive: the largest frame that fits a buffer, in bytes.
    pub fn frame_size(&self) -> usize {
        match self.size >> 16 {
            0 => MAX_FRAME,
            n => (n as usize).min(MAX_FRAME),
        }
    }

    /// Descriptors that belong to the device now.
    pub fn posted(&self) -> u16 {
        if self.enabled() { self.outstanding() } else { 0 }
    }

    /// Descriptors that the driver posted and the device has not used, whether the ring runs or not.
    pub(crate) fn outstanding(&self) -> u16 {
        let len = self.len();
        if len < 2 || self.driver >= len || self.device >= len {
            return 0;
        }
        // Sizes go up to 65535: the sum does not fit 16 bits.
        ((u32::from(self.driver) + u32::from(len) - u32::from(self.device)) % u32::from(len)) as u16
    }

    fn desc(&self, mem: &dyn GuestMemory) -> Result<Desc, DmaFault> {
        let at = self.base.wrapping_add(u64::from(self.device) * DESC_LEN);
        let mut raw = [0; DESC_LEN as usize];
        mem.read(at, &mut raw)?;
        let buffer = raw[..8].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
        let word = raw[8..12].iter().rev().fold(0, |v, b| v << 8 | u32::from(*b));
        Ok(Desc { at, buffer, word })
    }

    /// Moves on by one descriptor.
    fn step(&mut self) {
        self.device = (self.device + 1) % self.len().max(1);
    }

    /// Transmit: reads the next frame. The descriptor stays with the device until [`Ring::complete_tx`].
    pub(crate) fn fetch(&self, mem: &dyn GuestMemory) -> Result<Frame, DmaFault> {
        let desc = self.desc(mem)?;
        let len = match desc.word & 0xfff {
            0 => MAX_FRAME,
            n => n as usize,
        };
        let mut data = vec![0; len];
        mem.read(desc.buffer, &mut data)?;
        Ok(Frame { data, sof: (desc.word >> 16 & 0xf) as u8, eof: (desc.word >> 12 & 0xf) as u8, damaged: false })
    }

    /// Transmit: writes the descriptor back and moves on. True: the driver wants an interrupt.
    pub(crate) fn complete_tx(&mut self, mem: &dyn GuestMemory) -> Result<bool, DmaFault> {
        let desc = self.desc(mem);
        self.step();
        let desc = desc?;
        mem.store(desc.at + 8, desc.word | DESC_COMPLETED << 20)?;
        Ok(desc.word >> 20 & DESC_INTERRUPT != 0)
    }

    /// Receive: fills the next descriptor. True: the driver wants an interrupt.
    pub(crate) fn fill(&mut self, mem: &dyn GuestMemory, frame: &Frame, flags: u32) -> Result<bool, DmaFault> {
        let desc = self.desc(mem);
        let (take, flags) = match frame.data.len() {
            n if n > self.frame_size() => (self.frame_size(), flags | DESC_OVERRUN),
            n => (n, flags),
        };
        self.step();
        let desc = desc?;
        // The buffer is only found missing after the descriptor is known; the descriptor is completed either way, so
        // that a driver which made a mistake does not hang as well.
        let wrote = mem.write(desc.buffer, &frame.data[..take]);
        let asked = desc.word >> 20 & DESC_INTERRUPT;
        let word = (take as u32 & 0xfff)
            | u32::from(frame.eof & 0xf) << 12
            | u32::from(frame.sof & 0xf) << 16
            | (DESC_COMPLETED | asked | flags) << 20;
        mem.store(desc.at + 8, word)?;
        wrote?;
        Ok(asked != 0)
    }

    /// Receive: the masks let this frame in.
    pub(crate) fn accepts(&self, sof: u8, eof: u8) -> bool {
        self.raw() || (self.masks >> 16 >> (sof & 0xf) & 1 == 1 && self.masks >> (eof & 0xf) & 1 == 1)
    }
}
