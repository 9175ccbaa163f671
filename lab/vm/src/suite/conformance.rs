//! The suite that every transport passes, over real drivers: both ends in one guest, of which a cable joins two host interfaces.

use super::rdma;
use super::tb::{self, SOON};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// Interfaces of our driver in the mode network.
const LINKS: [&str; 2] = ["linkspan0", "linkspan1"];

/// One machine, two host interfaces.
const SHAPE: &str = "host a machine=one\nhost b machine=one\ncable ab a:1 b:1\n";

/// TCP from an address of this host to another one goes over the cable instead of over loopback: what leaves for either looks
/// at a table of its own before that of local addresses; what comes in does not. The addresses are NET.1 and NET.2.
fn around(interfaces: [&str; 2], net: &str) -> String {
    let [first, second] = interfaces;
    format!(
        "sysctl() {{ echo $2 >/proc/sys/net/ipv4/conf/$1; }}\n\
         set -e\n\
         for n in {first} {second}; do echo 1 >/proc/sys/net/ipv6/conf/$n/disable_ipv6; sysctl $n/accept_local 1; sysctl $n/rp_filter 0; done\n\
         sysctl all/rp_filter 0\n\
         ip addr add {net}.1/32 dev {first}; ip addr add {net}.2/32 dev {second}\n\
         ip link set {first} up; ip link set {second} up\n\
         arp -i {first} -s {net}.2 $(cat /sys/class/net/{second}/address)\n\
         arp -i {second} -s {net}.1 $(cat /sys/class/net/{first}/address)\n\
         if ip rule | grep -q ^0:; then ip rule add pref 100 lookup local; ip rule del pref 0; fi\n\
         ip rule add pref 10 iif lo to {net}.2 lookup 12; ip route replace {net}.2 dev {first} src {net}.1 table 12\n\
         ip rule add pref 11 iif lo to {net}.1 lookup 11; ip route replace {net}.1 dev {second} src {net}.2 table 11"
    )
}

/// Behaviours that hold, of which the last line but one says how long it took.
fn suite(lab: &mut Lab, guest: &Guest, words: &str, what: &str) -> Result<()> {
    let said = guest.run(SOON * 12, &format!("cables {words} 2>&1"))?;
    check(said.code == 0 && said.out.ends_with("passed\n"), || {
        format!("cables {words} ended with {}: {}{}", said.code, said.out, said.err)
    })?;
    let held = said.out.lines().filter(|line| line.ends_with(" s")).count();
    check(held > 20, || format!("cables {words}: {held} behaviours only: {}", said.out))?;
    guest.calm()?;
    lab.say(&format!("{what}: {held} behaviours hold"));
    Ok(())
}

/// Our driver's rings, with memory of any kind and with dma-bufs only.
pub(crate) fn ring(lab: &mut Lab) -> Result<()> {
    on_a_cable(lab, |lab, one| {
        one.sh("modprobe linkspan allow=any")?;
        for n in [0, 1] {
            one.until("the link to be up", SOON, &format!("grep -q '^up$' /sys/class/linkspan/linkspan{n}/state"))?;
        }
        suite(lab, one, "ring", "tier 1 (ring)")?;
        suite(lab, one, "dmabuf", "tier 1 (ring), memory that is known as dma-bufs only")
    })
}

/// The kernel's USB4STREAM.
pub(crate) fn stream(lab: &mut Lab) -> Result<()> {
    on_a_cable(lab, |lab, one| {
        one.sh("modprobe thunderbolt_stream")?;
        tb::service(one, "stream")?;
        suite(lab, one, "stream", "tier 2 (stream)")
    })
}

/// TCP over thunderbolt_net, then TCP and RDMA over the network interface of our driver.
pub(crate) fn net(lab: &mut Lab) -> Result<()> {
    on_a_cable(lab, |lab, one| {
        over(lab, one, ["thunderbolt0", "thunderbolt1"], "10.9.0")?;
        one.sh("modprobe linkspan allow=any mode=network")?;
        for n in [0, 1] {
            one.until(
                "the link to be up",
                SOON,
                &format!("grep -q '^network$' /sys/class/linkspan/linkspan{n}/state"),
            )?;
        }
        over(lab, one, LINKS, "10.9.1")?;
        verbs(lab, one)?;
        one.sh("rmmod linkspan").map(drop)
    })
}

/// TCP from one end of a cable to the other, by two network interfaces.
fn over(lab: &mut Lab, one: &Guest, interfaces: [&str; 2], net: &str) -> Result<()> {
    let [first, second] = interfaces;
    one.sh(&around(interfaces, net))?;
    one.until("a way over the cable", SOON, &format!("ping -c 1 -W 1 -I {net}.1 {net}.2 >/dev/null"))?;
    let before = frames(one, interfaces)?;
    suite(lab, one, &format!("net {net}.1 {net}.2"), &format!("TCP over {first} and {second}"))?;
    let passed = frames(one, interfaces)? - before;
    check(passed > 1000, || format!("{passed} packets went over the cable: the rest took another way"))
}

/// RDMA from one end of a cable to the other, by soft-RoCE on the interfaces of our driver, which [`over`] has set up.
fn verbs(lab: &mut Lab, one: &Guest) -> Result<()> {
    for (n, interface) in LINKS.iter().enumerate() {
        rdma::device(one, interface, &format!("10.9.1.{}/32", n + 1), &format!("rxe{n}"))?;
    }
    let before = frames(one, LINKS)?;
    let said = one.run(SOON * 12, "verbs-conformance rxe0,rxe1 2>&1")?;
    check(said.code == 0 && said.out.ends_with("passed\n"), || {
        format!("verbs-conformance rxe0,rxe1 ended with {}: {}{}", said.code, said.out, said.err)
    })?;
    let held = said.out.lines().filter(|line| line.ends_with(" s")).count();
    let passed = frames(one, LINKS)? - before;
    check(held > 20 && passed > 1000, || format!("{held} behaviours, {passed} packets over the cable: {}", said.out))?;
    one.calm()?;
    one.sh("rdma link delete rxe0 && rdma link delete rxe1")?;
    lab.say(&format!("RDMA by soft-RoCE over {}: {held} behaviours hold", LINKS.join(" and ")));
    Ok(())
}

/// Something in one guest that has both ends of a cable.
fn on_a_cable(lab: &mut Lab, what: impl FnOnce(&mut Lab, &Guest) -> Result<()>) -> Result<()> {
    let cable = Cable::shaped(lab, SHAPE)?;
    let mut spec = lab.guest("one");
    spec.cables = ["a", "b"].map(|host| cable.socket(host)).to_vec();
    spec.deadline = SOON * 40;
    let [one] = lab.boot([&spec])?;
    tb::load(&one)?;
    for domain in [0, 1] {
        one.until(
            "each host interface to find the other",
            SOON,
            &format!("test -e /sys/bus/thunderbolt/devices/{domain}-1/unique_id"),
        )?;
    }
    lab.say("one guest, two host interfaces, a cable between them: up");
    what(lab, &one)?;
    cable.check()?;
    one.sh("ip link set thunderbolt0 down; ip link set thunderbolt1 down")?;
    cable.tell("unplug ab")?;
    for domain in [0, 1] {
        one.until("the other to go", SOON, &format!("test ! -e /sys/bus/thunderbolt/devices/{domain}-1"))?;
    }
    lab.finish([one])?;
    cable.finish()
}

/// Packets that the network interfaces have sent.
fn frames(guest: &Guest, [first, second]: [&str; 2]) -> Result<u64> {
    let sum =
        guest.sh(&format!("cd /sys/class/net && cat {first}/statistics/tx_packets {second}/statistics/tx_packets"))?;
    Ok(sum.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum())
}
