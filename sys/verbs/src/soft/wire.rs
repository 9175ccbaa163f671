//! Packets.

/// Sequence numbers have 24 bits.
pub(super) const PSN_MASK: u32 = 0xff_ffff;

/// The number nearest to `near` that looks like `psn` on a wire that began at `first`; `None` when that would be
/// before the beginning.
pub(super) fn extend(first: u32, near: u64, psn: u32) -> Option<u64> {
    let at = first.wrapping_add(near as u32) & PSN_MASK;
    let ahead = ((psn.wrapping_sub(at) & PSN_MASK) << 8) as i32 >> 8;
    near.checked_add_signed(i64::from(ahead))
}

/// The wire's number for a sequence number.
pub(super) fn psn(first: u32, seq: u64) -> u32 {
    first.wrapping_add(seq as u32) & PSN_MASK
}

#[derive(Clone, Debug)]
pub(super) struct Packet {
    /// Devices by their place in the net.
    pub(super) from: usize,
    pub(super) to: usize,
    /// The queue pair it is for, and the one it is from.
    pub(super) qpn: u32,
    pub(super) source: u32,
    pub(super) pkey: u16,
    pub(super) psn: u32,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Send { first: bool, last: bool, imm: Option<u32>, ack: bool, data: Vec<u8> },
    Write { last: bool, addr: u64, rkey: u32, imm: Option<u32>, ack: bool, data: Vec<u8> },
    Read { addr: u64, rkey: u32, len: u64 },
    Reply { data: Vec<u8> },
    Ack,
    Nak(Nak),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    /// The packet's number is the one expected.
    Sequence,
    /// No receive was posted; wait for this code's time.
    NotReady(u8),
    Invalid,
    Access,
    Operation,
}

/// Nanoseconds to wait for a receiver that was not ready (specification, 9.7.5.2.8, table 46: 0.01 ms times 1, 2, 3,
/// 4, 6, 8, 12, 16, ... up to 491.52 ms, and 655.36 ms for code 0).
pub(super) fn rnr_time(code: u8) -> u64 {
    match code & 31 {
        0 => 655_360_000,
        1 => 10_000,
        2 => 20_000,
        n => {
            // From 3 on two codes for each doubling: 30, 40, 60, 80, ... us.
            let n = u32::from(n);
            (if n % 2 == 1 { 30_000u64 } else { 40_000 }) << ((n - 3) / 2)
        }
    }
}
