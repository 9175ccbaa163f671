//! Thunderbolt and USB4 cables of this machine, and rails that are set up beside a stream: over them, or by RDMA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_thunderbolt::find::Root;
use linkspan_thunderbolt::{Config as RailConfig, Ports, Role, Setup as CableSetup, Tier};
use linkspan_verbs::Setup as QpSetup;
use linkspan_verbs_sys::AnyNic;

use crate::config::PathChoice;
use crate::rdma::RdmaBerth;
use crate::room::AnyRail;
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
pub(crate) struct Cables(pub(crate) Option<Arc<Ports>>);

impl Cables {
    /// What there is, by the settings.
    pub(crate) fn ports(&self, config: &Config) -> Arc<Ports> {
        match (&self.0, config.tier) {
            (_, TierChoice::Off | TierChoice::Only(Tier::Net)) => Ports::default().shared(),
            (Some(given), choice) => Ports::clone(given).only(choice.forced()).shared(),
            (None, choice) => Root::default().ports().only(choice.forced()).shared(),
        }
    }

    /// A way to set a rail up over a cable. `Err` with an empty text: there is none, and nothing to say about it.
    pub(crate) fn berth(&self, config: &Config) -> Result<Berth, String> {
        if !matches!(config.path, PathChoice::Auto | PathChoice::Thunderbolt) || config.encrypts() {
            return Err(String::new());
        }
        let ports = self.ports(config);
        if !ports.cables.is_empty() {
            return Ok(Berth::Cable(ports));
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

/// Where rails can be set up beside a stream.
#[derive(Clone)]
pub(crate) enum Berth {
    /// An RDMA port on the interface of the stream.
    Rdma(RdmaBerth),
    /// A cable of this host, if it leads to the peer.
    Cable(Arc<Ports>),
}

impl Berth {
    /// How many rails the side that connects asks for.
    pub(crate) fn wanted(&self, config: &Config) -> usize {
        match self {
            Berth::Rdma(_) => config.rdma.queue_pairs,
            Berth::Cable(_) => 1,
        }
    }

    /// The sides of `n` rails to be, or why there are none.
    pub(crate) fn make(&self, config: &Config, n: usize, role: Role) -> Result<Vec<Beside>, String> {
        match self {
            Berth::Rdma(berth) => Ok(berth.make(config, n)?.into_iter().map(|s| Beside::Verbs(Box::new(s))).collect()),
            Berth::Cable(_) if n != 1 => Err(format!("{n} rails over one cable")),
            Berth::Cable(ports) => {
                let deadline = (config.connect_timeout / 2).min(Duration::from_secs(20));
                let rail = RailConfig { deadline, ..RailConfig::default() };
                let setup = CableSetup::new(ports.clone(), role, rail).map_err(|e| chain(&e))?;
                Ok(vec![Beside::Cable(Box::new(setup))])
            }
        }
    }
}

/// The handshake of one such rail.
pub(crate) enum Beside {
    /// A queue pair.
    Verbs(Box<QpSetup<AnyNic>>),
    /// A cable.
    Cable(Box<CableSetup>),
}

macro_rules! each {
    ($self:ident, $setup:ident => $call:expr) => {
        match $self {
            Beside::Verbs($setup) => $call,
            Beside::Cable($setup) => $call,
        }
    };
}

impl Beside {
    pub(crate) fn poll(&mut self) -> Result<(), String> {
        each!(self, s => s.poll().map_err(|e| chain(&e)))
    }

    pub(crate) fn check(&self, now: Instant) -> Result<(), String> {
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

    pub(crate) fn finish(self) -> Option<AnyRail> {
        match self {
            Beside::Verbs(setup) => setup.finish().ok().map(|rail| AnyRail::Verbs(Box::new(rail))),
            Beside::Cable(setup) => setup.finish().ok().map(AnyRail::Thunderbolt),
        }
    }
}

/// Whether a refusal says no more than that a cable leads to somebody else.
pub(crate) fn leads_elsewhere(why: &str) -> bool {
    why.contains(linkspan_thunderbolt::ELSEWHERE)
}
