//! Offsets and bits of BAR 0. Source: USB4 specification, chapter "Host Interface", and `drivers/thunderbolt/nhi_regs.h`
//! of Linux, which names the same places.

/// Size of BAR 0 in bytes.
pub const BAR0_SIZE: u32 = 0x4_0000;
/// Most rings of one direction that the model has.
pub const MAX_HOPS: usize = 32;
/// MSI-X vectors of a host interface.
pub const VECTORS: usize = 16;

/// TX ring descriptions, 16 bytes each: base low, base high, indices, size.
pub const TX_RINGS: u32 = 0x0_0000;
/// RX ring descriptions, 16 bytes each.
pub const RX_RINGS: u32 = 0x0_8000;
/// TX ring options, 32 bytes each.
pub const TX_OPTIONS: u32 = 0x1_9800;
/// RX ring options, 32 bytes each; +4 holds the masks.
pub const RX_OPTIONS: u32 = 0x2_9800;
/// Interrupt status: TX, RX and RX overflow bits, packed.
pub const NOTIFY: u32 = 0x3_7800;
/// Writing ones clears status bits.
pub const NOTIFY_CLEAR: u32 = 0x3_7808;
/// Interrupt enable bits: TX, RX, packed.
pub const INTERRUPT: u32 = 0x3_8200;
/// Writing ones clears enable bits.
pub const INTERRUPT_CLEAR: u32 = 0x3_8208;
/// Throttling per vector, in units of 256 ns.
pub const THROTTLE: u32 = 0x3_8c00;
/// Vector of each ring, 4 bits each: TX rings, then RX rings.
pub const VECTOR: u32 = 0x3_8c40;
/// Number of hops in the low 11 bits, version in bits 23:16.
pub const CAPS: u32 = 0x3_9640;
/// Miscellaneous: automatic clearing of interrupt status.
pub const DMA_MISC: u32 = 0x3_9864;
/// Host router reset, bit 0, clears itself.
pub const RESET: u32 = 0x3_9898;

/// Ring options: the ring runs.
pub const ENABLE: u32 = 1 << 31;
/// Ring options: packets as they are, no frames, masks ignored.
pub const RAW: u32 = 1 << 30;
/// Ring options: end-to-end flow control.
pub const E2E: u32 = 1 << 28;
/// DMA_MISC: status is cleared when the vector is sent (Intel only).
pub const AUTO_CLEAR: u32 = 1 << 2;
/// DMA_MISC: reading the status does not clear it.
pub const READ_KEEPS: u32 = 1 << 17;
/// CAPS version field of a USB4 version 2 host interface.
pub const VERSION_2: u32 = 0x40 << 16;

/// Descriptor flag: the payload failed its check.
pub const DESC_CRC_ERROR: u32 = 0x1;
/// Descriptor flag: done by the device.
pub const DESC_COMPLETED: u32 = 0x2;
/// Descriptor flag, written by the device on receive: the frame was longer than the buffer. The driver writes the
/// same bit to mean "posted".
pub const DESC_OVERRUN: u32 = 0x4;
/// Descriptor flag: an interrupt is wanted on completion.
pub const DESC_INTERRUPT: u32 = 0x8;
/// Bytes of one descriptor.
pub const DESC_LEN: u64 = 16;
/// Longest frame: the 12-bit length field holds 0 for it.
pub const MAX_FRAME: usize = 4096;
