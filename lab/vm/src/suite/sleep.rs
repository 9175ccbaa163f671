//! A host that sleeps and wakes again and again, while the other one leaves and comes back.

use std::time::Duration;

use super::tb::{self, SOON, found, lost, net};
use crate::error::Result;
use crate::lab::Lab;

/// Times that it sleeps.
const ROUNDS: usize = 12;

/// After so many rounds the other host is turned off and booted anew, in place of being unplugged.
const REBOOT: usize = 4;

/// All the time of a guest.
const LIFE: Duration = Duration::from_secs(1200);

pub(crate) fn sleep(lab: &mut Lab) -> Result<()> {
    let (cable, specs, [a, mut b]) = tb::pair(lab, &[], |spec| spec.deadline = LIFE)?;
    net(&a, &b)?;
    lab.say("up: ping");
    // The agent of `a` does not outlive the first sleep: one script does it all, and says over the console how far it is.
    a.dozes(&format!(
        "n=0; while [ $n -lt {ROUNDS} ]; do n=$((n+1))\n\
         until test -e /sys/class/net/thunderbolt0; do sleep 0.1; done\n\
         echo 1 >/proc/sys/net/ipv6/conf/thunderbolt0/disable_ipv6\n\
         ip addr add 10.9.0.1/24 dev thunderbolt0 2>/dev/null; ip link set thunderbolt0 up\n\
         until ping -c 1 -W 1 10.9.0.2; do sleep 0.1; done\n\
         echo devices >/sys/power/pm_test && echo mem >/sys/power/state || exit 1\n\
         until test -e /sys/bus/thunderbolt/devices/0-1/unique_id; do sleep 0.1; done\n\
         until ping -c 1 -W 1 10.9.0.2; do sleep 0.1; done\n\
         echo \"ROUND $n.\" >/dev/ttyS0\n\
         until test ! -e /sys/bus/thunderbolt/devices/0-1; do sleep 0.1; done\ndone"
    ))?;
    for round in 1..=ROUNDS {
        a.hears(&format!("ROUND {round}."), SOON * 3)?;
        if round % REBOOT == 0 {
            lab.finish([b])?;
            [b] = lab.boot([&specs[1]])?;
            tb::load(&b)?;
        } else {
            b.sh("ip link set thunderbolt0 down")?;
            cable.tell("unplug ab")?;
            lost(&b)?;
            cable.tell("replug ab")?;
        }
        if round < ROUNDS {
            found(&b)?;
            tb::net_up(&b, "10.9.0.2")?;
        }
        b.calm()?;
        lab.say(&format!("slept and woke {round} times: ping; the other host went and came back"));
    }
    a.woken(SOON)?;
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}
