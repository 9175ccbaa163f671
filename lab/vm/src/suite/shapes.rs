//! Other shapes than two equal hosts and a cable: router versions, interrupts and link generations that differ, three
//! hosts, several cables and host interfaces, a host in software.

use super::tb::{self, SOON, attribute, found, net, transfer};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// What the plain pair is not: version 2 routers, generation 4 with three lanes one way and one the other, one host with
/// Intel's way of clearing interrupts, one with MSI instead of MSI-X.
const OTHER: &str = "host a router=v2 gen=4 irq=intel\n\
                     host b router=v2 gen=4 msi\n\
                     cable ab a:1 b:1 lanes=2 gen=4 width=asym-tx\n";

/// Two guests of that shape.
pub(crate) fn variants(lab: &mut Lab) -> Result<()> {
    let cable = Cable::shaped(lab, OTHER)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        spec
    });
    let [a, b] = lab.boot(specs.each_ref())?;
    for guest in [&a, &b] {
        tb::load(guest)?;
    }
    for (guest, kind, tx, rx) in [(&a, "MSIX", "3", "1"), (&b, "MSI", "1", "3")] {
        found(guest)?;
        let interrupts = guest.sh("grep thunderbolt /proc/interrupts")?;
        check(interrupts.contains(&format!("PCI-{kind}-")), || format!("no {kind} among\n{interrupts}"))?;
        let is = [attribute(guest, "tx_lanes")?, attribute(guest, "rx_lanes")?, attribute(guest, "rx_speed")?];
        check(is == [tx, rx, "40.0 Gb/s"], || format!("{}: {is:?}", guest.name()))?;
    }
    lab.say("version 2, generation 4: a sends on three lanes and has MSI-X as Intel's, b sends on one and has MSI");
    net(&a, &b)?;
    transfer(&a, &b, "10.9.0.2", 4)?;
    transfer(&b, &a, "10.9.0.1", 4)?;
    lab.say("4 MiB over TCP each way, compared");
    lab.finish([a, b])?;
    cable.finish()
}

/// One end of a cable: index of the guest, its domain, the route to the other host.
type End = (usize, u32, u32);

/// The network interface on a cable's end.
fn interface(guest: &Guest, (_, domain, route): End) -> Result<String> {
    let path = format!("/sys/bus/thunderbolt/devices/{domain}-{route}.*/net/*");
    guest.until("a network interface on every cable", SOON, &format!("ls -d {path} >/dev/null 2>&1"))?;
    Ok(guest.sh(&format!("basename {path}"))?.trim().to_owned())
}

/// A subnet on every cable, a ping and a transfer over each.
fn every_cable(lab: &mut Lab, guests: &[Guest], cables: &[[End; 2]]) -> Result<()> {
    for (n, ends) in cables.iter().enumerate() {
        for (side, end) in (1..).zip(ends) {
            let guest = &guests[end.0];
            let name = interface(guest, *end)?;
            guest.sh(&format!("ip addr add 10.9.{n}.{side}/24 dev {name} && ip link set {name} up"))?;
        }
    }
    for (n, [from, to]) in cables.iter().enumerate() {
        let (from, to, address) = (&guests[from.0], &guests[to.0], format!("10.9.{n}.2"));
        from.until("a ping over every cable", SOON, &format!("ping -c 1 -W 1 {address} >/dev/null"))?;
        transfer(from, to, &address, 1)?;
        lab.say(&format!("cable {} between {} and {}: ping, 1 MiB compared", n + 1, from.name(), to.name()));
    }
    Ok(())
}

/// Three hosts with a cable between any two, and three in a row: hosts see their neighbours and no other host.
pub(crate) fn three(lab: &mut Lab) -> Result<()> {
    // The first port's lane adapter is 1, the second's 3: so are the routes.
    let triangle: &[[End; 2]] = &[[(0, 0, 1), (1, 0, 1)], [(1, 0, 3), (2, 0, 1)], [(2, 0, 3), (0, 0, 3)]];
    let chain: &[[End; 2]] = &[[(0, 0, 1), (1, 0, 1)], [(1, 0, 3), (2, 0, 1)]];
    for (shape, cables) in [("triangle", triangle), ("chain3", chain)] {
        let cable = Cable::start(lab, &["--topology", shape])?;
        let specs = ["a", "b", "c"].map(|name| {
            let mut spec = lab.guest(name);
            spec.cables.push(cable.socket(name));
            spec
        });
        let guests = lab.boot(specs.each_ref())?;
        guests.iter().try_for_each(tb::load)?;
        every_cable(lab, &guests, cables)?;
        for (n, guest) in guests.iter().enumerate() {
            let ends = cables.iter().flatten().filter(|end| end.0 == n).count();
            let peers = guest.sh("ls -d /sys/bus/thunderbolt/devices/*-[1-9]*/unique_id | wc -l")?;
            check(peers.trim() == ends.to_string(), || format!("{shape}: {} sees {peers} hosts", guest.name()))?;
        }
        lab.say(&format!("{shape}: every host sees its neighbours"));
        lab.finish(guests)?;
        cable.finish()?;
    }
    Ok(())
}

/// Two machines with two host interfaces each, two cables between the first ones and one between the others.
const MANY: &str = "host a0 machine=a ports=2\nhost a1 machine=a\nhost b0 machine=b ports=2\nhost b1 machine=b\n\
                    cable one a0:1 b0:1\ncable two a0:2 b0:2\ncable three a1:1 b1:1\n";

/// Three cables between two machines, one of them on a host interface of its own.
pub(crate) fn many(lab: &mut Lab) -> Result<()> {
    let cable = Cable::shaped(lab, MANY)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables = ["0", "1"].map(|n| cable.socket(&format!("{name}{n}"))).to_vec();
        spec
    });
    let guests = lab.boot(specs.each_ref())?;
    guests.iter().try_for_each(tb::load)?;
    let both = |domain, route| [(0, domain, route), (1, domain, route)];
    every_cable(lab, &guests, &[both(0, 1), both(0, 3), both(1, 1)])?;
    lab.finish(guests)?;
    cable.finish()
}

/// One guest and a host in software: its network answers, and its plug wakes a host interface that sleeps.
pub(crate) fn peer(lab: &mut Lab) -> Result<()> {
    let cable = Cable::start(lab, &["--topology", "peer"])?;
    cable.tell("peer p network 8")?;
    let mut spec = lab.guest("a");
    spec.cables.push(cable.socket("a"));
    let [a] = lab.boot([&spec])?;
    tb::load(&a)?;
    found(&a)?;
    tb::net_up(&a, "10.9.0.1")?;
    a.until("a ping of the software peer", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;
    lab.say("a host in software: found, ping");
    cable.tell("unplug ap")?;
    tb::lost(&a)?;
    // The kernel lets it sleep after 15 s of nothing to do; here after a tenth of one.
    let wakes = cable.count("a", "wakes")?;
    a.sh("for dev in /sys/bus/thunderbolt/devices/* /sys/bus/pci/drivers/thunderbolt/0*; do\n\
          echo 100 >$dev/power/autosuspend_delay_ms; echo auto >$dev/power/control\ndone 2>/dev/null; true")?;
    let asleep = "grep -q suspended /sys/bus/pci/drivers/thunderbolt/0*/power/runtime_status";
    a.until("the host interface to sleep", SOON, asleep)?;
    lab.say("no host there: the host interface sleeps");
    cable.tell("replug ap")?;
    found(&a)?;
    let woken = cable.count("a", "wakes")? - wakes;
    check(woken > 0, || "found, but not by a wake event".to_owned())?;
    lab.say("plugged in: a wake event, found");
    lab.finish([a])?;
    cable.finish()
}
