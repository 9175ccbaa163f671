//! Rails over cables in software.

pub(crate) mod bed;

use std::sync::Arc;

use linkspan_thunderbolt::soft::{SoftRingLink, SoftStreamLink};
use linkspan_thunderbolt::{Cable, CableAddress, Config, Ports, Role, Setup, Tier, join};
use linkspan_transport::BoxRail;

/// Cables between two hosts: at most one ring link, and streams.
#[derive(Default)]
pub(crate) struct Cables {
    pub(crate) ring: Option<SoftRingLink>,
    pub(crate) streams: Vec<SoftStreamLink>,
}

pub(crate) const HOSTS: [[u8; 16]; 2] = [[0xaa; 16], [0xbb; 16]];

impl Cables {
    pub(crate) fn ring() -> Cables {
        Cables { ring: Some(SoftRingLink::new()), streams: Vec::new() }
    }

    pub(crate) fn streams(n: usize, entries: usize) -> Cables {
        Cables { ring: None, streams: (0..n).map(|_| SoftStreamLink::new(entries).expect("descriptors")).collect() }
    }

    /// What one side sees.
    pub(crate) fn ports(&self, side: usize) -> Arc<Ports> {
        let (local, peer) = (HOSTS[side], HOSTS[1 - side]);
        let base = Cable {
            tier: Tier::Ring,
            name: format!("soft{side}"),
            link: "0-1".into(),
            local,
            peer,
            hops: (0, 0),
            ring: 0,
            speed: 5_000_000_000,
            place: CableAddress::ring("/none"),
        };
        let mut ports = Ports::default();
        if let Some(link) = &self.ring {
            ports.cables.push(Cable { place: link.address(side), ..base.clone() });
        } else {
            ports.why_not.push((Tier::Ring, "no /dev/linkspan".into()));
        }
        for (n, link) in self.streams.iter().enumerate() {
            let hops = [8 + 2 * n as u16, 9 + 2 * n as u16];
            let hops = (hops[side], hops[1 - side]);
            let (tier, place) = (Tier::Stream, link.address(side));
            ports.cables.push(Cable { tier, hops, place, ring: link.ring(side) as u16, ..base.clone() });
        }
        ports.shared()
    }

    pub(crate) fn setup(&self, side: usize) -> Setup {
        let role = if side == 0 { Role::Caller } else { Role::Answerer };
        Setup::new(self.ports(side), role, Config::default()).expect("cables")
    }

    pub(crate) fn rails(&self) -> (BoxRail, BoxRail) {
        join(self.setup(0), self.setup(1)).expect("joined")
    }

    /// Delivers so many bytes yet and then holds everything back; `None`: lets all go.
    pub(crate) fn stall(&self, after: Option<u64>) {
        self.ring.iter().for_each(|link| link.stall(after));
        self.streams.iter().for_each(|link| link.stall(after.map(|bytes| bytes as usize / 4096)));
    }

    /// What a process has open at its side of the cables is closed.
    pub(crate) fn kill(&self, side: usize) {
        self.ring.iter().for_each(|link| link.kill(side));
        self.streams.iter().for_each(|link| link.kill(side));
    }
}
