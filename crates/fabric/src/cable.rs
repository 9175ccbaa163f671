//! Thunderbolt and USB4 cables of this machine.

use std::sync::Arc;

use linkspan_thunderbolt::find::Root;
use linkspan_thunderbolt::{Cables as CableOffer, Config as RailConfig, Ports, Tier};
use linkspan_transport::Offer;

use crate::Config;
use crate::config::PathChoice;

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

    /// A way to set rails up over cables: all, or one that was lost and may be back, by its plug.
    pub(crate) fn offer(&self, config: &Config, plug: Option<&str>) -> Result<Box<dyn Offer>, String> {
        if !matches!(config.path, PathChoice::Auto | PathChoice::Thunderbolt) || config.encrypts() {
            return Err(String::new());
        }
        let mut ports = self.ports(config);
        if !ports.cables.is_empty() {
            if let Some(plug) = plug {
                let mut one = Ports::clone(&ports);
                one.cables.retain(|cable| cable.link == plug);
                if one.cables.is_empty() {
                    return Err(String::new());
                }
                ports = one.shared();
            }
            let rail = RailConfig { deadline: config.setup_time(), watch: self.watch, ..RailConfig::default() };
            return Ok(Box::new(CableOffer::new(ports, rail)));
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
