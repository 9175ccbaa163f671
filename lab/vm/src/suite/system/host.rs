//! What tests in whole systems have in common: how two are booted on a cable and turned off.

use super::service::Service;
use crate::error::{Result, check};
use crate::guest::{Guest, Spec};
use crate::lab::Lab;
use crate::suite::tb::SOON;
use crate::vcable::Cable;

/// The addresses of the two on the Ethernet beside the cable.
pub(crate) const LAN: [&str; 2] = ["10.1.0.1", "10.1.0.2"];

/// Units that every installation has running.
pub(crate) const UNITS: [&str; 5] =
    ["dbus.service", "polkit.service", "systemd-udevd.service", "systemd-logind.service", "NetworkManager.service"];

/// The interface of the Ethernet cable, as udev has named it: by the address that the runner gave it.
pub(crate) const LAN_DEVICE: &str = "basename $(dirname $(grep -l ^52:54:00:4c: /sys/class/net/*/address))";

/// Two systems on a cable, with an Ethernet beside it that has addresses by a profile of NetworkManager's.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The virtual cable.
    pub(crate) cable: Cable,
    /// The two.
    pub(crate) guests: [Guest; 2],
}

/// Boots two that are changed so, and waits until each has come to rest; the interface of the Ethernet has its address.
pub(crate) fn pair(lab: &mut Lab, words: &[&str], change: impl Fn(&mut Spec)) -> Result<Pair> {
    let (cable, specs) = planned(lab, words, change)?;
    up(lab, cable, &specs)
}

/// The cable and the two before they are booted.
pub(crate) fn planned(lab: &mut Lab, words: &[&str], change: impl Fn(&mut Spec)) -> Result<(Cable, [Spec; 2])> {
    let mut all = vec!["--topology", "pair"];
    all.extend(words);
    let cable = Cable::start(lab, &all)?;
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    let specs = [one, two].map(|mut spec| {
        spec.cables.push(cable.socket(&spec.name));
        change(&mut spec);
        spec
    });
    Ok((cable, specs))
}

/// Boots them for the first time, each with the service under its unit.
pub(crate) fn up(lab: &mut Lab, cable: Cable, specs: &[Spec; 2]) -> Result<Pair> {
    let guests = lab.boot(specs.each_ref())?;
    for (guest, address) in guests.iter().zip(LAN) {
        settled(guest)?;
        lan(guest, address)?;
        Service::install(guest)?;
        guest.sh("systemctl enable --quiet --now linkspand")?;
    }
    lab.say("systems at rest, an Ethernet beside the cable");
    Ok(Pair { cable, guests })
}

/// Waits until systemd has nothing more to do; units that failed are an error.
pub(crate) fn settled(guest: &Guest) -> Result<String> {
    let state = guest.run(SOON * 3, "systemctl is-system-running --wait")?.out;
    let failed = guest.sh("systemctl list-units --failed --plain --no-legend --no-pager")?;
    check(state.trim() == "running" && failed.trim().is_empty(), || {
        let log = guest.sh("journalctl -b -p warning --no-pager | tail -n 30").unwrap_or_default();
        format!("{}: the system is {}; failed: {}\n{log}", guest.name(), state.trim(), failed.trim())
    })?;
    Ok(state.trim().to_owned())
}

/// Gives the Ethernet its address, as a user would.
pub(crate) fn lan(guest: &Guest, address: &str) -> Result<()> {
    let script = format!(
        "udevadm settle; dev=$({LAN_DEVICE}) || exit 1\n\
         until nmcli -g GENERAL.STATE device show $dev | grep -qv '^10 '; do sleep 0.1; done\n\
         nmcli connection add type ethernet con-name lan ifname $dev ipv4.method manual ipv4.addresses {address}/24 \
         ipv6.method disabled && nmcli connection up lan || {{ nmcli device; nmcli device show $dev; ip addr; exit 1; }}"
    );
    guest.sh_for(SOON, &script).map(drop)
}

/// Waits for `thunderbolt0` with a carrier.
pub(crate) fn cabled(guest: &Guest) -> Result<()> {
    guest.until("thunderbolt0 with a carrier", SOON, "grep -q 1 /sys/class/net/thunderbolt0/carrier 2>/dev/null")?;
    Ok(())
}

/// Pulls the cable, so that no kernel's shutdown meets the other's, and turns both off.
pub(crate) fn end(lab: &mut Lab, pair: Pair) -> Result<()> {
    apart(&pair)?;
    off(lab, pair)
}

/// Takes the networks down and pulls the cable.
pub(crate) fn apart(pair: &Pair) -> Result<()> {
    for guest in &pair.guests {
        guest.sh("nmcli networking off; ip link set thunderbolt0 down 2>/dev/null; true")?;
    }
    unplug(pair)
}

/// Pulls the cable.
pub(crate) fn unplug(pair: &Pair) -> Result<()> {
    pair.cable.tell("unplug ab")?;
    for guest in &pair.guests {
        guest.until("the other host to go", SOON, "test ! -e /sys/bus/thunderbolt/devices/0-1")?;
    }
    Ok(())
}

/// Turns both off, whose cable is out. The service has run all the time: systemd did not have to start it again.
pub(crate) fn off(lab: &mut Lab, pair: Pair) -> Result<()> {
    for guest in &pair.guests {
        let state = guest.sh("systemctl show --value -p ActiveState -p NRestarts linkspand | sort | paste -sd ' '")?;
        check(state.trim() == "0 active", || format!("{}: linkspand is {} at the end", guest.name(), state.trim()))?;
    }
    lab.finish(pair.guests)?;
    pair.cable.finish()
}
