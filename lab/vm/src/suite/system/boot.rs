//! Two systems come up.

use super::host::{self, UNITS};
use crate::error::{Result, check};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// Asks polkitd something over the bus.
const POLKIT: &str = "busctl --system get-property org.freedesktop.PolicyKit1 /org/freedesktop/PolicyKit1/Authority \
    org.freedesktop.PolicyKit1.Authority BackendVersion";

pub(crate) fn boot(lab: &mut Lab) -> Result<()> {
    let pair = host::pair(lab, &[], |_| ())?;
    for guest in &pair.guests {
        let first = guest.read("/proc/1/comm")?;
        check(first == "systemd", || format!("{}: PID 1 is {first}", guest.name()))?;
        // The bus starts polkitd when it is first asked.
        guest.sh_for(SOON, POLKIT)?;
        for unit in UNITS {
            guest.until(unit, SOON, &format!("systemctl --quiet is-active {unit}"))?;
        }
        let took = guest.sh("systemd-analyze time | head -n 1")?;
        lab.say(&format!("{}: {} active; {}", guest.name(), UNITS.join(", "), took.trim()));
    }
    // Nobody has loaded a module: udev has, for the host interface and for the service that the other host offers.
    for guest in &pair.guests {
        host::cabled(guest)?;
        let by = guest.sh("readlink -f /sys/class/net/thunderbolt0/device/driver")?;
        check(by.trim().ends_with("thunderbolt-net"), || format!("thunderbolt0 is driven by {by}"))?;
    }
    lab.say("udev has loaded the cable's drivers; thunderbolt0 has a carrier on both");
    host::end(lab, pair)
}
