//! What tests of Thunderbolt have in common: how a host's drivers are brought up, and what they are asked.

use std::time::Duration;

use crate::error::{Error, Result, check};
use crate::guest::{Guest, Spec};
use crate::lab::Lab;
use crate::vcable::Cable;

/// Longest that something may take which takes a second or two: the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// Keeps the host interfaces awake: without a peer one would be suspended and miss a later plug. The driver probes in its
/// own time, so each is waited for until it has a domain.
pub(crate) const AWAKE: &str = "for dev in $(grep -l 0x0c0340 /sys/bus/pci/devices/*/class); do dev=${dev%/class}\n\
     until ls -d $dev/domain* >/dev/null 2>&1; do sleep 0.1; done\n\
     echo on >$dev/power/control || exit 1\ndone";

/// Loads the drivers.
pub(crate) fn load(guest: &Guest) -> Result<()> {
    guest.sh(&format!(
        "modprobe configfs; mount -t configfs configfs /sys/kernel/config 2>/dev/null\n\
         modprobe thunderbolt && modprobe thunderbolt_net || exit 1\n{AWAKE}"
    ))?;
    Ok(())
}

/// Waits for the other host to be known.
pub(crate) fn found(guest: &Guest) -> Result<()> {
    guest.until("the other host", SOON, "test -e /sys/bus/thunderbolt/devices/0-1/unique_id")?;
    Ok(())
}

/// Waits for the other host to be forgotten.
pub(crate) fn lost(guest: &Guest) -> Result<()> {
    guest.until("the other host to go", SOON, "test ! -e /sys/bus/thunderbolt/devices/0-1")?;
    Ok(())
}

/// Pulls the cable, with the network taken down first: its driver waits 10 s for the answer of a peer that is gone.
pub(crate) fn apart(cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    for guest in [a, b] {
        guest.sh("ip link set thunderbolt0 down 2>/dev/null; true")?;
    }
    cable.tell("unplug ab")?;
    lost(a)?;
    lost(b)
}

/// The service of the other host with this key, as `0-1.0`.
pub(crate) fn service(guest: &Guest, key: &str) -> Result<String> {
    let script = format!(
        "while :; do for k in /sys/bus/thunderbolt/devices/*/key; do\n\
         [ \"$(cat $k 2>/dev/null)\" = {key} ] && basename $(dirname $k) && exit\ndone; sleep 0.1; done"
    );
    Ok(guest.sh_for(SOON, &script)?.trim().to_owned())
}

/// Waits for the network service of the other host: all its properties have been read.
pub(crate) fn offered(guest: &Guest) -> Result<()> {
    service(guest, "network").map(drop)
}

/// How often the kernel has found another host so far.
pub(crate) fn times_found(guest: &Guest) -> Result<usize> {
    Ok(guest.dmesg()?.matches("new host found").count())
}

/// An attribute of the other host.
pub(crate) fn attribute(guest: &Guest, name: &str) -> Result<String> {
    guest.read(&format!("/sys/bus/thunderbolt/devices/0-1/{name}"))
}

/// Gives the network interface an address. Without IPv6, whose own messages would come at any time for some seconds: one
/// that comes while the interface is taken down is a warning of the kernel (lab/README.md, "What it has found").
pub(crate) fn net_up(guest: &Guest, address: &str) -> Result<()> {
    guest.until("thunderbolt0", SOON, "test -e /sys/class/net/thunderbolt0")?;
    guest.sh(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/thunderbolt0/disable_ipv6\n\
         ip addr add {address}/24 dev thunderbolt0 2>/dev/null; ip link set thunderbolt0 up"
    ))?;
    Ok(())
}

/// Brings the network up on both and waits until they reach each other.
pub(crate) fn net(a: &Guest, b: &Guest) -> Result<()> {
    net_up(a, "10.9.0.1")?;
    net_up(b, "10.9.0.2")?;
    for guest in [a, b] {
        guest.until("a carrier", SOON, "grep -q 1 /sys/class/net/thunderbolt0/carrier")?;
    }
    a.until("a ping over the cable", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;
    Ok(())
}

/// Sends `mib` MiB of random bytes over TCP from one to the other, compared at the end.
pub(crate) fn transfer(from: &Guest, to: &Guest, to_address: &str, mib: usize) -> Result<()> {
    from.sh(&format!("dd if=/dev/urandom of=/tmp/sent bs=1M count={mib} 2>/dev/null"))?;
    let receiving = to.spawn("agent agent listen 5001 >/tmp/got; md5sum </tmp/got; rm /tmp/got")?;
    to.until("a listener", SOON, "grep -q ':1389 .* 0A ' /proc/net/tcp /proc/net/tcp6")?;
    let sent = from.sh_for(
        SOON * 2,
        &format!("agent agent connect {to_address}:5001 </tmp/sent && md5sum </tmp/sent; rm /tmp/sent"),
    )?;
    let got = receiving.wait(SOON)?.out;
    check(sent == got && !sent.trim().is_empty(), || format!("{mib} MiB over TCP: sent {sent}, received {got}"))
}

/// Two hosts and a cable, with their drivers loaded and each other found.
pub(crate) fn pair(
    lab: &mut Lab,
    words: &[&str],
    change: impl Fn(&mut Spec),
) -> Result<(Cable, [Spec; 2], [Guest; 2])> {
    let mut all = vec!["--topology", "pair"];
    all.extend(words);
    let cable = Cable::start(lab, &all)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        change(&mut spec);
        spec
    });
    let guests = lab.boot(specs.each_ref())?;
    for guest in &guests {
        load(guest)?;
    }
    for guest in &guests {
        found(guest)?;
    }
    Ok((cable, specs, guests))
}

/// A script that must be silent: what it prints is the error.
pub(crate) fn silent(guest: &Guest, script: &str) -> Result<()> {
    let said = guest.sh(script)?;
    if said.trim().is_empty() { Ok(()) } else { Err(Error::Check(format!("{}: {}", guest.name(), said.trim()))) }
}
