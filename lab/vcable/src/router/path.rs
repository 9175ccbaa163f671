//! Path table entries: two dwords per HopID.

/// One decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// HopID at the next adapter, or the ring when that is the host interface.
    pub next_hop: u16,
    /// Adapter where packets leave the router.
    pub out_adapter: u8,
    /// Buffers reserved for this path at this adapter.
    pub credits: u8,
    /// Weight among paths of one priority.
    pub weight: u8,
    /// Priority, 0 goes first.
    pub priority: u8,
    /// Flow control at this adapter: the sender waits for credits.
    pub ingress_fc: bool,
}

impl Path {
    /// The entry, if it is enabled.
    pub fn decode(low: u32, high: u32) -> Option<Path> {
        (low >> 31 == 1).then_some(Path {
            next_hop: (low & 0x7ff) as u16,
            out_adapter: (low >> 11 & 0x3f) as u8,
            credits: (low >> 17 & 0x7f) as u8,
            weight: (high & 0xf) as u8,
            priority: (high >> 8 & 0x7) as u8,
            ingress_fc: high >> 24 & 1 == 1,
        })
    }

    /// The two dwords of an enabled entry.
    pub fn encode(&self) -> [u32; 2] {
        [
            u32::from(self.next_hop & 0x7ff)
                | u32::from(self.out_adapter & 0x3f) << 11
                | u32::from(self.credits & 0x7f) << 17
                | 1 << 31,
            u32::from(self.weight & 0xf) | u32::from(self.priority & 7) << 8 | u32::from(self.ingress_fc) << 24,
        ]
    }
}
