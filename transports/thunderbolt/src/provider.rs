//! Thunderbolt and USB4 cables of this machine.

use std::sync::Arc;

use linkspan_transport::{Offer, Provider, Refusal, Site};

use crate::find::Root;
use crate::offer::CableOffers;
use crate::rail::NAME;
use crate::{Config, Ports, Tier};

/// Which tiers may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TierChoice {
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
    fn forced(self) -> Option<Tier> {
        match self {
            TierChoice::Only(tier) if tier != Tier::Net => Some(tier),
            _ => None,
        }
    }
}

/// The cables, looked at when a connection may want one: they come and go.
#[derive(Debug, Default)]
pub struct Cables {
    root: Root,
    given: Option<Arc<Ports>>,
    tier: TierChoice,
    watch: bool,
}

impl Cables {
    /// These in place of the machine's own.
    pub fn given(ports: Arc<Ports>) -> Cables {
        Cables { given: Some(ports), ..Cables::default() }
    }

    /// What there is, by the settings.
    pub fn ports(&self) -> Arc<Ports> {
        match (&self.given, self.tier) {
            (_, TierChoice::Off | TierChoice::Only(Tier::Net)) => Ports::default().shared(),
            (Some(given), choice) => Ports::clone(given).only(choice.forced()).shared(),
            (None, choice) => self.root.ports().only(choice.forced()).shared(),
        }
    }
}

impl Provider for Cables {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "a cable"
    }

    fn configure(&mut self, setting: &dyn Fn(&str) -> Option<String>, watch: bool) -> Result<(), Refusal> {
        self.tier = match setting("LINKSPAN_THUNDERBOLT_TIER").as_deref() {
            Some("ring") => TierChoice::Only(Tier::Ring),
            Some("stream") => TierChoice::Only(Tier::Stream),
            Some("net") => TierChoice::Only(Tier::Net),
            Some("off") => TierChoice::Off,
            _ => TierChoice::Auto,
        };
        self.watch = watch;
        Ok(())
    }

    fn insists(&self) -> bool {
        self.tier.forced().is_some()
    }

    fn support(&self) -> Result<String, String> {
        let ports = self.ports();
        let each: Vec<String> = ports.cables.iter().map(|c| format!("{} ({})", c.name, c.tier)).collect();
        match each.is_empty() {
            false => Ok(format!("over {}", each.join(", "))),
            true => Err([Tier::Ring, Tier::Stream].map(|t| format!("{t}: {}", ports.why_not(t))).join("; ")),
        }
    }

    /// A cable belongs to no interface.
    fn per_host(&self) -> bool {
        true
    }

    fn offer(&self, site: &Site<'_>) -> Result<Box<dyn Offer>, String> {
        let mut ports = self.ports();
        if !ports.cables.is_empty() {
            if let Some(plug) = site.plug {
                let mut one = Ports::clone(&ports);
                one.cables.retain(|cable| cable.link == plug);
                if one.cables.is_empty() {
                    return Err(String::new());
                }
                ports = one.shared();
            }
            let config = Config { deadline: site.limit, watch: self.watch, ..Config::default() };
            return Ok(Box::new(CableOffers::new(ports, config)));
        }
        // Hosts that are plugged in and have no driver of ours are reached over `thunderbolt_net` like over any network.
        if !site.forced && self.tier.forced().is_none() {
            return Err(String::new());
        }
        let tiers = match self.tier.forced() {
            Some(tier) => vec![tier],
            None => vec![Tier::Ring, Tier::Stream],
        };
        let why: Vec<String> = tiers.into_iter().map(|tier| format!("{tier}: {}", ports.why_not(tier))).collect();
        Err(why.join("; "))
    }

    /// A ring link that is not up, where no stream stands in for it.
    fn lacks(&self, interface: &str) -> Option<String> {
        let plug = self.root.plug_of(interface).filter(|_| self.tier.forced().is_none())?;
        let ports = self.ports();
        let down = ports.down.iter().find(|(link, _)| *link == plug)?;
        ports.cables.iter().all(|cable| cable.link != plug).then(|| format!("{}: {}", Tier::Ring, down.1))
    }
}

#[cfg(test)]
mod tests;
