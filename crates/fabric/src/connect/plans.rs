//! What is proposed to the peer beside plain streams.

use linkspan_proto::plan::{Carrier, Plan};
use linkspan_setup::handshake::QPS_MAX;
use linkspan_transport::MAX_RAILS;

use super::{Connecting, KEEPALIVE, Try};
use crate::Error;

impl Connecting {
    /// A plan of the pairs of streams that both sides take for device-memory TCP, if there are any.
    pub(super) fn devmem_plan(&self) -> Option<Plan> {
        let able = |t: &&Try| t.setup.is_up() && t.devmem.is_ok();
        let mut streams = Vec::new();
        for beside in self.tries.iter().filter(able) {
            let Some(number) = beside.beside else { continue };
            if streams.len() + 2 <= MAX_RAILS && self.tries.iter().filter(able).any(|t| t.number == number) {
                streams.extend([number, beside.number]);
            }
        }
        (!streams.is_empty()).then(|| Plan {
            carrier: Carrier::Devmem,
            acked: self.fabric.acked() || streams.len() > 2,
            streams,
            keepalive: self.keepalive(true),
        })
    }

    /// A plan of the rails beside streams that are up, if there are any.
    pub(super) fn verbs_plan(&self, cabled: bool) -> Option<Plan> {
        let mut rails = 0;
        let mut streams = Vec::new();
        let counts = |t: &&Try| t.setup.is_up() && (!cabled || t.reach.relays() == 0);
        for attempt in self.tries.iter().filter(counts) {
            let n = attempt.setup.rails.as_ref().map_or(0, Vec::len);
            if n > 0 && rails + n <= QPS_MAX {
                rails += n;
                streams.push(attempt.number);
            }
        }
        // What may get more rails later must be able to carry several; in a mesh, ways over other hosts.
        let missing = self.tries.iter().any(|t| t.first && !t.reach.is_guess() && t.failure().is_some());
        let grows = missing || !self.later.is_empty() || self.fabric.config().meshes();
        (rails > 0).then(|| Plan {
            carrier: Carrier::Offered,
            acked: self.fabric.acked() || rails > 1 || grows,
            streams,
            keepalive: self.keepalive(cabled),
        })
    }

    /// A plan whose rails are the streams that are up, of which there is one. Fewer than there could be are a downgrade.
    pub(super) fn stream_plan(&mut self, cabled: bool) -> Result<Plan, Error> {
        // A cable that leads to another host is nothing that was lost.
        let counted = || self.tries.iter().filter(|t| self.counts(t, cabled) && (t.is_up() || !t.reach.is_guess()));
        let routed = counted().all(|t| t.reach.from().is_none());
        let failed: Vec<String> = counted().filter(|t| t.beside.is_none()).filter_map(Try::failure).collect();
        if !failed.is_empty() && !routed {
            self.downgrade(format!("fewer rails than interfaces: {}", failed.join("; ")))?;
        }
        if let Some(what) = self.relays(None).filter(|_| !cabled) {
            self.downgrade(what)?;
        }
        let outside =
            self.tries.iter().filter(|t| t.is_up() && self.counts(t, cabled)).find_map(|t| t.outside.as_ref());
        if let Some(over) = outside {
            let to = self.handle.addrs().first().map_or_else(String::new, |addr| addr.ip.to_string());
            let what = format!("LS0550 the peer at {to} is reached over {over}: no chosen interface leads to it");
            self.downgrade(what)?;
        }
        // Said when the fabric was made.
        if let (true, false, Some(what)) = (self.fabric.config().strict, self.same_host, self.fabric.last_resort()) {
            return Err(Error::Strict { what });
        }
        let up = self.tries.iter().filter(|t| t.is_up() && self.counts(t, cabled));
        let up = up.take(if routed { 1 } else { MAX_RAILS });
        let streams: Vec<u16> = up.map(|t| t.number).collect();
        // What may get more rails later must be able to carry several.
        let mesh = self.fabric.config().meshes();
        let grows = !routed && (mesh || !failed.is_empty() || !self.later.is_empty());
        let acked = self.fabric.acked() || streams.len() > 1 || grows;
        Ok(Plan { carrier: Carrier::Tcp, acked, streams, keepalive: self.keepalive(cabled) })
    }

    /// The keepalive connection, where it is up. Over a relay its end would prove that the relay is gone, not the peer.
    fn keepalive(&self, cabled: bool) -> Option<u16> {
        let up = |t: &&Try| t.number == KEEPALIVE && t.setup.is_up();
        self.tries.iter().find(up).filter(|_| cabled || !self.relayed).map(|t| t.number)
    }
}
