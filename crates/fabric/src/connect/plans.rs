//! What is proposed to the peer beside plain streams.

use linkspan_proto::plan::{Carrier, Plan};
use linkspan_setup::handshake::QPS_MAX;
use linkspan_transport::MAX_RAILS;

use super::{Connecting, KEEPALIVE, Try, TryState};

impl Connecting {
    /// A plan of the pairs of streams that both sides take for device-memory TCP, if there are any.
    pub(super) fn devmem_plan(&self) -> Option<Plan> {
        let able = |t: &&Try| matches!(t.state, TryState::Up(..)) && t.devmem.is_ok();
        let mut streams = Vec::new();
        for beside in self.tries.iter().filter(able) {
            let Some(number) = beside.beside else { continue };
            if streams.len() + 2 <= MAX_RAILS && self.tries.iter().filter(able).any(|t| t.number == number) {
                streams.extend([number, beside.number]);
            }
        }
        let guard = |t: &&Try| t.number == KEEPALIVE && matches!(t.state, TryState::Up(..));
        (!streams.is_empty()).then(|| Plan {
            carrier: Carrier::Devmem,
            acked: self.fabric.acked() || streams.len() > 2,
            streams,
            keepalive: self.tries.iter().find(guard).map(|t| t.number),
        })
    }

    /// A plan of the rails beside streams that are up, if there are any.
    pub(super) fn verbs_plan(&self, cabled: bool) -> Option<Plan> {
        let mut rails = 0;
        let mut streams = Vec::new();
        let counts = |t: &&Try| matches!(t.state, TryState::Up(..)) && (!cabled || t.reach.relays() == 0);
        for attempt in self.tries.iter().filter(counts) {
            let n = attempt.verbs.as_ref().map_or(0, Vec::len);
            if n > 0 && rails + n <= QPS_MAX {
                rails += n;
                streams.push(attempt.number);
            }
        }
        // Over a relay its end would prove that the relay is gone, not the peer.
        let guard =
            |t: &&Try| (cabled || !self.relayed) && t.number == KEEPALIVE && matches!(t.state, TryState::Up(..));
        // What may get more rails later must be able to carry several; in a mesh, ways over other hosts.
        let missing = self.tries.iter().any(|t| t.first && !t.reach.is_guess() && t.failure().is_some());
        let grows = missing || !self.later.is_empty() || self.fabric.config().meshes();
        (rails > 0).then(|| Plan {
            carrier: Carrier::Verbs,
            acked: self.fabric.acked() || rails > 1 || grows,
            streams,
            keepalive: self.tries.iter().find(guard).map(|t| t.number),
        })
    }
}
