//! Interfaces that cannot carry anything yet: down, or without a cable, and nothing else excludes them.

use linkspan_setup::interfaces::family;
use linkspan_topology::{Interface, Reason, Verdict, judge};

use crate::Config;
use crate::device::{Device, DeviceInterface, port};

/// Ports that belong to `device` as soon as their link is up. None for devices of chosen members: those were chosen
/// without them.
pub(crate) fn ports(config: &Config, survey: &[(Interface, Verdict)], device: &Device) -> Vec<DeviceInterface> {
    if config.split || !device.members.is_empty() || device.loopback {
        return Vec::new();
    }
    let family = family();
    let same_node = |i: &Interface| i.numa_node.unwrap_or(0) == device.numa.unwrap_or(0);
    let waiting = |v: &Verdict| matches!(v, Verdict::LeftOut(Reason::Down | Reason::NoCarrier));
    let down = survey.iter().filter(|(i, v)| waiting(v) && same_node(i) && would_be_used(i, config));
    down.filter_map(|(i, _)| port(i, family.as_deref())).collect()
}

fn would_be_used(interface: &Interface, config: &Config) -> bool {
    let up = Interface { up: true, carrier: Some(true), operstate: "up".into(), ..interface.clone() };
    judge(&[up], config.interfaces.as_ref(), &[]).iter().all(Verdict::is_usable)
}

#[cfg(test)]
mod tests;
