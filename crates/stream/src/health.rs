//! When a stream counts as stalled, and when as dead, by what the kernel knows of it.

use std::time::Duration;

use linkspan_net::TcpInfo;
use linkspan_transport::Health;

/// Retransmissions or probes in a row that nothing has answered: they begin 0.2 s apart (or at the round trip) and double, so
/// six are 12.6 s or more. A peer that is stopped, or whose window is full, has a kernel that answers.
const UNANSWERED: u8 = 6;

/// The same where round trips are long and six would take minutes: the wait that the sixth at 0.2 s is at. As it has doubled since the
/// first, what has been waited for in all is nearly as much.
const WAIT: Duration = Duration::from_millis(12_800);

/// Least retransmissions for that: chance losses do not get there.
const FEW: u8 = 3;

/// Retransmission timeouts in a row after which the path counts as dead while others live. They begin at 200 ms (or
/// the round trip, where that is longer) and double: three are 1.4 s on a LAN, and chance losses do not get there.
const STALLED_TIMEOUTS: u8 = 3;

/// The same of probes. With the port itself down the kernel takes what it cannot send for a full window and probes, 0.2 s apart
/// at first and then doubling; a peer whose window is full answers each.
const STALLED_PROBES: u8 = 4;

/// Whether the path carries nothing at the moment, for who has others.
pub fn is_stalled(info: &TcpInfo) -> bool {
    info.timeouts >= STALLED_TIMEOUTS || info.probes >= STALLED_PROBES
}

/// Whether nobody answers: the end of who has no other path.
pub fn is_dead(info: &TcpInfo) -> bool {
    info.timeouts.max(info.probes) >= UNANSWERED || info.timeouts >= FEW && info.wait >= WAIT
}

/// What a rail over this stream says of itself.
pub fn health(info: &TcpInfo) -> Health {
    Health { dead: is_dead(info), retransmitted: info.retransmitted.into(), heard: Some(info.heard) }
}

#[cfg(test)]
mod tests;
