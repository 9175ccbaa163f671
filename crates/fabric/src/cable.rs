//! Thunderbolt and USB4 cables of this machine, and rails that are set up beside a stream: over them, or by RDMA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_thunderbolt::find::Root;
use linkspan_thunderbolt::{CableRail, Config as RailConfig, Ports, Role, Setup as CableSetup, Tier};
use linkspan_transport::{BoxRail, Rail};
use linkspan_verbs::{Setup as QpSetup, VerbsRail};
use linkspan_verbs_sys::AnyNic;

use crate::config::PathChoice;
use crate::handshake::QPS_MAX;
use crate::rdma::RdmaCandidate;
use crate::{Config, chain};

/// Which tiers may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierChoice {
    /// The best that works.
    #[default]
    Auto,
    /// This one; [`Tier::Net`] is TCP on the interface of `thunderbolt_net`.
    Only(Tier),
    /// None: cables are used as network interfaces only.
    Off,
}

impl TierChoice {
    /// The tier of ours that is wanted or nothing.
    pub(crate) fn forced(self) -> Option<Tier> {
        match self {
            TierChoice::Only(tier) if tier != Tier::Net => Some(tier),
            _ => None,
        }
    }
}

/// The cables, looked at when a connection may want one: they come and go.
#[derive(Debug, Default)]
pub(crate) struct Cables {
    given: Option<Arc<Ports>>,
    watch: bool,
}

impl Cables {
    /// Not those of this machine.
    pub(crate) fn given(ports: Arc<Ports>) -> Cables {
        Cables { given: Some(ports), watch: false }
    }

    /// The same, for callers that need not say when they unmap memory that was posted.
    pub(crate) fn watching(self) -> Cables {
        Cables { watch: true, ..self }
    }

    /// What there is, by the settings.
    pub(crate) fn ports(&self, config: &Config) -> Arc<Ports> {
        match (&self.given, config.tier) {
            (_, TierChoice::Off | TierChoice::Only(Tier::Net)) => Ports::default().shared(),
            (Some(given), choice) => Ports::clone(given).only(choice.forced()).shared(),
            (None, choice) => Root::default().ports().only(choice.forced()).shared(),
        }
    }

    /// The same, over one link of this host only: one that was lost and may be back.
    pub(crate) fn candidate_at(&self, config: &Config, link: &str) -> Result<Candidate, String> {
        match self.candidate(config)? {
            Candidate::Cable(CableCandidate { ports, watch }) => {
                let mut ports = Ports::clone(&ports);
                ports.cables.retain(|cable| cable.link == link);
                let none = ports.cables.is_empty();
                if none {
                    Err(String::new())
                } else {
                    Ok(Candidate::Cable(CableCandidate { ports: ports.shared(), watch }))
                }
            }
            other => Ok(other),
        }
    }

    /// A way to set a rail up over a cable. `Err` with an empty text: there is none, and nothing to say about it.
    pub(crate) fn candidate(&self, config: &Config) -> Result<Candidate, String> {
        if !matches!(config.path, PathChoice::Auto | PathChoice::Thunderbolt) || config.encrypts() {
            return Err(String::new());
        }
        let ports = self.ports(config);
        if !ports.cables.is_empty() {
            return Ok(Candidate::Cable(CableCandidate { ports, watch: self.watch }));
        }
        let wanted = config.path == PathChoice::Thunderbolt || config.tier.forced().is_some();
        if !wanted && !ports.plugged {
            return Err(String::new());
        }
        let tiers = match config.tier.forced() {
            Some(tier) => vec![tier],
            None => vec![Tier::Ring, Tier::Stream],
        };
        let why: Vec<String> = tiers.into_iter().map(|tier| format!("{tier}: {}", ports.why_not(tier))).collect();
        // Hosts that are plugged in and have no driver of ours are reached over `thunderbolt_net` like over any network.
        if wanted { Err(why.join("; ")) } else { Err(String::new()) }
    }
}

/// Cables of this host.
#[derive(Clone)]
pub(crate) struct CableCandidate {
    ports: Arc<Ports>,
    /// Memory that is posted is watched.
    watch: bool,
}

/// Where rails can be set up beside a stream.
#[derive(Clone)]
pub(crate) enum Candidate {
    /// An RDMA port on the interface of the stream.
    Rdma(RdmaCandidate),
    /// A cable of this host, if it leads to the peer.
    Cable(CableCandidate),
}

impl Candidate {
    /// How many rails the side that connects asks for.
    pub(crate) fn wanted(&self, config: &Config) -> usize {
        match self {
            Candidate::Rdma(candidate) => candidate.wanted(config),
            Candidate::Cable(candidate) => candidate.ports.links().len().clamp(1, QPS_MAX),
        }
    }

    /// The sides of `n` rails to be, or why there are none.
    pub(crate) fn make(&self, config: &Config, n: usize, role: Role) -> Result<Vec<EndpointSetup>, String> {
        match self {
            Candidate::Rdma(candidate) => {
                Ok(candidate.make(config, n)?.into_iter().map(|s| EndpointSetup::Verbs(Box::new(s))).collect())
            }
            Candidate::Cable(CableCandidate { ports, watch }) => {
                let deadline = (config.connect_timeout / 2).min(Duration::from_secs(20));
                let links = ports.links();
                let one = |k: usize| {
                    // The side that answers takes what it is asked for.
                    let link = links.get(k).filter(|_| n > 1 && role == Role::Caller).cloned();
                    let rail =
                        RailConfig { deadline, link, watch: *watch, one_of_many: n > 1, ..RailConfig::default() };
                    let setup = CableSetup::new(ports.clone(), role, rail).map_err(|e| chain(&e))?;
                    Ok(EndpointSetup::Cable(Box::new(setup)))
                };
                (0..n).map(one).collect()
            }
        }
    }
}

/// The handshake of one such rail.
pub(crate) enum EndpointSetup {
    /// A queue pair.
    Verbs(Box<QpSetup<AnyNic>>),
    /// A cable.
    Cable(Box<CableSetup>),
}

macro_rules! each {
    ($self:ident, $setup:ident => $call:expr) => {
        match $self {
            EndpointSetup::Verbs($setup) => $call,
            EndpointSetup::Cable($setup) => $call,
        }
    };
}

impl EndpointSetup {
    pub(crate) fn poll(&mut self) -> Result<(), String> {
        each!(self, s => s.poll().map_err(|e| chain(&e)))
    }

    pub(crate) fn check(&mut self, now: Instant) -> Result<(), String> {
        each!(self, s => s.check(now).map(|_| ()).map_err(|e| chain(&e)))
    }

    pub(crate) fn input(&mut self, bytes: &[u8]) -> Result<usize, String> {
        each!(self, s => s.input(bytes).map_err(|e| chain(&e)))
    }

    pub(crate) fn output(&self) -> &[u8] {
        each!(self, s => s.output())
    }

    pub(crate) fn wrote(&mut self, n: usize) {
        each!(self, s => s.wrote(n));
    }

    pub(crate) fn is_done(&self) -> bool {
        each!(self, s => s.is_done())
    }

    /// The rail; `Ok(None)` where there need not be one and is none. `None`: it is not done.
    pub(crate) fn finish(self) -> Option<Option<SideRail>> {
        match self {
            EndpointSetup::Verbs(setup) => setup.finish().ok().map(|rail| Some(SideRail::Verbs(Box::new(rail)))),
            EndpointSetup::Cable(setup) => setup.finish().ok().map(|rail| rail.map(|r| SideRail::Cable(Box::new(r)))),
        }
    }

    /// Why there is none, where the user should be told.
    pub(crate) fn why_not(&self) -> String {
        match self {
            EndpointSetup::Verbs(_) => String::new(),
            EndpointSetup::Cable(setup) => setup.why_not(),
        }
    }
}

/// A rail that was set up beside a stream.
pub(crate) enum SideRail {
    /// A queue pair.
    Verbs(Box<VerbsRail<AnyNic>>),
    /// A cable.
    Cable(Box<CableRail>),
}

impl SideRail {
    pub(crate) fn path(&self) -> &str {
        match self {
            SideRail::Verbs(rail) => &rail.info().path,
            SideRail::Cable(rail) => &rail.info().path,
        }
    }

    /// The plug of this host that its cable is in.
    pub(crate) fn plug(&self) -> Option<&str> {
        match self {
            SideRail::Verbs(_) => None,
            SideRail::Cable(rail) => Some(rail.link()),
        }
    }

    pub(crate) fn into_rail(self) -> BoxRail {
        match self {
            SideRail::Verbs(rail) => rail,
            SideRail::Cable(rail) => rail,
        }
    }
}

/// The refusal that says so.
pub(crate) fn elsewhere() -> String {
    linkspan_thunderbolt::Error::Elsewhere.to_string()
}

/// Whether a refusal says only that a cable leads to another host.
pub(crate) fn leads_elsewhere(why: &str) -> bool {
    why.contains(linkspan_thunderbolt::ELSEWHERE)
}
