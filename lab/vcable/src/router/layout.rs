//! Offsets and bits of the configuration spaces. Source: USB4 specification, chapter "Configuration Layer", and
//! `drivers/thunderbolt/tb_regs.h` of Linux.

/// Adapter of the first lane of a USB4 port; ports count from 1.
pub fn lane_adapter(port: usize) -> usize {
    2 * port - 1
}

/// Router space: first capability, the time management unit.
pub const ROUTER_TMU: usize = 0x40;
/// Lane adapter: physical lane capability.
pub const CAP_PHY: usize = 0x10;
/// Lane adapter: time management capability.
pub const CAP_TMU: usize = 0x20;
/// First lane adapter of a port: USB4 port capability.
pub const CAP_USB4: usize = 0x40;
/// Port status: bit 22 says that asymmetric links are supported.
pub const PORT_CS_18: usize = CAP_USB4 + 0x12;
/// Port control: bit 0 resets the port, bit 24 starts the change to an asymmetric link.
pub const PORT_CS_19: usize = CAP_USB4 + 0x13;

/// Adapter type of a lane.
pub const TYPE_LANE: u32 = 1;
/// Adapter type of a host interface.
pub const TYPE_NHI: u32 = 2;
/// Words of a router or adapter space.
pub const SPACE_WORDS: usize = 0x100;
/// Packet buffers of every adapter.
pub const BUFFERS: u32 = 120;
/// Highest HopID of a lane adapter.
pub const LANE_MAX_HOP: u32 = 31;
/// First HopID of data paths; the lower ones are reserved.
pub const FIRST_HOP: u16 = 8;
/// Credits of the control path, which each lane adapter holds in path entry 0.
pub const CONTROL_CREDITS: u32 = 2;

/// Lane states in PHY word 1, bits 29:26.
pub const LANE_UP: u32 = 2;
/// Nothing on the lane.
pub const LANE_UNPLUGGED: u32 = 7;

/// Speed code of a link generation, as in PHY words 0 and 1: 8 (10 Gb/s), 4 (20 Gb/s), 2 (40 Gb/s per lane).
pub fn speed_code(generation: u8) -> u32 {
    match generation {
        2 => 8,
        3 => 4,
        _ => 2,
    }
}
