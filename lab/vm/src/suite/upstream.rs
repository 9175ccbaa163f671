//! The kernel's drivers of the cable with the patches of `lab/upstream`: what each is for, and that nothing else has changed.

use std::time::Duration;

use super::network;
use super::tb::{SOON, apart, found, net, net_up, offered, transfer};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// A host that raises no interrupt for what completed while it was masked, and one that clears the status by itself.
const SHAPE: &str = "host a edge=silent\nhost b irq=intel\ncable ab a:1 b:1\n";

/// The interface of the kernel's network driver.
const NET: &str = "thunderbolt0";

/// One boot of two guests.
pub(crate) fn upstream(lab: &mut Lab) -> Result<()> {
    let (cable, [a, b]) = network::booted(lab, SHAPE)?;
    for guest in [&a, &b] {
        found(guest)?;
    }
    polled(lab, &a, &b)?;
    taken_down(lab, &a, &b)?;
    throttled(lab, &cable, &a, &b)?;
    late(lab, &cable, &a, &b)?;
    stopped(lab, &a, &b)?;
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}

/// Both ways over TCP.
fn both_ways(a: &Guest, b: &Guest, mib: usize) -> Result<()> {
    transfer(a, b, "10.9.0.2", mib)?;
    transfer(b, a, "10.9.0.1", mib)
}

/// What has been sent is reclaimed by NAPI, and a frame that completes as the interrupt is unmasked is not left lying.
fn polled(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    a.sh("mount -t tracefs t /sys/kernel/tracing 2>/dev/null; cd /sys/kernel/tracing || exit 1\n\
          echo 'p:reclaim tbnet_tx_poll' >>kprobe_events && echo 1 >events/kprobes/reclaim/enable")?;
    net(a, b)?;
    both_ways(a, b, 4)?;
    let said =
        a.sh("cat /sys/kernel/tracing/kprobe_profile; echo 0 >/sys/kernel/tracing/events/kprobes/reclaim/enable")?;
    let hits: u64 = said.split_whitespace().nth(1).and_then(|hits| hits.parse().ok()).unwrap_or_default();
    check(hits > 0, || "what was sent was not reclaimed by NAPI".to_owned())?;
    lab.say(&format!("interrupts that unmasking does not repeat: 4 MiB each way, reclaimed in {hits} polls"));
    Ok(())
}

/// Taken down while frames arrive.
fn taken_down(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    for _ in 0..5 {
        let flood = b.spawn("while :; do ping -c 50 -i 0.01 -W 1 -s 9000 10.9.0.1 >/dev/null; done")?;
        a.until("the flood", SOON, &arrive())?;
        a.sh(&format!("ip link set {NET} down"))?;
        flood.kill();
        net_up(a, "10.9.0.1")?;
        a.until("a ping", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;
    }
    a.calm()?;
    b.calm()?;
    lab.say("five times taken down while frames arrive: no complaint, and up again");
    Ok(())
}

/// The rings of a host that sends are stopped by a logout of the other one, and by a suspend: a poll may be under way then.
fn stopped(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    let flood = "while :; do ping -c 50 -i 0.01 -W 1 -s 9000 10.9.0.2 >/dev/null; done & load=$!";
    let again = "ping -c 1 -W 1 10.9.0.2 >/dev/null";
    for _ in 0..5 {
        let load = a.spawn(&format!("{flood}; wait $load"))?;
        a.until("frames", SOON, &arrive())?;
        b.sh(&format!("ip link set {NET} down"))?;
        load.kill();
        net_up(b, "10.9.0.2")?;
        a.until("a ping", SOON, again)?;
    }
    a.calm()?;
    b.calm()?;
    lab.say("five logouts of the other host while frames are sent: no complaint, and up again");
    a.sleeps(
        Duration::from_secs(150),
        &format!(
            "{flood}; sleep 1; echo devices >/sys/power/pm_test && echo mem >/sys/power/state || exit 3\n\
             t=0; until {again}; do t=$((t+1)); [ $t -lt 60 ] || exit 4; done\nkill $load"
        ),
    )?;
    b.calm()?;
    lab.say("suspended as far as devices while frames are sent: up again");
    Ok(())
}

/// A condition: more than twenty frames in a second.
fn arrive() -> String {
    let came = format!("cat /sys/class/net/{NET}/statistics/rx_packets");
    format!("n=$({came}); sleep 1; [ $({came}) -gt $((n + 20)) ]")
}

/// `ethtool -c` and `-C`, and what the longest time does to the number of interrupts.
fn throttled(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    let set = |usecs: u32| -> Result<u64> {
        for guest in [a, b] {
            let settings = format!("rx-usecs {usecs} tx-usecs {usecs}");
            guest.sh(&format!("ip link set {NET} down && ethtool -C {NET} {settings}"))?;
        }
        net(a, b)?;
        let said = a.sh(&format!("ethtool -c {NET}"))?;
        check(said.contains(&format!("rx-usecs:\t{usecs}\n")), || format!("{usecs} us were set, and it says\n{said}"))?;
        let before = cable.count("b", "interrupts")?;
        a.sh_for(SOON, "ping -c 200 -i 0.002 -W 1 10.9.0.2 >/dev/null")?;
        Ok(cable.count("b", "interrupts")? - before)
    };
    let said = a.sh(&format!("ethtool -c {NET}"))?;
    check(said.contains("rx-usecs:\t128\n") && said.contains("tx-usecs:\t128\n"), || format!("by default:\n{said}"))?;
    for (wrong, why) in [("rx-usecs 8", "must be down"), ("rx-usecs 20000", "at most 16776")] {
        let said = a.run(SOON, &format!("ethtool -C {NET} {wrong}"))?;
        check(said.code != 0 && said.err.contains(why), || format!("{wrong}: {} {}", said.out, said.err))?;
    }
    let (often, seldom) = (set(0)?, set(16_000)?);
    check(seldom * 2 < often, || format!("200 pings: {often} interrupts without throttling, {seldom} with 16 ms"))?;
    set(128)?;
    lab.say(&format!(
        "ethtool -C: 200 pings take {often} interrupts without throttling and {seldom} with 16 ms; wrong values refused"
    ));
    Ok(())
}

/// An answer that comes when its request was given up is not taken for that of the next one, and none is taken twice.
fn late(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    a.sh("echo 'module thunderbolt func tb_xdomain_get_uuid +p' >/proc/dynamic_debug/control")?;
    let given_up = || -> Result<usize> { Ok(a.dmesg()?.matches("failed to request UUID, retrying").count()) };
    // A request is given up after a second and repeated a second later: the first two answers come while the next request waits.
    let delayed = "delay xdomain to=a type=uuid-response by=2500ms count=2";
    let before = given_up()?;
    again(cable, a, b, delayed)?;
    let times = given_up()? - before;
    check(times == 2, || format!("{delayed}: {times} requests were given up, not two: a late answer was taken"))?;
    net(a, b)?;
    lab.say("two answers that come when the next request waits: not taken for its own, found by the third");
    again(cable, a, b, "duplicate xdomain count=12")?;
    net(a, b)?;
    lab.say("twelve messages twice: found, services read, ping");
    a.calm()?;
    b.calm()
}

/// Both hosts lose each other and find each other again, with a fault on the way.
fn again(cable: &Cable, a: &Guest, b: &Guest, fault: &str) -> Result<()> {
    apart(cable, a, b)?;
    let before = cable.count("a", "faulted")?;
    cable.tell(fault)?;
    cable.tell("replug ab")?;
    for guest in [a, b] {
        found(guest)?;
        offered(guest)?;
    }
    cable.tell("clear")?;
    check(cable.count("a", "faulted")? > before, || format!("`{fault}` hit nothing"))
}
