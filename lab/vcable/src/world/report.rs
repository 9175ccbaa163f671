//! The state of a world in numbers.

use super::{CableStats, HostStats, Kind, World};
use crate::failure::Failure;

/// One host.
#[derive(Clone, Debug, serde::Serialize)]
pub struct HostReport {
    /// Name.
    pub name: String,
    /// Machine.
    pub machine: String,
    /// `guest` or `peer`.
    pub kind: &'static str,
    /// A guest is connected.
    pub attached: bool,
    /// UUID by which the other hosts know it; a software peer says its own.
    pub uuid: Option<String>,
    /// Counters.
    #[serde(flatten)]
    pub stats: HostStats,
}

/// One cable.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CableReport {
    /// Name.
    pub name: String,
    /// Its ends, `HOST:PORT`.
    pub ends: [String; 2],
    /// It is in.
    pub plugged: bool,
    /// The link is up.
    pub up: bool,
    /// Link generation.
    pub generation: u8,
    /// Width as the first end sees it.
    pub width: &'static str,
    /// Speed in Gb/s that the first end sends with.
    pub tx_gbps: u64,
    /// Speed in Gb/s that the first end receives with.
    pub rx_gbps: u64,
    /// Counters.
    #[serde(flatten)]
    pub stats: CableStats,
}

/// Everything.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Name and version of this format.
    pub schema: &'static str,
    /// Virtual time in nanoseconds.
    pub time_ns: u64,
    /// Seed.
    pub seed: u64,
    /// Hosts.
    pub hosts: Vec<HostReport>,
    /// Cables.
    pub cables: Vec<CableReport>,
    /// What drivers did that no driver may do: the number of times.
    pub failure_count: u64,
    /// The first thousand of them.
    pub failures: Vec<Failure>,
}

impl World {
    /// The state now.
    pub fn report(&self) -> Report {
        let hosts = self.hosts.iter().map(|host| {
            let (kind, attached, uuid) = match &host.kind {
                Kind::Guest(g) => ("guest", g.attached, Some(g.router.uuid().to_string())),
                Kind::Peer(_) => ("peer", true, None),
            };
            let (name, machine) = (host.name.clone(), host.machine.clone());
            HostReport { name, machine, kind, attached, uuid, stats: host.stats }
        });
        let cables = self.cables.iter().map(|c| {
            let gbps = |side: usize| crate::link::lane_gbps(c.speed) * c.width_at(side).tx_lanes();
            CableReport {
                name: c.name.clone(),
                ends: c.ends.map(|e| format!("{}:{}", self.host_name(e.host), e.port)),
                plugged: c.plugged,
                up: c.up,
                generation: c.speed,
                width: c.width.name(),
                tx_gbps: gbps(0),
                rx_gbps: gbps(1),
                stats: c.stats,
            }
        });
        Report {
            schema: "linkspan.vcable.v1",
            time_ns: self.now,
            seed: self.options.seed,
            hosts: hosts.collect(),
            cables: cables.collect(),
            failure_count: self.failure_count,
            failures: self.failures.clone(),
        }
    }

    /// Counters of a host.
    pub fn host_stats(&self, host: usize) -> HostStats {
        self.hosts.get(host).map_or_else(HostStats::default, |h| h.stats)
    }

    /// Counters of a cable.
    pub fn cable_stats(&self, cable: usize) -> CableStats {
        self.cables.get(cable).map_or_else(CableStats::default, |c| c.stats)
    }

    /// Whether the link of a cable is up.
    pub fn is_up(&self, cable: usize) -> bool {
        self.cables.get(cable).is_some_and(|c| c.up)
    }
}
