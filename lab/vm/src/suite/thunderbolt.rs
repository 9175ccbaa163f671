//! The kernel's own Thunderbolt stack, unmodified, on the virtual cable.

use std::time::Duration;

use super::stream;
use super::tb::{self, SOON, attribute, found, lost, net, service, transfer};
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// Times that `thunderbolt_dma_test` runs in both directions.
const ROUNDS: u32 = 5;

/// Everything that one cable between two hosts can do, from discovery to the death of one.
pub(crate) fn pair(lab: &mut Lab) -> Result<()> {
    let (cable, specs, [a, b]) = tb::pair(lab, &[], |_| {})?;
    for guest in [&a, &b] {
        let speed = attribute(guest, "rx_speed")?;
        check(speed == "20.0 Gb/s", || format!("{}: receives at {speed}", guest.name()))?;
        let lanes = attribute(guest, "rx_lanes")?;
        check(lanes == "1", || format!("{}: {lanes} lanes", guest.name()))?;
    }
    let ids = [attribute(&a, "unique_id")?, attribute(&b, "unique_id")?];
    check(ids[0] != ids[1], || format!("both hosts see {}", ids[0]))?;
    lab.say("each host found the other");
    let ended = a.until("nothing", SOON, "exit 3");
    check(matches!(ended, Err(Error::Script { code: 3, .. })), || {
        format!("a condition that ends the shell: {ended:?}")
    })?;

    net(&a, &b)?;
    lab.say("thunderbolt_net: ping");
    transfer(&a, &b, "10.9.0.2", 16)?;
    lab.say("thunderbolt_net: 16 MiB over TCP, compared");

    streams(lab, &a, &b)?;
    dma_test(lab, &cable, &a, &b)?;
    calm(&[&a, &b])?;

    cable.tell("unplug ab")?;
    lost(&a)?;
    lost(&b)?;
    calm(&[&a, &b])?;
    lab.say("unplugged: both hosts notice");
    cable.tell("replug ab")?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    calm(&[&a, &b])?;
    lab.say("plugged in again: found, ping");

    let unload = "for m in thunderbolt_dma_test thunderbolt_stream thunderbolt_net thunderbolt; do\n\
                  [ ! -e /sys/module/$m ] || rmmod $m || exit 1\ndone";
    host_away(lab, &cable, &a, &b, || {
        a.sh(unload)?;
        lost(&b)?;
        tb::load(&a)
    })?;
    lab.say("drivers of one side removed and loaded again: ping");

    let nhi = a.sh("basename /sys/bus/pci/drivers/thunderbolt/0*")?;
    host_away(lab, &cable, &a, &b, || {
        a.sh(&format!("echo 1 >/sys/bus/pci/devices/{}/remove", nhi.trim()))?;
        lost(&b)?;
        a.sh(&format!("echo 1 >/sys/bus/pci/rescan; {}", tb::AWAKE)).map(drop)
    })?;
    lab.say("host interface removed and found again: ping");

    cable.check()?;
    b.cut()?;
    lost(&a)?;
    lab.say("one host killed: the other notices");
    let [b] = lab.boot([&specs[1]])?;
    tb::load(&b)?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    lab.say("the killed host is back: ping");

    a.sleeps(
        Duration::from_secs(90),
        "echo devices >/sys/power/pm_test && echo mem >/sys/power/state &&\n\
         until test -e /sys/bus/thunderbolt/devices/0-1/unique_id; do sleep 0.1; done\n\
         until ping -c 1 -W 1 10.9.0.2; do sleep 0.1; done",
    )?;
    found(&b)?;
    b.until("a ping over the cable", SOON, "ping -c 1 -W 1 10.9.0.1 >/dev/null")?;
    lab.say("suspended as far as devices and back: ping");
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}

/// Takes away the domain of `a` and brings it back, with the cable in. Since 7.2 that leaves the device of the other host
/// behind, and later uses memory that is gone (lab/README.md, "What it has found"): there the cable is pulled first.
fn host_away(lab: &Lab, cable: &Cable, a: &Guest, b: &Guest, and_back: impl FnOnce() -> Result<()>) -> Result<()> {
    let pulled = lab.kernel.version() >= (7, 2);
    if pulled {
        tb::apart(cable, a, b)?;
    }
    and_back()?;
    if pulled {
        cable.tell("replug ab")?;
    }
    found(a)?;
    found(b)?;
    net(a, b)?;
    calm(&[a, b])
}

/// After each step, so that a complaint is told with what led to it.
fn calm(guests: &[&Guest]) -> Result<()> {
    guests.iter().try_for_each(|guest| guest.calm())
}

/// `/dev/tbstreamN` both ways.
fn streams(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    if !lab.has("thunderbolt_stream") {
        lab.skip("stream devices", "this kernel has no USB4STREAM");
        return Ok(());
    }
    stream::open(a, b)?;
    stream::send(a, b, 16)?;
    stream::send(b, a, 16)?;
    stream::close(a, b)?;
    lab.say("stream devices: 16 MiB each way, compared");
    Ok(())
}

/// Frames of `thunderbolt_dma_test` that its TX ring of 64 descriptors holds at once.
const DMA_TEST_RING: u32 = 63;

/// The kernel's own test driver. It takes back what the hardware has not sent yet when it stops (`dma_test_stop_rings`),
/// though it has counted it as sent: sending alone as soon as all is queued, in both directions as soon as all is received.
/// So a receiver alone waits for fewer than are sent, and for both directions there are no more frames than the TX ring
/// holds at once: those are on their way before the other host, which queues its own later, can have sent all.
fn dma_test(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    if !lab.has("thunderbolt_dma_test") {
        lab.skip("dma_test", "this kernel has no USB4_DMA_TEST");
        return Ok(());
    }
    for guest in [a, b] {
        guest.sh("modprobe thunderbolt_dma_test")?;
    }
    let mut folders = Vec::new();
    for guest in [a, b] {
        let folder = format!("/sys/kernel/debug/thunderbolt/{}/dma_test", service(guest, "dma_test")?);
        guest.until("dma_test's files", SOON, &format!("test -e {folder}/test"))?;
        folders.push(folder);
    }
    let set = |guest: &Guest, folder: &str, send: u32, receive: u32| {
        guest.sh(&format!("echo {receive} >{folder}/packets_to_receive && echo {send} >{folder}/packets_to_send"))
    };
    // One way, once: a driver that has sent does not find its path again when it has received alone (lab/README.md).
    let [out, into] = &folders[..] else { return Ok(()) };
    set(a, out, 1000, 0)?;
    set(b, into, 0, 200)?;
    let receiving = b.spawn(&format!("echo $$ >/tmp/pid; echo 1 >{into}/test; cat {into}/status"))?;
    b.until("dma_test to wait", SOON, "grep -q test_store /proc/$(cat /tmp/pid)/stack")?;
    let sent = a.sh(&format!("echo 1 >{out}/test; cat {out}/status"))?;
    let got = receiving.wait(SOON)?.out;
    check(sent.contains("result: success"), || format!("dma_test on a:\n{sent}"))?;
    fine(b, &got, 200)?;
    lab.say("dma_test: one way, without end-to-end flow control");
    let taken_back = || Ok(cable.count("a", "taken_back")? + cable.count("b", "taken_back")?);
    let before: u64 = taken_back()?;
    for (guest, folder) in [(a, out), (b, into)] {
        set(guest, folder, DMA_TEST_RING, DMA_TEST_RING)?;
    }
    for _ in 0..ROUNDS {
        let start = |guest: &Guest, folder: &str| guest.spawn(&format!("echo 1 >{folder}/test; cat {folder}/status"));
        let jobs = [start(a, out)?, start(b, into)?];
        for (guest, job) in [a, b].into_iter().zip(jobs) {
            fine(guest, &job.wait(SOON)?.out, DMA_TEST_RING)?;
        }
    }
    let lost = taken_back()? - before;
    check(lost == 0, || format!("{lost} frames were taken back before they were sent"))?;
    lab.say(&format!(
        "dma_test: {DMA_TEST_RING} frames both ways at once, {ROUNDS} times, with end-to-end flow control"
    ));
    for guest in [a, b] {
        guest.sh("rmmod thunderbolt_dma_test")?;
    }
    Ok(())
}

/// What `thunderbolt_dma_test` has to say after it received so many frames.
fn fine(guest: &Guest, status: &str, received: u32) -> Result<()> {
    let packets = format!("packets received: {received}\n");
    let lines = ["result: success", &packets, "CRC errors: 0", "buffer overflow errors: 0"];
    check(lines.iter().all(|line| status.contains(line)), || format!("dma_test on {}:\n{status}", guest.name()))
}

/// Two lanes are bonded into one link, and every DMA goes through an IOMMU that forgets at once what the driver unmaps.
pub(crate) fn lanes(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &["--lanes", "2"], |spec| spec.viommu = true)?;
    for guest in [&a, &b] {
        let group = guest.sh("cat /sys/bus/pci/drivers/thunderbolt/0*/iommu_group/type")?;
        check(group.trim() == "DMA", || format!("{}: its host interface is not translated: {group}", guest.name()))?;
    }
    lab.say("each host found the other; DMA is translated");
    for guest in [&a, &b] {
        guest.until("two lanes", SOON, "grep -q 2 /sys/bus/thunderbolt/devices/0-1/rx_lanes")?;
        let lanes = attribute(guest, "tx_lanes")?;
        check(lanes == "2", || format!("{}: sends on {lanes} lanes", guest.name()))?;
    }
    lab.say("both hosts: two lanes each way");
    net(&a, &b)?;
    transfer(&a, &b, "10.9.0.2", 4)?;
    lab.say("4 MiB over TCP, compared");
    streams(lab, &a, &b)?;
    cable.check()?;
    lab.finish([a, b])?;
    cable.finish()
}
