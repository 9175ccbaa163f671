//! The host router: configuration spaces, adapters, path tables, router operations.

pub mod layout;
mod path;

pub use path::Path;

use layout::{
    BUFFERS, CAP_PHY, CAP_TMU, CAP_USB4, CONTROL_CREDITS, LANE_MAX_HOP, LANE_UNPLUGGED, LANE_UP, PORT_CS_18,
    PORT_CS_19, ROUTER_TMU, SPACE_WORDS, TYPE_LANE, TYPE_NHI, lane_adapter, speed_code,
};

use crate::control::ConfigError;
use crate::link::Width;

/// What a write of a configuration word means beyond the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The port was put into reset or taken out of it.
    PortReset { port: usize, on: bool },
    /// Lane control of a port was written: bonding may be wanted.
    Lanes { port: usize },
    /// The change to the asked asymmetric width was started.
    Asymmetric { port: usize },
    /// A path entry changed.
    Path { adapter: usize, hop: u16 },
}

/// Spaces of a read or write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Path table of an adapter.
    Path,
    /// Configuration of an adapter.
    Adapter,
    /// Configuration of the router.
    Router,
    /// Counters; there are none.
    Counters,
}

impl Space {
    /// From the two bits of the request.
    pub fn from_bits(bits: u32) -> Space {
        match bits & 3 {
            0 => Space::Path,
            1 => Space::Adapter,
            2 => Space::Router,
            _ => Space::Counters,
        }
    }

    /// Short name for traces.
    pub fn name(self) -> &'static str {
        match self {
            Space::Path => "path",
            Space::Adapter => "adapter",
            Space::Router => "router",
            Space::Counters => "counters",
        }
    }
}

/// How a router is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Distinguishes hosts: part of the UID.
    pub(crate) id: u32,
    pub(crate) ports: usize,
    pub(crate) hops: usize,
    /// USB4 version 2.
    pub(crate) version_2: bool,
    /// Highest link generation, 2 to 4.
    pub(crate) generation: u8,
    /// Lanes per port, 1 or 2.
    pub(crate) lanes: u8,
}

#[derive(Clone, Debug, Default)]
struct Adapter {
    words: Vec<u32>,
    paths: Vec<u32>,
}

/// One host router.
#[derive(Debug)]
pub struct Router {
    shape: Shape,
    words: Vec<u32>,
    adapters: Vec<Adapter>,
    /// Per port: the driver asked for bonding since the link came up.
    bond: Vec<bool>,
}

impl Router {
    pub(crate) fn new(shape: Shape) -> Router {
        let nhi = 2 * shape.ports + 1;
        let version = if shape.version_2 { 0x40 } else { 0x20 } << 24;
        let ids = 0x0340_1234; // device and vendor; byte 1 of the vendor must not look like a capability's number
        let mut words = vec![0; SPACE_WORDS];
        words[0] = ids;
        words[1] = ROUTER_TMU as u32 | (nhi as u32) << 8 | (nhi as u32) << 14 | 1 << 24;
        words[4] = version;
        words[6] = 1 << 24 | 1 << 25; // router ready, configuration ready
        words[7] = uid(shape.id) as u32;
        words[8] = (uid(shape.id) >> 32) as u32;
        words[ROUTER_TMU] = 0x03 << 8 | 1 << 30; // unidirectional mode supported
        let mut adapters = vec![Adapter { words: vec![0; SPACE_WORDS], paths: Vec::new() }; nhi + 1];
        for (number, adapter) in adapters.iter_mut().enumerate().skip(1) {
            adapter.words[0] = ids;
            adapter.words[3] = (number as u32) << 20;
        }
        for port in 1..=shape.ports {
            let first = lane_adapter(port);
            lane(&mut adapters[first], &shape, version, true);
            if shape.lanes == 2 {
                lane(&mut adapters[first + 1], &shape, version, false);
            }
        }
        let host = &mut adapters[nhi];
        host.words[2] = version | TYPE_NHI;
        host.words[4] = BUFFERS << 20;
        let last = shape.hops as u32 - 1;
        host.words[5] = last | last << 11;
        host.paths = vec![0; 2 * shape.hops];
        Router { shape, words, adapters, bond: vec![false; shape.ports + 1] }
    }

    pub(crate) fn reset(&mut self) {
        *self = Router::new(self.shape);
    }

    /// USB4 ports, numbered from 1.
    pub fn ports(&self) -> usize {
        self.shape.ports
    }

    /// Adapter of the host interface.
    pub fn nhi_adapter(&self) -> usize {
        2 * self.shape.ports + 1
    }

    /// The UUID that the connection manager makes of the UID: the UID, then ones.
    pub fn uuid(&self) -> crate::xdomain::Uuid {
        crate::xdomain::Uuid::of_uid(uid(self.shape.id))
    }

    /// The connection manager has enumerated the router and opened this port.
    pub(crate) fn port_ready(&self, port: usize) -> bool {
        let lane = &self.adapters[lane_adapter(port)].words;
        self.words[3] >> 31 == 1 && lane[5] >> 31 == 0 && lane[PORT_CS_19] & 1 == 0
    }

    /// Buffers of an adapter.
    pub fn buffers(&self, adapter: usize) -> u32 {
        self.adapters.get(adapter).map_or(0, |a| a.words[4] >> 20 & 0x3ff)
    }

    /// Enabled path entry.
    pub fn path(&self, adapter: usize, hop: u16) -> Option<Path> {
        let entry = self.adapters.get(adapter)?.paths.get(2 * usize::from(hop)..2 * usize::from(hop) + 2)?;
        Path::decode(entry[0], entry[1])
    }

    /// Enabled path entries of an adapter.
    pub fn paths(&self, adapter: usize) -> impl Iterator<Item = (u16, Path)> + '_ {
        let entries = self.adapters.get(adapter).map_or(&[][..], |a| &a.paths);
        entries.chunks_exact(2).enumerate().filter_map(|(hop, e)| Some((hop as u16, Path::decode(e[0], e[1])?)))
    }

    /// Marks a disabled path as still holding packets, which its connection manager waits out.
    pub(crate) fn set_pending(&mut self, adapter: usize, hop: u16, pending: bool) {
        if let Some(high) = self.adapters.get_mut(adapter).and_then(|a| a.paths.get_mut(2 * usize::from(hop) + 1)) {
            *high = *high & !(1 << 28) | u32::from(pending) << 28;
        }
    }

    /// Sets state, speed and width of the lanes of a port.
    pub(crate) fn set_link(&mut self, port: usize, up: bool, generation: u8, width: Width) {
        if !up {
            self.bond[port] = false;
        }
        for at in 0..usize::from(self.shape.lanes) {
            let word = &mut self.adapters[lane_adapter(port) + at].words[CAP_PHY + 1];
            let state = if up { LANE_UP } else { LANE_UNPLUGGED };
            *word = *word & !(0xf << 16 | 0x3f << 20 | 0xf << 26)
                | speed_code(generation) << 16
                | width.code() << 20
                | state << 26;
        }
    }

    /// The connection manager wants the two lanes of the port used as one: both target widths are 3.
    pub(crate) fn wants_dual(&self, port: usize) -> bool {
        let first = lane_adapter(port);
        self.shape.lanes == 2 && (first..first + 2).all(|a| self.adapters[a].words[CAP_PHY + 1] >> 4 & 3 == 3)
    }

    /// The connection manager started bonding on this side.
    pub(crate) fn bonding(&self, port: usize) -> bool {
        self.bond[port]
    }

    /// Asymmetric width that is asked for: bits 7:6 of lane control.
    pub(crate) fn wanted_width(&self, port: usize) -> Width {
        match self.adapters[lane_adapter(port)].words[CAP_PHY + 1] >> 6 & 3 {
            1 => Width::AsymTx,
            2 => Width::AsymRx,
            _ => Width::Dual,
        }
    }

    /// The driver asks to be woken when something is connected to this port.
    pub(crate) fn wakes_on_connect(&self, port: usize) -> bool {
        self.adapters[lane_adapter(port)].words[PORT_CS_19] >> 16 & 1 == 1
    }

    fn space(&self, adapter: usize, space: Space) -> Result<&[u32], ConfigError> {
        match space {
            Space::Router => Ok(&self.words),
            _ if adapter > self.nhi_adapter() => Err(ConfigError::NoSuchAdapter),
            Space::Adapter if adapter > 0 => Ok(&self.adapters[adapter].words),
            Space::Path if adapter > 0 => Ok(&self.adapters[adapter].paths),
            _ => Err(ConfigError::InvalidSpace),
        }
    }

    /// Reads `len` words.
    pub(crate) fn read(&self, adapter: usize, space: Space, offset: usize, len: usize) -> Result<&[u32], ConfigError> {
        self.space(adapter, space)?.get(offset..offset + len).ok_or(ConfigError::InvalidSpace)
    }

    /// Writes words; what they set off is added to `effects`.
    pub(crate) fn write(
        &mut self,
        adapter: usize,
        space: Space,
        offset: usize,
        data: &[u32],
        effects: &mut Vec<Effect>,
    ) -> Result<(), ConfigError> {
        self.read(adapter, space, offset, data.len())?;
        for (at, &value) in data.iter().enumerate() {
            match space {
                Space::Router => self.write_router(offset + at, value),
                Space::Adapter => self.write_adapter(adapter, offset + at, value, effects),
                _ => self.adapters[adapter].paths[offset + at] = value,
            }
        }
        if space == Space::Path {
            let hops = offset / 2..=(offset + data.len().max(1) - 1) / 2;
            effects.extend(hops.map(|hop| Effect::Path { adapter, hop: hop as u16 }));
        }
        Ok(())
    }

    fn write_router(&mut self, at: usize, value: u32) {
        let word = &mut self.words[at];
        match at {
            0 | 6..=8 => {}
            1 => keep(word, value, 0x3f << 8 | 7 << 20),
            4 => keep(word, value, 0x00ff_ffff),
            26 => self.operate(value),
            ROUTER_TMU => keep(word, value, 0xffff_0000 & !(1 << 30)),
            _ => *word = value,
        }
    }

    fn write_adapter(&mut self, adapter: usize, at: usize, value: u32, effects: &mut Vec<Effect>) {
        let lane = self.adapters[adapter].words[2] & 0xff_ffff == TYPE_LANE;
        let first = lane && adapter % 2 == 1;
        let port = adapter.div_ceil(2);
        let word = &mut self.adapters[adapter].words[at];
        match at {
            0..=3 => {}
            4 => keep(word, value, !(0x3ff << 20)),
            5 => keep(word, value, !0x3f_ffff),
            CAP_PHY if lane => {}
            o if lane && o == CAP_PHY + 1 => {
                keep(word, value, 0xffff & !(1 << 15));
                if value >> 15 & 1 == 1 {
                    self.bond[port] = true;
                }
                effects.push(Effect::Lanes { port });
            }
            CAP_TMU | CAP_USB4 | PORT_CS_18 if lane => {}
            // The sideband has nothing at its other end: no response, at once.
            o if first && o == CAP_USB4 + 1 => *word = value & !(1 << 31) | 1 << 25,
            PORT_CS_19 if first => {
                let was = *word;
                *word = value & !(1 << 24);
                if (was ^ value) & 1 == 1 {
                    effects.push(Effect::PortReset { port, on: value & 1 == 1 });
                }
                if value >> 24 & 1 == 1 {
                    effects.push(Effect::Asymmetric { port });
                }
            }
            _ => *word = value,
        }
    }

    /// A router operation, done at once.
    fn operate(&mut self, value: u32) {
        const BUFFER_ALLOC: u32 = 0x33;
        self.words[26] = value & 0xffff;
        if value >> 31 == 0 {
            return;
        }
        if value & 0xffff == BUFFER_ALLOC {
            self.words[25] = 1; // one word of parameters
            self.words[9] = 5 | 32 << 16; // parameter 5, baMaxHI: buffers for the host interface
        } else {
            self.words[26] |= 1 << 30; // operation not supported
        }
    }
}

/// Replaces the bits of `mask`.
fn keep(word: &mut u32, value: u32, mask: u32) {
    *word = *word & !mask | value & mask;
}

fn uid(id: u32) -> u64 {
    0x0012_3400_0000_0000 | u64::from(0xcab1_e001u32.wrapping_add(id))
}

fn lane(adapter: &mut Adapter, shape: &Shape, version: u32, first: bool) {
    // Generations below the highest are supported as well.
    let speeds = (2..=shape.generation).fold(0, |all, g| all | speed_code(g));
    let words = &mut adapter.words;
    words[1] = CAP_PHY as u32;
    words[2] = version | TYPE_LANE;
    words[4] = BUFFERS << 20;
    words[5] = LANE_MAX_HOP | LANE_MAX_HOP << 11 | u32::from(first) << 31; // hot plug events off
    let dual = u32::from(shape.lanes == 2);
    let asymmetric = if shape.generation == 4 && shape.lanes == 2 { 0xc } else { 0 };
    words[CAP_PHY] = 0x01 << 8 | CAP_TMU as u32 | speeds << 16 | (1 | dual << 1 | asymmetric) << 20;
    words[CAP_PHY + 1] = 0xc | 1 << 4 | speed_code(shape.generation) << 16 | 1 << 20 | LANE_UNPLUGGED << 26;
    words[CAP_TMU] = 0x03 << 8 | if first { CAP_USB4 as u32 } else { 0 };
    if first {
        words[CAP_USB4] = 0x06 << 8;
        words[PORT_CS_18] = u32::from(asymmetric != 0) << 22;
        adapter.paths = vec![0; 2 * (LANE_MAX_HOP as usize + 1)];
        adapter.paths[0] = CONTROL_CREDITS << 17 | 1 << 31;
    } else {
        words[5] = LANE_MAX_HOP | LANE_MAX_HOP << 11;
    }
}

#[cfg(test)]
mod tests;
